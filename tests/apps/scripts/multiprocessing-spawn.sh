cat > program.py <<'EOF'
import hashlib
import multiprocessing


def grind(number):
    return number, hashlib.pbkdf2_hmac("sha256", b"%d" % number, b"salt", 100000).hex()


def count(queue, total, steps):
    for step in range(steps):
        with total.get_lock():
            total.value += step
    queue.put("counted")


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    queue, total = multiprocessing.Queue(), multiprocessing.Value("q", 0)
    counters = [multiprocessing.Process(target=count, args=(queue, total, 200000)) for _ in range(2)]
    for counter in counters:
        counter.start()
    with multiprocessing.Pool(3) as pool, open("result.txt", "w") as stream:
        for number, digest in pool.imap(grind, range(400)):
            print(number, digest, file=stream)
            if number % 10 == 9:
                print(number, digest, flush=True)
    print(queue.get(), queue.get())
    for counter in counters:
        counter.join()
    print(total.value)
EOF
python3 program.py
