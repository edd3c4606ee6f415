# Copyright: (c) 2026, the ckpt.torque contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)


class ModuleDocFragment:

    DOCUMENTATION = r"""
options:
  path:
    description: The store.
    type: path
    required: true
  user:
    description: The ordinary user in whose directory the token is.
    type: str
    required: true
  directory:
    description: That directory. The default is the directory of O(user) in O(path).
    type: path
  name:
    description: The token's name, letters and digits; one for each proof.
    type: str
    required: true
"""
