"""The options of torque_build: what configure gets, which of them make another artifact, which are refused. Nothing is built."""
import pathlib
import re

import playbooks
import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parents[3]
KNOWN = yaml.safe_load((TOP / "roles/torque_build/defaults/main.yml").read_text())
SAME = {  # variables that say how it is built, not what
    "torque_build_source": "/srv/torque.tar.gz", "torque_build_cache": "/srv/cache", "torque_build_packages": ["gcc"],
    "torque_build_run_packages": ["libxml2"], "torque_build_package_formats": [], "torque_build_user": "builder",
    "torque_build_directory": "/srv/build", "torque_build_jobs": 3, "torque_build_timeout": 60,
    "torque_build_sysv_daemons": ["pbs_mom"], "torque_build_sysv_directory": "/etc/rc.d/init.d",
}
OTHER = {  # the others, and what they put into configure's arguments
    "torque_build_version": ("4.2.10", None),
    "torque_build_source_checksum": ("sha256:12", None),
    "torque_build_prefix": ("/usr/local/torque", "--prefix=/usr/local/torque/KEY"),
    "torque_build_home": ("/var/torque", "--with-server-home=/var/torque"),
    "torque_build_remote_copy": ("mom_rcp", "--with-rcp=mom_rcp"),
    "torque_build_cgroups_enabled": (True, "--enable-cgroups"),
    "torque_build_hwloc_path": ("/opt/hwloc", "--with-hwloc-path=/opt/hwloc"),
    "torque_build_munge_enabled": (True, "--enable-munge-auth"),
    "torque_build_pam_enabled": (True, "--with-pam=/opt/torque/KEY/lib/security"),
    "torque_build_drmaa_enabled": (True, "--enable-drmaa"),
    "torque_build_scheduler_enabled": (False, "--with-sched=no"),
    "torque_build_options": (["--enable-syslog"], "--enable-syslog"),
    "torque_build_patches_excluded": (["mail-spin"], None),
    "torque_build_site_patches": ([{"name": "ours", "variants": [{"from": "6.1", "below": "6.2", "file": __file__}]}], None),
}
PLAIN = "must be an absolute path of plain characters at least two levels deep, without a slash at its end"
REFUSED = {
    "prefix": ({"torque_build_prefix": "/opt/torque/"}, "torque_build_prefix (/opt/torque/) " + PLAIN),
    "prefix of one level": ({"torque_build_prefix": "/torque"}, "torque_build_prefix (/torque) " + PLAIN),
    "home": ({"torque_home": "var/spool/torque"}, "torque_build_home (var/spool/torque) " + PLAIN),
    "directory": ({"torque_build_directory": "/var/tmp/a b"}, "torque_build_directory (/var/tmp/a b) " + PLAIN),
    "cgroups": ({"torque_build_cgroups_enabled": True, "torque_version": "4.2.10"},
                "torque_build_cgroups_enabled needs TORQUE 6.0 or newer"),
    "munge": ({"torque_build_munge_enabled": True, "torque_version": "2.4.8"}, "torque_build_munge_enabled needs TORQUE 2.5 or newer"),
    "munge twice": ({"torque_build_munge_enabled": True, "torque_build_options": ["--enable-munge-exec"]},
                    "torque_build_munge_enabled and --enable-munge-exec exclude each other; leave one of them out"),
    "hwloc": ({"torque_build_hwloc_path": "/opt/hwloc"},
              "torque_build_hwloc_path is used by nothing that is built; set torque_build_cgroups_enabled or leave it out"),
    "blcr": ({"torque_build_options": ["--enable-blcr"]},
             "--enable-blcr in torque_build_options: leave it out: it would tie pbs_mom to libcr, and the patch engine-neutral gives the "
             "server what it needs"),
    "gui": ({"torque_build_options": ["--enable-gui"]},
            "--enable-gui in torque_build_options: leave it out, the artifact has no graphical commands"),
    "directories": ({"torque_build_options": ["--sbindir=/usr/sbin"]},
                    "--sbindir=/usr/sbin in torque_build_options: leave it out, all of the artifact lies in its own directory"),
    "site patch": ({"torque_build_site_patches": [{"name": "ours", "variants": [{"file": "/nowhere.patch"}]}]},
                   "/nowhere.patch of torque_build_site_patches is not a file on the controller; give the path of each patch in full"),
    "two at once": ({"torque_build_munge_enabled": True, "torque_version": "2.4.8", "torque_build_options": ["--with-pam"]},
                    "torque_build_munge_enabled needs TORQUE 2.5 or newer; "
                    "--with-pam in torque_build_options: set torque_build_pam_enabled"),
    "version": ({"torque_version": "7.0"},
                "torque_build_version 7.0 is not a version that this role can build (2.x, 4.x, 6.0, 6.1); correct torque_version"),
}
SETTLED = {
    "--prefix=/x": "torque_build_prefix", "--with-server-home=/x": "torque_home", "--with-scp": "torque_build_remote_copy",
    "--with-rcp=rcp": "torque_build_remote_copy", "--disable-cgroups": "torque_build_cgroups_enabled",
    "--enable-munge-auth": "torque_build_munge_enabled", "--with-hwloc-path=/x": "torque_build_hwloc_path",
    "--with-pam=/x": "torque_build_pam_enabled", "--enable-drmaa": "torque_build_drmaa_enabled",
    "--without-sched": "torque_build_scheduler_enabled",
}
REFUSED.update({option: ({"torque_build_options": [option]}, "%s in torque_build_options: set %s" % (option, variable))
                for option, variable in SETTLED.items()})
