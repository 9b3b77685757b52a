"""What can be wrong in a configuration or submit file, always with its place and its mend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shared.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Source:
    """Where a line or a value came from: a file and its line (from 1), or a named origin with line 0.

    Origins without lines are written in angle brackets: `<default>`, `<environment>`, `<detected>`.
    `template` is what a `use` on that line expanded, such as `use POLICY:Desktop`.
    """

    name: str
    line: int = 0
    template: str = ""

    def __str__(self) -> str:
        place = f"{self.name}, line {self.line}" if self.line else self.name
        return f"{place}, {self.template}" if self.template else place


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, what, and what to write instead."""

    message: str
    source: Source | None = None
    mend: str = ""

    def __str__(self) -> str:
        place = f"{self.source}: " if self.source is not None else ""
        return f"{place}{self.message}" + (f" ({self.mend})" if self.mend else "")


@dataclass(frozen=True, slots=True)
class NoEffect(Problem):
    """A knob that somebody wrote down and that does nothing."""

    mend: str = "take it out where HTCondor does not read this file"
    knob: str = ""
    why: str = ""


class ConfigError(ConfigurationError):
    """One or more problems that keep a file from being used. Its text has one problem a line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def config_error(message: str, source: Source | None = None, mend: str = "") -> ConfigError:
    """A ConfigError of a single problem."""
    return ConfigError((Problem(message, source, mend),))


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
    mend = problems[0].mend.replace("it", "them", 1)
    return f"{len(problems)} knobs have no effect: {'. '.join(parts)}. ({mend})"


def _of_file(problems: list[NoEffect]) -> str:
    """Several knobs of one file, with their lines."""
    names = ", ".join(dict.fromkeys(problem.knob for problem in problems))
    sources = [problem.source for problem in problems if problem.source is not None]
    numbers = ", ".join(dict.fromkeys(str(source.line) for source in sources if source.line))
    file = sources[0].name if sources else ""
    where = f"{file}, line{'s' if ',' in numbers else ''} {numbers}" if numbers else file
    return f"{names} ({where})" if where else names
