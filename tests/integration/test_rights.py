"""An owner, or whoever can write to the store, tries to have an image of his making restarted: real CRIU, real attackers."""
import re

import pytest
from attackers import attack
from cluster import configured

LARGE = "python3 -c 'ballast = bytes(range(256)) * (1 << 19); exec(open(\"job.py\").read())'; exit $?"
"""A job with 128 MiB, for which the hook hashes for a while."""

ENGINE = r"""#!/bin/sh
# CRIU, before whose restore somebody writes to the store; what CRIU is given is seen.
if [ $1 = restore ]; then
    stat -c '%%F %%U %%a' $4/. $4/core-*.img $4/pages-*.img | sort -u > /tmp/rights/seen
    for file in %(images)s/*/pages-*.img; do
        head -c $(stat -c %%s $file) /dev/zero | dd of=$file conv=notrunc bs=1M 2> /dev/null
    done
fi
exec /opt/criu/current/sbin/criu "$@"
"""


def capabilities(node):
    """The sets of alice's processes (set of str), but for the bounding one."""
    return set(node.ask("for pid in $(pgrep -u alice); do grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/$pid/status; done | sort -u").split("\n"))


NONE = {"Cap%s:\t%016x" % (name, 0) for name in ("Inh", "Prm", "Eff", "Amb")}


def end(job):
    """End the job on its node, as if the node had lost it."""
    job.node.ask("pkill -KILL -u alice; for i in $(seq 600); do pgrep -u alice > /dev/null || exit 0; sleep 0.05; done; exit 1")


@pytest.mark.parametrize("signal_number", [0, 15])
def test_core_images_that_the_owner_puts_into_a_draft(owner_program, job, node1, signal_number):
    running = job(node1)
    assert running.checkpoint(0).code == 0
    before = running.images_digest()
    with attack(node1, "put", running.directory, "%s/%s" % (running.directory, running.name())) as answer:
        done = running.checkpoint(signal_number)
    assert answer["stopped"] and answer["wrote"]
    assert done.code == 77
    assert done.err.startswith("somebody else than the engine and the hooks put core-")
    assert done.err.endswith(".img into the image while it was written; the job keeps running; stop what writes there and try again\n")
    running.progress()
    assert running.images_digest() == before
    assert running.checkpoint(0).code == 0


def test_core_images_that_the_owner_replaces_in_a_draft(owner_program, job, node1, node2):
    """The seal is on what CRIU wrote, so such an image is damaged; an older one is not."""
    running = job(node1, LARGE)
    assert running.checkpoint(0).code == 0
    with attack(node1, "replace", running.directory) as answer:
        assert running.checkpoint(0).code == 0
    assert answer["stopped"] and answer["wrote"]
    shown = "%s/%s" % (running.directory, running.name())
    verdicts = node1.run("torque-ckpt verify %s" % running.id).out.splitlines()
    assert len([line for line in verdicts if "is damaged: core-" in line]) == 1 and len(verdicts) == 2, verdicts
    end(running)
    done = running.restart(node2)
    assert done.code == 65 and done.err.startswith("image %s is damaged: core-" % shown), done.err
    assert node2.run("pgrep -u alice").out == ""


def test_no_process_of_the_owners_leads_into_the_private_directory(owner_program, job, node1, node2):
    """Neither while an image is made and compressed nor while it is restored."""
    moved = job(node1, LARGE)
    with configured(node1, compression="gzip", compression_level=1), attack(node1, "watch", "/tmp/rights/over") as first:
        assert moved.checkpoint(0).code == 0
        moved.hold()
    with attack(node2, "watch", "/tmp/rights/over") as second:
        moved.move(node2)
    for answer in (first, second):
        assert answer["looked"] > 10 and answer["closed"] >= 2 and answer["paths"] == [], answer


