python3 - <<'EOF'
import hashlib
import mmap
import os
import time

SIZE, WORKERS, STEPS = 4 << 20, 3, 100


def open_removed():
    with open("removed", "w+b") as stream:
        os.unlink("removed")
        stream.truncate(SIZE)
        return mmap.mmap(stream.fileno(), SIZE)


def open_memfd():
    descriptor = os.memfd_create("shared")
    os.ftruncate(descriptor, SIZE)
    return mmap.mmap(descriptor, SIZE)


def open_shm():
    path = "/dev/shm/mappings.%d" % os.getpid()
    with open(path, "w+b") as stream:
        stream.truncate(SIZE)
        return path, mmap.mmap(stream.fileno(), SIZE)


path, shm = open_shm()
areas = [open_removed(), open_memfd(), shm, mmap.mmap(-1, SIZE)]
control = mmap.mmap(-1, 4096)
children = []
for worker in range(WORKERS):
    pid = os.fork()
    if pid == 0:
        for step in range(STEPS):
            while control[0] != step:
                time.sleep(0.005)
            for area in areas:
                for place in range(worker, SIZE, 4096 * WORKERS):
                    area[place] = (area[(place + 4096 * step) % SIZE] * 3 + area[place] + step + worker) % 256 if place < SIZE // 2 else step
            control[1 + worker] = step + 1
            time.sleep(0.05)
        os._exit(worker)
    children.append(pid)
for step in range(STEPS):
    while any(control[1 + worker] != step + 1 for worker in range(WORKERS)):
        time.sleep(0.005)
    print(step, flush=True)
    time.sleep(0.1)
    if step + 1 < STEPS:
        control[0] = step + 1
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
with open("result.bin", "wb") as stream:
    for area in areas:
        stream.write(b"".join(area[place:place + 8] for place in range(SIZE // 2, SIZE, 4096)))
for area in areas:
    print(hashlib.sha256(area[SIZE // 2:]).hexdigest())
os.unlink(path)
EOF
