"""The program that is frozen and revived, and the check of its evidence.

Each line it writes has passed through a pipe, a unix socket, an inet socket (a second pipe instead with an engine that restores none),
a second process and a thread, and carries a secret that exists in its memory only. A
gap, a repeat, a changed secret or a counter that starts anew cannot hide. It waits for no point in time: Python's own
sleep and timeouts go by the time since boot, which differs on the next node.
"""
import re

from ..engines import registry

STATUS = 7
"""The exit status that it is told to end with; anything but 0 and 1, which failures produce by themselves."""

ROUTES = ("pipe and sockets say", "the thread says")
"""Whose words the second and the third word of a line are, for sentences."""

PROGRAM = '''\
import ctypes, os, socket, struct, sys, threading
stop_file, tick, status = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
sockets = not any(library in os.environ.get("LD_PRELOAD", "") for library in SOCKETLESS)  # these engines restore none
reader, writer = os.pipe()
hear, say = [end.detach() for end in socket.socketpair()] if sockets else os.pipe()
if os.fork() == 0:
    os.close(hear)
    os.close(writer)
    while True:
        word = os.read(reader, 64)
        if not word:
            os._exit(0)
        os.write(say, word)
os.close(say)
os.close(reader)
beats, go, done = [0], threading.Event(), threading.Event()
def beat():
    while True:
        go.wait()
        go.clear()
        beats[0] += 1
        done.set()
threading.Thread(target=beat, daemon=True).start()
if sockets:
    post = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    post.bind(("127.0.0.1", 0))
    post.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 200000))
def passes(word):
    if not sockets:
        return True
    post.sendto(word, post.getsockname())
    try:
        return post.recv(64) == word
    except BlockingIOError:  # a datagram that was on its way is not in an image
        return False
usleep = ctypes.CDLL(None).usleep
counter, secret = 0, os.urandom(8).hex()
while not os.path.exists(stop_file):
    counter += 1
    os.write(writer, str(counter).encode())
    echo = os.read(hear, 64)
    while not passes(echo):
        pass
    go.set()
    done.wait()
    done.clear()
    os.write(1, ("%d %s %d %s\\n" % (counter, echo.decode(), beats[0], secret)).encode())
    usleep(int(tick * 1e6))
os.write(1, ("end %d\\n" % counter).encode())
os._exit(status)
'''.replace("SOCKETLESS", repr([engine.socketless_library for engine in registry.ENGINES if engine.socketless_library]))


class Evidence:
    """What the program's output proves.

    :param routes: as ROUTES, of the program that wrote it

    counter   int: the last number written
    ended     bool: whether its last line says that it came to its own end
    problems  list of str, empty when the output is without gap, repeat or other fault
    """

    def __init__(self, text: str, routes: "tuple[str, str]" = ROUTES) -> None:
        self.counter = 0
        self.ended = False
        self.problems: "list[str]" = []
        secret = None
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split()
            if self.ended:
                self._add_problem("line %d comes after the end: %s" % (number, line))
            elif len(words) == 2 and words[0] == "end" and words[1] == str(self.counter):
                self.ended = True
            elif len(words) != 4 or not re.fullmatch("[0-9]+", words[0]):
                self._add_problem("line %d is damaged: %s" % (number, line[:80]))
            else:
                counter = int(words[0])
                if counter != self.counter + 1:
                    self._add_problem("counter %d follows %d (%s)" % (counter, self.counter, "gap" if counter > self.counter else "repeat"))
                if words[1] != words[0] or words[2] != words[0]:
                    self._add_problem("line %d: %s %s, %s %s" % (number, routes[0], words[1], routes[1], words[2]))
                if secret not in (None, words[3]):
                    self._add_problem("line %d comes from another process: its secret is %s, was %s" % (number, words[3], secret))
                secret = words[3]
                self.counter = counter
        if text and not text.endswith("\n"):
            self._add_problem("the last line is cut off")

    def _add_problem(self, sentence: str) -> None:
        if len(self.problems) < 10:
            self.problems.append(sentence)
