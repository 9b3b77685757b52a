"""A loaded configuration: what a daemon looks its macros up in. shared.config.load makes one."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from shared.config.errors import Problem, Source
from shared.config.macros import DEFAULT, Macro, MacroTable

DETECTED = Source("<detected>")
OVERRIDE = Source("<command line>")


class Config:
    """One daemon's view of the configuration. Values are expanded at each look-up.

    files: what was read, in order, commands with a `|` behind them. warnings: what a person should hear of.
    persistent, runtime: what was set over the bus and is in force. persistent_file: where the former is kept; None: no
    place, or ENABLE_PERSISTENT_CONFIG is false. base: all that is below it.
    """

    def __init__(
        self,
        table: MacroTable,
        *,
        subsystem: str = "",
        local_name: str = "",
        files: Sequence[str] = (),
        warnings: Sequence[Problem] = (),
    ) -> None:
        self.table = table
        self.subsystem = subsystem
        self.local_name = local_name
        self.files = tuple(files)
        self.warnings = tuple(warnings)
        self.persistent: tuple[Macro, ...] = ()
        self.runtime: tuple[Macro, ...] = ()
        self.persistent_file: Path | None = None
        self.base = self

    def on(self, table: MacroTable) -> Config:
        """The same with other rows."""
        other = copy.copy(self)
        other.table = table
        return other

    def override(self, macros: Mapping[str, str]) -> None:
        """Set these over everything that was read, and over what was set over the bus."""
        for config in (self, self.base):
            for name, text in macros.items():
                config.table.set(name, text, OVERRIDE)

    def get(self, name: str) -> str | None:
        """The expanded value; None if it is not defined or expands to nothing. Raises ConfigError for a loop."""
        return self.table.value(name)

    def __getitem__(self, name: str) -> str:
        value = self.table.value(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: str) -> bool:
        return self.table.value(name) is not None

    def raw(self, name: str) -> str | None:
        """The text as written, unexpanded."""
        return self.table.raw(name)

    def origin(self, name: str) -> Source | None:
        """Where it was written; `<default>`, `<detected>`, `<environment>` or `<command line>` if in no file."""
        return self.table.origin(name)

    def is_written(self, name: str) -> bool:
        """Whether somebody set it: in a file, the environment, over the bus."""
        origin = self.origin(name)
        return origin is not None and origin != DEFAULT

    def default(self, name: str) -> str | None:
        """The default text, set or not."""
        return self.table.default(name)

    def expand(self, text: str) -> str:
        """Any text with the macros of this configuration replaced."""
        return self.table.expand(text)

    def names(self) -> list[str]:
        """Names that are set in files, the environment or by the caller: lower case, without this daemon's scopes."""
        found: dict[str, None] = {}
        scopes = tuple(f"{scope.lower()}." for scope in (self.local_name, self.subsystem) if scope)
        for macro in self.table:
            if macro.source is not DETECTED:
                name = macro.name.lower()
                for scope in scopes:
                    name = name.removeprefix(scope)
                found[name] = None
        return list(found)

    def macros(self) -> Iterator[Macro]:
        """Every macro that is set, as it was written."""
        return iter(self.table)
