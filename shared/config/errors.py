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


class ConfigError(ConfigurationError):
    """One or more problems that keep a file from being used. Its text has one problem a line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def config_error(message: str, source: Source | None = None, mend: str = "") -> ConfigError:
    """A ConfigError of a single problem."""
    return ConfigError((Problem(message, source, mend),))
