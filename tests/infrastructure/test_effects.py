"""The tables of what becomes of HTCondor's submit commands, attributes and options of tools, compared with the code and
with the names in its manual; the pages that are made of them."""

import re
from pathlib import Path

import pytest

from roost.cli import effects as tools
from roost.cli.completion import options_of
from roost.cli.condor_names import NAMES
from roost.cli.effects_pages import PAGES
from roost.cli.main import main
from roost.cli.options import parse
from roost.errors import UnknownOption
from roost.submit import effects as commands
from shared.effects import by_name
from shared.effects.job_attributes import PART, UNSET
from shared.effects.machine_attributes import NEVER
from shared.effects.machine_attributes import PART as PART_OF_SLOTS
from tests.infrastructure.words import stands

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data"
#: What these names of attributes are made of in the code, where they do not stand as they are.
MADE_UP = {
    "Child.+": 'f"Child{',
    "has_.+": 'f"has_{',
    "(Recent)?Job(BusyTime|Duration)(Avg|Count|Max|Min)": 'f"{name}Avg"',
    "RecentJob.*": 'f"Recent{',
    "TotalTime.+": 'f"TotalTime{',
    "TotalMachineDraining.+": 'f"TotalMachineDraining{',
    "TotalSlot.+": 'f"TotalSlot{',
    "GPUsProvisioned": "Provisioned",
}
#: The same of jobs.
MADE_UP_OF_JOBS = {
    "(Cpus|Disk|GPUs|Memory)Provisioned": 'f"{name}Provisioned"',
    "LastHoldReason(Sub)?(Code)?": 'f"Last{name}"',
    "Transfer(In|Out)(Queued|Started|Finished)": 'f"Transfer{',
    "JobCurrent(Start|Finish)Transfer(Input|Output)Date": 'f"JobCurrent{',
}
#: Commands that the language reads by names that it puts together.
READ_BY_PARTS = {
    "cron_.*": 'f"cron_{',
    "vm_.*": "vm_",
    "request_<name>": '"request_"',
    "require_<name>": "require_",
    "<service>_container_port": "_container_port",
}


def documented(file):
    return (DATA / file).read_text(encoding="utf-8").split()


#: Lists of names that nobody may write, or that an import brings along: they say nothing of who sets them.
LISTS = re.compile(r'^(?:_PROTECTED|_BROUGHT|_NAMES): Final = """.*?"""', re.M | re.S)


def source(*folders, without=("adstash",)):
    """All Python of these folders but the tables themselves, and but lists of names."""
    text = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not {*without, "effects"} & {*path.parts, path.stem} and path.parts[-2:] != ("config", "catalogue.py")
    )
    return LISTS.sub("", text)


def made_up(name, text, patterns):
    return any(re.fullmatch(pattern, name, re.I) and piece in text for pattern, piece in patterns.items())


def test_attributes_of_jobs_are_where_the_table_does_not_deny_them():
    text = source("engine", "services", "shared", "roost")
    absent = by_name(UNSET).keys() | commands.TABLE.keys()
    there = [name for name in documented("job_attributes_of_23_9.txt") if name not in absent and "<" not in name]
    assert len(there) > 200
    missing = [name for name in there if not stands(name, text) and not made_up(name, text, MADE_UP_OF_JOBS)]
    assert missing == [], "list them in shared/effects/job_attributes.py"


def test_attributes_that_no_job_has_are_written_nowhere():
    text = source("engine", "services", "shared", "roost/submit")
    assert [name for name in by_name(UNSET) if stands(name, text)] == [], "take these out of UNSET"


def test_attributes_of_slots_are_where_the_table_does_not_deny_them():
    text = source("services/startd", "services/collector", "services/negotiator", "engine", "shared")
    absent = by_name(NEVER)
    there = [name for name in documented("machine_attributes_of_23_9.txt") if name not in absent]
    assert len(there) > 180
    plain = [(name, re.sub("<[a-z]+>", "", name)) for name in there]
    missing = [
        name for name, bare in plain if not stands(bare, text, any_case=True) and not made_up(name, text, MADE_UP)
    ]
    assert missing == [], "list them in shared/effects/machine_attributes.py"


def test_commands_are_read_where_the_table_does_not_deny_them():
    text = source("roost/submit")
    idle = by_name(commands.COMMANDS)
    read = [name for name in documented("submit_commands_of_23_9.txt") if name not in idle]
    assert len(read) > 140
    missing = [
        name for name in read if not stands(name, text, any_case=True) and not made_up(name, text, READ_BY_PARTS)
    ]
    assert missing == [], "list them in COMMANDS of roost/submit/effects.py"


@pytest.mark.parametrize("answers", [UNSET, NEVER, commands.COMMANDS, PART, PART_OF_SLOTS, commands.PART])
def test_no_name_stands_in_a_table_twice(answers):
    names = [name for answer in answers for name in answer.names.split()]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_no_attribute_of_jobs_has_two_answers():
    assert not by_name(UNSET).keys() & (commands.TABLE.keys() | by_name(PART).keys())
    assert not by_name(NEVER).keys() & by_name(PART_OF_SLOTS).keys()


def takes(command, option):
    """Whether the command takes the option, with as many values as it wants."""
    try:
        parse([option, "1", "2"], options_of(command))
    except UnknownOption:
        return False
    return True


@pytest.mark.parametrize("line", (DATA / "tool_options_of_23_9.txt").read_text(encoding="utf-8").splitlines())
def test_every_documented_option_is_taken_or_told(line):
    name, *options = line.split()
    command = NAMES[name][0][0]
    taken = {option for option in options if takes(command, option)}
    idle = tools.left_out(command).keys() | {"-version", "-v", "-queue"}
    assert [option for option in options if option not in taken | idle and not tools.instead(command, option[1:])] == []


def test_options_that_a_command_takes_are_not_denied():
    denied = [(command, option) for command, answers in tools.NONE.items() for option in by_name(answers)]
    assert len(denied) > 60
    assert [(command, option) for command, option in denied if takes(command, option)] == []


def test_options_that_change_nothing_are_taken():
    idle = [(command, option) for command, answers in tools.IDLE.items() for option in by_name(answers)]
    assert [(command, option) for command, option in idle if not takes(command, option)] == []


def test_names_of_tools_are_all_in_the_manual():
    named = {line.split()[0] for line in (DATA / "tool_options_of_23_9.txt").read_text(encoding="utf-8").splitlines()}
    others = {"condor_gpu_discovery"}  # tests/unit/gpus
    assert named == NAMES.keys() - others


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("condor_q -userlog job.log", "`roost q` has no -userlog: `roost wait -log FILE -status`"),
        ("q -unmatch", "`roost analyze`"),
        ("condor_rm -addr <1.2.3.4:5> 12", "-name NAME"),
        ("condor_ssh_to_job -ssh ssh 12", "there is none on this way"),
        ("hold -forcex 12", "unknown option -forcex"),
        ("condor_version -arch", "roost status"),
    ],
)
def test_an_option_that_is_not_here_fails_with_what_there_is(typed, says, capsys):
    assert main(typed.split()) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("name", PAGES)
def test_the_pages_are_of_the_tables(name):
    page = ROOT / "docs" / f"effects-{name}.md"
    assert page.read_text(encoding="utf-8") == PAGES[name](), f"python -m roost.cli.effects_pages {name} > {page}"
