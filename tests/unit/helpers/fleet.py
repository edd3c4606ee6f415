"""A host on which torque-ckpt is called."""
import ctypes  # noqa: F401 pylint: disable=unused-import; loaded by root: users may not be able to read this interpreter
import json
import os
import subprocess
import sys

from paths import MODULE_UTILS
from torque_ckpt.image import compatibility, compression, manifest, seal
from torque_ckpt.store import location
from torque_ckpt.store.draft import Draft
from torque_ckpt.system import privilege
from torque_ckpt.torque import contract, names
from waiting import LIMIT

KEYS = [("first", b"k" * 32)]


class Fleet:
    """A host with a store, a key, node records and TORQUE's commands as told.

    top       str: where all of it is; users can reach it
    settings  dict: what is in the configuration
    """

    def __init__(self, top, program):
        self.top, self.program = top, program
        self.config = os.path.join(top, "etc", "hooks.json")
        self.store = os.path.join(top, "store")
        self.settings = {
            "stores": [{"path": self.store, "id": "main"}], "engine_options": {"path": os.path.join(top, "criu")}, "engine_timeout": LIMIT,
            "run_directory": os.path.join(top, "run"), "key_path": os.path.join(top, "key"),
            "state_directory": os.path.join(top, "state"), "torque_directory": os.path.join(top, "bin"), "depth": 2}
        for name in ("etc", "etc/nodes", "store", "bin"):
            os.mkdir(os.path.join(top, name))
        with open(os.path.join(self.store, location.MARKER), "w") as stream:
            stream.write("main\n")
        self.seal(KEYS)
        self.configure()
        program("echo 'Version: 9.9'\n")

    def configure(self, **changed):
        self.settings.update(changed)
        with open(self.config, "w") as stream:
            json.dump(self.settings, stream)
        os.chmod(self.config, 0o644)

    def seal(self, keys):
        """Write the key file."""
        with open(self.settings["key_path"], "w") as stream:
            json.dump({"keys": [{"id": name, "secret": secret.hex()} for name, secret in keys]}, stream)
        os.chmod(self.settings["key_path"], 0o600)

    def record(self, name, **facts):
        """Note a node as the role does; facts change the record from this machine's."""
        listed = os.path.join(self.top, "etc", "nodes.json")
        names = json.load(open(listed))["nodes"] if os.path.exists(listed) else []
        with open(listed, "w") as stream:
            json.dump({"nodes": names + [name]}, stream)
        if facts.get("node", "") is not None:
            recorded = dict(compatibility.describe_node(), node=name, engine={"name": "criu", "version": "9.9"}, stores=["main"])
            with open(os.path.join(self.top, "etc", "nodes", name + ".json"), "w") as stream:
                json.dump(dict(recorded, **facts), stream)

    def users_directory(self, user):
        """Give a user a directory of his own in the store; return its name."""
        path = os.path.join(self.store, user)
        if not os.path.isdir(path):
            os.mkdir(path)
            os.chmod(path, 0o711)
            account = privilege.find_user(user)
            os.chown(path, account.uid, account.gid)
        return user

    def image(self, job="12.head", name=None, user="nobody", inside="", content=b"memory", generation=1, publish=True, compress=None,
              **facts):
        """Make an image as the hooks do; return its path."""
        account, name = privilege.find_user(user), name or "ckpt.%s.%d" % (job, 1000 + generation)
        store, directory = {"path": self.store, "id": "main"}, os.path.join(self.store, inside, names.get_directory_name(job))
        location.give_job_directory(store, directory, account)
        call = contract.parse_restart(["-", job, user, "-", directory, name])

        def work():
            draft = Draft(location.open_job_directory(store, directory, create=True), name)
            with open(os.path.join(draft.path(), "pages-1.img"), "wb") as stream:
                stream.write(content)
            all_facts = dict({"engine": {"name": "criu", "version": "9.9"}, "root": 4711, "pids": [4711, 4712], "frozen_seconds": 0.25,
                              "spool": [], "generation": generation}, **facts)
            plain = compression.compress_files(draft.descriptor, lambda name: True, compress, 0, LIMIT) if compress else {}
            manifest.write_manifest(draft.descriptor, call, account, all_facts, seal.ask_to_seal, plain)
            if publish:
                draft.publish()
            return draft.hidden
        hidden = privilege.as_user(account, work, answer=seal.build_answer(KEYS, call, account))
        return os.path.join(directory, name if publish else hidden)

    def server(self, name="head", known=(), broken=None):
        """Write TORQUE's commands for a server of this name that knows these jobs; broken is what qstat says on stderr."""
        jobs = "\n".join("    %s) exit 0;;" % job for job in known)
        texts = {"qselect": "".join("echo %s\n" % job for job in known) + "exit 0\n",
                 "qstat": 'case $2 in\n    -f) echo "Server: %s"; exit 0;;\n%s\nesac\necho "qstat: Unknown Job Id Error $2" >&2\nexit 153\n'
                          % (name, jobs)}
        if broken:
            texts = dict.fromkeys(texts, "echo '%s' >&2\nexit 111\n" % broken)
        for command, text in texts.items():
            self.program(text, "bin/" + command)

    def call(self, *arguments, user=None, before="pass", options=(), locale="C.UTF-8", variables=()):
        """Run torque-ckpt as root or another user, who may not be able to read this interpreter; return the finished process.

        :param before: code (str); options: of the interpreter (list of str); variables: of the environment (dict)
        """
        # What is imported late is imported before.
        become = "pass"
        if user:
            become = ("main.parser.build_parser().format_help(); main.digest.load_modules(); "
                      "privilege.become_user(privilege.find_user(%r))" % user)
        code = ("import resource, sys; sys.path.insert(0, %r)\nfrom torque_ckpt.cli import main\nfrom torque_ckpt.system import privilege\n"
                "from torque_ckpt.engines import criu\n%s\n%s\nsys.exit(main.main(sys.argv, %r))"
                % (str(MODULE_UTILS), before, become, self.config))
        environment = dict({"PATH": "/bin:/usr/bin", "LC_ALL": locale}, **dict(variables))
        if "LD_LIBRARY_PATH" in os.environ:
            environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        return subprocess.run([sys.executable, "-IS"] + list(options) + ["-c", code] + list(arguments),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              universal_newlines=True, env=environment, cwd="/", timeout=LIMIT, check=False)

    def ask(self, *arguments, user=None, code=0, before="pass"):
        """Run torque-ckpt --json, which must end with this code; return what it said (dict)."""
        done = self.call(*(arguments + ("--json",)), user=user, before=before)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)
