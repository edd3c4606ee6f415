"""mounts: /proc/self/mountinfo read right."""
import pytest

from torque_ckpt.system import mounts

TABLE = mounts.read_mounts(b"""\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro
30 22 0:40 / /shared rw,relatime - nfs4 head:/export rw,vers=4.2,hard
31 22 0:41 / /shared/my\\040store ro,nosuid - nfs4 head:/other ro,vers=3
32 30 0:42 / /shared rw - tmpfs over rw
""")


@pytest.mark.parametrize("path, point, kind", [
    ("/srv", "/", "ext4"), ("/sharedx/ckpt", "/", "ext4"), ("/shared", "/shared", "tmpfs"),
    ("/shared/my store/x", "/shared/my store", "nfs4")])
def test_on_which_mount_a_path_lies(path, point, kind):
    mount = mounts.find_mount(path, TABLE)
    assert (mount.point, mount.type) == (point, kind)


def test_mount_in_full():
    mount = mounts.find_mount("/shared/my store", TABLE)
    assert mount == mounts.Mount("/shared/my store", "head:/other", "nfs4", ["nosuid", "ro", "vers=3"])


def test_this_node():
    mounted = mounts.read_mounts()
    assert mounted["/proc"].type == "proc" and "/" in mounted
