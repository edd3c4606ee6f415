"""textfile: the text of a file that may not be there."""
import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.system.textfile import read_text


def test_read_text(tmp_path):
    (tmp_path / "file").write_bytes(b"two\nlines \xff\n")
    assert read_text(str(tmp_path / "file")) == "two\nlines \ufffd\n"
    assert read_text(str(tmp_path / "missing")) == ""
    assert read_text(str(tmp_path)) == ""


def test_read_text_that_is_to_be_there(tmp_path):
    assert read_text(str(tmp_path / "missing"), FileNotFoundError) == ""
    with pytest.raises(IsADirectoryError):
        read_text(str(tmp_path), FileNotFoundError)
