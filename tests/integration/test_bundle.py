"""A site without a network is set up from a bundle, by a controller that was set up from it, on hosts of their own."""
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from cluster import GROUP, Cluster, hosts

PLATFORM = "debian13-x86_64"
# What the site does not have: the sources, and the cache in which this controller has artifacts.
MISSING = {"torque_source": "/nonexistent/torque.tar.gz", "criu_source": "", "checkpoint_hooks_compression": "zstd"}


def run(*command, directory=None, **environment):
    done = subprocess.run([str(word) for word in command], cwd=directory, env=dict(os.environ, **environment), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def bundle(cluster, tmp_path_factory):
    """The bundle of this cluster (pathlib.Path), signed, and a file with the key that may have done that."""
    home, path = tmp_path_factory.mktemp("gpg"), tmp_path_factory.mktemp("bundle")
    home.chmod(0o700)
    run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "site@example.org", "ed25519", "sign", GNUPGHOME=str(home))
    keyring = home / "site.gpg"
    keyring.write_bytes(subprocess.run(["gpg", "--export", "site@example.org"], env=dict(os.environ, GNUPGHOME=str(home)),
                                       stdout=subprocess.PIPE, check=True).stdout)
    before = state(cluster)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNUPGHOME", str(home))
        done = cluster.playbook("bundle", bundle_directory=str(path), bundle_signing_key="site@example.org", bundle_packages=["zstd"])
    assert done.code == 0, done.out
    assert state(cluster) == before
    yield path, keyring
    run("gpgconf", "--kill", "all", GNUPGHOME=str(home))


def state(cluster):
    return [node.ask("dpkg -l | sha256sum; ls /var/tmp /opt") for node in cluster.nodes.values()]


@pytest.fixture(scope="module")
def site(bundle, tmp_path_factory):
    """Hosts that have this controller's network alone, with nothing installed, and a controller that has the bundle alone."""
    path, _keyring = bundle
    controller = tmp_path_factory.mktemp("controller")
    run(sys.executable, "-m", "venv", controller / "venv")
    run(controller / "venv/bin/pip", "install", "--quiet", "--no-index", "--find-links", path / "controller", "ansible-core")
    (controller / "cache").mkdir()
    cluster = Cluster(GROUP + "offline")
    for node in cluster.nodes.values():
        node.ask("ip route del default; ! ls /opt/criu /opt/torque 2> /dev/null")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "%s:%s" % (controller / "venv/bin", os.environ["PATH"]))
        patch.setenv("ANSIBLE_COLLECTIONS_PATH", str(shutil.copytree(path / "controller/collections", controller / "collections")))
        patch.setenv("CKPT_TORQUE_CACHE", str(controller / "cache"))
        yield cluster
    assert not list((controller / "cache").iterdir())
    hosts("down", GROUP + "offline")


def test_bundle_has_what_hosts_and_controller_need(cluster, bundle):
    path, _keyring = bundle
    sums = dict(reversed(line.split("  ")) for line in (path / "SHA256SUMS").read_text().splitlines())
    assert sums == {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in path.rglob("*")
                    if file.is_file() and not file.name.startswith("SHA256SUMS")}
    names = {name.partition("-")[0] for name in sums}
    assert names >= {"artifacts/criu", "controller/ansible_core", "packages/debian13", "sources/criu",
                     "controller/collections/ansible_collections/ckpt/torque/MANIFEST.json"}
    assert ("artifacts/torque" in names) == cluster.torque


def test_altered_bundle_is_refused(cluster, bundle, tmp_path):
    path, keyring = bundle
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    with (copy / "packages" / (PLATFORM + ".tar")).open("r+b") as stream:
        stream.write(b"x")
    assert refusal(cluster, copy) == (
        "bundle_source %s is not what was written (packages/%s.tar: FAILED; sha256sum: WARNING: 1 computed checksum did NOT match); copy "
        "it again; nothing was changed." % (copy, PLATFORM))
    (copy / "packages/debian12-x86_64.tar").touch()
    assert refusal(cluster, copy) == (
        "bundle_source %s is not what was written (packages/debian12-x86_64.tar is not in SHA256SUMS); copy it again; nothing was changed."
        % copy)
    (copy / "packages/debian12-x86_64.tar").unlink()
    (copy / "SHA256SUMS").write_text((copy / "SHA256SUMS").read_text().replace("packages", "package"))
    assert re.fullmatch(r"bundle_source %s is not signed with a key of bundle_keyring %s \(gpgv: BAD signature from [^()]*\); copy it "
                        r"again, or name a keyring that has the key of whoever has signed it; nothing was changed\."
                        % (re.escape(str(copy)), re.escape(str(keyring))), refusal(cluster, copy, keyring))
    (copy / "SHA256SUMS").unlink()
    assert refusal(cluster, copy) == (
        "bundle_source %s is no bundle (%s/SHA256SUMS is missing); name the directory that ckpt.torque.bundle has written; nothing was "
        "changed." % (copy, copy))


def refusal(cluster, path, keyring=None):
    done = cluster.playbook("site", bundle_source=str(path), **({"bundle_keyring": str(keyring)} if keyring else {}))
    assert done.code == 2 and "changed=1" not in done.out, done.out
    return json.loads('"%s"' % re.search(r'"msg": "(bundle_source .*?nothing was changed[.])"', done.out).group(1))


def test_platform_of_which_the_bundle_has_no_packages(site, bundle, tmp_path):
    path, _keyring = bundle
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    (copy / "packages" / (PLATFORM + ".tar")).unlink()
    sums = copy / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if "  packages/" not in line))
    done = site.module("node1", "packages", name=["zstd"])
    assert done.code == 2 and "node1: apt cannot install zstd: " in done.out, done.out  # there is no network
    done = site.playbook("site", **dict(MISSING, bundle_source=str(copy)))
    assert done.code == 2
    assert re.search("is missing, and bundle_source has no packages for %s \\(%s/packages/%s.tar\\); write the bundle with a host of "
                     "that system; nothing was changed" % (PLATFORM, copy, PLATFORM), done.out), done.out


def test_site_is_set_up_from_the_bundle(site, bundle, tmp_path):
    path, keyring = bundle
    variables = dict(MISSING, bundle_source=str(path), bundle_keyring=str(keyring))
    done = site.playbook("site", **variables)
    assert done.code == 0, done.out
    assert site.nodes["node1"].ask("zstd --version")
    assert site.nodes["node1"].ask("ls /etc/apt/sources.list.d; find /tmp /var/tmp /root/.ansible -name 'ckpt-torque-*'") == ""
    done = site.playbook("site", **variables)
    assert done.code == 0 and not any(done.changed(name) for name in site.nodes), done.out
    done = site.playbook("validate", validate_directory=str(tmp_path), **variables)
    assert done.code == 0, done.out
    results = json.loads((pathlib.Path(tmp_path) / "results.json").read_text())["results"]
    assert {result["level"] for result in results if result["passed"]} == {"L0", "L1", "L2"} | ({"L3"} if site.torque else set())
