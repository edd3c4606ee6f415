cat > program.py <<'EOF'
import hashlib
import time

from dask.distributed import Client, LocalCluster


def grind(step, number):
    time.sleep(0.05)
    return hashlib.pbkdf2_hmac("sha256", b"%d %d" % (step, number), b"salt", 200000).hex()


def combine(digests):
    return hashlib.sha256("".join(digests).encode()).hexdigest()


if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1) as cluster, Client(cluster) as client, open("result.txt", "w") as stream:
        for step in range(50):
            digest = client.submit(combine, client.map(grind, [step] * 6, range(6))).result(timeout=120)
            print(step, digest, file=stream)
            print(step, digest, flush=True)
EOF
python3 program.py
