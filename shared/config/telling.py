"""Warnings of a configuration, as texts for a log: those of knobs without effect come together, in one line.

for text in warning_lines(config.warnings): log.warning("configuration", problem=text)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from shared.config.errors import Problem

MEND: Final = "take it out where HTCondor does not read this file"


@dataclass(frozen=True, slots=True)
class NoEffect(Problem):
    """A knob that somebody wrote down and that does nothing."""

    knob: str = ""
    why: str = ""


def warning_lines(problems: Iterable[Problem], told: set[Problem] | None = None) -> list[str]:
    """The warnings as texts, those of knobs without effect gathered in one, the last. told: what was told before, and
    is left out; what is told now is added."""
    before = told if told is not None else set()
    fresh = [problem for problem in problems if problem not in before]
    before.update(fresh)
    idle = [problem for problem in fresh if isinstance(problem, NoEffect)]
    texts = [str(problem) for problem in fresh if not isinstance(problem, NoEffect)]
    return [*texts, *([_gathered(idle)] if idle else [])]


def _gathered(problems: list[NoEffect]) -> str:
    if len(problems) == 1:
        return str(problems[0])
    reasons: dict[str, dict[str, list[NoEffect]]] = {}
    for problem in problems:
        file = problem.source.name if problem.source is not None else ""
        reasons.setdefault(problem.why, {}).setdefault(file, []).append(problem)
    parts = ["; ".join(map(_of_file, files.values())) + f": {why}" for why, files in reasons.items()]
    return f"{len(problems)} knobs have no effect: " + ". ".join(parts) + f". ({MEND.replace('it', 'them', 1)})"


def _of_file(problems: list[NoEffect]) -> str:
    """Several knobs of one file, with their lines."""
    names = ", ".join(dict.fromkeys(problem.knob for problem in problems))
    sources = [problem.source for problem in problems if problem.source is not None]
    numbers = ", ".join(dict.fromkeys(str(source.line) for source in sources if source.line))
    file = sources[0].name if sources else ""
    where = f"{file}, line{'s' if ',' in numbers else ''} {numbers}" if numbers else file
    return f"{names} ({where})" if where else names
