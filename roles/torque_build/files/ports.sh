#!/bin/sh
# Written by the roles of ckpt.torque. Says what would keep TORQUE's daemons from their ports, before they start.
# Usage: ckpt-torque-ports DAEMON PORT [DAEMON PORT ...]; the exit status is 69 when something would.
# (Not 1: with that pbs_sched ends well, and systemd takes it for a good end of this, too.)
fail() {
    echo "$*" >&2
    exit 69
}

first=$(cat /proc/sys/net/ipv4/ip_unprivileged_port_start 2> /dev/null || echo 1024)
[ "$first" -ge 1024 ] || fail "any user of this host may use the ports from $first on (net.ipv4.ip_unprivileged_port_start)," \
    "and TORQUE takes whoever uses one below 1024 for root; set it to 1024"
rights=$(awk '$1 == "CapEff:" { print $2 }' /proc/self/status)
[ $((0x$rights >> 10 & 1)) = 1 ] || fail "root may not use ports below 1024 here (CAP_NET_BIND_SERVICE is missing)," \
    "and TORQUE proves by them that it is root; give that capability back"

while [ $# -gt 1 ]; do
    end=$(printf ':%04X' "$2")
    inodes=$(awk -v end="$end" '$4 == "0A" && substr($2, length($2) - 4) == end { print $10 }' /proc/net/tcp /proc/net/tcp6 2> /dev/null)
    for inode in $inodes; do
        found=$(find /proc/[0-9]*/fd -lname "socket:\[$inode\]" -print 2> /dev/null | head -n 1)
        process=${found#/proc/}
        process=${process%%/*}
        [ -n "$process" ] || fail "port $2, which $1 needs, is taken by a program that cannot be seen from here; find it and stop it"
        grep -q "/$1\.service\$" "/proc/$process/cgroup" && continue  # it runs already
        fail "port $2, which $1 needs, is taken by $(readlink "/proc/$process/exe") (process $process); stop that program"
    done
    shift 2
done
