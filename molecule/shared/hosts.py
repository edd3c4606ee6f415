"""Test hosts: containers with systemd as pid 1, reached over ssh, with one shared directory.

  python3 hosts.py up NAME       make or start the hosts head, node1, node2 ... of the group NAME
  python3 hosts.py down NAME     remove them and their shared directory
  python3 hosts.py down --all    remove those of every group
  python3 hosts.py inventory NAME   print where the group's inventory is
  python3 hosts.py mirror        print the Debian mirror that apt uses here
  python3 hosts.py torque        print TORQUE's source, or say on stderr that there is none
  python3 hosts.py criu          print CRIU's source
  python3 hosts.py podman ...    call podman the way the hosts are run

The image is built once from Debian packages, through this machine's own apt
configuration, and kept under a tag made from its recipe. Settings, by
environment: CKPT_TORQUE_CACHE (default ~/.cache/ckpt-torque), CKPT_TORQUE_SUITE
(Debian suite of the hosts, default trixie), CKPT_TORQUE_NODES (how many nodes,
default 2), CKPT_TORQUE_MEMBERS (HOST:GROUP,GROUP for each host instead), CKPT_TORQUE_MIRROR (default: the
one apt uses here), TORQUE_VERSION (default 6.1.3), TORQUE_SOURCE (a tarball, or none;
default: CKPT_TORQUE_CACHE/sources/torque-VERSION.tar.gz, then upstream's),
CRIU_SOURCE (a tarball; default: that of Debian's source package).
"""
import fcntl
import hashlib
import ipaddress
import json
import os
import pathlib
import pwd
import re
import resource
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request


def read_members(default):
    """Return the hosts and their groups in the inventory (dict of list), which CKPT_TORQUE_MEMBERS names as the default does."""
    entries = (os.environ.get("CKPT_TORQUE_MEMBERS") or default).split()
    return {entry.partition(":")[0]: [name for name in entry.partition(":")[2].split(",") if name] for entry in entries}


HOSTS = read_members(" ".join(["head:torque_server,torque_client,checkpoint_store"] + [
    "node%d:torque_mom" % number for number in range(1, int(os.environ.get("CKPT_TORQUE_NODES") or 2) + 1)]))
TORQUE = os.environ.get("TORQUE_VERSION") or "6.1.3"
UPSTREAM = "https://github.com/adaptivecomputing/torque/archive/refs/heads/%s.tar.gz" % TORQUE
SUITE = os.environ.get("CKPT_TORQUE_SUITE", "trixie")
CRIU = "4.2.1"
CRIU_SHA256 = "29ec0ee09e296479fe7048c80980e8ef1d0684d0b0204c2b101dfea19f6725b9"
PACKAGES = ["systemd", "systemd-sysv", "dbus", "openssh-server", "python3", "python3-apt", "iproute2", "procps", "ca-certificates"]
USERS = {"alice": 1500, "bob": 1501}
REMOVAL_PAUSES = (5, 15, 30)
"""How long to wait before a container is removed once more whose processes have not ended yet (seconds)."""
NEEDED = {"podman": "podman", "mmdebstrap": "mmdebstrap", "ssh-keygen": "openssh-client", "nsenter": "util-linux"}
ROOM = 3 << 30  # bytes: image, its archive and what the roles install
NAMESPACE = pathlib.Path("/run/ckpt-torque-hosts/mnt")
INOTIFY = pathlib.Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_INSTANCES = 1024
"""systemd and dbus of a host take six, and all hosts are one user's: the kernel's default of 128 ends systemd on the 22nd."""
RECIPE = [
    # No kernel modules, no consoles and no binfmt in a container: these units would only fail.
    "systemctl mask systemd-modules-load.service console-getty.service getty.target "
    "proc-sys-fs-binfmt_misc.automount systemd-firstboot.service",
    "mkdir -p -m 700 /root/.ssh /shared && chmod 755 /shared",
    "printf 'UseDNS no\\nUsePAM no\\n' > /etc/ssh/sshd_config.d/hosts.conf",
] + ["useradd --create-home --shell /bin/bash --uid %d %s" % (uid, name) for name, uid in USERS.items()]


class Failure(Exception):
    """One sentence for the user."""


def say(sentence):
    print("hosts: " + sentence, file=sys.stderr, flush=True)


