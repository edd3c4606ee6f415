import pytest

from torque_ckpt import errors
from torque_ckpt.errors import HookError
from torque_ckpt.torque import contract

CHECKPOINT = ["4711", "12.head", "alice", "users", "/shared/ckpt/12.head.CK", "ckpt.12.head.1321009871", "15", "3"]
RESTART = CHECKPOINT[:6]

DIRECTORY = "an absolute path of plain characters without . and .."
ADVICE = {"directory": "; give the job or its queue another checkpoint directory"}

MALFORMED = [
    (0, "session id", "a process id",
     ["", "abc", "-1", "+1", "1.5", " 1", "1 ", "1\n", "0x10", "1_000", "12345678901", "\u0663", "1;id", "$(id)", "--"]),
    (1, "job id", "a TORQUE job id",
     ["", "-", "head", ".head", "12.", "12.-head", "12..head", "12[.head", "12].head", "12[a].head", "12[3]x.head", "12[1][2].head",
      "12-.head", "12 .head", "12.head\n", "12\n.head", "12.head;id", "12.$(id)", "12`id`", "12|id", "../12.head", "12.head/x",
      "12.he_ad", "12.h\u00e9ad", "-12.head"]),
    (2, "user", "an account name",
     ["", "-", "-alice", ".alice", "al ice", "alice\n", "\nalice", "al/ice", "../alice", "$alice", "al$ice", "alice;id", "`id`", "a|b",
      "alice&", "a'b", 'a"b', "a\\b", "al:ice", "\u00e4lice"]),
    (3, "group", "a group name",
     ["", "--", "-users", "us ers", "users\n", "us/ers", "users;id", "$(id)", "a>b", "us*", "us?", "~users"]),
    (4, "directory", DIRECTORY,
     ["", "-", "ckpt", "shared/ckpt/12.head.CK", "./ckpt", "../ckpt", "/", "//", "/shared//ckpt", "/shared/ckpt/", "//shared/ckpt",
      "/shared/ck pt", "/shared/ckpt\n", "/shared\n/ckpt", "\n/shared/ckpt", "/shared/ckpt;id", "/tmp/$(id)", "/tmp/`id`", "/tmp/a|b",
      "/tmp/a&b", "/tmp/a>b", "/tmp/a<b", "/tmp/a'b", '/tmp/a"b', "/tmp/a\\b", "/tmp/a*", "/tmp/a?", "/tmp/~a", "/tmp/$HOME", "/tmp/{a}",
      "/tmp/(a)", "/tmp/a!", "/tmp/#a", "/tmp/\u00fc", "/tmp/a\t",
      "/..", "/.", "/shared/..", "/shared/.", "/shared/../etc", "/shared/./ckpt", "/../shared", "/shared/ckpt/../../etc/12.head.CK"]),
    (5, "image name", "a plain file name",
     ["", "-", ".", "..", ".hidden", "-rf", "a/b", "/a", "../a", "a b", "a\n", "\na", "a;id", "$(id)", "`id`", "a|b", "a&b", "a*", "a:b",
      "a@b", "\u00fc"]),
]

ONLY_CHECKPOINT = [
    (6, "signal", "0 (continue) or 15 (hold)", ["", "-", "1", "9", "14", "16", "150", "-15", "+15", "15 ", "15\n", "TERM", "15;id", "1e1"]),
    (7, "depth", "a number", ["", "--", "-1", "+1", "1.5", "all", "1\n", " 1", "1;id", "$(id)", "12345678901"]),
]

OVERLONG = [
    (1, "job id", "a TORQUE job id", "1" * 256),
    (2, "user", "an account name", "a" * 256),
    (3, "group", "a group name", "a" * 256),
    (4, "directory", DIRECTORY, "/" + "a" * 4095),
    (5, "image name", "a plain file name", "a" * 256),
]


def flat(table):
    return [(position, what, wanted, value) for position, what, wanted, values in table for value in values]


def with_argument(argv, position, value):
    return argv[:position] + [value] + argv[position + 1:]


def test_checkpoint_gives_every_value_its_name():
    assert contract.parse_checkpoint(CHECKPOINT) == contract.Call(
        session_id=4711, job_id="12.head", user="alice", group="users", directory="/shared/ckpt/12.head.CK",
        name="ckpt.12.head.1321009871", signal=15, depth=3)


