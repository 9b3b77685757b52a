"""What becomes of names that HTCondor documents: whether anything goes by them here, wholly, in part or not at all.

There is a table of each kind, beside what goes by it: knobs in shared/config/knobs/effects.py, attributes of jobs and
of slots in this package, commands of the submit language in roost/submit/effects.py, options of the tools in
roost/cli/effects.py. What has no place in its table has effect; tests compare that with the code, and every name that
the manual of HTCondor 23.9 has with the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum


class Effect(Enum):
    """How much of what HTCondor does with a name is done here."""

    FULL = "full"
    PART = "part"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Answer:
    """What there is to say of some names. names: with blanks between them. why: of which part goes by them, or why
    nothing does, and what there is in their place. daemons: of knobs, subsystems that tell, where a knob is not
    declared; none: all. told: whether who sets one hears of it; not those that may as well be somebody's own."""

    why: str
    names: str
    daemons: tuple[str, ...] = ()
    told: bool = True


def by_name(answers: Iterable[Answer]) -> Mapping[str, str]:
    """Each name as it is spelled, and what there is to say of it."""
    return {name: answer.why for answer in answers for name in answer.names.split()}


def table(answers: Iterable[Answer], noun: str, heading: str) -> str:
    """The answers in Markdown. noun: what the names are. heading: what is said of them."""
    rows = (
        f"| {', '.join(f'`{name}`' for name in sorted(answer.names.split(), key=str.lower))} | {cell(answer.why)} |\n"
        for answer in answers
    )
    return f"| {noun} | {heading} |\n|---|---|\n{''.join(rows)}"


def cell(text: str) -> str:
    """A text as it stands in a table."""
    return text.replace("|", "\\|")