def test_node_without_room_for_what_the_engine_writes(job, node1):
    running = job(node1)
    node1.ask("mkdir /run/small && mount -t tmpfs -o size=64k,mode=755 small /run/small")
    try:
        with configured(node1, private_directory="/run/small"):
            done = running.checkpoint(15)
    finally:
        node1.ask("umount /run/small && rmdir /run/small")
    assert done.code == 73
    assert re.fullmatch(r"what the engine writes on this node needs \d+\.\d KiB, /run/small/private has 64\.0 KiB free; the job keeps "
                        r"running; free some space there, or name another disk of this node in checkpoint_hooks_private_directory\n",
                        done.err)
    running.progress()


def test_sealed_image_that_gives_rights(owner_program, job, node1, node2):
    """No hook makes one; should there be one all the same, it is not restored. An honest one gives none."""
    held = job(node1)
    held.hold()
    shown = "%s/%s" % (held.directory, held.name())
    node1.ask("cp -a {0} {1}/genuine && python3 /tmp/rights/owner.py seal {0}".format(shown, held.work))
    assert node1.ask("torque-ckpt verify %s" % held.id).splitlines()[0].endswith("whole, and sealed by root's hooks of this site")
    done = held.restart(node2)
    assert done.code == 65
    assert done.err.startswith("image %s is damaged: it would give a process more than alice has (core-" % shown)
    assert done.err.endswith(".img has inheritable capabilities 0x10000000000); take an older image\n")
    assert node2.run("pgrep -u alice").out == ""
    node1.ask("rm -rf {0} && mv {1}/genuine {0}".format(shown, held.work))
    held.move(node2)
    assert capabilities(node2) == NONE


def test_what_is_restored_is_what_was_verified(owner_program, job, node1, node2):
    """Whoever writes to the store between the look and the restart changes nothing, where memory is copied; CRIU is given root's files."""
    moved = job(node1)
    moved.hold()
    before = moved.counter()
    node2.ask("cat > /tmp/rights/criu <<'X'\n%sX\nchmod 755 /tmp/rights/criu" % (ENGINE % {"images": moved.directory}))
    with configured(node2, engine_options={"path": "/tmp/rights/criu"}, copy_memory=True):
        moved.move(node2)
    assert moved.counter() > before
    assert node2.ask("cat /tmp/rights/seen").splitlines() == ["directory root 555", "regular file root 444"]
    assert "is damaged: pages-" in node2.run("torque-ckpt verify %s" % moved.id).out
    assert node2.ask("ls /var/lib/ckpt-torque/private") == ""
    assert moved.end() == 5
    lines = moved.lines()
    assert lines == [str(number) for number in range(1, len(lines) + 1)]


DUMP = r"""#!/bin/sh
# CRIU, which in a dump has its own rights noted.
[ $1 = dump ] && set -- "$@" --action-script /tmp/rights/note
exec /opt/criu/current/sbin/criu "$@"
"""
NOTE = r"""#!/bin/sh
for pid in $(pgrep -x criu); do grep CapEff /proc/$pid/status; done >> /tmp/rights/noted
"""
CHECKPOINT_RESTORE, SYS_PTRACE = 1 << 40, 1 << 19


def test_capabilities_of_a_dump(owner_program, job, node1):
    """CAP_SYS_PTRACE is there only if Yama keeps users from stopping processes of theirs."""
    node1.ask("cat > /tmp/rights/criu <<'X'\n%sX\ncat > /tmp/rights/note <<'X'\n%sX\nchmod 755 /tmp/rights/*" % (DUMP, NOTE))
    running = job(node1)
    with configured(node1, engine_options={"path": "/tmp/rights/criu"}):
        assert running.checkpoint(0).code == 0
    restricted = node1.ask("cat /proc/sys/kernel/yama/ptrace_scope 2> /dev/null || echo 0") != "0"
    expected = "CapEff:\t%016x" % (CHECKPOINT_RESTORE | SYS_PTRACE * restricted)
    assert set(node1.ask("cat /tmp/rights/noted").splitlines()) == {expected}
