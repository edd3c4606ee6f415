"""What TORQUE calls things: jobs, their directories and images, its daemons and variables."""
import re

MYPY = False  # true for the type checker alone
if MYPY:
    from typing import Iterable

MOM, DEMUX = "pbs_mom", "pbs_demux"
"""Names of processes; pbs_mom may put the second one beside a job's shell, for the output of the other nodes."""

JOB_ID = "PBS_JOBID"
"""The variable of a job that holds its id."""

NODE_FILE = "PBS_NODEFILE"
"""The variable of a job that holds the path of a file with the names of its nodes, one line for each processor."""

JOB_ID_PATTERN = re.compile(r"[0-9]+(\[[0-9]*\])?(-[0-9]+)?(\.[A-Za-z0-9][A-Za-z0-9.-]*)?")

_DIRECTORY_SUFFIX = ".CK"
_ELEMENT = re.compile(r"([0-9]+)\[([0-9]+)\]")
_ELEMENT_ON_DISK = re.compile(r"([0-9]+)-([0-9]+)(?=\.|$)")
_IMAGE = re.compile(r"(ckpt\..+)\.([0-9]+)")


def is_job_id(text: str) -> bool:
    """Whether a text has the form of a job id."""
    return JOB_ID_PATTERN.fullmatch(text) is not None


def get_job_number(job_id: str) -> str:
    """Return the number of a job id such as "12.head" or "12[3].head"; elements of an array share it."""
    return re.split("[^0-9]", job_id, maxsplit=1)[0]


def get_name_on_disk(job_id: str) -> str:
    """Return what TORQUE's files and directories of a job are called: an element of an array, "12[3].head", is "12-3.head" there.

    TORQUE 2.4 calls the element so everywhere.
    """
    return _ELEMENT.sub(r"\1-\2", job_id, count=1)


def get_directory_name(job_id: str) -> str:
    """Return the name that pbs_mom gives to the directory of a job's images, "12.head.CK"."""
    return get_name_on_disk(job_id) + _DIRECTORY_SUFFIX


def find_job_id(directory_name: str, images: "Iterable[str]" = ()) -> "str | None":
    """Return the job id whose images a directory of this name holds, None for any other name.

    :param images: names of what is in it: an element of an array of TORQUE 2.4 is known by them
    """
    job_id = directory_name[:-len(_DIRECTORY_SUFFIX)]
    if not directory_name.endswith(_DIRECTORY_SUFFIX) or not is_job_id(job_id):
        return None
    element = _ELEMENT_ON_DISK.match(job_id)
    if any((split_image_name(name) or ("",))[0] == "ckpt." + job_id for name in images):
        return job_id
    return "%s[%s]%s" % (element.group(1), element.group(2), job_id[element.end():]) if element else job_id


def split_image_name(name: str) -> "tuple[str, int] | None":
    """Return what an image's name, "ckpt.12.head.1290000000", begins with and its seconds since the epoch; None for any other name."""
    parts = _IMAGE.fullmatch(name)
    return (parts.group(1), int(parts.group(2))) if parts else None
