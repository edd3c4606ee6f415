"""What a job's owner can try against its images. Runs on a node, as the owner or, to seal, as root.

    owner.py put DIRECTORY IMAGE     stop the hook when a draft appears, put the image's core images into it, with rights added
    owner.py replace DIRECTORY       stop the hook when core images appear in a draft, add rights to them
    owner.py watch STOP              until the file STOP is there, look in all processes for a way into the private directory
    owner.py seal IMAGE              as root: add rights to an image's core images and seal it, as no hook would do it
"""
import glob
import json
import os
import signal
import struct
import sys
import time

CAPABILITIES = (9, 10, 11, 19)  # inheritable, permitted, effective, ambient
CHECKPOINT_RESTORE = 40


def number(data, position):
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7f) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def text(value):
    return (bytes([value & 0x7f | 0x80]) + text(value >> 7)) if value >> 7 else bytes([value])


def changed(data, path):
    """Return a message in which the sets of capabilities, beneath the fields of path, have one more."""
    message, position, words = b"", 0, {}
    while position < len(data):
        start = position
        key, position = number(data, position)
        if key & 7 == 0:
            value, position = number(data, position)
            field = key >> 3
            words[field] = words.get(field, 0) + 1
            if not path and field in CAPABILITIES and words[field] == 1 + CHECKPOINT_RESTORE // 32:
                value |= 1 << CHECKPOINT_RESTORE % 32
            message += text(key) + text(value)
        elif key & 7 == 2:
            length, position = number(data, position)
            value, position = data[position:position + length], position + length
            value = changed(value, path[1:]) if path and key >> 3 == path[0] else value
            message += text(key) + text(len(value)) + value
        else:
            position += {1: 8, 5: 4}[key & 7]
            message += data[start:position]
    return message


def add_rights(data):
    """Return a core image with CAP_CHECKPOINT_RESTORE in all sets of its thread."""
    entry = changed(data[12:], (5, 10))
    return data[:8] + struct.pack("<I", len(entry)) + entry


def put(path, data):
    with open(path + ".mine", "wb") as stream:
        stream.write(data)
    os.rename(path + ".mine", path)


def owner(pid):
    """The uid of a process, None when it has ended."""
    try:
        with open("/proc/%s/status" % pid) as stream:
            return int(next(line.split()[1] for line in stream if line.startswith("Uid:")))
    except (OSError, StopIteration):
        return None


def parts():
    """The processes of checkpoint hooks that are this user's."""
    pids = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and owner(entry) == os.getuid():
                with open("/proc/%s/cmdline" % entry, "rb") as stream:
                    if any(word.endswith(b"/checkpoint") for word in stream.read().split(b"\0")):
                        pids.append(int(entry))
        except OSError:
            pass
    return pids


def size(path):
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def draft(directory, pattern, least):
    """Wait for files of that many bytes at least in a draft; return their paths."""
    late = time.time() + 60
    while time.time() < late:
        paths = [path for path in glob.glob(os.path.join(directory, ".ckpt*", pattern)) if size(path) >= least]
        if paths:
            return paths
    raise SystemExit("there was no draft")


def stopped(directory, pattern, work, least=0):
    """Stop the hook when such files appear in a draft, work on them, let it go on."""
    print("waiting", flush=True)
    draft(directory, pattern, least)
    victims = parts()
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)
    done = work(draft(directory, pattern, least))
    for pid in victims:
        os.kill(pid, signal.SIGCONT)
    print(json.dumps({"stopped": len(victims), "wrote": done}), flush=True)


def content(path):
    with open(path, "rb") as stream:
        return stream.read()


def put_images(directory, image):
    def work(drafts):
        ready = glob.glob(os.path.join(image, "core-*.img"))
        for path in ready:
            put(os.path.join(os.path.dirname(drafts[0]), os.path.basename(path)), add_rights(content(path)))
        return len(ready)
    stopped(directory, "pages-1.img", work)


def replace_images(directory):
    def work(drafts):
        for path in drafts:
            put(path, add_rights(content(path)))
        return len(drafts)
    stopped(directory, "core-*.img", work, least=13)  # a header and something


def ways(pid):
    """Yield what leads from a process to files and directories."""
    process = "/proc/%s/" % pid
    yield process + "cwd"
    for name in os.listdir(process + "fd"):
        yield process + "fd/" + name


def watch(stop):
    print("waiting", flush=True)
    looked, closed, paths = 0, set(), set()
    while not os.path.exists(stop):
        looked += 1
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                for link in ways(pid):
                    if "/private" in os.readlink(link):
                        paths.add(os.readlink(link))
            except PermissionError:
                closed.update([pid] if owner(pid) == os.getuid() else [])
            except OSError:
                pass
    print(json.dumps({"looked": looked, "closed": len(closed), "paths": sorted(paths)}), flush=True)


def seal_image(image):
    sys.path.insert(0, "/usr/lib/ckpt-torque")
    from torque_ckpt.image import manifest, seal
    with open(os.path.join(image, "manifest.json")) as stream:
        described = json.load(stream)
    directory = os.open(image, os.O_RDONLY)
    for entry in described["files"]:
        if entry["name"].startswith("core-"):
            path = os.path.join(image, entry["name"])
            with open(path, "r+b") as stream:
                data = add_rights(stream.read())
                stream.seek(0)
                stream.write(data)
            entry["size"], entry["sha256_tree"] = manifest.hash_named_file(directory, entry["name"])
    with open(os.path.join(image, "manifest.json"), "w") as stream:
        json.dump(seal.add_seal(seal.load_keys("/etc/ckpt-torque/manifest.key"), described), stream)


if __name__ == "__main__":
    {"put": put_images, "replace": replace_images, "watch": watch, "seal": seal_image}[sys.argv[1]](*sys.argv[2:])
