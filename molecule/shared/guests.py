"""Test guests: virtual machines, for what needs a kernel of its own (modules, NFS, quotas, a reboot), reached over ssh.

  python3 guests.py up NAME          make or start the guests of the group NAME
  python3 guests.py crash NAME       take their power away; up boots them again, from the same disks and under the same addresses
  python3 guests.py down NAME        stop them and remove their disks
  python3 guests.py down --all       those of every group
  python3 guests.py inventory NAME   print where the group's inventory is

Their disk is made once from Debian packages, as the image of the test hosts is (hosts.py has the settings they share), and kept under a
name made from the recipe. They reach each other by name over a network of their own, eth1, and the world over eth0.
Settings, by environment: CKPT_TORQUE_MEMBERS (HOST:GROUP,GROUP for each guest of the group; default: node1, which is all in one),
CKPT_TORQUE_GUEST_SUITE (Debian suite, default trixie), CKPT_TORQUE_GUEST_PACKAGES (further packages), CKPT_TORQUE_GUEST_KERNEL (a kernel
tree that was compiled, with virtio and ext4 in it; it is booted instead of Debian's, and is at /usr/src/linux in the guest),
CKPT_TORQUE_GUEST_UPDATE (a suite whose kernel is in the guest as well, such as trixie-backports),
CKPT_TORQUE_GUEST_BOOT (debian: boot Debian's kernel, not the tree's; update: boot that of CKPT_TORQUE_GUEST_UPDATE),
CKPT_TORQUE_GUEST_SELINUX (yes: they have SELinux with Debian's policy, permissive, with which systemd does not boot where it is enforced).
"""
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import hosts
from hosts import CACHE, Failure, output, say

MEMBERS = hosts.read_members("node1:torque_server,torque_client,torque_mom,checkpoint_store")
NETWORK = "192.168.76.%d"
SUITE = os.environ.get("CKPT_TORQUE_GUEST_SUITE", "trixie")
KERNEL = os.environ.get("CKPT_TORQUE_GUEST_KERNEL", "")
UPDATE = os.environ.get("CKPT_TORQUE_GUEST_UPDATE", "")
BOOT = os.environ.get("CKPT_TORQUE_GUEST_BOOT", "")
BOOTED = KERNEL if BOOT != "debian" else ""
SELINUX = os.environ.get("CKPT_TORQUE_GUEST_SELINUX", "")
PACKAGES = hosts.PACKAGES + ["udev", "kmod", "ifupdown", "isc-dhcp-client", "linux-image-amd64", "initramfs-tools"] + (
    os.environ.get("CKPT_TORQUE_GUEST_PACKAGES", "").split()) + (
    ["selinux-policy-default", "selinux-utils", "policycoreutils", "auditd"] if SELINUX else [])
NEEDED = {"qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils", "mke2fs": "e2fsprogs", "mmdebstrap": "mmdebstrap"}
# Emulated: KVM is not to be had in most containers and virtual machines, and one path is enough. On several threads it panics kernels.
MACHINE = ["-accel", "tcg,thread=single", "-cpu", "qemu64,-cx16", "-smp", "1", "-m", "2048"]
COMMAND_LINE = "root=/dev/vda rw console=ttyS0 net.ifnames=0 panic=5 nokaslr"  # BLCR's modules hold addresses of the kernel
DISK = "12G"
UP_SECONDS = 600  # emulated, a boot takes a minute; beside other work several
RECIPE = [
    "mkdir -p -m 700 /root/.ssh && mkdir -p /usr/src/linux /shared && chmod 755 /shared",
    "printf 'UseDNS no\\nUsePAM no\\n' > /etc/ssh/sshd_config.d/guests.conf",
    "printf 'auto lo eth0\\niface lo inet loopback\\niface eth0 inet dhcp\\nsource /etc/network/interfaces.d/*\\n' "
    "> /etc/network/interfaces",
    # It waits for all devices, two minutes at most: too few for a machine that is emulated beside other work.
    "mkdir -p /etc/systemd/system/ifupdown-pre.service.d && printf '[Service]\\nTimeoutStartSec=%d\\nExecStart=\\nExecStart=udevadm settle "
    "--timeout=%d\\n' > /etc/systemd/system/ifupdown-pre.service.d/guests.conf" % (UP_SECONDS, UP_SECONDS),
    "systemctl mask e2scrub_reap.service getty.target serial-getty@ttyS0.service systemd-networkd-wait-online.service",
    "printf '/dev/vda / ext4 defaults 0 1\\n%s' > /etc/fstab" % ("/dev/vdb /usr/src/linux ext4 ro 0 0\\n" if KERNEL else ""),
] + hosts.RECIPE[-len(hosts.USERS):]


