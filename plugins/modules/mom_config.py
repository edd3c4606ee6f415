#!/usr/bin/python
# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)

DOCUMENTATION = r"""
module: mom_config
short_description: The whole of mom_priv/config as data
version_added: 0.2.0
description:
  - Writes C(mom_priv/config) from data, owned by root and with mode 0644, by a rename. What is not in the data is not in the
    file. M(ckpt.torque.mom_config_info) checks one that somebody wrote by hand.
  - Refuses what C(pbs_mom) would ignore with a line in its log at most. That is an unknown directive, a hook that is missing
    or cannot be executed, a line of more than 118 bytes, more entries than it has room for, and a value it cannot take.
  - A SIGHUP makes TORQUE 2.x and 4.x read the file again on top of what they have, so that new values of most single-valued
    directives come into force, whereas lists such as C($usecp) and C($remote_checkpoint_dirs) only grow and directives that are
    gone stay in force. On TORQUE 5 and 6 it also clears the node's own name and the paths of C(scp) and C(xauth), which are
    set at the start alone, so there every change needs a restart; running jobs survive it with C(pbs_mom -p).
author:
  - ckpt.torque contributors (@ckpt-torque)
extends_documentation_fragment:
  - ckpt.torque.attributes
attributes:
  check_mode:
    support: full
    details: Programs and directories that are not there yet are warned of, as an earlier task would make them.
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  path:
    description: The configuration.
    type: path
    default: /var/spool/torque/mom_priv/config
  version:
    description:
      - TORQUE's version, such as V(6.1.3). Directives this version does not know are refused.
      - Without it every known directive is taken, every change needs a restart, and O(remote_checkpoint_dirs) are written as
        for V(2.5.3) and later.
    type: str
  pbsserver:
    description: Names of the servers, with C(:PORT) where it is not the usual one; at most 4. C(server_name) counts without.
    type: list
    elements: str
    default: []
  checkpoint_run_exe:
    description: The hook that starts a job. Root's, writable by nobody else, executable by all.
    type: path
  checkpoint_script:
    description: The hook that checkpoints a job. Root's, writable by nobody else, executable.
    type: path
  restart_script:
    description: The hook that restarts a job. Root's, writable by nobody else, executable.
    type: path
  checkpoint_interval:
    description: Minutes of walltime between two periodic checkpoints of a job that names no interval. C(pbs_mom) takes 10.
    type: int
  remote_checkpoint_dirs:
    description:
      - Directories for images that all nodes share, absolute, or V(*) for any; at most 32. C(pbs_mom) neither copies nor
        deletes images there.
      - C(pbs_mom) compares beginnings of paths, and without regard to case. So they are written with a slash at the end, or
        V(/shared/ckpt) would be V(/shared/ckpt-old) too. TORQUE before 2.5.3 puts images into the very directory, which would
        not match then; there they are written without.
    type: list
    elements: str
    default: []
  usecp:
    description:
      - Which paths of other hosts C(pbs_mom) can reach with C(cp). Each is V(HOST:/FROM /TO), where C(*) in HOST stands for
        anything, or a dictionary with C(host), C(from) and C(to). The first that matches counts.
      - C(pbs_mom) compares beginnings here as well, so end both paths with a slash, or neither.
    type: list
    elements: raw
    default: []
  tmpdir:
    description: Where each job gets a directory of its own. It must be there, or C(pbs_mom) does not start.
    type: path
  spool_as_final_name:
    description: Whether output is written where the user wants it from the start.
    type: bool
  job_starter:
    description: A program that starts each job. Root's, writable by nobody else, executable by all.
    type: path
  loglevel:
    description: How much is logged, from 0 to 10.
    type: int
  logevent:
    description: Which kinds of events are logged, as the sum of their bits.
    type: int
  log_keep_days:
    description: Days that a log is kept; for ever without.
    type: int
  cputmult:
    description: The factor by which CPU time on this node counts.
    type: float
  wallmult:
    description: The factor by which walltime on this node counts.
    type: float
  ideal_load:
    description: The load below which the node is free again.
    type: float
  max_load:
    description: The load above which the node is busy.
    type: float
  ignwalltime:
    description: Whether jobs may exceed their walltime.
    type: bool
  ignmem:
    description: Whether jobs may exceed their memory.
    type: bool
  ignvmem:
    description: Whether jobs may exceed their virtual memory.
    type: bool
  igncput:
    description: Whether jobs may exceed their CPU time.
    type: bool
  directives:
    description:
      - Any other directive of C(pbs_mom) by name, without the C($). A list is written as one line for each value.
    type: dict
    default: {}
  resources:
    description: Lines that are no directives, as C(pbs_mom) reports them to the scheduler, such as V(size[fs=/scratch]).
    type: list
    elements: str
    default: []
  allowed:
    description: Directives that a changed C(pbs_mom) knows and stock TORQUE does not; their values are not checked.
    type: list
    elements: str
    default: []
  backup:
    description: Whether to keep the former file beside the new one.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Let pbs_mom checkpoint jobs to the shared store
  ckpt.torque.mom_config:
    version: 6.1.3
    pbsserver: [head]
    checkpoint_run_exe: /usr/lib/ckpt-torque/run
    checkpoint_script: /usr/lib/ckpt-torque/checkpoint
    restart_script: /usr/lib/ckpt-torque/restart
    remote_checkpoint_dirs: [/shared/ckpt]
    usecp:
      - {host: "*", from: /home/, to: /home/}
    loglevel: 3
    directives:
      node_check_interval: 10,jobstart
      varattr: [60 /usr/local/sbin/room]
  register: config
"""

