"""The table of the manifest's fields: what the hooks write is in it, and what is not as it says is refused."""
import json

import pytest
from engine_scripts import STOPPING

from torque_ckpt.image import compatibility, schema


def list_paths(fields, prefix=""):
    """Return the names (dict: path to Field) of fields and of those inside of them, "files[].name" for instance."""
    paths = {}
    for field in fields:
        path = prefix + field.name
        assert path not in paths
        paths[path] = field
        paths.update(list_paths(field.fields, path + ("[]." if field.many else ".")))
    return paths


PATHS = list_paths(schema.FIELDS)


def find_paths(value, prefix=""):
    """Yield the names of all fields in what JSON holds, as list_paths() has them."""
    for name, inner in value.items():
        yield prefix + name
        for entry in inner if isinstance(inner, list) else [inner]:
            if isinstance(entry, dict):
                yield from find_paths(entry, prefix + name + ("[]." if isinstance(inner, list) else "."))


@pytest.mark.parametrize("path", sorted(PATHS))
def test_row_is_whole(path):
    field = PATHS[path]
    assert field.help.endswith(".")
    assert (field.kind is None) == bool(field.fields)
    assert field.since in schema.READ
    assert set(field.only) <= set(schema.CARRIED)
    assert field.strict or field.check or field.optional


def test_defaults_are_as_their_rows_say():
    for name, value in schema.DEFAULTS.items():
        field = PATHS[name]
        assert (value == []) if field.many else field.kind[1](value)


@pytest.mark.root
def test_what_the_hook_writes_is_in_the_table(hook, site, start_job, program):
    job = start_job(user=site.user)
    program(STOPPING)
    assert hook("checkpoint", site.arguments(session=str(job.leader)) + ["15", "3"], site.config) == (0, "", "")
    manifest = json.loads(site.content()["ckpt.12.head.2/manifest.json"].decode())
    assert set(find_paths(manifest)) <= set(PATHS)
    needed = {field.name for field in schema.FIELDS if field.since == schema.FORMAT}
    assert needed - set(manifest) == set()
    schema.check_manifest(manifest)


WHOLE = dict({
    "format": 4, "job_id": "12.head", "user": "alice", "uid": 1, "name": "c", "created": "", "bytes": 1, "frozen_seconds": 0.1, "root": 7,
    "pids": [7], "engine": {"name": "criu"}, "files": [], "spool": [], "compression": "zstd", "plain_bytes": 1,
}, **dict(schema.DEFAULTS, **compatibility.describe_node()))


@pytest.mark.parametrize("field", [field for field in schema.FIELDS if not field.optional], ids=lambda field: field.name)
def test_field_that_is_missing(field):
    schema.check_manifest(WHOLE)
    with pytest.raises((KeyError, ValueError)) as caught:
        schema.check_manifest({name: value for name, value in WHOLE.items() if name != field.name})
    assert field.name in str(caught.value)


def test_fields_of_a_later_format_are_not_missed():
    schema.check_manifest({name: value for name, value in dict(WHOLE, format=3).items() if name not in ("compression", "plain_bytes")})


def test_records_of_nodes_say_what_a_node_is():
    assert set(compatibility.describe_node()) == set(compatibility.NODE)
    texts = dict.fromkeys(["node", "kernel", "kernel_version", "arch", "libc"], str)
    wanted = dict(texts, cpu=list, engine=dict, stores=list)
    assert wanted == compatibility.RECORD_TYPES
