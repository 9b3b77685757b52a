"""What an administrator adds to the ads of daemons: SCHEDD_ATTRS and its sisters, lists of macros whose values become
attributes. Slots have STARTD_ATTRS, which the startd reads itself. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from shared.classad import Expr, ParseError
from shared.config.config import Config
from shared.config.errors import Problem
from shared.config.evaluate import parse_whole

#: Subsystem and MyType of an ad of a daemon's own -> the list of what is added to it.
LISTS: Final[Mapping[tuple[str, str], str]] = {
    ("SCHEDD", "Scheduler"): "SCHEDD_ATTRS",
    ("SCHEDD", "Submitter"): "SUBMITTER_ATTRS",
    ("NEGOTIATOR", "Negotiator"): "NEGOTIATOR_ATTRS",
    ("COLLECTOR", "Collector"): "COLLECTOR_ATTRS",
    ("HAD", "HAD"): "HAD_ATTRS",
    ("DEFRAG", "Defrag"): "DEFRAG_ATTRS",
    ("GANGLIAD", "Gangliad"): "GANGLIAD_ATTRS",
}


def attributes(config: Config, my_type: str) -> dict[str, Expr]:
    """What is added to each ad of this type, by name. What is no expression is left out, as in HTCondor."""
    knob = LISTS.get((config.subsystem, my_type))
    found = {}
    for name in _names(config, knob) if knob else ():
        if text := (config.get(name) or "").strip():
            try:
                found[name] = parse_whole(text)
            except ParseError:
                continue
    return found


def problems(config: Config) -> Iterator[Problem]:
    """What is in these lists, and can not be told."""
    for knob in (knob for (subsystem, _), knob in LISTS.items() if subsystem == config.subsystem):
        for name in _names(config, knob):
            text = (config.get(name) or "").strip()
            if not text:
                told = f"{knob} names {name}, which is not defined: no ad has it"
                yield Problem(told, config.origin(knob), f"write {name} = VALUE, or take it out of the list")
                continue
            try:
                parse_whole(text)
            except ParseError as error:
                told = f"{name} = {text} is no ClassAd expression, and is left out of the ads: {error}"
                yield Problem(told, config.origin(name), "correct it; strings stand in double quotes")


def _names(config: Config, knob: str) -> list[str]:
    """Names of attributes, each once."""
    words = re.split(r"[\s,]+", config.get(knob) or "")
    return list({word.lower(): word for word in words if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", word)}.values())