RETURN = r"""
changed_directives:
  description: What now has another value, directives with their C($).
  returned: success
  type: list
  elements: str
  sample: [$loglevel, $usecp]
restart_required:
  description: Whether C(pbs_mom) must be restarted to go by the change.
  returned: success
  type: bool
reload_sufficient:
  description:
    - Whether a SIGHUP will do for a C(pbs_mom) that has read the former file. Neither is true when only comments, order of lines,
      owner or mode differ.
  returned: success
  type: bool
former_written:
  description: When the former file was written, in seconds since 1970.
  returned: when there was one
  type: float
backup_file:
  description: The former file.
  returned: when O(backup) and there was one that differed
  type: str
faults:
  description: What C(pbs_mom) would ignore, misread or choke on.
  returned: failure
  type: list
  elements: str
"""

import os
import stat

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ckpt.torque.plugins.module_utils.torque import mom_config
from ansible_collections.ckpt.torque.plugins.module_utils.torque.version import VersionError

TYPED = ("pbsserver", "checkpoint_run_exe", "checkpoint_script", "restart_script", "checkpoint_interval", "remote_checkpoint_dirs",
         "usecp", "tmpdir", "spool_as_final_name", "job_starter", "loglevel", "logevent", "log_keep_days", "cputmult", "wallmult",
         "ideal_load", "max_load", "ignwalltime", "ignmem", "ignvmem", "igncput")


def main() -> None:
    flag, number, factor, path_ = {"type": "bool"}, {"type": "int"}, {"type": "float"}, {"type": "path"}
    texts = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": "/var/spool/torque/mom_priv/config"},
            "version": {"type": "str"},
            "pbsserver": texts,
            "checkpoint_run_exe": path_,
            "checkpoint_script": path_,
            "restart_script": path_,
            "checkpoint_interval": number,
            "remote_checkpoint_dirs": texts,
            "usecp": {"type": "list", "elements": "raw", "default": []},
            "tmpdir": path_,
            "spool_as_final_name": flag,
            "job_starter": path_,
            "loglevel": number,
            "logevent": number,
            "log_keep_days": number,
            "cputmult": factor,
            "wallmult": factor,
            "ideal_load": factor,
            "max_load": factor,
            "ignwalltime": flag,
            "ignmem": flag,
            "ignvmem": flag,
            "igncput": flag,
            "directives": {"type": "dict", "default": {}},
            "resources": texts,
            "allowed": texts,
            "backup": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    params, path, version = module.params, module.params["path"], module.params["version"]

    def read_status(name: str) -> "os.stat_result | None":
        try:
            return os.stat(name)
        except FileNotFoundError:
            if not module.check_mode:
                raise
            module.warn("%s is not there yet" % name)
            return None

    try:
        before, status = mom_config.read_config(path)
        directives = {name: params[name] for name in TYPED}
        both = sorted(name for name in (key.lstrip("$").lower() for key in params["directives"]) if directives.get(name) not in (None, []))
        if both:
            raise mom_config.ConfigError("%s is an option and in directives too" % ", ".join(both))
        directives.update(params["directives"])
        after = mom_config.render(directives, params["resources"], version)
        faults = [fault.text for fault in mom_config.faults(after, version, read_status, [name.lower() for name in params["allowed"]])]
        restart = status is None or mom_config.restart_needed(before, after, version)
    except (mom_config.ConfigError, VersionError) as error:
        module.fail_json(msg="cannot write %s: %s; correct it; nothing was changed" % (path, error), faults=[str(error)])
    except OSError as error:
        module.fail_json(msg="cannot read %s: %s; correct path and become root; nothing was changed" % (path, error.strerror),
                             faults=[])
    if faults:
        module.fail_json(msg="pbs_mom would not go by this configuration: %s; correct it; nothing was changed" % "; ".join(faults),
                         faults=faults)
    directory = os.path.dirname(path)
    if not os.path.isdir(directory) and not module.check_mode:
        module.fail_json(msg="there is no directory %s; install TORQUE's MOM first or correct path; nothing was changed" % directory,
                         faults=[])

    right = status is not None and (status.st_mode, status.st_uid, status.st_gid) == (stat.S_IFREG | 0o644, 0, 0)
    changed = before != after or not right
    directives_changed = mom_config.changes(before, after)
    result = {"changed": changed, "changed_directives": directives_changed, "restart_required": restart,
              "reload_sufficient": bool(directives_changed) and not restart,
              "diff": {"before_header": path, "after_header": path, "before": mom_config.make_printable(before), "after": after}}
    if status is not None:
        result["former_written"] = status.st_mtime
    if changed and not module.check_mode:
        try:
            if params["backup"] and status is not None:
                result["backup_file"] = module.backup_local(path)
            mom_config.write_config(path, after)
        except OSError as error:
            module.fail_json(msg="cannot write %s: %s; become root, or free some space; nothing was changed" % (path, error.strerror),
                             faults=[])
    module.exit_json(**result)


if __name__ == "__main__":
    main()
