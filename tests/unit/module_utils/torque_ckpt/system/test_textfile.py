"""textfile: the text of a file that may not be there."""
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system.textfile import read_text


def test_read_text(tmp_path):
    (tmp_path / "file").write_bytes(b"two\nlines \xff\n")
    assert read_text(str(tmp_path / "file")) == "two\nlines \ufffd\n"
    assert read_text(str(tmp_path / "missing")) == ""
    assert read_text(str(tmp_path)) == ""
