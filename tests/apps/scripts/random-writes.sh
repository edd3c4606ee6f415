directory=$(mktemp -d /tmp/writes.XXXXXX)
python3 - "$directory/there.bin" <<'EOF'
import os
import random
import sys

generator = random.Random(3)
files = []
for path in ("here.bin", sys.argv[1]):
    files.append(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC))
    os.ftruncate(files[-1], 4 << 20)
for step in range(80):
    for _number in range(200):
        position, length = generator.randrange((4 << 20) - 4096), generator.randrange(1, 4096)
        for descriptor in files:
            data = os.pread(descriptor, length, position)
            os.pwrite(descriptor, bytes(map(255 .__and__, (byte + step + 1 for byte in data))), position)
    os.fsync(files[step % 2])
    print(step, position, length, flush=True)
EOF
cp "$directory/there.bin" there.bin
rm -r "$directory"
