"""Reads the lines of DAG files, and follows the files inside one another: the frame in which commands are carried out.

A file is read twice: first what it defines (nodes, splices, descriptions), then what is said of these, so that order
does not matter, as in DAGMan. Everything a file can make large is bounded, and no step between two `yield`s takes more
than a few milliseconds.
"""

from __future__ import annotations

import difflib
import io
import posixpath
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

from engine.dag.model import ALL_NODES, Dag, Kind, Node
from shared.config.errors import ConfigError, Problem, Source, config_error

#: What no DAG needs, and a hostile one would use: nodes, edges, lines read, files inside one another, characters of a
#: line and of a name, and steps of work that one line can multiply (ALL_NODES).
MAX_NODES: Final = 1_000_000
MAX_EDGES: Final = 10_000_000
MAX_LINES: Final = 5_000_000
MAX_DEPTH: Final = 40
MAX_LINE: Final = 1 << 20
MAX_NAME: Final = 255
MAX_WORK: Final = 50_000_000
#: Pieces of work between two yields.
STEP: Final = 250
#: Problems that are told at once.
TOLD: Final = 20

Read = Callable[[str], str]
Handler = Callable[["DagFile", list[str], "Statement"], Iterator[None] | None]
RESERVED: Final = frozenset(("parent", "child", ALL_NODES))


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands of the language: those that define something, which are carried out first, and the others.
    of_rescue: what a partial rescue file has; with_body: what may have an
    inline submit description."""

    first: dict[str, Handler]
    later: dict[str, Handler]
    of_rescue: frozenset[str]
    with_body: frozenset[str]


@dataclass(slots=True)
class Statement:
    """One command of a DAG file. body: of an inline submit description."""

    words: list[str]
    text: str
    source: Source
    body: str | None = None


@dataclass(slots=True)
class _Work:
    """What was read and made so far, of all files together."""

    lines: int = 0
    edges: int = 0
    done: int = 0
    steps: int = 0

    def due(self) -> bool:
        """Whether it is time to let others have their turn: asked after every small piece of work."""
        self.steps += 1
        return self.steps % STEP == 0

    def count(self, pieces: int, source: Source) -> None:
        self.done += pieces
        if self.done > MAX_WORK:
            raise Stop(config_error("the DAG is too large: its lines stand for too much", source, "divide it"))


class Stop(Exception):
    """Nothing more can be read. The cause is in `error`."""

    def __init__(self, error: ConfigError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True)
class Splice:
    """The nodes of a splice: what others are tied to."""

    initial: list[int]
    terminal: list[int]
    pins_in: dict[int, list[int]]
    pins_out: dict[int, list[int]]


class Reader:
    """What all files of a DAG share."""

    def __init__(self, dag: Dag, read: Read, commands: Commands) -> None:
        self.dag = dag
        self.read = read
        self.commands = commands
        self.work = _Work()
        self.problems: list[Problem] = []
        self.splices: dict[str, Splice] = {}
        self.edges: set[tuple[int, int]] = set()

    def text(self, path: str, source: Source) -> str:
        try:
            return self.read(path)
        except OSError as error:
            raise config_error(
                f"{path} can not be read: {error.strerror or error}", source, "name a file that is there"
            ) from error

    def statements(self, path: str, text: str) -> Generator[None, None, list[Statement]]:
        """The commands of a file: comments and empty lines left out, continued lines joined."""
        found: list[Statement] = []
        lines = iter(enumerate(io.StringIO(text), 1))
        for number, raw in lines:
            self._count(path, number, raw)
            if self.work.due():
                yield
            pieces, size = [raw.strip()], len(raw)
            while pieces[-1].endswith("\\") and not pieces[0].startswith("#"):
                at, more = next(lines, (number, ""))
                self._count(path, at, more)
                size += len(more) + 1
                if size > MAX_LINE:
                    self._too_long(path, number)
                pieces[-1] = pieces[-1][:-1].rstrip()
                pieces.append(more.strip())
                if self.work.due():
                    yield
            line = " ".join(pieces)
            if not line or line.startswith("#"):
                continue
            source = Source(path, number)
            statement = Statement(line.split(), line, source)
            if (end := self._inline_end(statement.words)) is not None:
                yield from self._inline(path, lines, statement, end)
            found.append(statement)
        return found

    def _inline(
        self, path: str, lines: Iterator[tuple[int, str]], statement: Statement, end: str
    ) -> Generator[None, None, None]:
        """The lines of an inline submit description, up to `end`; what follows that belongs to the command."""
        body: list[str] = []
        for number, raw in lines:
            self._count(path, number, raw)
            if self.work.due():
                yield
            line = raw.strip()
            if line == end or line.startswith(f"{end} "):
                statement.words = [*statement.words[:-1], "{}", *line.split()[1:]]
                statement.body = "".join(body)
                return
            body.append(raw)
        raise config_error("the inline submit description does not end", statement.source, f"add a line: {end}")

    def _inline_end(self, words: list[str]) -> str | None:
        """The line that ends the inline description which begins at the end of these words: `{` or `@=TAG`."""
        if len(words) < 2 or words[0].upper() not in self.commands.with_body:
            return None
        if words[-1] == "{":
            return "}"
        return f"@{words[-1][2:]}" if words[-1].startswith("@=") and len(words[-1]) > 2 else None

    def _count(self, path: str, number: int, raw: str) -> None:
        self.work.lines += 1
        if self.work.lines > MAX_LINES:
            raise Stop(
                config_error(
                    f"more than {MAX_LINES} lines are read", Source(path, number), "does a file splice itself?"
                )
            )
        if len(raw) > MAX_LINE:
            self._too_long(path, number)

    def _too_long(self, path: str, number: int) -> NoReturn:
        raise Stop(config_error(f"a line of more than {MAX_LINE} characters", Source(path, number), "divide it"))

    def add_node(self, node: Node) -> None:
        self.dag.nodes.append(node)
        if len(self.dag.nodes) > MAX_NODES:
            raise Stop(config_error(f"the DAG has more than {MAX_NODES} nodes", node.source, "divide it into subdags"))

    def add_edge(self, parent: int, child: int, source: Source) -> None:
        if (parent, child) in self.edges:
            return
        self.work.edges += 1
        if self.work.edges > MAX_EDGES:
            raise Stop(config_error(f"the DAG has more than {MAX_EDGES} edges", source, "divide it into subdags"))
        self.edges.add((parent, child))
        self.dag.nodes[parent].children.append(child)
        self.dag.nodes[child].parents.append(parent)


class DagFile:
    """One file of a DAG, with what it includes. prefix: of its nodes' names; chain: the files around it, and itself;
    splice: the splice that it is; source: the line that named it. rescue: only what a rescue file has."""

    def __init__(
        self,
        reader: Reader,
        path: str,
        directory: str,
        prefix: str,
        chain: tuple[str, ...],
        splice: Splice | None,
        source: Source,
        *,
        rescue: bool = False,
    ) -> None:
        self.reader = reader
        self.dag = reader.dag
        self.path = path
        self.directory = directory
        self.prefix = prefix
        self.chain = chain
        self.splice = splice
        self.source = source
        self.rescue = rescue
        self.own: list[int] = []  # its nodes, without those of its splices
        self.first = len(self.dag.nodes)
        self.descriptions: dict[str, str] = {}
        self.described: list[tuple[Node, str]] = []  # nodes that may name a description which comes later
        self.later: list[tuple[Handler, list[str], Statement]] = []

    def parse(self) -> Iterator[None]:
        yield from self.read(self.path, self.chain, self.source)
        for node, name in self.described:
            if name in self.descriptions:
                node.inline = self.descriptions[name]
            if self.reader.work.due():
                yield
        for handler, words, statement in self.later:
            yield from self._one(handler, words, statement)
            if self.reader.work.due():
                yield

    def read(self, path: str, chain: tuple[str, ...], source: Source) -> Iterator[None]:
        """Take in the lines of a file: its own, or those of one that it includes. chain: the files around, with it."""
        around, self.chain = self.chain, chain
        commands = self.reader.commands
        try:
            statements = yield from self.reader.statements(path, self.reader.text(path, source))
        except ConfigError as error:
            self._note(error)
            statements = []
        for statement in statements:
            if self.reader.work.due():
                yield
            word, words = statement.words[0].upper(), statement.words[1:]
            if self.rescue and word not in commands.of_rescue:
                mend = "a partial rescue file has DONE and RETRY; name another"
                self._note(config_error(f"{word[:40]} in a rescue file", statement.source, mend))
            elif word in commands.first:
                yield from self._one(commands.first[word], words, statement)
            elif word in commands.later:
                self.later.append((commands.later[word], words, statement))
            else:
                self._note(_unknown(word, statement, commands))
        self.chain = around

    def _one(self, handler: Handler, words: list[str], statement: Statement) -> Iterator[None]:
        try:
            more = handler(self, words, statement)
            if more is not None:
                yield from more
        except ConfigError as error:
            self._note(error)

    def _note(self, error: ConfigError) -> None:
        self.reader.problems += error.problems
        if len(self.reader.problems) >= TOLD:
            raise Stop(ConfigError(()))

    # What handlers need

    def inner(self, name: str, source: Source) -> tuple[str, tuple[str, ...]]:
        """The path of a file that this one includes or splices, and the files around that, with it."""
        path, chain = self.place(name), self.chain
        if path in chain:
            raise config_error(
                f"{path} includes itself: {' > '.join((*chain[chain.index(path) :], path))}",
                source,
                "take the line out",
            )
        if len(chain) >= MAX_DEPTH:
            raise Stop(config_error(f"files are more than {MAX_DEPTH} deep inside one another", source, "flatten them"))
        return path, (*chain, path)

    def place(self, name: str) -> str:
        return posixpath.normpath(posixpath.join(self.directory, name))

    def define(self, kind: Kind, name: str, statement: Statement, **more: str | bool | None) -> Node:
        source = statement.source
        full = self.free(name, source)
        node = Node(len(self.dag.nodes), full, kind, source, **more)  # type: ignore[arg-type]
        self.reader.add_node(node)
        self.dag.by_name[full] = node.index
        if kind in (Kind.JOB, Kind.SUBDAG):
            self.own.append(node.index)
        return node

    def free(self, name: str, source: Source) -> str:
        """The full name of a new node or splice."""
        if name.lower() in RESERVED:
            raise config_error(f"{name} is a word of the language", source, "choose another name")
        if "+" in name or len(name) > MAX_NAME:
            why = "+ stands between a splice and its node" if "+" in name else f"at most {MAX_NAME} characters"
            raise config_error(f"{name[:40]} can not be a name: {why}", source, "choose another name")
        full = self.prefix + name
        if full in self.dag.by_name or full in self.reader.splices:
            raise config_error(f"{full} is defined twice", source, "name one of them otherwise")
        return full

    def node(self, name: str, source: Source) -> Node:
        index = self.dag.by_name.get(self.prefix + name)
        if index is None:
            if self.prefix + name in self.reader.splices:
                raise config_error(f"{name} is a splice", source, "name one of its nodes: SPLICE+NODE")
            raise config_error(f"there is no node {name}", source, f"add a line: JOB {name} FILE")
        return self.dag.nodes[index]

    def targets(self, name: str, statement: Statement, *, final: bool = True) -> list[Node]:
        """The nodes that a command is about. final: whether it may be about a FINAL node."""
        if name.lower() == ALL_NODES and not self.rescue:
            self.reader.work.count(len(self.own), statement.source)
            return [self.dag.nodes[index] for index in self.own]
        node = self.node(name, statement.source)
        if node.kind is Kind.FINAL and not final:
            word = statement.words[0].upper()
            raise config_error(f"{word} does not go with the FINAL node {name}", statement.source, "take the line out")
        return [node]

    def ends(self, name: str, source: Source, *, parents: bool) -> list[int]:
        """The nodes that an edge from or to this name is tied to."""
        splice = self.reader.splices.get(self.prefix + name)
        if splice is not None:
            return splice.terminal if parents else splice.initial
        node = self.node(name, source)
        if node.kind not in (Kind.JOB, Kind.SUBDAG):
            raise config_error(f"a {node.kind.upper()} node has no parents and children", source, f"leave {name} out")
        return [node.index]

    def tie(self, parents: Iterable[int], children: Iterable[int], source: Source) -> Iterator[None]:
        """Edges of every parent to every child: over a join node where there are several of both."""
        above, below = list(dict.fromkeys(parents)), list(dict.fromkeys(children))
        if len(above) > 1 and len(below) > 1:
            join = Node(len(self.dag.nodes), f"_join_{len(self.dag.nodes)}", Kind.JOIN, source, noop=True)
            self.reader.add_node(join)
            pairs = [*((one, join.index) for one in above), *((join.index, one) for one in below)]
        else:
            pairs = [(one, other) for one in above for other in below]
        self.reader.work.count(len(pairs), source)
        for parent, child in pairs:
            self.reader.add_edge(parent, child, source)
            if self.reader.work.due():
                yield


def _unknown(word: str, statement: Statement, commands: Commands) -> ConfigError:
    near = difflib.get_close_matches(word[:40], [*commands.first, *commands.later], 1)
    mend = f"did you mean {near[0]}?" if near else "take the line out"
    return config_error(f"{word[:40]} is no command of a DAG file", statement.source, mend)


# Words of a line


def usage_error(statement: Statement, usage: str) -> ConfigError:
    return config_error(f"{statement.words[0].upper()}: this is not understood", statement.source, f"write {usage}")


def integer(word: str, what: str, source: Source, least: int | None = None) -> int:
    try:
        number = int(word[:20])
    except ValueError:
        number = None
    if number is None or len(word) > 10 or (least is not None and number < least):
        bound = "" if least is None else f" of at least {least}"
        raise config_error(f"{what}: {word[:40]!r} is no whole number{bound}", source, "write digits")
    return number


def options(words: list[str], statement: Statement, usage: str, *allowed: str) -> dict[str, str | bool]:
    """DIR directory, NOOP and DONE at the end of a node's line."""
    found: dict[str, str | bool] = {}
    rest = iter(words)
    for word in rest:
        upper = word.upper()
        if upper not in allowed or upper.lower() in found:
            raise usage_error(statement, usage)
        if upper == "DIR":
            directory = next(rest, None)
            if directory is None:
                raise usage_error(statement, usage)
            found["dir"] = directory
        else:
            found[upper.lower()] = True
    return found
