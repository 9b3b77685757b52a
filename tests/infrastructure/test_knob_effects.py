"""The list of knobs that nothing reads yet, compared with what the code reads."""

import ast
import dataclasses
import re
from pathlib import Path

from shared.config.knobs import KNOBS, SETTINGS
from shared.config.knobs.unread import UNREAD
from shared.config.load import CONFIG
from shared.config.reference import helpers

ROOT = Path(__file__).parents[2]
# What looks a macro up by its name, and the names under which the code holds a daemon's settings.
LOOK_UPS = {"get", "origin", "value", "of", "is_written", "_number", "_whole", "whole", "_expr", "_of_type"}
HOLDERS = {"settings", "knobs", "_knobs", "_settings"}
# What only looks like a use: the startd's own `settings.docker` is ROOST_DOCKER's, no master runs, and tables of
# daemons have their subsystems' names; <NAME>_ARGS is looked up for daemons that have arguments.
NAMESAKES = {"HAD_ARGS", "REPLICATION_ARGS", "DOCKER", "MASTER_NAME", "COLLECTOR", "HAD", "NEGOTIATOR"}
# Looked up under names that the code puts together from what the administrator wrote, or by each of their names.
COMPUTED = {"SCHEDD_CRON_<Job>_*", "SLOT<N>_<attr>", "SLOT<N>_EXECUTE"}


def sources():
    for package in ("engine", "services", "shared", "roost"):
        for path in (ROOT / package).rglob("*.py"):
            if "knobs" not in path.parts:
                yield ast.parse(path.read_text(encoding="utf-8"))


def name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def names_something(node):
    """A text of gaps alone, the address of a request for instance, could be any macro."""
    return any(isinstance(part, ast.Constant) and re.search("[A-Za-z_]", part.value) for part in node.values)


def pattern(node):
    """What macros an f-string may name: a gap is a word without underscores, or the placeholder of a family."""
    parts = (
        re.escape(part.value) if isinstance(part, ast.Constant) else "(<[A-Za-z]+>|[A-Z]+)" for part in node.values
    )
    return re.compile("".join(parts))


def read_somewhere():
    fields = {
        field.name: field.metadata["knob"].name for settings in SETTINGS for field in dataclasses.fields(settings)
    }
    names = {knob.name for knob in KNOBS.values()} - NAMESAKES
    found, patterns = set(COMPUTED), []
    for tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and name_of(node.value) in HOLDERS and node.attr in fields:
                found.add(fields[node.attr])
            elif isinstance(node, ast.Call) and name_of(node.func) in LOOK_UPS:
                for argument in node.args[:2]:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        found.add(argument.value)
                    elif isinstance(argument, ast.JoinedStr) and names_something(argument):
                        patterns.append(pattern(argument))
            elif isinstance(node, ast.Dict):
                texts = {value.value for value in node.values if isinstance(value, ast.Constant)}
                if len(texts & names) > 2:  # a table of fields and their macros
                    found |= texts
    found = {name for name in names if name in found or any(regex.fullmatch(name) for regex in patterns)}
    templates = "\n".join(body for bodies in CONFIG.templates.values() for body in bodies.values())
    found |= {name for name in names - found if re.search(rf"\$\({re.escape(name)}[:)]", templates)}
    while more := {name for name in names - found if any(refers(KNOBS[user.lower()], name) for user in found)}:
        found |= more
    return found


def refers(user, name):
    """Whether the default of one knob goes by another."""
    return re.search(rf"\$\({re.escape(name)}[:)]", user.default or "", flags=re.IGNORECASE) is not None


def test_knobs_without_effect_are_listed():
    declared = {knob.name for knob in KNOBS.values()} - helpers()
    unread = declared - read_somewhere()
    assert len(unread) < len(declared)
    assert sorted(unread - set(UNREAD)) == [], "nothing reads these: list them in shared/config/knobs/unread.py"
    assert sorted(set(UNREAD) - unread) == [], "take these out of shared/config/knobs/unread.py"