def test_restart_gives_every_value_its_name_and_has_no_signal_and_depth():
    assert contract.parse_restart(RESTART) == contract.Call(
        session_id=4711, job_id="12.head", user="alice", group="users", directory="/shared/ckpt/12.head.CK",
        name="ckpt.12.head.1321009871", signal=None, depth=None)


@pytest.mark.parametrize("position, field", [(0, "session_id"), (3, "group"), (7, "depth")])
def test_a_dash_stands_for_an_empty_value(position, field):
    assert getattr(contract.parse_checkpoint(with_argument(CHECKPOINT, position, "-")), field) is None


@pytest.mark.parametrize("text, number", [("0", contract.CONTINUE), ("15", contract.HOLD)])
def test_the_signal_says_continue_or_hold(text, number):
    assert contract.parse_checkpoint(with_argument(CHECKPOINT, 6, text)).signal == number


@pytest.mark.parametrize("job_id", [
    "12", "12.head", "0.h", "12[3].head", "12[].head", "12[0]", "12-3.head", "12[3]-4.head", "12.head.cluster.example.org", "12.10-0-0-1",
    "1" * 255])
def test_job_ids_of_torque_are_taken(job_id):
    assert contract.parse_checkpoint(with_argument(CHECKPOINT, 1, job_id)).job_id == job_id
    assert contract.parse_restart(with_argument(RESTART, 1, job_id)).job_id == job_id


@pytest.mark.parametrize("position, field, value", [
    (0, "session_id", "4194304"),
    (2, "user", "svc-build.01"), (2, "user", "alice@EXAMPLE.ORG"), (2, "user", "machine$"), (2, "user", "_daemon"), (2, "user", "a" * 255),
    (3, "group", "domain_users"), (3, "group", "0"),
    (4, "directory", "/c"), (4, "directory", "/shared/.CK"), (4, "directory", "/shared/..."), (4, "directory", "/shared/..CK"),
    (4, "directory", "/var/a,b:c@d+e=f/12[3].head.CK"), (4, "directory", "/" + "a" * 4094),
    (5, "name", "ckpt.12[3].head.1321009871"), (5, "name", "_"), (5, "name", "a..b"), (5, "name", "a" * 255),
])
def test_plain_values_are_taken(position, field, value):
    wanted = int(value) if field == "session_id" else value
    assert getattr(contract.parse_checkpoint(with_argument(CHECKPOINT, position, value)), field) == wanted
    assert getattr(contract.parse_restart(with_argument(RESTART, position, value)), field) == wanted


@pytest.mark.parametrize("position, what, wanted, value", flat(MALFORMED))
def test_malformed_value_is_refused_by_both_hooks(position, what, wanted, value):
    for hook, read, argv in (("checkpoint", contract.parse_checkpoint, CHECKPOINT), ("restart", contract.parse_restart, RESTART)):
        with pytest.raises(HookError) as caught:
            read(with_argument(argv, position, value))
        assert str(caught.value) == "%s: %s %s is not %s; nothing was done%s" % (hook, what, ascii(value), wanted, ADVICE.get(what, ""))
        assert caught.value.code == errors.USAGE


@pytest.mark.parametrize("position, what, wanted, value", flat(ONLY_CHECKPOINT))
def test_malformed_signal_or_depth_is_refused(position, what, wanted, value):
    with pytest.raises(HookError) as caught:
        contract.parse_checkpoint(with_argument(CHECKPOINT, position, value))
    assert str(caught.value) == "checkpoint: %s %s is not %s; nothing was done" % (what, ascii(value), wanted)
    assert caught.value.code == errors.USAGE


@pytest.mark.parametrize("position, what, wanted, value", OVERLONG, ids=[entry[1] for entry in OVERLONG])
def test_overlong_value_is_refused_and_shown_in_part(position, what, wanted, value):
    for hook, read, argv in (("checkpoint", contract.parse_checkpoint, CHECKPOINT), ("restart", contract.parse_restart, RESTART)):
        with pytest.raises(HookError) as caught:
            read(with_argument(argv, position, value))
        assert str(caught.value) == "%s: %s '%s...' is not %s; nothing was done%s" % (hook, what, value[:77], wanted, ADVICE.get(what, ""))
        assert caught.value.code == errors.USAGE


@pytest.mark.parametrize("length, shown", [(80, "x" * 80), (81, "x" * 77 + "...")])
def test_a_value_of_up_to_80_characters_is_shown_whole(length, shown):
    with pytest.raises(HookError) as caught:
        contract.parse_restart(with_argument(RESTART, 1, "x" * length))
    assert str(caught.value) == "restart: job id '%s' is not a TORQUE job id; nothing was done" % shown