LABELS = ["chroot \"$1\" setfiles -e /proc -e /sys -e /dev /etc/selinux/default/contexts/files/file_contexts /"] if SELINUX else []


# -- the disk --------------------------------------------------------------

def tree_to_disk(tree, disk, size):
    """Make a disk (path) with a file system that holds a directory tree."""
    draft = disk.with_suffix(".draft")
    draft.unlink(missing_ok=True)
    output("mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum,^64bit", "-d", str(tree), str(draft), size)  # as old kernels know it
    draft.rename(disk)


def remove_tree(directory):
    """Remove a directory in which mmdebstrap may have been killed: it mounts /proc, /sys and others there, which must be left alone."""
    mounted = [line.split()[1] for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    for path in reversed([path for path in mounted if path.startswith("%s/" % directory)]):
        output("umount", path)
    shutil.rmtree(directory)


def second_kernel():
    """Return what installs the kernel that guests are updated to (list of str), as an administrator would."""
    source = "/etc/apt/sources.list.d/update.list"
    return ["echo 'deb {0} {1} main' > {2} && apt-get update && apt-get install -y -t {1} linux-image-amd64 && rm {2} && apt-get update"
            .format(hosts.mirror(), UPDATE, source)] if UPDATE else []


def base():
    """Return the directory with disk, and Debian's kernel and initrd; make it when this recipe has not been built here."""
    recipe = [SUITE, PACKAGES, second_kernel() + RECIPE, LABELS, DISK, hosts.mirror(), hosts.apt_settings(),
              hosts.key().with_suffix(".pub").read_text()]
    directory = CACHE / "guests" / hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]
    if (directory / "disk").exists():
        return directory
    say("building the guest's disk from Debian %s packages, once (a minute and up)" % SUITE)
    if directory.exists():
        remove_tree(directory)
    directory.mkdir(parents=True)
    settings = directory / "apt-settings"
    settings.write_text(hosts.apt_settings())
    tree = directory / "tree"
    output("mmdebstrap", "--variant=minbase", "--include=" + ",".join(PACKAGES), "--aptopt=Acquire::Languages \"none\"",
           *["--customize-hook=chroot \"$1\" sh -c %s" % hosts.quoted(step) for step in second_kernel() + RECIPE],
           "--customize-hook=copy-in %s /etc/apt/apt.conf.d" % settings,
           "--customize-hook=upload %s.pub /root/.ssh/authorized_keys" % hosts.key(),
           *["--customize-hook=" + step for step in LABELS],
           SUITE, str(tree), "deb %s %s main" % (hosts.mirror(), SUITE))
    kernels = sorted((path.name.partition("-")[2] for path in (tree / "boot").glob("vmlinuz-*") if "-cloud-" not in path.name),
                     key=lambda release: [int(number) for number in re.findall(r"\d+", release)])
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(str(tree / "boot" / ("%s-%s" % (name, kernels[0]))), str(directory / name))
        if UPDATE:
            shutil.copy(str(tree / "boot" / ("%s-%s" % (name, kernels[-1]))), str(directory / (name + ".update")))
    tree_to_disk(tree, directory / "disk", DISK)
    shutil.rmtree(tree)
    return directory


