"""Reads configuration and submit files into a MacroTable.

    reader = Reader(table, CONFIG)
    reader.read_file("/etc/condor/condor_config")          # raises ConfigError with file, line and mend
    reader.warnings                                        # list[Problem], for instance the obsolete `A : 1`

A submit file has statements of its own, which are handed out in between; the macros above them are set then:

    reader = Reader(table, Dialect(keywords=frozenset({"queue"}), attributes=True))
    for statement in reader.statements(text, "job.sub"):   # Statement(keyword="queue", rest="3", source)
        reader.take_line()                                 # physical lines behind it, for an item list; None at the end
        reader.open_ifs, reader.forget_ifs()               # is an if open here; drop what is open

Dialects: CONFIG, and what the submit language makes for itself. Both know comments, continuations, heredocs,
`if`/`elif`/`else`/`endif`, `include`, `error :` and `warning :`; `use` where the dialect has templates.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shared.config.conditions import Branches, holds
from shared.config.errors import Problem, Source, config_error
from shared.config.files import read_text, run_command
from shared.config.lines import Line, Lines
from shared.config.macros import MacroTable
from shared.config.templates import Templates, fill, template_uses

MAX_INCLUDES = 20  # files inside files

_KEYWORD = re.compile(r"@?([A-Za-z]+)(?=[\s:]|$)")
_BRANCH_WORDS = frozenset(("if", "elif", "else", "endif"))
_NAME = re.compile(r"[A-Za-z0-9_./]+")
_ASSIGNMENT = re.compile(r"([^\s=:]*)([^=:]*)([=:])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one of the languages has that the other has not.

    keywords: first words, lower case, of lines that are statements of the language and no assignments.
    attributes: `+Name = x` (and `-Name`) means `MY.Name = x`. colon: `A : 1` assigns, with a warning.
    templates: what `use CATEGORY : NAME` knows.
    """

    keywords: frozenset[str] = frozenset()
    attributes: bool = False
    colon: bool = False
    templates: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Statement:
    """A line of the dialect's own: its keyword in lower case, the unexpanded rest, and where it stands."""

    keyword: str
    rest: str
    source: Source


