"""pages: what the pages of the reports have in common."""
import re

from ansible_collections.ckpt.torque.plugins.plugin_utils import pages


def test_version(repository):
    assert pages.read_version() == re.search(r"(?m)^version: (.+)$", (repository / "galaxy.yml").read_text()).group(1)


def test_version_of_an_installed_collection(tmp_path):
    (tmp_path / "MANIFEST.json").write_text('{"collection_info": {"version": "1.2.3"}}')
    assert pages.read_version(str(tmp_path)) == "1.2.3"
