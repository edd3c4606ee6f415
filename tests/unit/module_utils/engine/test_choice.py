"""engine_choice: which engine a kernel can run, and the exact way out when it cannot."""

import pytest

from ansible_collections.ckpt.torque.plugins.module_utils.engine import choice

NO_BLCR = "BLCR cannot run on kernel %s: with these hooks it runs on kernels 3.5 to 3.17; set checkpoint_engine to criu or auto"
NO_BLCR_NO_CRIU = ("BLCR cannot run on kernel %s: with these hooks it runs on kernels 3.5 to 3.17; boot a kernel in that range, or 5.9 and "
                   "newer for CRIU")
NO_CRIU = "CRIU cannot run as an ordinary user on kernel %s: it needs 5.9 or newer; set checkpoint_engine to blcr or auto"
NO_CRIU_NO_BLCR = "CRIU cannot run as an ordinary user on kernel %s: it needs 5.9 or newer; boot a newer kernel"
NONE = ("no engine can run on kernel %s: BLCR runs on kernels 3.5 to 3.17, CRIU runs as an ordinary user on kernels 5.9 and newer; "
        "boot a kernel in one of these ranges")
ASKED = "asked for, and kernel %s can run it"
BLCR = "kernel %s is between 3.5 and 3.17"
CRIU = "kernel %s is 5.9 or newer"

# release, then for auto, criu and blcr: the engine chosen and the reason, or None and the error
TABLE = [
    ("2.4.37-11.el3", (None, NONE), (None, NO_CRIU_NO_BLCR), (None, NO_BLCR_NO_CRIU)),
    ("2.6.32-754.35.1.el6.x86_64", (None, NONE), (None, NO_CRIU_NO_BLCR), (None, NO_BLCR_NO_CRIU)),
    ("3.4.113", (None, NONE), (None, NO_CRIU_NO_BLCR), (None, NO_BLCR_NO_CRIU)),
    ("3.5.0", ("blcr", BLCR), (None, NO_CRIU), ("blcr", ASKED)),
    ("3.10.0-514.el7.x86_64", ("blcr", BLCR), (None, NO_CRIU), ("blcr", ASKED)),
    ("3.17", ("blcr", BLCR), (None, NO_CRIU), ("blcr", ASKED)),
    ("3.17.8-generic", ("blcr", BLCR), (None, NO_CRIU), ("blcr", ASKED)),
    ("3.18", (None, NONE), (None, NO_CRIU_NO_BLCR), (None, NO_BLCR_NO_CRIU)),
    ("4.18.0-553.el8_10.x86_64", (None, NONE), (None, NO_CRIU_NO_BLCR), (None, NO_BLCR_NO_CRIU)),
    ("5.8", (None, NONE), (None, NO_CRIU_NO_BLCR), (None, NO_BLCR_NO_CRIU)),
    ("5.9", ("criu", CRIU), ("criu", ASKED), (None, NO_BLCR)),
    ("5.14.0-503.el9.x86_64", ("criu", CRIU), ("criu", ASKED), (None, NO_BLCR)),
    ("6.18.0-rc1", ("criu", CRIU), ("criu", ASKED), (None, NO_BLCR)),
    ("10.0", ("criu", CRIU), ("criu", ASKED), (None, NO_BLCR)),
]
CASES = [(release, asked, wanted[0], wanted[1] % release)
         for release, *answers in TABLE for asked, wanted in zip(("auto", "criu", "blcr"), answers)]


@pytest.mark.parametrize("release, asked, engine, text", CASES, ids=["%s-%s" % case[:2] for case in CASES])
def test_choose(release, asked, engine, text):
    if engine:
        assert choice.choose(asked, release) == (engine, text)
        return
    with pytest.raises(choice.EngineError) as caught:
        choice.choose(asked, release)
    assert str(caught.value) == text


@pytest.mark.parametrize("release, wanted", [
    ("2.6.32-754.el6.x86_64", (2, 6)), ("3.10.0-514.el7.x86_64", (3, 10)), ("3.17", (3, 17)), ("5.9-rc1", (5, 9)), ("6.18.44-fc", (6, 18)),
])
def test_numbers(release, wanted):
    assert choice.numbers(release) == wanted


@pytest.mark.parametrize("release", ["", "6", "linux-6.1", "6.x", ".5.9"])
@pytest.mark.parametrize("call", [choice.numbers, lambda release: choice.choose("auto", release)], ids=["numbers", "choose"])
def test_no_version(call, release):
    with pytest.raises(choice.EngineError) as caught:
        call(release)
    assert str(caught.value) == "kernel release '%s' is not a version; set checkpoint_engine to criu or blcr" % release


def test_dotted():
    assert choice.dotted((3, 17)) == "3.17"
