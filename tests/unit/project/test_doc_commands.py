"""The commands in README and docs: their programs, playbooks, modules, options, variables and targets exist."""
import itertools
import re
import shlex
import textwrap

import pytest
import yaml
from ansible.cli.adhoc import AdHocCLI
from ansible.cli.playbook import PlaybookCLI
from ansible.parsing.splitter import parse_kv
from ansible_collections.ckpt.torque.plugins.action.inventory_check import PLAYBOOKS
from ansible_collections.ckpt.torque.plugins.module_utils.torque_ckpt.cli import parser
from paths import DATA, TOP

PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted(TOP.glob("docs/**/*.md")), *sorted(TOP.glob("examples/**/*.md"))]
PAGES.remove(TOP / "docs/reference/torque-ckpt.md")  # it is generated from the command line
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
USAGES = dict(re.findall(r"^== (\w+)\n(.*?)(?=^== |\Z)", (DATA / "usage/6.1.3.txt").read_text(), re.MULTILINE | re.DOTALL))
"""What TORQUE's commands say of their options, by name."""
PROGRAMS = ("ansible", "ansible-playbook", "make", "torque-ckpt", *USAGES)
MAKEFILE = (TOP / "Makefile").read_text()
TARGETS = set(itertools.chain(*map(str.split, re.findall(r"^([a-z][a-z0-9 -]*):", MAKEFILE, re.MULTILINE))))
TAGS = set(re.findall(r"tags: ([a-z]+)", (TOP / "playbooks/site.yml").read_text() + (TOP / "playbooks/tasks/site_node.yml").read_text()))


def find_variables():
    """Return the variables of roles and playbooks (set of str)."""
    names = set(PLAYBOOKS)
    for path in TOP.glob("roles/*/meta/argument_specs.yml"):
        names.update(itertools.chain(*(entry["options"] for entry in yaml.safe_load(path.read_text())["argument_specs"].values())))
    return names


VARIABLES = find_variables()


def find_attributes():
    """Return what TORQUE 6.1.3 has shown of server, queues and nodes, and what the role torque_server sets (set of str)."""
    recorded = (DATA / "qmgr/6.1.3.txt").read_text()
    shown = re.findall(r"^(?:\t|set (?:server|queue \S+|node \S+) )([a-z_]+)(?:\.\w+)? \+?= ", recorded, re.MULTILINE)
    values = yaml.safe_load((TOP / "roles/torque_server/vars/main.yml").read_text())
    return {*shown, *values["__torque_server_common"], *values["__torque_server_members"]}


ATTRIBUTES = find_attributes()


def find_commands(text):
    """Yield the commands (list of str) of a page: lines of blocks, and what stands between backquotes."""
    for language, block in BLOCK.findall(text):
        if language not in ("", "sh", "bash"):
            continue
        lines = textwrap.dedent(block).replace("\\\n", " ").splitlines()
        prompted = [line[2:] for line in lines if line.startswith("$ ")]
        for line in prompted or lines:
            yield from as_commands(line)
    for span in SPAN.findall(BLOCK.sub("", text)):
        yield from as_commands(span)


def as_commands(line):
    for part in re.split(r" && | \| ", re.sub(r"\$\([^)]*\)", "OUTPUT", line)):
        try:
            words = shlex.split(part, comments=True)
        except ValueError:  # a part of one
            continue
        if len(words) > 1 and words[0] in PROGRAMS and words != ["make", "install"]:  # that is TORQUE's
            yield words


COMMANDS = sorted({tuple(words) for page in PAGES for words in find_commands(page.read_text())})


def parse(cli, words):
    """Return the options that a command of Ansible's understands in the words."""
    command = cli(list(words))
    command.init_parser()
    options = command.parser.parse_args(list(words[1:]))
    return command.post_process_args(options) if cli is AdHocCLI else options


def check_variables(options):
    for given in options.extra_vars or ():
        values = yaml.safe_load(given) if given.startswith("{") else parse_kv(given)
        assert values and set(values) <= VARIABLES, given


def check_playbook(words):
    options = parse(PlaybookCLI, words)
    for name in options.args:
        assert (TOP / "playbooks" / (name[len("ckpt.torque."):] + ".yml")).exists() and name.startswith("ckpt.torque."), name
    assert set(options.tags) - {"all"} <= TAGS
    check_variables(options)


def check_module(words):
    options = parse(AdHocCLI, words)
    if options.module_name == "ansible.builtin.command":
        return
    path = TOP / "plugins/modules" / (options.module_name.replace("ckpt.torque.", "") + ".py")
    assert options.module_name.startswith("ckpt.torque.") and path.exists(), options.module_name
    documentation = yaml.safe_load(re.search(r'DOCUMENTATION = r"""\n(.*?)"""', path.read_text(), re.DOTALL).group(1))
    assert set(parse_kv(options.module_args)) <= set(documentation["options"])


def check_target(words):
    for word in words[1:]:
        name, is_variable, _value = word.partition("=")
        assert "$(%s)" % name in MAKEFILE if is_variable else name in TARGETS, word


def check_torque_ckpt(words):
    """The name of a command alone is that, whatever arguments it needs."""
    if len(words) == 2:
        assert words[1] in [command[0] for command in parser.COMMANDS] + ["--version", "--help"]
    else:
        parser.build_parser().parse_args(words[1:])


def check_options(words):
    """Each option is one that the command itself lists, and so is each word of qsub -c."""
    usage = USAGES[words[0]]
    listed = {*re.findall(r"(?<![\w.])-(\w)\b", usage), *"".join(re.findall(r"-\{([a-z|]+)\}", usage))}
    assert {word[1] for word in words if re.match("-[A-Za-z]", word)} <= listed
    if words[:2] == ("qsub", "-c"):
        assert {part.partition("=")[0] for word in words[2:3] for part in word.split(",")} <= set(re.findall("[a-z]+", usage))


def check_qmgr(words):
    """It sets or lists an attribute that TORQUE has."""
    check_options(words)
    request = re.fullmatch(r"(?:list (?:server|queue|node)|set (?:server|queue \w+|node \w+) (\w+) (?:=|[-+]=) \S+)", words[2])
    assert request and request.group(1) in ATTRIBUTES | {None}


CHECKS = {"ansible-playbook": check_playbook, "ansible": check_module, "make": check_target, "torque-ckpt": check_torque_ckpt,
          **dict.fromkeys(USAGES, check_options), "qmgr": check_qmgr}


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_command(words):
    try:
        CHECKS[words[0]](words)
    except SystemExit:
        pytest.fail("%s: it does not understand this" % " ".join(words))


def test_every_program_has_commands():
    assert {words[0] for words in COMMANDS} == set(PROGRAMS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_variables_that_are_given(page):
    """Also where the command is written in part."""
    assert set(re.findall(r"-e \"?(\w+)=", page.read_text())) - {"ansible_user"} <= VARIABLES


def test_qalter_keeps_the_processors_of_a_job():
    """A node without ppn takes all but one away."""
    values = [value for page in PAGES for value in re.findall(r"qalter -l nodes=([^\s`]*)", page.read_text())]
    assert values and [value for value in values if ":ppn=" not in value] == []
