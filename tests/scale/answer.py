"""Stands in for ssh in `make scale`: answers what is asked of a host, without the host.

With SCALE_RECORD in the environment, the path of ssh, it runs that and keeps what the host answers, how long it takes and what ssh
costs, in the directory SCALE_TAPE. Without, it gives the same answer to the same request, after the same time. A request is the command,
the module and its arguments; the host's name, which is in the option HostKeyAlias, may be another. A request that is not on the tape is
noted in SCALE_TAPE/unknown and ends as if the host were down.
"""
import os
import sys
import time
import zlib

# Nothing else is imported, since each of a thousand calls would pay for it.

STARTED = time.time()
OWN = b"@own name@"
PARTS = (b"\nmodule_fqn=", b"\nparams=")
"""The lines of a module that say which one it is, and its arguments."""
NEXT = b"\n@@ next part @@\n"


def note(name, text):
    """Append a line (bytes) to a file of the tape. Many do at the same time."""
    with open(os.path.join(os.environ["SCALE_TAPE"], name), "ab", 0) as stream:
        stream.write(text.replace(b"\n", b" ") + b"\n")


def describe(command, sent, host):
    """Return a request without its host's name, all bytes.

    :param command: for the host
    :param sent: its standard input
    """
    starts = [sent.find(part) for part in PARTS]
    parts = [sent] if -1 in starts else [sent[start:sent.index(b"\n", start + 1)] for start in starts]
    return b"".join([command] + parts).replace(host, OWN)


def record(request, path, arguments, sent, host):
    """Have the host answer; return status, output and errors."""
    import resource
    import subprocess
    done = subprocess.run([os.environ["SCALE_RECORD"]] + arguments, input=sent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = [b"%d" % done.returncode, b"%f" % (time.time() - STARTED), b"%f" % (usage.ru_utime + usage.ru_stime), request,
              done.stdout.replace(host, OWN), done.stderr.replace(host, OWN)]
    with open("%s.%d" % (path, os.getpid()), "wb") as stream:
        stream.write(NEXT.join(answer))
    os.rename(stream.name, path)
    return done.returncode, done.stdout, done.stderr


def replay(request, path, host):
    """Return status, output and errors as recorded, after the same time."""
    try:
        with open(path, "rb") as stream:
            status, seconds, _cpu, known, output, errors = stream.read().split(NEXT)
    except OSError:
        known = None
    if known != request:
        note("unknown", host + b": " + request)
        return 255, b"", b"not on the tape"
    time.sleep(max(0, float(seconds) - (time.time() - STARTED)))
    return int(status), output.replace(OWN, host), errors.replace(OWN, host)


def main():
    arguments = sys.argv[1:]
    if arguments == ["-o", "ControlPersist"]:  # Ansible looks whether ssh knows it
        return 255
    host = [argument.partition("=")[2] for argument in arguments if argument.startswith("HostKeyAlias=")][0].encode()
    sent = sys.stdin.buffer.read()
    request = describe(arguments[-1].encode(), sent, host)
    path = os.path.join(os.environ["SCALE_TAPE"], "%08x.answer" % zlib.crc32(request))
    status, output, errors = (record(request, path, arguments, sent, host) if "SCALE_RECORD" in os.environ else replay(request, path, host))
    note("calls", host)
    sys.stdout.buffer.write(output)
    sys.stderr.buffer.write(errors)
    return status


sys.exit(main())