def home():
    return pathlib.Path(pwd.getpwuid(int(os.environ.get("SUDO_UID", os.getuid()))).pw_dir)


CACHE = pathlib.Path(os.environ.get("CKPT_TORQUE_CACHE") or home() / ".cache/ckpt-torque")


def output(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)
    if done.returncode:
        raise Failure("%s failed: %s" % (" ".join(command[:3]), (done.stderr or done.stdout).strip()[-600:]))
    return done.stdout


# -- this machine ----------------------------------------------------------

def is_cgroup2(path="/sys/fs/cgroup"):
    return output("stat", "-f", "-c", "%T", path).strip() == "cgroup2fs"


def namespace():
    """Where cgroup v1 and v2 are mixed, containers need a mount namespace with a plain cgroup2."""
    parent = NAMESPACE.parent
    if subprocess.run(["nsenter", "--mount=%s" % NAMESPACE, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
        return
    parent.mkdir(exist_ok=True)
    if not os.path.ismount(parent):
        output("mount", "--bind", str(parent), str(parent))
        output("mount", "--make-private", str(parent))  # a namespace file cannot be bound on a shared mount
    NAMESPACE.touch()
    output("unshare", "--mount=%s" % NAMESPACE, "sh", "-c",
           "umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup")


def podman_command():
    if is_cgroup2():
        return ["podman"]
    namespace()
    return ["nsenter", "--mount=%s" % NAMESPACE, "--wd=/", "podman"]


def podman(*arguments):
    return output(*(podman_command() + list(arguments)))


def limits():
    """Without CAP_SYS_RESOURCE a container runtime cannot raise limits, and podman's defaults would."""
    text = pathlib.Path("/proc/self/status").read_text()
    bounding = int(re.search(r"^CapBnd:\s*(\S+)", text, re.MULTILINE).group(1), 16)
    if bounding >> 24 & 1:
        return []
    options = []
    for name, kind, most in (("nofile", resource.RLIMIT_NOFILE, 4096), ("nproc", resource.RLIMIT_NPROC, 8192)):
        hard = resource.getrlimit(kind)[1]
        value = most if hard == resource.RLIM_INFINITY else min(hard, most)
        options.append("--ulimit=%s=%d:%d" % (name, value, value))
    return options


def raise_inotify_limit():
    """Let many hosts run; where this machine does not allow that, a few of them do all the same."""
    limit = int(INOTIFY.read_text())
    if limit < INOTIFY_INSTANCES:
        say("raising fs.inotify.max_user_instances from %d to %d until this machine is restarted" % (limit, INOTIFY_INSTANCES))
        try:
            INOTIFY.write_text(str(INOTIFY_INSTANCES))
        except OSError as error:
            say("it cannot be raised (%s): no more than %d hosts will run" % (error.strerror, limit // 6))


def preflight():
    if os.geteuid() != 0:
        if shutil.which("sudo"):
            os.execvp("sudo", ["sudo", "--preserve-env=CKPT_TORQUE_CACHE,CKPT_TORQUE_SUITE,CKPT_TORQUE_NODES,CKPT_TORQUE_MIRROR,"
                               "TORQUE_SOURCE,TORQUE_VERSION,CRIU_SOURCE", sys.executable, os.path.abspath(__file__)] + sys.argv[1:])
        raise Failure("test hosts need root; run this as root or install sudo")
    missing = sorted(package for command, package in NEEDED.items() if not shutil.which(command))
    if missing:
        raise Failure("%s missing; run: apt-get install %s" % (", ".join(missing), " ".join(missing)))
    CACHE.mkdir(parents=True, exist_ok=True)
    if os.environ.get("SUDO_UID"):  # the playbooks keep sources and artifacts there, as the user
        os.chown(CACHE, int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))
    free = shutil.disk_usage(CACHE).free
    if free < ROOM:
        raise Failure("%s has %.1f GiB free, the hosts need %.0f GiB; free some space or set CKPT_TORQUE_CACHE to another directory"
                      % (CACHE, free / (1 << 30), ROOM / (1 << 30)))


# -- TORQUE's source -------------------------------------------------------

def torque_source():
    """Where TORQUE's source is (str, a path or an address); empty when it is nowhere to be had."""
    named = os.environ.get("TORQUE_SOURCE")
    if named == "none":
        return ""
    if named:
        if not re.match("[a-z]+://", named) and not os.path.isfile(named):
            raise Failure("TORQUE_SOURCE %s is not a file; name a tarball of TORQUE %s, or unset it" % (named, TORQUE))
        return named if "://" in named else os.path.abspath(named)
    cached = CACHE / "sources" / ("torque-%s.tar.gz" % TORQUE)
    if cached.is_file():
        return str(cached)
    try:
        with urllib.request.urlopen(urllib.request.Request(UPSTREAM, method="HEAD"), timeout=10):
            return UPSTREAM
    except (OSError, urllib.error.URLError):
        say("no TORQUE source, so level L3 cannot be proven; put a tarball of TORQUE %s at %s or name one in TORQUE_SOURCE"
            % (TORQUE, cached))
        return ""


def criu_source():
    """Where the tarball of CRIU's release is (str, a path); taken from Debian's source package once, through this machine's apt."""
    named = os.environ.get("CRIU_SOURCE")
    if named:
        return os.path.abspath(named)
    path = CACHE / "sources" / ("criu-%s.tar.xz" % CRIU)
    if not path.is_file():
        say("taking the source of CRIU %s from Debian, once" % CRIU)
        path.parent.mkdir(parents=True, exist_ok=True)
        output("/usr/lib/apt/apt-helper", "download-file", "%s/pool/main/c/criu/criu_%s.orig.tar.xz" % (mirror().rstrip("/"), CRIU),
               str(path), "SHA256:" + CRIU_SHA256)
    return str(path)


# -- the image -------------------------------------------------------------

def mirror():
    """The Debian mirror that apt uses on this machine."""
    if os.environ.get("CKPT_TORQUE_MIRROR"):
        return os.environ["CKPT_TORQUE_MIRROR"]
    release = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    codename = release.get("VERSION_CODENAME", "").strip('"')
    targets = [line.split() for line in output("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)",
                                               "Created-By: Packages").splitlines()]
    for uri, name, component in (line for line in targets if len(line) == 3):
        if name == codename and component == "main" and release.get("ID") == "debian":
            return uri
    raise Failure("apt knows no Debian mirror on this machine; run apt-get update, or set CKPT_TORQUE_MIRROR to a mirror's address")


def apt_settings():
    """How apt reaches the mirrors here (proxies, time checks): the hosts reach them the same way."""
    wanted = re.compile(r"^Acquire::(Check-|Retries|ForceIPv|https?::)[^ ]* \"[^\"]+\";$")
    return "".join(line + "\n" for line in output("apt-config", "dump").splitlines() if wanted.match(line))


def image():
    """Return the image's tag; build it when this recipe has not been built here."""
    recipe = [SUITE, PACKAGES, RECIPE, mirror(), apt_settings()]
    tag = "localhost/ckpt-torque-host:" + hashlib.sha256(json.dumps(recipe).encode()).hexdigest()[:16]
    if subprocess.run(podman_command() + ["image", "exists", tag], check=False).returncode == 0:
        return tag
    say("building the host image from Debian %s packages, once (half a minute and up)" % SUITE)
    archive = CACHE / "host-image.tar"
    customize = ["--customize-hook=chroot \"$1\" sh -c %s" % quoted(step) for step in RECIPE]
    settings = CACHE / "apt-settings"
    settings.write_text(apt_settings())
    customize.append("--customize-hook=copy-in %s /etc/apt/apt.conf.d" % settings)
    customize.append("--customize-hook=: > \"$1/etc/machine-id\"")
    output("mmdebstrap", "--variant=minbase", "--include=" + ",".join(PACKAGES), "--aptopt=Acquire::Languages \"none\"",
           *customize, SUITE, str(archive), "deb %s %s main" % (mirror(), SUITE))
    podman("import", "--change", "CMD [\"/lib/systemd/systemd\"]", str(archive), tag)
    archive.unlink()
    return tag


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


# -- the hosts -------------------------------------------------------------

def container(group, host):
    return "ckpt-%s-%s" % (group, host)


def group_directory(group):
    return CACHE / "hosts" / group


def key():
    path = CACHE / "id_ed25519"
    if not path.exists():
        output("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ckpt-torque test hosts", "-f", str(path))
    return path


def manifest_key():
    """The secret that the hooks of all groups prove images with."""
    path = CACHE / "manifest-key"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(32))
    return path.read_text()


def inspect(name):
    done = subprocess.run(podman_command() + ["inspect", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return json.loads(done.stdout)[0] if done.returncode == 0 else None


def start(group, host, tag):
    """Make sure that a host runs, from this image; return whether it was there."""
    name = container(group, host)
    inspected = inspect(name)
    if inspected and inspected["ImageName"] == tag:
        # podman may still call a container running that died with its monitor: ask the container itself.
        attempt = ["exec", name, "true"] if inspected["State"]["Running"] else ["start", name]
        done = subprocess.run(podman_command() + attempt, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        if done.returncode == 0:
            return True
    if inspected:
        remove_container(name)
    # A pids limit of 0 is none, as -1 is, and does not insist on the pids controller, which a mixed machine keeps in v1.
    for where in places_in_network(group, host):
        try:
            podman("run", "--detach", "--name", name, "--hostname", host, "--network", "ckpt-" + group, "--network-alias", host,
                   "--ip", where, "--privileged", "--systemd=always", "--pids-limit=0", "--cgroupns=private",
                   "--volume", "%s:/shared" % (group_directory(group) / "shared"),
                   "--volume", "%s.pub:/root/.ssh/authorized_keys:ro" % key(), *limits(), tag)
            return False
        except Failure as failure:
            # podman never gives back the address of a host that ended without its monitor, not even with the network's removal.
            if "is already allocated to container" not in str(failure):
                raise
            remove_container(name)
    raise Failure("podman says that all addresses of network ckpt-%s are taken; end all hosts and reboot" % group)


def places_in_network(group, host):
    """The addresses that a host may have, best first; it keeps its own when it is started again, as a node does that boots."""
    network = json.loads(podman("network", "inspect", "ckpt-" + group))[0]
    subnet = ipaddress.ip_network(network["subnets"][0]["subnet"])
    step = max(10, len(HOSTS))
    return [str(subnet[2 + list(HOSTS).index(host) + step * row]) for row in range(250 // step)]


def address(group, host):
    return inspect(container(group, host))["NetworkSettings"]["Networks"]["ckpt-" + group]["IPAddress"]


def wait(group, host, where):
    """Wait until systemd is up and sshd answers."""
    deadline = time.time() + 90
    state = "unknown"
    while time.time() < deadline:
        done = subprocess.run(podman_command() + ["exec", container(group, host), "systemctl", "is-system-running"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False)
        state = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "unknown"
        if state in ("running", "degraded"):
            try:
                with socket.create_connection((where, 22), timeout=1) as connection:
                    if connection.recv(4) == b"SSH-":
                        break
            except OSError:
                pass
        time.sleep(0.2)
    else:
        raise Failure("%s did not come up within 90 seconds (systemd says %s); look with: %s podman logs %s"
                      % (host, state, sys.argv[0], container(group, host)))
    if state != "running":
        failed = podman("exec", container(group, host), "systemctl", "--failed", "--plain", "--no-legend")
        raise Failure("%s is %s: %s" % (host, state, " ".join(failed.split())))


def tell_names(group, addresses):
    """Let each host know the others' names by their addresses too: TORQUE asks for that, and not every podman's DNS answers it."""
    lines = "".join("%s %s # ckpt-torque\n" % (where, host) for host, where in addresses.items())
    for host in addresses:  # the file is a mount: it must be written in place
        podman("exec", container(group, host), "sh", "-c",
               "kept=$(grep -v '# ckpt-torque$' /etc/hosts); printf '%s\\n%s' \"$kept\" \"$1\" > /etc/hosts", "sh", lines)


def write_inventory(group, members, addresses):
    """Write the group's inventory; return its path.

    :param members: host: names of its groups in the inventory (dict)
    :param addresses: host: (address, port) (dict)
    """
    source = torque_source()
    variables = {
        "torque_enabled": bool(source),
        "torque_version": TORQUE,
        "torque_source": source,
        "criu_source": criu_source(),
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(key()),
        # A connection that outlives a guest's reboot answers nothing, and nobody says so.
        "ansible_ssh_common_args": "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "
                                   "-o ServerAliveInterval=15 -o ServerAliveCountMax=4",
        "ansible_python_interpreter": "/usr/bin/python3",
        "checkpoint_store_users": sorted(USERS),
        "checkpoint_hooks_keys": [{"id": "hosts", "secret": manifest_key()}],
        "checkpoint_hooks_restart_backoff": 1,
        "validate_user": "alice",
        # Where CAP_SYS_RESOURCE is missing a service cannot raise its limits.
        "torque_server_limits": {"LimitNOFILE": 4096},
        "torque_mom_limits": {"LimitNOFILE": 4096, "LimitMEMLOCK": None},
    }
    groups = {}
    for host, names in members.items():
        for name in names:
            groups.setdefault(name, {"hosts": {}})["hosts"][host] = {}
    inventory = {"all": {"hosts": {host: {"ansible_host": where, "ansible_port": port} for host, (where, port) in addresses.items()},
                         "vars": variables, "children": groups}}
    directory = group_directory(group)
    (directory / "inventory.yml").write_text(json.dumps(inventory, indent=2) + "\n")  # JSON is YAML
    instances = [{"instance": host, "address": where, "user": "root", "port": str(port), "identity_file": str(key())}
                 for host, (where, port) in addresses.items()]
    (directory / "instances.yml").write_text(json.dumps(instances, indent=2) + "\n")  # for molecule
    return directory / "inventory.yml"


def up(group):
    (group_directory(group) / "shared").mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:  # what all groups share is made once
        fcntl.flock(lock, fcntl.LOCK_EX)
        tag = image()
        key()
        manifest_key()
    raise_inotify_limit()
    if subprocess.run(podman_command() + ["network", "exists", "ckpt-" + group], check=False).returncode:
        podman("network", "create", "ckpt-" + group)
    were_up = [start(group, host, tag) for host in HOSTS]
    addresses = {host: address(group, host) for host in HOSTS}
    for host, where in addresses.items():
        wait(group, host, where)
    tell_names(group, addresses)
    inventory = write_inventory(group, HOSTS, {host: (where, 22) for host, where in addresses.items()})
    if os.environ.get("SUDO_UID"):
        output("chown", "-R", "--no-dereference", os.environ["SUDO_UID"], str(CACHE / "id_ed25519"), str(inventory))
    say("%s %s" % (", ".join("%s (%s)" % pair for pair in addresses.items()), "are up" if not all(were_up) else "were up"))


def remove_container(name):
    """Remove a container (name, str), if it exists. A process that waits for a disk ends later than podman waits for it."""
    for pause in REMOVAL_PAUSES:
        try:
            podman("rm", "--force", "--time=0", "--ignore", name)
            return
        except Failure as failure:
            if "could not be stopped" not in str(failure):
                raise
        time.sleep(pause)
    podman("rm", "--force", "--time=0", "--ignore", name)


def down(group):
    for name in podman("ps", "--all", "--format", "{{.Names}}").split():
        if re.fullmatch(container(re.escape(group), r"(head|node\d+)"), name):
            remove_container(name)
    if subprocess.run(podman_command() + ["network", "exists", "ckpt-" + group], check=False).returncode == 0:
        podman("network", "rm", "--force", "ckpt-" + group)
    shutil.rmtree(group_directory(group), ignore_errors=True)
    say("the hosts of %s are gone" % group)


def main(arguments):
    if arguments[:1] == ["inventory"] and len(arguments) == 2:
        print(group_directory(arguments[1]) / "inventory.yml")
        return 0
    if arguments == ["mirror"]:
        print(mirror())
        return 0
    if arguments == ["torque"]:
        print(torque_source())
        return 0
    if arguments == ["criu"]:
        print(criu_source())
        return 0
    preflight()
    if arguments[:1] == ["podman"]:
        command = podman_command() + arguments[1:]
        os.execvp(command[0], command)
    elif arguments[:1] == ["up"] and len(arguments) == 2 and re.fullmatch("[a-z][a-z0-9_]*", arguments[1]):
        up(arguments[1])
    elif arguments[:1] == ["down"] and len(arguments) == 2:
        groups = [entry.name for entry in (CACHE / "hosts").glob("*") if not (entry / "lan").exists()]  # those are guests (guests.py)
        for group in groups if arguments[1] == "--all" else arguments[1:]:
            down(group)
    else:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failure as failure:
        print("hosts: %s" % failure, file=sys.stderr)
        sys.exit(1)
