# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A TORQUE that somebody set up, as variables of the roles: what adopt.yml writes."""
from __future__ import annotations

import re
import shlex

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Any, Iterator, Mapping

ROLE_ATTRIBUTES = ("scheduling", "default_queue", "keep_completed", "node_check_rate", "tcp_timeout", "job_stat_rate", "poll_jobs",
                   "auto_node_np", "log_events", "note_append_on_error")
"""Attributes of the server to which the role torque_server gives a value of its own if torque_server_attributes names none."""
NEEDED = {"keep_completed": "level L3 of ckpt.torque.validate and torque-ckpt look at jobs that have ended"}
"""Those that stay the role's if nobody has set them, and why."""
HOOKS = ("checkpoint_run_exe", "checkpoint_script", "restart_script", "remote_checkpoint_dirs")
"""Directives of pbs_mom that name who writes images, and where: the role's own replace them."""
NUMBERS = {"loglevel": "torque_mom_loglevel", "checkpoint_interval": "torque_mom_checkpoint_interval"}
STORE = ("{{ checkpoint_store_path | default('/shared/ckpt') }}"
         "{{ '/$USER' if checkpoint_store_user_directories_enabled | default(false) | bool }}")
"""Where the jobs of a queue have their images, as in the role torque_server."""
HOME = "/var/spool/torque"
"""Where the daemons have their files if torque_home names no other place."""
OPTIONS = {"with-(rcp|scp)": "torque_build_remote_copy", "with-hwloc-path": "torque_build_hwloc_path",
           "enable-cgroups": "torque_build_cgroups_enabled", "enable-munge-auth": "torque_build_munge_enabled",
           "with-pam": "torque_build_pam_enabled", "enable-drmaa": "torque_build_drmaa_enabled",
           "(with-sched=no|without-sched)": "torque_build_scheduler_enabled"}
"""Options of configure (regular expressions) for which the role torque_build has a variable."""
SETTLED = ("prefix|exec-prefix|[a-z]+dir|with-server-home|with-default-server|disable-gcc-warnings|(dis|en)able-gui|with(out)?-t(cl|k|clx)|"
           "enable-blcr|disable-(cgroups|munge-auth|drmaa)|without-pam|with-sched")
"""Those that it has settled, or that say what it does anyway."""
USECP = "{{ (torque_mom_remote_checkpoint_dirs | map('regex_replace', '^(.*)$', '*:\\1 \\1') | list + %s) | unique }}"


def adoption(server: "Mapping[str, Any]", configurations: "Mapping[str, Mapping[str, Any]]", host: str,
             scheduler: str = "pbs_sched", builds: "Mapping[str, str] | None" = None,
             server_build: str = "") -> "dict[str, Any]":
    """Return the variables that describe a TORQUE, and what the roles would change of it all the same.

    :param server: the result of qmgr_info
    :param configurations: the results of mom_config_info by node
    :param host: the server's host, by the name that its managers have after the @
    :param scheduler: pbs_sched if that runs, else none
    :param builds: what pbs_mom --about prints, by node; see parse_build
    :param server_build: what pbs_server --about prints
    :returns: all (dict), hosts (dict by node), remarks (list of str)
    """
    nodes = {name: _describe_node(known) for name, known in configurations.items()}
    common = {key: value for key, value in next(iter(nodes.values()), {}).items()
              if all(variables.get(key) == value for variables in nodes.values())}
    own = {name: {key: value for key, value in variables.items() if key not in common} for name, variables in nodes.items()}
    built = {name: parse_build(text) for name, text in (builds or {}).items()}
    of_server = parse_build(server_build)
    return {"all": {**_describe_server(server, host, scheduler), **_describe_build(of_server), **common},
            "hosts": {name: values for name, values in own.items() if values},
            "remarks": [*_remark_server(server, host), *_remark_nodes(server, configurations), *_remark_builds(of_server, built)]}


def parse_build(text: str) -> "dict[str, str]":
    """Return what a daemon says of its build (pbs_mom --about), by name in lower case.

    home is the home that it was started with (-d), or else the one that it was built for; empty if the text has no values.
    """
    build = {match[1].lower(): match[2].strip() for match in re.finditer(r"^(\w+): +(.*)$", text, re.MULTILINE)}
    return {**build, "home": (build.get("home") or build.get("serverhome", "")).rstrip("/")} if build else {}


def _describe_build(build: "Mapping[str, str]") -> "dict[str, Any]":
    """Return the variables by which torque_build builds it in the same way."""
    variables: "dict[str, Any]" = {}
    if build.get("home", "") not in ("", HOME):
        variables["torque_home"] = build["home"]
    others = []
    for option in _list_options(build):
        name, _equals, value = option[2:].partition("=")
        known = [variable for pattern, variable in OPTIONS.items() if re.fullmatch(pattern, name) or re.fullmatch(pattern, option[2:])]
        variable = known[0] if known else None
        if variable == "torque_build_remote_copy":
            variables[variable] = value or name[len("with-"):]
        elif variable == "torque_build_hwloc_path":
            variables[variable] = value
        elif variable:
            variables[variable] = variable != "torque_build_scheduler_enabled"
        elif not re.fullmatch(SETTLED, name):
            others.append(option)
    if variables.get("torque_build_remote_copy") == "scp":
        del variables["torque_build_remote_copy"]
    return {**variables, **({"torque_build_options": others} if others else {})}


