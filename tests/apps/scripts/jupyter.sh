export JUPYTER_RUNTIME_DIR=$PWD/runtime IPYTHONDIR=$PWD/ipython
python3 - <<'EOF'
from jupyter_client.manager import start_new_kernel

manager, client = start_new_kernel(kernel_name="python3")
kept = []


def show(message):
    if message["msg_type"] == "stream":
        kept.append(message["content"]["text"])
        print(message["content"]["text"], end="", flush=True)
    elif message["msg_type"] == "error":
        print(message["content"]["evalue"], flush=True)


client.execute_interactive("import hashlib, time; value = b'begin'", output_hook=show)
for step in range(60):
    reply = client.execute_interactive(
        "value = hashlib.pbkdf2_hmac('sha256', value, b'salt', 400000); time.sleep(0.1); print(%d, value.hex())" % step,
        output_hook=show, timeout=120)
    assert reply["content"]["status"] == "ok"
with open("result.txt", "w") as stream:
    stream.writelines(kept)
client.stop_channels()
manager.shutdown_kernel()
del client, manager
EOF
