PATH=/opt/dmtcp/bin:$PATH
cat > program.py <<'EOF'
import subprocess
import sys
import time

double = subprocess.Popen(["perl", "-ne", "BEGIN { $| = 1 } print 2 * $_, qq(\\n)"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
with open("result.txt", "w") as result:
    for number in range(300):
        print(number, file=double.stdin, flush=True)
        line = double.stdout.readline()
        print(number, line, end="", file=result, flush=True)
        if number % 5 == 4:
            print(number, line, end="", flush=True)
        time.sleep(0.1)
double.stdin.close()
sys.exit(double.wait())
EOF
/usr/local/bin/ckpt-run --method dmtcp -- python3 program.py