def _list_options(build: "Mapping[str, str]") -> "list[str]":
    """Return what configure was called with, without variables such as CFLAGS, which the role chooses."""
    try:
        words = shlex.split(build.get("configure", ""))
    except ValueError:
        words = build.get("configure", "").replace("'", " ").split()
    return [word for word in words if word.startswith("--")]


def _name_root(host: str) -> str:
    return "root@" + host


def _describe_server(server: "Mapping[str, Any]", host: str, scheduler: str) -> "dict[str, Any]":
    attributes = server["server"]
    kept = {name: attributes.get(name) for name in ROLE_ATTRIBUTES if name in attributes or name not in NEEDED}
    root = _name_root(host)
    return {
        **({"torque_version": server["version"]} if server["version"] else {}),
        "torque_server_scheduler": scheduler,
        "torque_server_managers": [name for name in attributes.get("managers", []) if name != root],
        "torque_server_operators": [name for name in attributes.get("operators", []) if name != root],
        "torque_server_submit_hosts": [],  # users submit already
        "torque_server_attributes": kept,
        "torque_server_queues": {name: {"checkpoint_dir": STORE} if _needs_store(queue) else {}
                                 for name, queue in server["queues"].items()},
    }


def _needs_store(queue: "Mapping[str, Any]") -> bool:
    return queue.get("queue_type", "").startswith("E") and "checkpoint_dir" not in queue


def _describe_node(known: "Mapping[str, Any]") -> "dict[str, Any]":
    directives = known["directives"]
    variables: "dict[str, Any]" = {"torque_mom_loglevel": 0}  # pbs_mom's own, if the file has none
    variables.update({NUMBERS[name]: int(values[-1]) for name, values in directives.items() if name in NUMBERS and values[-1].isdigit()})
    if directives.get("pbsserver"):
        variables["torque_mom_servers"] = directives["pbsserver"]
    if directives.get("usecp"):
        variables["torque_mom_usecp"] = USECP % [" ".join(value.split()) for value in directives["usecp"]]
    others = {name: values[0] if len(values) == 1 else values for name, values in directives.items()
              if name not in (*HOOKS, *NUMBERS, "pbsserver", "usecp")}
    return {**variables, "torque_mom_directives": others, "torque_mom_resources": known["resources"]}


def _remark_server(server: "Mapping[str, Any]", host: str) -> "Iterator[str]":
    """Yield what site.yml changes of the server."""
    for name, reason in NEEDED.items():
        if name not in server["server"]:
            yield "the server has no %s; it will be set: %s" % (name, reason)
    for rights in ("managers", "operators"):
        if _name_root(host) not in server["server"].get(rights, []):
            yield "%s is not among the %s of the server; it will be: the roles and torque-ckpt act as root" % (_name_root(host), rights)
    for name, queue in server["queues"].items():
        if _needs_store(queue):
            yield "queue %s has no checkpoint_dir; it will be the store" % name
        elif queue.get("checkpoint_dir"):
            yield ("queue %s keeps its checkpoint_dir %s; jobs can be restarted only if that is a store (checkpoint_store_path)"
                   % (name, queue["checkpoint_dir"]))


def _remark_nodes(server: "Mapping[str, Any]", configurations: "Mapping[str, Mapping[str, Any]]") -> "Iterator[str]":
    """Yield what site.yml changes of the nodes, and which it does not know."""
    for name in server["nodes"]:
        if name not in configurations:
            yield "node %s was not read; it is not in the group torque_mom, or was not reached" % name
    lines: "dict[str, list[str]]" = {}
    for node, known in configurations.items():
        for name in HOOKS:
            for value in known["directives"].get(name, []):
                lines.setdefault("$%s %s will be replaced by the hooks and the store" % (name, value), []).append(node)
        if "node_check_script" in known["directives"]:
            lines.setdefault("$node_check_script %s stays; have it call /usr/lib/ckpt-torque/health, else nobody hears of a node that "
                             "cannot checkpoint" % known["directives"]["node_check_script"][-1], []).append(node)
        for fault in known["faults"]:
            lines.setdefault("mom_priv/config: %s" % fault, []).append(node)
    for line, nodes in lines.items():
        yield "%s: %s" % (", ".join(nodes), line)


def _remark_builds(server: "Mapping[str, str]", nodes: "Mapping[str, Mapping[str, str]]") -> "Iterator[str]":
    """Yield in what the daemons of the nodes are another TORQUE than the server."""
    lines: "dict[str, list[str]]" = {}
    for name, build in nodes.items():
        if not build:
            lines.setdefault("pbs_mom does not run, or does not say how it was built: site.yml installs TORQUE there", []).append(name)
            continue
        if server.get("version") and build.get("version") != server["version"]:
            lines.setdefault("pbs_mom is %s, the server %s: site.yml installs the server's version" % (
                build.get("version", "of an unknown version"), server["version"]), []).append(name)
        if server and build["home"] != server["home"]:
            lines.setdefault("pbs_mom has its files in %s, the server in %s; torque_home is one for all hosts, so move them before you run "
                             "site.yml" % (build["home"], server["home"]), []).append(name)
        if server and _describe_build(dict(build, home="")) != _describe_build(dict(server, home="")):
            lines.setdefault("pbs_mom was built with other options than the server (%s): site.yml builds with those of the server"
                             % (" ".join(_list_options(build)) or "none"), []).append(name)
    for line, names in lines.items():
        yield "%s: %s" % (", ".join(names), line)


class FilterModule:

    def filters(self) -> dict:
        return {"adoption": adoption, "parse_build": parse_build}
