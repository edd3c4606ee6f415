perl -e '$rung = 0; $SIG{ALRM} = sub { $rung++ }; for (1 .. 16) { my $before = $rung; alarm 1; sleep 5 while $rung == $before; } print "alarm rang $rung times\n"' > alarms &
python3 - <<'EOF'
import os
import select
import signal
import time

ticks = {"real": 0, "virtual": 0}


def tick(name):
    def handle(number, frame):
        ticks[name] += 1
    return handle


signal.signal(signal.SIGALRM, tick("real"))
signal.signal(signal.SIGVTALRM, tick("virtual"))
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
signal.setitimer(signal.ITIMER_VIRTUAL, 0.05, 0.05)
timer = os.timerfd_create(time.CLOCK_MONOTONIC)
os.timerfd_settime(timer, initial=0.25, interval=0.25)
for step in range(60):
    before, expired = dict(ticks), 0
    while not select.select([timer], [], [], 0)[0] or any(ticks[name] == before[name] for name in ticks):
        pass
    print(step, int.from_bytes(os.read(timer, 8), "little") >= 1, all(ticks[name] > before[name] for name in ticks), flush=True)
EOF
wait
cat alarms