CASES = {"default": {}, "enabled": {name: True for name in KNOWN if name.endswith("_enabled")}}
CASES.update({name: {name: value} for name, value in SAME.items()})
CASES.update({name: {name: value} for name, (value, _argument) in OTHER.items()})
CASES["torque_build_hwloc_path"]["torque_build_cgroups_enabled"] = True
PLATFORMS = {"debian11": "libssl1.1", "debian12": "libssl3", "debian13": "libssl3"}
CASES.update({name: {"platform": name + "-x86_64"} for name in PLATFORMS})
CASES.update({name: variables for name, (variables, _sentence) in REFUSED.items()})


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What the role makes of each case: {case: {refused, digest, configure, packages, run_packages}}, in one run of ansible-playbook."""
    top = tmp_path_factory.mktemp("options")
    (top / "files").symlink_to(TOP / "roles/torque_build/files")  # where the role's variables look for patches
    task = {"block": [{"ansible.builtin.include_role": {"name": "ckpt.torque.torque_build", "tasks_from": "preflight", "public": True}},
                      {"ansible.builtin.set_fact": {"answer": {
                          "digest": "{{ __torque_build_digest }}", "configure": "{{ __torque_build_configure }}", "refused": "",
                          "packages": "{{ __torque_build_packages }}", "run_packages": "{{ __torque_build_run_packages }}"}}}],
            "rescue": [{"ansible.builtin.set_fact": {"answer": {"refused": "{{ ansible_failed_result.msg }}"}}}]}
    return playbooks.answers(top, CASES, [task], {"torque_build_artifact": {
        "key": "KEY", "family": "Debian", "platform": "{{ platform | default('debian13-x86_64') }}"}})


def test_every_variable_is_tried():
    assert set(SAME) | set(OTHER) == set(KNOWN)


def test_defaults(answers):
    assert answers["default"]["configure"] == [
        "--prefix=/opt/torque/KEY", "--with-server-home=/var/spool/torque", "--disable-gcc-warnings", "--disable-gui", "--without-tcl",
        "--without-tk", "--with-rcp=scp", "--disable-cgroups", "--disable-munge-auth", "--without-pam", "--disable-drmaa", "--with-sched=c"]
    assert re.fullmatch("[0-9a-f]{12}", answers["default"]["digest"])


@pytest.mark.parametrize("name", sorted(SAME))
def test_what_makes_no_other_artifact(answers, name):
    assert SAME[name] != KNOWN[name]
    assert (answers[name]["digest"], answers[name]["configure"]) == (answers["default"]["digest"], answers["default"]["configure"])


@pytest.mark.parametrize("name", sorted(OTHER))
def test_what_makes_another_artifact(answers, name):
    assert answers[name]["refused"] == ""
    assert [each.get("digest") for each in answers.values()].count(answers[name]["digest"]) == 1
    argument = OTHER[name][1]
    if argument is None:
        assert answers[name]["configure"] == answers["default"]["configure"]
    else:
        option = argument.split("=")[0]
        assert [each for each in answers[name]["configure"] if each.split("=")[0] == option][-1] == argument
        assert argument not in answers["default"]["configure"]


def test_packages_that_options_need(answers):
    more = {key: set(answers["enabled"][key]) - set(answers["default"][key]) for key in ("packages", "run_packages")}
    assert more == {"packages": {"libhwloc-dev", "libmunge-dev", "libpam0g-dev", "gperf"}, "run_packages": {"libhwloc15", "munge"}}
    assert answers["torque_build_packages"]["packages"] == ["gcc"]
    assert not set(answers["torque_build_hwloc_path"]["packages"]) & {"libhwloc-dev"}  # the site brings its own


@pytest.mark.parametrize("name", sorted(PLATFORMS))
def test_releases_of_debian(answers, name):
    """Their artifacts have the same digest: the platform is in the key beside it."""
    assert answers[name]["run_packages"] == ["libxml2", "zlib1g", PLATFORMS[name], "openssh-client"]
    assert {key: answers[name][key] for key in ("digest", "packages")} == {key: answers["default"][key] for key in ("digest", "packages")}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_refused(answers, name):
    assert answers[name]["refused"] == REFUSED[name][1] + "; nothing was done."
