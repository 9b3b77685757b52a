"""The table of what becomes of each knob of HTCondor's, compared with what the code reads, with the names of its manual
and with those that its library knows."""

import ast
import dataclasses
import functools
import re
from pathlib import Path

import pytest

from shared.config.detected import detect
from shared.config.effects import place
from shared.config.knobs import KNOBS, SETTINGS
from shared.config.knobs.effects import GIVEN, NONE, PART
from shared.config.load import CONFIG
from shared.config.reference import helpers
from shared.effects import Effect
from tests.infrastructure.imports import SOURCE, house_of

ROOT = Path(__file__).parents[2]
# What looks a macro up by its name, and the names under which the code holds a daemon's settings.
LOOK_UPS = {"get", "origin", "value", "of", "is_written", "_number", "_whole", "whole", "_expr", "_of_type"}
HOLDERS = {"settings", "knobs", "_knobs", "_settings"}
# What only looks like a use: the startd's own `settings.docker` is ROOST_DOCKER's, no master runs, tables of daemons
# have their subsystems' names, no daemon is called PROCD, SCITOKENS is no URL's, and templates take others in.
NAMESAKES = {
    *("DOCKER", "MASTER_NAME", "COLLECTOR", "HAD", "NEGOTIATOR", "DEFRAG", "GANGLIAD", "ROOSTER", "SCHEDD", "STARTD"),
    *("PROCD_DEBUG", "FLOCK_FROM", "FLOCK_NEGOTIATOR_HOSTS", "SCITOKENS_FILE", "SSHD_ARGS"),
    *("HAD_ARGS", "REPLICATION_ARGS"),  # <NAME>_ARGS is looked up for daemons that have arguments
}
OURS = {"CONFIG_ROOT"}
SAMPLES = {"<SUBSYS>": "SCHEDD", "<DaemonName>": "SCHEDD", "<N>": "1", "*": "READ", "<SSH-CLIENT>": "ssh", "xxx": "X1"}
# Looked up under names that the code puts together from what the administrator wrote, or by each of their names.
COMPUTED = {"SCHEDD_CRON_<Job>_*", "SLOT<N>_<attr>", "SLOT<N>_EXECUTE"}
USE = re.compile(r"\$\(([^:()]+)[:)]")


pytestmark = pytest.mark.xdist_group(SOURCE)


def name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def names_something(node):
    """A text of gaps alone, the address of a request for instance, could be any macro."""
    return any(isinstance(part, ast.Constant) and re.search("[A-Za-z_]", part.value) for part in node.values)


def pattern(node):
    """What macros an f-string may name: a gap is a word without underscores, or the placeholder of a family."""
    return "".join(
        re.escape(part.value) if isinstance(part, ast.Constant) else "(?:<[A-Za-z]+>|[A-Z]+)" for part in node.values
    )


@functools.cache
def read_somewhere():
    fields = {
        field.name: field.metadata["knob"].name for settings in SETTINGS for field in dataclasses.fields(settings)
    }
    names = {knob.name for knob in KNOBS.values()} | {name for answer in NONE for name in answer.names.split()}
    names -= NAMESAKES
    found, patterns = set(COMPUTED), set()
    for module in house_of().modules.values():
        for node in module.nodes if "knobs" not in module.path.parts else ():
            if isinstance(node, ast.Attribute) and name_of(node.value) in HOLDERS and node.attr in fields:
                found.add(fields[node.attr])
            elif isinstance(node, ast.Call) and name_of(node.func) in LOOK_UPS:
                for argument in node.args[:2]:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        found.add(argument.value)
                    elif isinstance(argument, ast.JoinedStr) and names_something(argument):
                        patterns.add(pattern(argument))
            elif isinstance(node, ast.Dict):
                texts = {value.value for value in node.values if isinstance(value, ast.Constant)}
                if len(texts & names) > 2:  # a table of fields and their macros
                    found |= texts
    computed = re.compile("|".join(sorted(patterns)))
    found = {name for name in names if name in found or computed.fullmatch(name)}
    templates = "\n".join(body for bodies in CONFIG.templates.values() for body in bodies.values())
    found |= names & set(USE.findall(templates))
    while more := {name for name in names - found if name.lower() in used_by_defaults_of(found)}:
        found |= more
    return found


@functools.cache
def defaults():
    """Of each knob: the macros that its default goes by, all in lower case."""
    return {name: set(USE.findall((knob.default or "").lower())) for name, knob in KNOBS.items()}


def used_by_defaults_of(knobs):
    return set().union(*(defaults().get(name.lower(), ()) for name in knobs))


def test_knobs_without_effect_are_listed():
    declared = {knob.name for knob in KNOBS.values()} - helpers()
    read = read_somewhere()
    idle = {name for answer in NONE for name in answer.names.split()}
    assert len(declared - read) < len(declared)
    assert sorted(declared - read - idle) == [], "nothing reads these: list them in shared/config/knobs/effects.py"
    assert sorted(idle & read) == [], "take these out of NONE in shared/config/knobs/effects.py"


def test_no_knob_stands_in_the_tables_twice():
    names = [name.lower() for answer in (*NONE, *PART) for name in answer.names.split()] + GIVEN.lower().split()
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_what_goes_in_part_is_read():
    declared = {knob.name for knob in KNOBS.values()}
    named = {name for answer in PART for name in answer.names.split()}
    assert named - declared == {
        "SEC_<level>_AUTHENTICATION_METHODS",  # of SEC_<what>  # of a template
    }
    assert sorted(named & declared - read_somewhere() - {"CONDOR_HOST"}) == []


def test_given_macros_are_those_that_the_machine_sets():
    assert set(GIVEN.split()) == set(detect(subsystem="", local_name="", config_root="")) - OURS


def instance(name):
    """A knob that a documented name of several stands for: SLOT<N>_EXECUTE -> SLOT1_EXECUTE."""
    for gap, word in SAMPLES.items():
        name = name.replace(gap, word)
    return re.sub("<[^>]+>", "X1", name)


DOCUMENTED = (Path(__file__).parent / "data" / "knobs_of_23_9.txt").read_text(encoding="utf-8").split()


def test_every_knob_of_the_manual_has_its_place():
    assert len(DOCUMENTED) > 1100
    assert [name for name in DOCUMENTED if place(instance(name)) is None] == []


def test_every_knob_of_the_library_has_its_place(reference):
    assert [name for name in reference.htcondor.param.keys() if place(name) is None] == []  # noqa: SIM118  no mapping


@pytest.mark.parametrize("name", ["MY_SITE_NOTE", "POOL.NAME", "FLOCK", "JOB_ROUTERX"])
def test_macros_of_ones_own_have_none(name):
    assert place(name) is None


def test_a_knob_is_as_its_most_exact_name_says():
    assert place("SLOT1_CPU_AFFINITY").name == "SLOT<N>_CPU_AFFINITY"
    assert place("SLOT1_Color").kind is Effect.FULL
    assert place("SEC_WRITE_ENCRYPTION").kind is Effect.NONE
    assert place("sec_write_authentication_methods").kind is Effect.PART
    assert place("ALLOW_ADVERTISE_STARTD").kind is Effect.NONE
    assert place("ALLOW_WRITE_SCHEDD").kind is Effect.PART
    assert place("GROUP_QUOTA_physics").kind is Effect.FULL
    assert place("VIEW_ARGS").kind is Effect.FULL
