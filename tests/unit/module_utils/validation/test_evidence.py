"""evidence: the job's script, manifests, and the judgement."""

import subprocess

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.selftest import workload
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.selftest.roundtrip import RoundTripError
from ansible_collections.ckpt.torque.plugins.module_utils.validation import evidence

GOOD = workload.Evidence("1 1 1 aa\nend 1\n")


@pytest.mark.parametrize("tail", ["", " | tee {}/copy"], ids=["plain", "piped"])
def test_script(tmp_path, tail):
    """It ends with the program's status, whatever the program's output goes through."""
    work = tmp_path / "it's a $(touch x)"
    work.mkdir()
    (work / "program.py").write_text(workload.PROGRAM)
    (work / "stop").write_text("")
    script = evidence.build_script("job $NAME", str(work), 0.01, tail.format(tmp_path))
    done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=False,
                          env={"NAME": "12", "PATH": "/usr/local/bin:/usr/bin:/bin"})
    assert (done.returncode, done.stdout, done.stderr) == (7, "end 0\n", "job 12 starts\njob 12 ends with 7\n")


def test_judge():
    assert evidence.judge_job(GOOD, 7, ["job 5 starts", "job 5 ends with 7"], "job 5") is None


@pytest.mark.parametrize("status, errors, least, words", [
    (7, ["job 5 starts"], 0, "the job's stderr is ['job 5 starts'], expected ['job 5 starts', 'job 5 ends with 7']"),
    (0, [], 0, "the job's exit status is 0, expected 7"),
    (7, [], 2, "the job ended at 1, but its last image was written at 2: it is not from that image"),
])
def test_judge_of_what_is_not_as_it_should_be(status, errors, least, words):
    with pytest.raises(RoundTripError) as caught:
        evidence.judge_job(GOOD, status, errors, "job 5", least=least)
    assert str(caught.value) == words


def test_manifest():
    manifest = evidence.parse_manifest('{"engine": {"name": "criu"}, "compression": "zstd"}', "/image")
    assert evidence.describe_image(manifest) == {"engine": {"name": "criu"}, "compression": "zstd"}
    del manifest["compression"]
    assert evidence.describe_image(manifest)["compression"] == ""


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"engine": 1}', '{"engine": "criu"}'])
def test_manifest_that_cannot_be_read(text):
    with pytest.raises(RoundTripError, match="^the image /image has no manifest that can be read$"):
        evidence.parse_manifest(text, "/image")
