# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)


class ModuleDocFragment:

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and return what it would do without changing anything.
  diff_mode:
    description: Returns details on what has changed, or would change, in diff mode.
  idempotent:
    description: Run twice in a row, it changes nothing the second time.
"""

    READ_ONLY = r"""
options: {}
attributes:
  check_mode:
    support: full
  diff_mode:
    support: N/A
    details: It changes nothing.
  idempotent:
    support: full
"""

    ROUND_TRIP = r"""
options: {}
attributes:
  check_mode:
    support: full
    details: Says what it would do; no process is started.
  diff_mode:
    support: N/A
    details: It leaves nothing behind that could differ.
  idempotent:
    support: full
    details: It never reports a change; what it makes, it removes.
"""
