"""What the role blcr does on the controller and beside the kernel, tried by its task files: it needs no BLCR."""
import functools
import hashlib
import http.server
import subprocess
import threading

import pytest

NODE = {"cannot_build": "", "kernel": "3.10.0"}


class Counting(http.server.SimpleHTTPRequestHandler):
    """Counts downloads."""

    asked = []

    def do_GET(self):  # noqa: N802
        self.asked.append(self.path)
        super().do_GET()


@pytest.fixture
def address(tmp_path):
    """Where a web server gives what is in tmp_path (str)."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Counting, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield "http://127.0.0.1:%d" % server.server_port
    server.shutdown()
    server.server_close()


def test_source_is_downloaded_once_to_a_fresh_controller(cluster, tmp_path, address):
    (tmp_path / "blcr.tar.gz").write_text("source")
    done = cluster.role("torque_mom", "blcr tasks_from=source", blcr_source=address + "/blcr.tar.gz", blcr_cache=str(tmp_path / "cache"),
                        blcr_source_checksum="sha256:" + hashlib.sha256(b"source").hexdigest(), __blcr_node=NODE,
                        __blcr_artifact={"path": "-"})
    assert done.code == 0, done.out
    assert (tmp_path / "cache/sources/blcr-0.8.6_b4.tar.gz").read_text() == "source"
    assert Counting.asked == ["/blcr.tar.gz"]


@pytest.mark.parametrize("name, present", [("default", True), ("sysconfig", False)])
def test_prelink_is_told_where_the_node_has_its_settings(cluster, node1, name, present):
    """Not where the controller would have them."""
    path = "/etc/%s/prelink" % name
    node1.ask("rm -f /etc/default/prelink /etc/sysconfig/prelink; mkdir -p /etc/sysconfig; %s"
              % ("echo PRELINKING=yes > " + path if present else ":"))
    try:
        done = cluster.role("node1", "blcr tasks_from=prelink")
        assert done.code == 0, done.out
        assert node1.ask("cd /etc; grep -H . default/prelink sysconfig/prelink 2> /dev/null; :") == name + "/prelink:PRELINKING=no"
    finally:
        node1.ask("rm -f /etc/default/prelink /etc/sysconfig/prelink; rmdir /etc/sysconfig")


@pytest.fixture
def signing(cluster, node1, tmp_path):
    """What the role needs to sign (dict): a key, its certificate, and Debian's sign-file."""
    key, certificate, program = [tmp_path / name for name in ("signing.key", "signing.crt", "sign-file")]
    subprocess.run(["openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=ckpt-torque test/",
                    "-keyout", str(key), "-out", str(certificate)], check=True, stderr=subprocess.DEVNULL)
    node1.ask("cd /tmp && apt-get -q update && name=$(apt-cache search --names-only '^linux-kbuild-' | sort -V | cut -d' ' -f1 | head -1) "
              "&& apt-get -q download $name && dpkg -x $name*.deb kbuild && cp kbuild/usr/lib/linux-kbuild-*/scripts/sign-file . && "
              "rm -r kbuild $name*.deb")
    done = cluster.module("node1", "fetch", collection="ansible.builtin", src="/tmp/sign-file", dest=str(program), flat=True)
    assert done.code == 0, done.out
    program.chmod(0o755)
    node1.ask("mkdir -p /tmp/work/root/modules && cd /tmp/work/root/modules && head -c 5000 /bin/ls > blcr.ko && "
              "cp blcr.ko blcr_imports.ko")
    yield {"blcr_signing_key": str(key), "blcr_signing_certificate": str(certificate), "blcr_signing_program": str(program),
           "__blcr_work": {"path": "/tmp/work"}, "__blcr_modules": "/modules", "__blcr_node": NODE, "__blcr_artifact": {"path": "-"}}
    node1.ask("rm -r /tmp/work /tmp/sign-file")


def test_modules_are_signed_on_the_controller(cluster, node1, signing):
    """The key never comes to the node: whatever opens a file of that name there would be seen."""
    done = cluster.role("node1", "blcr tasks_from=sign", **signing)
    assert done.code == 0, done.out
    for name in ("blcr", "blcr_imports"):
        assert node1.ask("cd /tmp/work/root/modules; tail -c 28 %s.ko; head -c 5000 %s.ko | cmp - <(head -c 5000 /bin/ls)"
                         % (name, name)) == "~Module signature appended~"
    # Each connection to the node is a command or a file that goes there; the key is in none of them.
    assert node1.ask("grep -rl 'PRIVATE KEY' /tmp /var/tmp /root --include=* -s | grep -v /proc || :") == ""
    assert "signing.key" not in node1.ask("find /tmp /var/tmp /root -name '*.key'")


def test_signing_without_its_program(cluster, signing):
    done = cluster.role("node1", "blcr tasks_from=source", **dict(signing, blcr_signing_program=""))
    sentence = ("node1: blcr_signing_key ({blcr_signing_key}), blcr_signing_certificate ({blcr_signing_certificate}) and "
                "blcr_signing_program () must be files on the controller, where the modules are signed; the program is scripts/sign-file "
                "of the headers of kernel 3.10.0; nothing was built.").format(**signing)
    assert sentence in done.out, done.out