class Reader:
    """Reads files into `table`; the warnings of all of them gather in `warnings`."""

    def __init__(self, table: MacroTable, dialect: Dialect) -> None:
        self.table = table
        self.warnings: list[Problem] = []
        self.files: list[str] = []
        self._dialect = dialect
        self._templates = Templates(dialect.templates)
        self._lines = Lines("", "")
        self._branches = Branches()

    # --- for callers --------------------------------------------------------------------------------------

    def read_file(self, path: str | Path, include: Source | None = None, depth: int = 0) -> None:
        """Read a whole file. Raises ConfigError, also when it can not be opened or holds statements."""
        name = str(path)
        try:
            text = read_text(name)
        except OSError as error:
            raise config_error(
                f"can not read {name or 'a file without a name'}: {error.strerror}", include, "correct the path"
            ) from None
        self.files.append(name)
        self.read_text(text, name, depth)

    def read_text(self, text: str, name: str, depth: int = 0, at: Source | None = None) -> None:
        """Read text that has no statements of its own; `at` is the place to tell instead of its lines'."""
        for statement in self.statements(text, name, depth, at):
            raise config_error(f"{statement.keyword} has no place here", statement.source)

    def statements(self, text: str, name: str, depth: int = 0, at: Source | None = None) -> Iterator[Statement]:
        """Read text, handing out each statement of the dialect with the macros above it set."""
        outer = self._lines, self._branches
        lines, branches = Lines(text, name, at), Branches()
        self._lines, self._branches = lines, branches
        try:
            while (line := lines.logical()) is not None:
                word = _KEYWORD.match(line.text)
                keyword = word[1].lower() if word is not None else ""
                if keyword in _BRANCH_WORDS and line.text[0] != "@" and self._branch(keyword, line):
                    continue
                if not branches.open:
                    continue
                if keyword in self._dialect.keywords and word is not None:
                    yield Statement(keyword, line.text[word.end() :].strip(), lines.here(line))
                elif word is None or not self._directive(keyword, line.text[word.end() :], line, depth):
                    self._assign(line)
            branches.finish()
        finally:
            self._lines, self._branches = outer

    def take_line(self) -> str | None:
        """The next physical line of the file being read, for what stands behind a statement; None at the end."""
        return self._lines.physical()

    @property
    def line_number(self) -> int:
        """The number of the physical line read last."""
        return self._lines.number

    @property
    def open_ifs(self) -> bool:
        """Whether an `if` of the file being read is not closed yet."""
        return self._branches.depth > 0

    def forget_ifs(self) -> None:
        """Let the file go on as if no `if` were open."""
        self._branches.forget()

    # --- lines --------------------------------------------------------------------------------------------

    def _branch(self, keyword: str, line: Line) -> bool:
        rest = line.text[len(keyword) :]
        if rest.startswith(":"):
            return False
        source = self._lines.here(line)

        def decide() -> bool:
            text = self.table.expand(rest, source=source).strip()
            if text in ("", "!") and "$" in rest:
                return text == "!"  # `if $(NOT_DEFINED)` is false, while a bare `if` is an error
            return holds(text, self._is_defined, source)

        match keyword:
            case "if":
                self._branches.enter(decide, source)
            case "elif":
                self._branches.otherwise(decide, source)
            case "else":
                self._branches.last(source)
            case _:
                self._branches.leave(source)
        return True

    def _is_defined(self, name: str) -> bool:
        if name.startswith("use "):
            return self._templates.knows(name[4:])
        self.table.consulted.add(name.lower())
        return bool(self.table.raw(name))

    def _directive(self, keyword: str, rest: str, line: Line, depth: int) -> bool:
        """Carry out `include`, `use`, `error`, `warning`; False if the line is none of them."""
        if keyword not in ("include", "use", "error", "warning"):
            return False
        at = line.text[0] == "@"
        words, colon, argument = rest.partition(":")
        if not colon or "=" in words:
            if at:
                raise config_error(f"@{keyword} needs a colon", self._lines.here(line), f"write {keyword} : ...")
            return False
        source = self._lines.here(line)
        if keyword == "include":
            self._include(words.strip(), argument.strip(), source, depth)
        elif keyword == "use":
            self._use(words.strip(), argument.strip(), source, depth)
        elif words.strip():
            return False
        else:
            message = self.table.expand(argument.strip(), source=source)
            if keyword == "error":
                raise config_error(message or "the file says error", source)
            self.warnings.append(Problem(message, source))
        return True

    def _assign(self, line: Line) -> None:
        source = self._lines.here(line)
        text = line.text
        split = _ASSIGNMENT.match(text)
        name = split[1] if split is not None else ""
        if split is None or (split[3] == ":" and (not self._dialect.colon or "@" in split[2])):
            raise config_error(f"'{_short(text)}' is no assignment", source, "write NAME = value")
        value = text[split.end() :].lstrip()  # blanks at its end are those before a continuation that brought nothing
        heredoc = split[3] == "=" and split[2].endswith("@")
        if split[3] == ":":
            warning = f"'{name} : ...' is an obsolete form of assignment"
            self.warnings.append(Problem(warning, source, f"write {name} = ..."))
        name = self._name(name, source)
        self.table.set(name, self._lines.heredoc(value, line) if heredoc else value, source)

    def _name(self, name: str, source: Source) -> str:
        written = name
        if "$" in name:
            name = self.table.expand(name, source=source)
        if self._dialect.attributes and name[:1] in ("+", "-"):
            name = "MY." + name[1:]
        if not _NAME.fullmatch(name) or name == "MY.":
            mend = "names are made of letters, digits, underscores and dots"
            raise config_error(f"'{written}' can not be the name of a macro", source, mend)
        return name

    # --- include and use ----------------------------------------------------------------------------------

    def _include(self, words: str, argument: str, source: Source, depth: int) -> None:
        """`include [ifexist] [command [into CACHE]] : FILE-or-command`; a trailing `|` means a command, too."""
        if depth >= MAX_INCLUDES:
            raise config_error(f"more than {MAX_INCLUDES} files include each other", source, "remove the loop")
        target = self.table.expand(argument, source=source).strip()
        options = words.split(None, 3)
        if_exist = "ifexist" in options
        if if_exist:
            options.remove("ifexist")
        command = options[:1] in (["command"], ["output"])
        cache = ""
        if command and options[1:2] == ["into"] and len(options) > 2:
            cache = self.table.expand(" ".join(options[2:]), source=source).strip()
            if not cache:
                raise config_error("include command into: the file to write has no name", source, "name one")
        elif options[int(command) :]:
            mend = "write include [ifexist] [command [into FILE]] : NAME, in lower case"
            raise config_error(f"include does not know '{words}'", source, mend)
        if target.endswith("|"):
            command, target = True, target[:-1].strip()
        if not target:
            if if_exist:
                return
            raise config_error("include: the file has no name", source, "name one, or check the macro that holds it")
        if "\0" in target or "\0" in cache:
            raise config_error("include: there is a zero byte in a name", source, "remove it")
        if not command:
            if if_exist and not os.path.exists(target):
                return
            if os.path.isdir(target):
                self.warnings.append(Problem(f"{target} is a directory: nothing is included", source))
                return
            self.read_file(target, source, depth + 1)
            return
        if cache and os.path.isfile(cache):
            self.read_file(cache, source, depth + 1)
            return
        text = self.output_of(target, source, if_exist=if_exist, must_succeed=bool(cache) and not if_exist)
        if text is None:
            return
        if cache:
            try:
                Path(cache).write_text(text, encoding="utf-8", errors="surrogateescape")
            except OSError as error:
                raise config_error(f"can not write {cache}: {error.strerror}", source) from None
        self.files.append(f"{target} |")
        self.read_text(text, f"{target} |", depth + 1)

    def output_of(
        self, command: str, source: Source, *, if_exist: bool = False, must_succeed: bool = False
    ) -> str | None:
        """As run_command; that it ended badly and its output is taken is among the warnings."""
        printed = run_command(command, source, if_exist=if_exist, must_succeed=must_succeed)
        if printed is None:
            return None
        if printed.problem:
            self.warnings.append(Problem(printed.problem, source))
        return printed.text

    def _use(self, category: str, argument: str, source: Source, depth: int) -> None:
        """`use CATEGORY : NAME[(arguments)] ...`; no macros in the names, and those in arguments stay lazy."""
        if depth >= MAX_INCLUDES:
            raise config_error(f"more than {MAX_INCLUDES} templates use each other", source, "remove the loop")
        category = self.table.expand(category, source=source).strip()
        if not category:
            raise config_error("use needs a category before the colon", source, "write use ROLE : Personal")
        uses = template_uses(argument)
        if uses is None:
            raise config_error(f"'{argument}' is no list of templates", source, "write NAME or NAME(arguments)")
        for name, arguments in uses:
            body = self._templates.body(category, name)
            if body is None:
                raise config_error(
                    f"there is no template {category}:{name}", source, self._templates.suggest(category, name)
                )
            at = Source(source.name, source.line, f"use {category}:{name}")
            self.read_text(fill(body, arguments), source.name, depth + 1, at)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
