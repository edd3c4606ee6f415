# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ask the host which artifact it needs; send it from the controller's cache if the host does not have it yet."""
from __future__ import annotations

import hashlib
import os
import tempfile

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.ckpt.torque.plugins.plugin_utils import artifact_cache, bundle


class ActionModule(ActionBase):

    TRANSFERS_FILES = False  # seldom; a temporary directory costs two executions

    def run(self, tmp: "str | None" = None, task_vars: "dict | None" = None) -> dict:
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args, archive=None, checksum=None)
        answer = self._execute_module(module_args=arguments, task_vars=task_vars)
        if not answer.get("failed"):
            answer.update(artifact_cache.locate(arguments, answer["key"], bundle.find(self._templar, task_vars)))
            if not self._task.check_mode:
                checksum = self._read_checksum(answer["path"]) if answer["available"] else None
                if not answer["installed"]:
                    installed = self._send_artifact(dict(arguments, checksum=checksum), answer, task_vars)
                    answer = dict(installed, path=answer["path"], available=True)
        result.update(answer)
        return result

    @staticmethod
    def _read_checksum(path: str) -> str:
        """Return the sha256 of an artifact when it was new, from the file beside it, which is written when there is none."""
        try:
            with open(path + ".sha256", encoding="ascii") as stream:
                return (stream.read().split() or [""])[0]
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            raise AnsibleActionFail("cannot read %s.sha256: %s; remove it when the artifact is known to be good; nothing was changed"
                                    % (path, error)) from error
        with open(path, "rb") as archive:
            digest = hashlib.sha256()
            for piece in iter(lambda: archive.read(1 << 20), b""):
                digest.update(piece)
        try:
            with tempfile.NamedTemporaryFile("w", encoding="ascii", dir=os.path.dirname(path), delete=False) as draft:
                draft.write("%s  %s\n" % (digest.hexdigest(), os.path.basename(path)))
            os.chmod(draft.name, 0o644)
            os.replace(draft.name, path + ".sha256")
        except OSError as error:
            raise AnsibleActionFail("cannot write %s.sha256: %s; run as the user who owns the cache; nothing was changed"
                                    % (path, error.strerror)) from error
        return digest.hexdigest()

    def _send_artifact(self, arguments: dict, answer: dict, task_vars: "dict | None") -> dict:
        """Unpack the artifact on the host; return the module's answer."""
        if not answer["available"]:
            raise AnsibleActionFail(
                "there is no %s %s for %s with these patches and options (%s); run site.yml without --limit, and for TORQUE with a host of "
                "that system in the group torque_builder that can be reached; nothing was changed"
                % (arguments.get("name", "torque").upper(), arguments["version"], answer["platform"], answer["path"]))
        archive = self._connection._shell.join_path(self._connection._shell.tmpdir or self._make_tmp_path(), "artifact.tar.gz")
        self._transfer_file(answer["path"], archive)
        return self._execute_module(module_args=dict(arguments, archive=archive), task_vars=task_vars)
