# Prints how the TORQUE daemon $1 that runs here was built, and the home that it was started with, if it was given one.
pid=$(pgrep -o -x "$1") || exit 0
"/proc/$pid/exe" --about
tr '\0' '\n' < "/proc/$pid/cmdline" | sed -n '/^-d$/{n;s/^/home: /p;}'
