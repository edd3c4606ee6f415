"""What the role torque_build refuses: each by its exact sentence, and afterwards hosts and controller are as they were."""
import functools
import hashlib
import http.server
import json
import pathlib
import re
import tarfile
import threading

import pytest
from refusals import refusal

pytestmark = pytest.mark.usefixtures("untouched")


@pytest.fixture(scope="session")
def tarball(cluster):
    """TORQUE's source on this machine (pathlib.Path)."""
    variables = json.loads(pathlib.Path(cluster.inventory).read_text())["all"]["vars"]
    path = pathlib.Path(variables["torque_source"])
    if "://" in variables["torque_source"]:
        path = pathlib.Path(cluster.inventory).parents[2] / "sources" / ("torque-%s.tar.gz" % variables["torque_version"])
    if not path.is_file():
        pytest.skip("TORQUE's source is not on this machine; name a tarball in TORQUE_SOURCE")
    return path


@pytest.fixture
def build(cluster, tarball, tmp_path):
    """Apply torque_build on node1, which must fail with this sentence and leave nothing, neither there nor in the cache."""
    cache = tmp_path / "cache"
    (cache / "sources").mkdir(parents=True)

    def refused(sentence, **variables):
        # Where it is installed already, nothing is built.
        done = cluster.role("node1", "torque_build", **dict({"torque_build_cache": str(cache), "torque_build_prefix": "/opt/another",
                                                             "torque_source": str(tarball)}, **variables))
        refusal(done, sentence)
        assert list(cache.rglob("*")) == [cache / "sources"]
        assert cluster.nodes["node1"].run("ls -d /var/tmp/torque-*").code != 0
    return refused


