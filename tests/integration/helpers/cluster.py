"""Real hosts, what runs on them, and a job on one of them."""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import time

TOP = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = TOP / "examples"
GROUP = os.environ.get("CKPT_TORQUE_GROUP", "integration")
HOOKS = "/usr/lib/ckpt-torque"
STORE = "/shared/ckpt"
CONFIG = "/etc/ckpt-torque/hooks.json"
MOM_CONFIG = "/var/spool/torque/mom_priv/config"


FAULTS = {}
"""What the fault suite counts (int by what), printed at the end of the run."""
FIGURES = []
"""Sentences with what tests have measured, printed at the end of the run."""


def hosts(*arguments, program="hosts.py"):
    done = subprocess.run(["python3", str(TOP / "molecule/shared" / program)] + list(arguments),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Result:
    """What a command or a playbook did."""

    def __init__(self, done):
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr

    def changed(self, host):
        """How many tasks a playbook changed on a host."""
        return int(re.search(r"^%s\s+: .*changed=(\d+)" % host, self.out, re.MULTILINE).group(1))


class Node:
    """A host, reached over ssh; commands are shell text."""

    def __init__(self, name, variables, entry):
        self.name = name
        self.command = ["ssh", "-i", variables["ansible_ssh_private_key_file"], *variables["ansible_ssh_common_args"].split(),
                        "-p", str(entry["ansible_port"]),
                        "-o", "ControlMaster=auto", "-o", "ControlPath=%s/ssh-%%C" % os.environ.get("XDG_RUNTIME_DIR", "/tmp"),
                        "-o", "ControlPersist=60", "root@" + entry["ansible_host"]]

    def run(self, script, patience=120):
        """Run a script, for so long at most (seconds)."""
        return Result(subprocess.run(self.command + [script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     stdin=subprocess.DEVNULL, universal_newlines=True, timeout=patience, check=False))

    def disconnect(self):
        """End the connection that is kept: the host has been turned off, and ssh would wait for it."""
        subprocess.run(self.command[:1] + ["-O", "exit"] + self.command[1:], stderr=subprocess.DEVNULL, check=False)

    def ask(self, script):
        """Run a script that must succeed; return its output."""
        done = self.run(script)
        assert done.code == 0, "%s: %s: %s" % (self.name, script, done.err)
        return done.out.strip()

    def hook(self, name, *arguments):
        """Call a root hook with pbs_mom's environment."""
        return self.run("cd / && env -i PATH=/bin:/usr/bin %s/%s %s" % (HOOKS, name, " ".join(map(str, arguments))))


OWN = ("checkpoint_hooks_keys", "checkpoint_store_users", "criu_source", "torque_source", "validate_user")
"""What is the test hosts' own, whatever a site's variables say: keys, accounts, and where sources are on this controller."""


class Cluster:
    def __init__(self, group=GROUP, program="hosts.py"):
        hosts("up", group, program=program)
        self.inventory = hosts("inventory", group, program=program)
        all_hosts = json.loads(pathlib.Path(self.inventory).read_text())["all"]
        self.torque = all_hosts["vars"]["torque_enabled"]
        self.version = all_hosts["vars"].get("torque_version", "")
        self.nodes = {name: Node(name, all_hosts["vars"], entry) for name, entry in all_hosts["hosts"].items()}

    def get_version(self):
        """Return the version of the cluster's TORQUE (tuple of ints)."""
        return tuple(map(int, re.findall(r"\d+", self.version)))

    def is_older_than(self, *version):
        """Whether the cluster's TORQUE is older than this version (ints)."""
        return self.get_version() < version

    def answers_holds_early(self):
        """Whether pbs_server answers a hold before it has asked pbs_mom: that of 4.2 and of the hot fixes of 6.1.3 does."""
        return self.get_version() > (6, 1, 3) or self.is_older_than(5) and not self.is_older_than(4)

    def refuses_several_nodes(self):
        """Whether the hooks refuse the checkpoint of every job on several nodes, as the role sets them up before 4.2.8."""
        return self.is_older_than(4, 2, 8)

    def write_inventory(self, path, without=(), **variables):
        """Write how the hosts are reached, with no groups, for a site's inventory with hosts of these names; return the path (str).

        :param path: the file (pathlib.Path)
        :param without: names in OWN that the site's inventory has (list of str)
        :param variables: what else is the hosts' own; it wins over what the site's inventory says
        """
        known = json.loads(pathlib.Path(self.inventory).read_text())["all"]
        own = dict({name: known["vars"][name] for name in set(OWN) - set(without)}, **variables)
        path.write_text(json.dumps({"all": {"hosts": {name: dict(entry, **own) for name, entry in known["hosts"].items()},
                                            "vars": {name: value for name, value in known["vars"].items() if name not in OWN}}}))
        return str(path)

    def write_inventory_without(self, path, *names):
        """Write the hosts' own inventory, in which those with these names are not reached, to a pathlib.Path; return it (str)."""
        inventory = json.loads(pathlib.Path(self.inventory).read_text())
        for name in names:
            inventory["all"]["hosts"][name]["ansible_port"] = 1
        path.write_text(json.dumps(inventory))
        return str(path)

    def playbook(self, name, *arguments, inventory=None, **variables):
        """Run a playbook of the installed collection, with these inventories (str, or list of str) instead of the hosts' own."""
        # Tests break nodes for moments, and pbs_mom must not look just then: the node would be down for minutes.
        variables = dict({"torque_mom_health_check_interval": "400"}, **variables)
        inventories = inventory if isinstance(inventory, list) else [inventory or self.inventory]
        return self._ansible("ansible-playbook", *("--inventory=" + each for each in inventories), "-e", json.dumps(variables),
                             "ckpt.torque." + name, *arguments)

    def role(self, host, name, **variables):
        """Apply a role to a host."""
        return self._ansible("ansible", "-i", self.inventory, "-e", json.dumps(variables), "-m", "include_role",
                             "-a", "name=ckpt.torque." + name, host)

    def module(self, host, module_name, collection="ckpt.torque", **arguments):
        """Run a module on a host."""
        return self._ansible("ansible", "-i", self.inventory, "-m", collection + "." + module_name, "-a", json.dumps(arguments), host)

    @staticmethod
    def _ansible(*command):
        environment = dict(os.environ, ANSIBLE_CONFIG=str(TOP / "ansible.cfg"), ANSIBLE_NOCOLOR="1", ANSIBLE_FORCE_COLOR="0")
        return Result(subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, env=environment,
                                     cwd=TOP, check=False))


JOB = r"""
import os, signal, sys, time
signal.signal(signal.SIGUSR1, lambda number, frame: os.write(1, b"USR1\n"))
counter = 0
while not os.path.exists("stop"):
    counter += 1
    os.write(1, b"%d\n" % counter)
    time.sleep(0.01)
sys.exit(5)
"""


ARCHIVES = "/shared/packages"
"""What the nodes download once, together."""
INSTALL = ("mkdir -p {0}/partial && apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "
           "-o Dir::Cache::Archives={0} -o APT::Keep-Downloaded-Packages=true {1}")


def install_packages(cluster, packages):
    """Install Debian packages (list of str) on both nodes, if they are not there."""
    for node in (cluster.nodes["node1"], cluster.nodes["node2"]):
        if node.run("dpkg-query -W %s" % " ".join(packages)).code != 0:
            done = subprocess.run(node.command + [INSTALL.format(ARCHIVES, " ".join(packages))], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, check=False)
            assert done.returncode == 0, "%s: %s" % (node.name, done.stdout[-3000:])


class Job:
    """A job that pbs_mom could have started: a bash script with a python child, output in the store's user directory."""

    def __init__(self, node, number):
        self.node = node
        self.id = "%d.head" % number
        self.work = "%s/alice/%s" % (STORE, self.id)
        self.directory = "%s/%s.CK" % (STORE, self.id)
        self.session = None
        self.images = 0

    def start(self, script="python3 job.py; exit $?", variables=""):
        self.node.ask("install -d -o alice %s && cd %s && cat > job.py <<'X'\n%s\nX\ncat > job.sh <<'X'\n#!/bin/bash\n%s\nX\n"
                      "chmod 755 job.sh; touch out err; chown alice out err" % (self.work, self.work, JOB, script))
        self.session = int(self.node.ask(
            "rm -f {pid_file}; cd {work}; "
            "PBS_JOBID={job} {variables} setsid --fork setpriv --reuid alice --regid alice --init-groups sh -c "
            "'echo $$ > {pid_file}; exec {hooks}/run /bin/bash ./job.sh' < /dev/null > out 2> err; "
            "for _ in $(seq 600); do [ -s {pid_file} ] && break; sleep 0.05; done; cat {pid_file}"
            .format(pid_file="/tmp/%s.pid" % self.id, work=self.work, job=self.id, variables=variables, hooks=HOOKS)))
        self.progress()
        return self

    def counter(self):
        return int(self.node.ask("grep -v USR1 %s/out | tail -n 1 | grep . || echo 0" % self.work))

    def progress(self):
        """Wait until the job has counted on."""
        before = self.counter()
        for _attempt in range(600):
            if self.counter() > before + 2:
                return
            time.sleep(0.05)
        raise AssertionError("job %s makes no progress after %d: %s" % (self.id, before, self.complaints()))

    def complaints(self):
        """What the job and its restart hook said on stderr."""
        return self.node.run("cat %s/err /tmp/%s.err" % (self.work, self.id)).out

    def name(self):
        return "ckpt.%s.%d" % (self.id, self.images)

    def arguments(self, **other):
        values = {"session": self.session, "job": self.id, "user": "alice", "group": "alice",
                  "directory": self.directory, "name": self.name()}
        values.update(other)
        return [values[key] for key in ("session", "job", "user", "group", "directory", "name")]

    def checkpoint(self, signal, node=None, depth="-", **other):
        """Call the checkpoint hook as pbs_mom does: the directory is made by root and given to the user."""
        node = node or self.node
        node.run("mkdir -m 755 %s && chown alice %s" % (self.directory, self.directory))
        self.images += 1
        return node.hook("checkpoint", *(self.arguments(**other) + [signal, depth]))

    def hold(self):
        done = self.checkpoint(15)
        assert (done.code, done.err) == (0, "")

    def restart(self, node, **other):
        """Call the restart hook that must fail; return what it said."""
        return node.run("cd / && env -i PATH=/bin:/usr/bin setsid --wait %s/restart %s"
                        % (HOOKS, " ".join(map(str, self.arguments(**other)))))

    def move(self, node):
        """Restart on a node and see the job go on."""
        node.ask("rm -f /tmp/%s.exit; cd / && env -i PATH=/bin:/usr/bin setsid --fork sh -c "
                 "'setsid --wait %s/restart %s 2> /tmp/%s.err; echo $? > /tmp/%s.exit' > /dev/null < /dev/null 2> /dev/null"
                 % (self.id, HOOKS, " ".join(map(str, self.arguments())), self.id, self.id))
        self.node = node
        self.progress()

    def generations(self):
        """The generations (dict by name) of the images, and None for whatever else is in the job's directory, but for its incarnation."""
        listing = self.node.ask("cd %s && for name in $(ls -A -I '.incarnation.*'); do "
                                "echo $name $(grep -s '\"generation\"' $name/manifest.json); done" % self.directory)
        return {line.split()[0]: int(line.split()[-1].strip(",")) if " " in line else None for line in listing.splitlines()}

    def images_digest(self):
        """What is in the job's directory, by content."""
        return self.node.ask("cd %s && find . -type f -exec sha256sum {} + | sort" % self.directory)

    def lines(self):
        return self.node.ask("cat %s/out" % self.work).splitlines()

    def clean(self, nodes):
        for node in nodes:
            node.run("pkill -KILL -u alice,bob; rm -f /tmp/%s.*" % self.id)
        self.node.run("rm -rf %s %s" % (self.work, self.directory))

    def end(self):
        """Let the moved job end by itself; return its exit status."""
        self.node.ask("touch %s/stop" % self.work)
        status_file = "/tmp/%s.exit" % self.id
        return int(self.node.ask("for i in $(seq 600); do [ -s {0} ] && break; sleep 0.1; done; cat {0}".format(status_file)))


@contextlib.contextmanager
def configured(node, **settings):
    """Have other settings in the hooks' configuration of a node."""
    copy = node.ask("copy=$(mktemp) && cat %s > $copy && echo $copy" % CONFIG)
    node.ask("cat > %s <<'X'\n%s\nX" % (CONFIG, json.dumps(dict(json.loads(node.ask("cat " + copy)), **settings))))
    try:
        yield
    finally:
        node.ask("cat {0} > {1} && rm {0}".format(copy, CONFIG))


@contextlib.contextmanager
def replaced_hook(node, name, program):
    """Have pbs_mom of a node start a program (str) in a hook's place; the hook itself is NAME.real meanwhile."""
    hook = "%s/%s" % (HOOKS, name)
    node.ask("mv {0} {0}.real && cat > {0} <<'X'\n{1}\nX\nchmod 755 {0}".format(hook, program))
    try:
        yield
    finally:
        node.ask("mv {0}.real {0}".format(hook))


LONG = """#!/bin/sh
[ $1 = dump ] && mkdir /tmp/dumping 2> /dev/null && until [ -e /tmp/go ]; do sleep 0.1; done
exec /opt/criu/current/sbin/criu "$@"
"""


@contextlib.contextmanager
def long_dump(node):
    """Have the next dump on a node, but none after it, last until /tmp/go is there; /tmp/dumping says that it has begun."""
    node.ask("cat > /tmp/long <<'X'\n%sX\nchmod 755 /tmp/long; rm -rf /tmp/dumping /tmp/go" % LONG)
    with configured(node, engine_options={"path": "/tmp/long"}):
        try:
            yield
        finally:
            node.run("touch /tmp/go")


def started(node, unit="pbs_mom"):
    """Return what is another after the daemon was restarted, or has executed itself anew."""
    return node.ask("pid=$(systemctl show --value --property=MainPID %s); echo $pid; "
                    "tr '\\0' '\\n' < /proc/$pid/environ | grep PBS_MOM_RENEWED; true" % unit)


@contextlib.contextmanager
def hurried(node):
    """Have pbs_mom of a node count ten minutes of walltime for each second; it sees what is due when what this yields has been called."""
    # A hold stops the walltime: an image can be due during it only if pbs_mom has not looked since it became due. It counts whole seconds.
    reload = "systemctl kill --signal=HUP --kill-who=main pbs_mom"
    poll = "/opt/torque/current/sbin/momctl -q check_poll_time"
    configure = ("cp -p {0}.good {0} && printf '$wallmult %d\n$check_poll_time %d\n' >> {0} && {1} && "
                 "for _ in $(seq 600); do {2} | grep -q %d && break; sleep 0.1; done; {2} | grep -q %d").format(MOM_CONFIG, reload, poll)
    node.ask("cp -p {0} {0}.good && {1} && sleep 1".format(MOM_CONFIG, configure % (600, 600, 600, 600)))
    try:
        yield lambda: node.ask(poll + "=1")
    finally:  # pbs_mom keeps what is no longer in its configuration
        node.ask("{1} && mv {0}.good {0} && {2}".format(MOM_CONFIG, configure % (1, 45, 45, 45), reload))


def begin(running, signal):
    """Start the checkpoint hook in the background; return its pid, when it is at work."""
    running.node.run("mkdir -m 755 %s && chown alice %s" % (running.directory, running.directory))
    running.images += 1
    line = " ".join(map(str, running.arguments() + [signal, "-"]))
    return int(running.node.ask("cd /; env -i PATH=/bin:/usr/bin setsid %s/checkpoint %s > /tmp/%s.said 2>&1 < /dev/null & "
                                "for i in $(seq 600); do [ -e /tmp/dumping ] && break; sleep 0.05; done; echo $!"
                                % (HOOKS, line, running.id)))
