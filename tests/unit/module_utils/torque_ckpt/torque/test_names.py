import pytest

from torque_ckpt.torque import names


@pytest.mark.parametrize("directory, job_id", [
    ("12.head.CK", "12.head"), ("12-3.head.cluster.example.CK", "12[3].head.cluster.example"), ("12.CK", "12"), ("12-3.CK", "12[3]"),
    ("12.head-2.example.CK", "12.head-2.example"), ("12.10-0-0-1.CK", "12.10-0-0-1"),
    ("12.head", None), (".CK", None), ("head.CK", None), ("12.head.ck", None), ("", None)])
def test_job_of_a_directory(directory, job_id):
    assert names.find_job_id(directory) == job_id
    if job_id:
        assert names.get_directory_name(job_id) == directory


@pytest.mark.parametrize("images, job_id", [
    ([], "12[3].head"), (["ckpt.12[3].head.7", "incarnation"], "12[3].head"), ([".ckpt.x", "ckpt.12-3.head.7"], "12-3.head")])
def test_element_of_an_array_is_known_by_its_images(images, job_id):
    """TORQUE 2.4 has hyphens in its ids, too."""
    assert names.find_job_id("12-3.head.CK", images) == job_id
    assert names.get_directory_name(job_id) == "12-3.head.CK"


@pytest.mark.parametrize("job_id, number", [("12.head", "12"), ("12[3].head", "12"), ("12[].head", "12"), ("12", "12"), ("head", "")])
def test_elements_of_an_array_share_the_number(job_id, number):
    assert names.get_job_number(job_id) == number


@pytest.mark.parametrize("name, parts", [
    ("ckpt.12.head.1290000000", ("ckpt.12.head", 1290000000)), ("ckpt.12[3].head.7", ("ckpt.12[3].head", 7)),
    ("ckpt.7", None), ("ckpt.12.head", None), (".ckpt.12.head.7@node1", None), ("manifest.json", None)])
def test_parts_of_an_images_name(name, parts):
    assert names.split_image_name(name) == parts
