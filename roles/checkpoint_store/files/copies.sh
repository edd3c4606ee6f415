#!/bin/sh
# Before ckpt-torque-copies.service starts: the nodes it knows, from the files that the role checkpoint_store has written.
set -eu
cd /etc/ckpt-torque/copies
mkdir -p -m 755 /run/sshd /var/lib/ckpt-torque-copies/checkpoint
for node in $(cat nodes.list); do
    [ ! -f "nodes/$node" ] || cat "nodes/$node"
done > ssh/ssh_known_hosts.new
cut -d ' ' -f 1 ssh/ssh_known_hosts.new | tr , '\n' | sort -u > ssh/shosts.equiv.new
chmod 644 ssh/*.new
mv ssh/ssh_known_hosts.new ssh/ssh_known_hosts
mv ssh/shosts.equiv.new ssh/shosts.equiv
# From OpenSSH 9.8 on one user who cannot log in would keep all others of his node out for a while.
options="-o PerSourcePenalties=no"
/usr/sbin/sshd -t -f ssh/sshd_config -h ssh/host_key $options 2> /dev/null || options=
echo "OPTIONS=$options" > options
