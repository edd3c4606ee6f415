python3 - <<'EOF'
import asyncio
import hashlib
import threading

STEPS, CLIENTS = 50, 4
lock = threading.Lock()
served = [0]


def grind(data):
    with lock:
        served[0] += 1
    return hashlib.pbkdf2_hmac("sha256", data, b"salt", 300000).hex()


async def serve(reader, writer):
    while line := await reader.readline():
        answer = await asyncio.get_running_loop().run_in_executor(None, grind, line)
        writer.write(answer.encode() + b"\n")
        await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_unix_server(serve, "socket")
    clients = [await asyncio.open_unix_connection("socket") for _ in range(CLIENTS)]
    kept = []
    for step in range(STEPS):
        for number, (_reader, writer) in enumerate(clients):
            writer.write(b"%d %d\n" % (step, number))
        answers = await asyncio.gather(*(reader.readline() for reader, _writer in clients))
        kept += answers
        await asyncio.sleep(0.05)
        print(step, served[0], answers[0].decode().strip(), flush=True)
    with open("result.txt", "wb") as stream:
        stream.writelines(kept)
    for _reader, writer in clients:
        writer.close()
    server.close()

asyncio.run(main())
EOF