def kernel_disk():
    """Return a disk (path) with the kernel tree; made anew when its kernel is another, or the Makefile by which modules are compiled."""
    image = pathlib.Path(KERNEL) / "arch/x86/boot/bzImage"
    if not image.is_file():
        raise Failure("%s is no kernel tree that was compiled: there is no arch/x86/boot/bzImage; compile it, or correct "
                      "CKPT_TORQUE_GUEST_KERNEL" % KERNEL)
    digest = hashlib.sha256(image.read_bytes() + (pathlib.Path(KERNEL) / "Makefile").read_bytes()).hexdigest()
    disk = CACHE / "guests" / ("kernel-%s.disk" % digest[:16])
    if not disk.exists():
        say("copying the kernel tree %s to a disk, once" % KERNEL)
        tree_to_disk(KERNEL, disk, "6G")
    return disk


# -- the machine -----------------------------------------------------------

def free_port(kind=socket.SOCK_STREAM):
    with socket.socket(type=kind) as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


class Guest:
    """One machine of a group: its directory holds disk, console, pid and the port of its sshd on this machine."""

    def __init__(self, group, host):
        self.host = host
        self.directory = hosts.group_directory(group) / host
        self.number = 1 + list(MEMBERS).index(host)

    @property
    def port(self):
        return int((self.directory / "port").read_text())

    def boot(self, lan):
        """:param lan: port of the group's network"""
        self.directory.mkdir(exist_ok=True)
        (self.directory / "pid").unlink(missing_ok=True)
        if not (self.directory / "port").exists():
            (self.directory / "port").write_text(str(free_port()))
        base_directory = base()
        if not (self.directory / "disk").exists():
            output("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", str(base_directory / "disk"), str(self.directory / "disk"))
        suffix = ".update" if BOOT == "update" else ""
        kernel = ["-kernel", BOOTED + "/arch/x86/boot/bzImage"] if BOOTED else [
            "-kernel", str(base_directory / ("vmlinuz" + suffix)), "-initrd", str(base_directory / ("initrd.img" + suffix))]
        output("qemu-system-x86_64", *MACHINE, "-display", "none", "-daemonize", "-pidfile", str(self.directory / "pid"),
               "-serial", "file:%s" % (self.directory / "console"),
               *kernel, "-append", "%s systemd.unified_cgroup_hierarchy=%d%s" % (
                   COMMAND_LINE, not BOOTED, " security=selinux" if SELINUX else ""),
               "-drive", "file=%s,format=qcow2,if=virtio,cache=unsafe" % (self.directory / "disk"),
               *(["-drive", "file=%s,format=raw,if=virtio,readonly=on" % kernel_disk()] if KERNEL else []),
               "-netdev", "user,id=net,hostfwd=tcp:127.0.0.1:%d-:22" % self.port, "-device", "virtio-net-pci,netdev=net",
               "-netdev", "socket,id=lan,mcast=230.0.0.1:%d,localaddr=127.0.0.1" % lan,
               "-device", "virtio-net-pci,netdev=lan,mac=52:54:00:76:00:%02x" % self.number,
               "-object", "rng-random,filename=/dev/urandom,id=rng", "-device", "virtio-rng-pci,rng=rng")

    def ask(self, *command):
        return subprocess.run(["ssh", "-i", str(hosts.key()), "-p", str(self.port), "-o", "StrictHostKeyChecking=no", "-o",
                               "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=10", "root@127.0.0.1",
                               *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)

    def wait(self):
        """Wait until systemd in the guest is done."""
        deadline = time.monotonic() + UP_SECONDS
        state = "not reached"
        while time.monotonic() < deadline and running(self.directory):
            done = self.ask("systemctl", "is-system-running")
            state = done.stdout.strip() or done.stderr.strip()
            if state == "running":
                return
            if state == "degraded":
                failed = self.ask("systemctl", "--failed", "--plain", "--no-legend").stdout
                raise Failure("%s is degraded: %s" % (self.host, " ".join(failed.split())))
            time.sleep(0.5)
        raise Failure("%s did not come up within %d seconds (%s); see its console %s"
                      % (self.host, UP_SECONDS, state, self.directory / "console"))

    def name(self):
        """Give the guest its name, and its address and those of the others in the group's network."""
        names = "127.0.0.1 localhost\n" + "".join("%s %s\n" % (NETWORK % (1 + number), host) for number, host in enumerate(MEMBERS))
        interface = "auto eth1\niface eth1 inet static\naddress %s/24\n" % (NETWORK % self.number)
        done = self.ask("printf %s > /etc/hosts; printf %s > /etc/network/interfaces.d/lan; echo %s > /etc/hostname; hostname %s; "
                        "ifup -v eth1" % (hosts.quoted(names), hosts.quoted(interface), self.host, self.host))
        if done.returncode:
            raise Failure("%s: the network of the guests does not come up: %s" % (self.host, done.stderr.strip()[-300:]))


def running(directory):
    """Return the pid (int) of the machine in a directory, or None."""
    try:
        pid = int((directory / "pid").read_text())
        arguments = pathlib.Path("/proc/%d/cmdline" % pid).read_bytes().decode().split("\0")
    except (OSError, ValueError):
        return None
    return pid if str(directory / "pid") in arguments else None


# -- the group -------------------------------------------------------------

def preflight():
    hosts.preflight()
    missing = sorted(package for command, package in NEEDED.items() if not shutil.which(command))
    if missing:
        raise Failure("%s missing; run: apt-get install %s" % (", ".join(missing), " ".join(missing)))


def check_settings():
    """Refuse settings that do not fit together, before a machine or its disk is made."""
    known = {"": True, "debian": bool(KERNEL), "update": bool(UPDATE)}
    if BOOT not in known:
        raise Failure("CKPT_TORQUE_GUEST_BOOT is %s; make it debian or update, or leave it out" % ascii(BOOT))
    if not known[BOOT]:
        raise Failure("CKPT_TORQUE_GUEST_BOOT is %s, but the guests have one kernel; name the other one in CKPT_TORQUE_GUEST_%s"
                      % (BOOT, "KERNEL" if BOOT == "debian" else "UPDATE"))


def up(group):
    check_settings()
    directory = hosts.group_directory(group)
    directory.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        hosts.key()
        hosts.manifest_key()
        base()
    if not (directory / "lan").exists():
        (directory / "lan").write_text(str(free_port(socket.SOCK_DGRAM)))
    guests = [Guest(group, host) for host in MEMBERS]
    were_up = [guest for guest in guests if running(guest.directory)]
    for guest in guests:
        if guest not in were_up:
            guest.boot(int((directory / "lan").read_text()))
    for guest in guests:
        guest.wait()
        if guest not in were_up:
            guest.name()
    inventory = hosts.write_inventory(group, MEMBERS, {guest.host: ("127.0.0.1", guest.port) for guest in guests})
    if os.environ.get("SUDO_UID"):
        output("chown", "-R", "--no-dereference", os.environ["SUDO_UID"], str(CACHE / "id_ed25519"), str(inventory))
    say(", ".join("%s (port %d) %s" % (guest.host, guest.port, "was up" if guest in were_up else "is up") for guest in guests))


def crash(group):
    """SIGTERM ends the machine as it is, whatever the guest had still to write; of SIGKILL the disk's own tables could be the victims."""
    pids = list(filter(None, map(running, hosts.group_directory(group).glob("*"))))
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    while any(map(running, hosts.group_directory(group).glob("*"))):
        time.sleep(0.1)
    say("%d guests of %s are without power" % (len(pids), group))


def down(group):
    for pid in filter(None, map(running, hosts.group_directory(group).glob("*"))):
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(hosts.group_directory(group), ignore_errors=True)
    say("the guests of %s are gone" % group)


def main(arguments):
    if arguments == ["down", "--all"]:
        hosts.preflight()
        for lan in (CACHE / "hosts").glob("*/lan"):
            down(lan.parent.name)
        return 0
    if len(arguments) != 2 or arguments[0] not in ("up", "crash", "down", "inventory") or not re.fullmatch("[a-z][a-z0-9_]*", arguments[1]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    if arguments[0] == "inventory":
        print(hosts.group_directory(arguments[1]) / "inventory.yml")
        return 0
    preflight()
    {"up": up, "crash": crash, "down": down}[arguments[0]](arguments[1])
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        print("guests: %s" % failure, file=sys.stderr)
        sys.exit(1)