@pytest.fixture
def address(tmp_path):
    """Where a web server gives what is in tmp_path (str)."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield "http://127.0.0.1:%d" % server.server_port
    server.shutdown()
    server.server_close()


SHA256 = hashlib.sha256(b"foo").hexdigest()


def test_wrong_checksum(build, tmp_path):
    (tmp_path / "foo.tar.gz").write_text("foo")
    build("torque_source %s/foo.tar.gz has checksum %s, but torque_source_checksum is 1234; fetch the file again, "
          "or correct the checksum; nothing was built." % (tmp_path, SHA256),
          torque_source="%s/foo.tar.gz" % tmp_path, torque_source_checksum="sha256:1234")


def test_wrong_checksum_of_a_download(build, tmp_path, address):
    (tmp_path / "foo.tar.gz").write_text("foo")
    build("torque_source %s/foo.tar.gz cannot be downloaded (The checksum did not match 1234; it was %s); correct torque_source or "
          "torque_source_checksum, or put the tarball on the controller and name its path in torque_source; nothing was built."
          % (address, SHA256), torque_source="%s/foo.tar.gz" % address, torque_source_checksum="sha256:1234")


def test_address_that_has_no_source(build, address):
    build("torque_source %s/none.tar.gz cannot be downloaded (Request failed, HTTP Error 404: File not found); correct torque_source or "
          "torque_source_checksum, or put the tarball on the controller and name its path in torque_source; nothing was built." % address,
          torque_source="%s/none.tar.gz" % address)


def test_source_that_is_no_file(build, tmp_path):
    build("torque_source %s is not a file on the controller; put the tarball there or name a URL; nothing was built." % tmp_path,
          torque_source=str(tmp_path))


def test_truncated_tarball(build, tarball, tmp_path):
    short = tmp_path / "short.tar.gz"
    short.write_bytes(tarball.read_bytes()[:1000000])
    build("torque_source %s cannot be unpacked (gzip: stdin: unexpected end of file; tar: Unexpected EOF in archive); is it cut short, or "
          "no tar archive? Remove it and fetch it again; nothing was built." % short, torque_source=str(short))


def test_file_that_is_no_archive(build, tmp_path):
    (tmp_path / "page.tar.gz").write_text("<html>sign in first</html>\n" * 100)
    build("torque_source %s/page.tar.gz cannot be unpacked (tar: This does not look like a tar archive; tar: Skipping to next header); "
          "is it cut short, or no tar archive? Remove it and fetch it again; nothing was built." % tmp_path,
          torque_source="%s/page.tar.gz" % tmp_path)


def test_tree_that_is_not_torque(build, tmp_path):
    with tarfile.open(str(tmp_path / "other.tar.gz"), "w:gz") as archive:
        archive.add(__file__, "other/README")
    build("torque_source %s/other.tar.gz is not a TORQUE source tree, which has src/resmom, src/server and a configure.ac that names "
          "torque; correct torque_source or torque_version; nothing was built." % tmp_path, torque_source="%s/other.tar.gz" % tmp_path)


def test_tree_of_another_version(build, tarball):
    build("torque_source %s holds TORQUE 6.1.3, but 6.1.2 was asked for; correct torque_source or torque_version; nothing was built."
          % tarball, torque_version="6.1.2")


def test_tree_that_was_changed(cluster, build, tarball, tmp_path):
    with tarfile.open(str(tarball)) as old, tarfile.open(str(tmp_path / "changed.tar.gz"), "w:gz", compresslevel=1) as new:
        for member in old:
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
        new.add(__file__, old.getnames()[0].split("/")[0] + "/buildutils/more.m4")
    build(re.compile(r"torque_source %s/changed\.tar\.gz is not, file by file, the TORQUE 6\.1\.3 of the upstream repository "
                     r"\(digest [0-9a-f]{64}\); if that is intended, set torque_source_checksum; nothing was built\."
                     % tmp_path), torque_source="%s/changed.tar.gz" % tmp_path)


@pytest.mark.parametrize("variables, sentence", [
    ({"torque_version": "7.0"},
     "torque_build_version 7.0 is not a version that this role can build (2.x, 4.x, 6.0, 6.1); correct torque_version; nothing was done."),
    ({"torque_version": "4.5.0"},
     "torque_build_version 4.5.0 is not a version that this role can build: the patch path-as-user does not fit it; set torque_version to "
     "4.5.1; nothing was done."),
    ({"torque_build_directory": "/nowhere/build"},
     "node1: there is no directory /nowhere/build; create it or set torque_build_directory to another directory; nothing was built."),
    ({"torque_build_cgroups_enabled": True, "torque_build_packages": ["patch", "pkg-config", "libhwloc-dev"]},
     re.compile(r"node1: torque_build_cgroups_enabled needs hwloc 1\.x, this host has 2\.[0-9.]+; compile hwloc 1\.11 here and name its "
                r"directory in torque_build_hwloc_path, or leave cgroups out; nothing was built\.")),
    ({"torque_build_packages": ["patch"]},
     "node1: there is no g++, no make, no autoreconf2.69; install it or correct torque_build_packages; nothing was built."),
])
def test_what_cannot_be_built(build, variables, sentence):
    build(sentence, **variables)


def test_no_room_to_build(build, cluster):
    node = cluster.nodes["node1"]
    node.ask("mount -t tmpfs -o size=64m none /var/opt")
    try:
        build("node1: /var/opt has less than 1.5 GiB free; free some space or set torque_build_directory to another directory; "
              "nothing was built.", torque_build_directory="/var/opt")
        assert node.ask("ls -A /var/opt") == ""
    finally:
        node.ask("umount /var/opt")


PATCH = """\
--- a/src/resmom/mom_main.c
+++ b/src/resmom/mom_main.c
@@ -1,3 +1,3 @@
 no such line
-nor this one
+but this one
 nor that one
"""


def test_patch_that_does_not_fit(build, tmp_path):
    (tmp_path / "ours.patch").write_text(PATCH)
    build("patch ours (%s/ours.patch) does not fit this TORQUE 6.1.3: hunk 1 of src/resmom/mom_main.c fails at line 1; unpack the source "
          "afresh, or name a variant for this version; nothing was changed" % tmp_path, torque_build_packages=["patch"],
          torque_build_site_patches=[{"name": "ours", "variants": [{"from": "6.1", "below": "6.2", "file": "%s/ours.patch" % tmp_path}]}])
