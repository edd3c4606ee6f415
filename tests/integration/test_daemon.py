"""The module daemon with a real systemd: a daemon that executes itself anew at a signal, and is restarted where that is not enough."""
import json
import textwrap

import pytest

UNIT, PROGRAM, CONFIG = "/etc/systemd/system/renewing.service", "/usr/local/bin/renewing", "/etc/renewing.conf"
SERVICE = "[Service]\nType=exec\nExecStart=/usr/bin/python3 %s\n[Install]\nWantedBy=multi-user.target\n" % PROGRAM
RENEWING = textwrap.dedent("""\
    import os, signal, sys
    def renew(*_arguments):
        os.execve(sys.executable, [sys.executable] + sys.argv, dict(os.environ, RENEWED="x" + os.environ.get("RENEWED", "")))
    signal.signal(signal.SIGWINCH, renew)
    while True:
        signal.pause()
    """)
WAITING = "import signal\nsignal.pause()\n"


@pytest.fixture
def daemon(cluster, node1):
    """Return a function that has the daemon run with its files: (what the module reports, its pid, how often it was renewed)."""
    def write(path, text):
        node1.ask("cat > %s <<'X'\n%sX\nsleep 0.1" % (path, text))  # the clocks of files are coarse

    def run(*arguments, **parameters):
        parameters = dict({"name": "renewing.service", "files": [UNIT, PROGRAM, CONFIG], "renew_signal": "SIGWINCH"}, **parameters)
        done = cluster.module("node1", "daemon", **parameters)
        report = json.loads(done.out.split("=>", 1)[1])
        pid = node1.ask("systemctl show --value -p MainPID renewing")
        renewed = node1.ask("tr '\\0' '\\n' < /proc/%s/environ | sed -n 's/^RENEWED=//p'" % pid) if pid != "0" else ""
        return report, pid, len(renewed)
    for path, text in ((UNIT, SERVICE), (PROGRAM, RENEWING), (CONFIG, "1\n")):
        write(path, text)
    run.write = write
    yield run
    node1.ask("systemctl disable --now renewing; rm -r {0}* {1} {2} /run/ckpt-torque-reloaded-renewing.service; "
              "systemctl daemon-reload; true".format(UNIT, PROGRAM, CONFIG))


def test_daemon_that_executes_itself_anew(daemon, node1):
    report, pid, renewed = daemon()
    assert (report["action"], renewed) == ("start", 0)
    assert daemon()[0]["changed"] is False
    daemon.write(CONFIG, "2\n")
    report, *process = daemon(restart=False)
    assert (report["action"], report["restart_due"], process) == ("", True, [pid, 0])
    report, *process = daemon()
    assert (report["action"], report["newer"], report["restart_due"], process) == ("renew", [CONFIG], False, [pid, 1])
    assert daemon()[0]["changed"] is False
    daemon.write(PROGRAM, WAITING)  # what runs is the one before, which knows the signal
    report, *process = daemon()
    assert (report["action"], process) == ("renew", [pid, 2])
    daemon.write(PROGRAM, RENEWING)
    report, later, renewed = daemon()
    assert (report["action"], later != pid, renewed) == ("restart", True, 0)


@pytest.mark.parametrize("path", [UNIT, UNIT + ".d/own.conf"])
def test_daemon_whose_unit_was_changed(daemon, node1, path):
    """systemd alone knows what is in it."""
    _report, pid, _renewed = daemon()
    node1.ask("mkdir -p %s.d" % UNIT)
    daemon.write(path, "[Service]\nEnvironment=CHANGED=1\n" if path != UNIT else SERVICE + "# changed\n")
    daemon.write(CONFIG, "2\n")
    report, later, renewed = daemon()
    assert (report["action"], later != pid, renewed) == ("restart", True, 0)
    assert daemon()[0]["changed"] is False


def test_unit_that_takes_the_place_of_another(daemon, node1):
    """As on a node whose TORQUE brought its own. systemd says of such a unit neither that it is new nor that it needs a reload."""
    stock = "/usr/lib/systemd/system/renewing.service"
    node1.ask("mv {0} {1}; sed -i s/exec/simple/ {1}; systemctl daemon-reload; systemctl enable --now renewing".format(UNIT, stock))
    try:
        daemon.write(UNIT, SERVICE)
        node1.ask("sleep 0.1; systemctl restart renewing")  # by hand: the process is newer than the unit
        report, _pid, _renewed = daemon()
        assert (report["action"], report["newer"]) == ("restart", [UNIT])
        assert node1.ask("systemctl show --value -p FragmentPath -p Type renewing").split() == ["exec", UNIT]
        assert daemon()[0]["changed"] is False
    finally:
        node1.ask("rm " + stock)


def test_daemon_that_has_failed_several_times(daemon, node1):
    """Whoever has taken the cause away runs the playbook again at once; systemd would still refuse to start it."""
    check = "if [ -e /run/renewing.port ]; then echo the port is in use; exit 1; fi"
    daemon.write(UNIT, SERVICE + "[Service]\nRestart=always\nExecStartPre=/bin/sh -c '%s'\n" % check +
                 "[Unit]\nStartLimitIntervalSec=600\n")
    node1.ask("touch /run/renewing.port")
    report, pid, _renewed = daemon()
    assert report["msg"].startswith("systemctl start renewing.service: "), report
    assert report["msg"].endswith("; it wrote: the port is in use"), report
    assert pid == "0"
    node1.ask("for _ in $(seq 100); do [ $(systemctl is-active renewing) = failed ] && break; sleep 0.1; done; rm /run/renewing.port; "
              "! systemctl start renewing 2> /dev/null")
    report, pid, _renewed = daemon()
    assert (report["action"], pid != "0") == ("start", True)


def test_signal_that_there_is_not(daemon):
    report, pid, _renewed = daemon(renew_signal="WINCH")
    assert report["msg"] == "renew_signal: WINCH is not the name of a signal, as SIGHUP is"
    assert pid == "0"
