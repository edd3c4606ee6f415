"""images: what torque-ckpt prints of a store, counted."""

import json

import pytest
from ansible_collections.ckpt.torque.plugins.module_utils.report import images, results

ONLY = "the image restarts on vm only"


def image(number, **facts):
    return dict({"job": "%d.head" % number, "owner": "alice", "image": "ckpt.%d" % number, "bytes": 1 << 20, "state": "whole",
                 "problem": "", "nodes": 3, "why": ""}, **facts)


def summarize(*entries, problems=()):
    return images.summarize_images("/shared/ckpt default", json.dumps({"images": entries, "problems": list(problems)}))


def test_images_are_counted():
    damaged = image(4, state="damaged", problem="image ckpt.4 is damaged\x1b[31m")
    del damaged["nodes"], damaged["why"]
    summary = summarize(image(1), image(2, nodes=1, why=ONLY), image(3, nodes=0, why=ONLY), damaged, image(5, state="writing"),
                        problems=["store /other cannot be read"])
    assert results.find_fault(summary, results.STORED) == ""
    assert {name: value for name, value in summary.items() if isinstance(value, int)} == {
        "images": 4, "bytes": 4 << 20, "everywhere": 1, "somewhere": 1, "nowhere": 2}
    assert images.describe_stores([summary]) == [
        "store /shared/ckpt default: 4 images, 4.0 MiB; can be restarted on every node: 1, on some: 1, on none: 2",
        "image ckpt.3 of job 3.head (alice) can be restarted on no node: " + ONLY,
        "image ckpt.4 of job 4.head (alice) can be restarted on no node: image ckpt.4 is damaged?[31m",
        "store /shared/ckpt default: store /other cannot be read"]


def test_empty_store():
    assert images.describe_stores([summarize()]) == ["store /shared/ckpt default: no images"]


@pytest.mark.parametrize("text, seen", [("", "nothing"), ("Traceback", "Traceback"), ("{}", "{}"), ("[]", "[]")])
def test_what_is_no_list(text, seen):
    summary = images.summarize_images("/shared/ckpt default", text)
    assert results.find_fault(summary, results.STORED) == ""
    assert summary["problems"] == ["torque-ckpt printed no list of images: " + seen]