def test_bytes_that_are_no_text_are_refused_and_shown_as_ascii():
    with pytest.raises(HookError) as caught:
        contract.parse_restart(with_argument(RESTART, 2, "al\udcffice"))
    assert str(caught.value) == "restart: user 'al\\udcffice' is not an account name; nothing was done"


@pytest.mark.parametrize("number", range(8))
def test_checkpoint_with_too_few_arguments(number):
    with pytest.raises(HookError) as caught:
        contract.parse_checkpoint(CHECKPOINT[:number])
    assert str(caught.value) == (
        "checkpoint: expected 8 arguments (session_id job_id user group directory name signal depth), got %d; pbs_mom cuts lines over "
        "1024 bytes, so look for an overlong checkpoint directory; nothing was done" % number)
    assert caught.value.code == errors.USAGE


@pytest.mark.parametrize("number", range(6))
def test_restart_with_too_few_arguments(number):
    with pytest.raises(HookError) as caught:
        contract.parse_restart(CHECKPOINT[:number])
    assert str(caught.value) == (
        "restart: expected 6 arguments (session_id job_id user group directory name), got %d; pbs_mom cuts lines over 1024 bytes, so look "
        "for an overlong checkpoint directory; nothing was done" % number)
    assert caught.value.code == errors.USAGE


@pytest.mark.parametrize("more", [["x"], ["x", "y"]])
def test_group_with_a_space(more):
    with pytest.raises(HookError) as caught:
        contract.parse_checkpoint(CHECKPOINT + more)
    assert str(caught.value) == (
        "checkpoint: expected 8 arguments (session_id job_id user group directory name signal depth), got %d: pbs_mom's shell splits names "
        "at a space; give the user a group, and the job a checkpoint directory, without spaces; nothing was done" % (8 + len(more)))
    assert caught.value.code == errors.USAGE


@pytest.mark.parametrize("argv", [["/bin/bash"], ["/bin/sh", "-l"], ["/opt/my shell", "", "-", "a b", "$x;y", "\n"]])
def test_run_takes_a_shell_and_leaves_its_arguments_alone(argv):
    assert contract.parse_run(argv) == argv


def test_run_without_a_shell():
    with pytest.raises(HookError) as caught:
        contract.parse_run([])
    assert str(caught.value) == "run: expected a shell and its arguments, got none; the job was not started"
    assert caught.value.code == errors.USAGE


@pytest.mark.parametrize("shell", ["", "-", "bash", "-bash", "./bash", "bin/bash", "~/bash", " /bin/bash"])
def test_run_with_a_shell_that_is_not_absolute(shell):
    with pytest.raises(HookError) as caught:
        contract.parse_run([shell, "-l"])
    assert str(caught.value) == "run: shell %s is not an absolute path; nothing was done" % ascii(shell)
    assert caught.value.code == errors.USAGE


# Copies

@pytest.mark.parametrize("path, parts", [
    ("/var/spool/torque/checkpoint/12.head.CK/ckpt.12.head.7", ("12.head.CK", "ckpt.12.head.7")),
    ("/var/spool/torque/checkpoint//12[3].head.CK/ckpt.12[3].head.7", ("12[3].head.CK", "ckpt.12[3].head.7")),
    ("/home/alice/job.o12", None), ("/home/alice/ckpt.12.head.7", None), ("/x/12.head.CK/core", None), ("/x/12.head.CK/ckpt.7/more", None),
    ("/x/a b.CK/ckpt.12.head.7", None), ("/x/12.head.CK/ckpt.12.head.7;id", None)])
def test_what_is_an_image(path, parts):
    copies = [contract.parse_copy(["copy", "-rpB", path, "alice@head:" + path]),
              contract.parse_copy(["copy", "-rpB", "alice@head:" + path, path])]
    if parts is None:
        assert copies == [None, None]
    else:
        assert [copy[:3] + copy[5:] for copy in copies] == [
            (True, False, "alice@head") + parts, (False, True, "alice@head") + parts]


@pytest.mark.parametrize("arguments", [[], ["-rpB"], ["-rpB", "/a", "/b"]])
def test_copy_of_something_else(arguments):
    assert contract.parse_copy(["copy"] + arguments) is None
