"""Reads DAG files (manual: DAGMan, "DAG Input File Commands"): every command of the language.

    steps = reading(["diamond.dag"], read)      # read: the text of a file by its path; raises OSError
    dag = finished(steps)                       # or: next(steps) now and then, on a loop that serves others too

What is wrong is collected, and told with file, line and mend in one ConfigError.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.dag.cycles import check_acyclic
from engine.dag.model import Abort, Dag, Dot, Kind, Node, Script, StatusFile, Var, When
from engine.dag.reader import (
    TOLD,
    Commands,
    DagFile,
    Handler,
    Read,
    Reader,
    Splice,
    Statement,
    Stop,
    integer,
    options,
    usage_error,
)
from shared.config.errors import ConfigError, Problem, Source, config_error

Steps = Generator[None, None, Dag]

_VAR: Final = re.compile(r'\s*([^\s=]+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_VAR_NAME: Final = re.compile(r"(?:[Mm][Yy]\.|\+)?[A-Za-z0-9_]+\Z")
_EXPRESSION: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(\S.*)\Z", re.DOTALL)


def finished(steps: Steps) -> Dag:
    """What the steps lead to, all at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            dag: Dag = end.value
            return dag


# Handlers of what is read first


def _node_command(kind: Kind, *allowed: str) -> Handler:
    shown = "".join(" [DIR DIRECTORY]" if one == "DIR" else f" [{one}]" for one in allowed)

    def handle(file: DagFile, words: list[str], statement: Statement) -> None:
        usage = f"{statement.words[0].upper()} NAME SUBMIT-DESCRIPTION{shown}"
        if len(words) < 2:
            raise usage_error(statement, usage)
        name, submit, *rest = words
        found = options(rest, statement, usage, *allowed)
        if kind in (Kind.FINAL, Kind.PROVISIONER):
            if file.splice is not None:
                raise config_error(f"a splice has no {kind.upper()} node", statement.source, "put it outside")
            if (file.dag.final if kind is Kind.FINAL else file.dag.provisioner) is not None:
                raise config_error(f"a DAG has one {kind.upper()} node", statement.source, "take the second one out")
        node = file.define(
            kind,
            name,
            statement,
            submit="" if statement.body is not None else submit,
            inline=statement.body,
            directory=file.place(str(found.get("dir", ""))),
            noop=bool(found.get("noop")),
            done=bool(found.get("done")),
        )
        if statement.body is None:
            file.described.append((node, submit))
        if kind is Kind.FINAL:
            file.dag.final = node.index
        elif kind is Kind.PROVISIONER:
            file.dag.provisioner = node.index
        elif kind is Kind.SERVICE:
            file.dag.services.append(node.index)

    return handle


def _subdag(file: DagFile, words: list[str], statement: Statement) -> None:
    usage = "SUBDAG EXTERNAL NAME DAG-FILE [DIR DIRECTORY] [NOOP] [DONE]"
    if len(words) < 3 or words[0].upper() != "EXTERNAL":
        raise usage_error(statement, usage)
    _, name, submit, *rest = words
    found = options(rest, statement, usage, "DIR", "NOOP", "DONE")
    file.define(
        Kind.SUBDAG,
        name,
        statement,
        submit=submit,
        directory=file.place(str(found.get("dir", ""))),
        noop=bool(found.get("noop")),
        done=bool(found.get("done")),
    )


def _splice(file: DagFile, words: list[str], statement: Statement) -> Iterator[None]:
    usage = "SPLICE NAME DAG-FILE [DIR DIRECTORY]"
    if len(words) < 2:
        raise usage_error(statement, usage)
    name, inner, *rest = words
    found = options(rest, statement, usage, "DIR")
    full = file.free(name, statement.source)
    directory = file.place(str(found.get("dir", "")))
    path, chain = file.inner(posixpath.join(str(found.get("dir", "")), inner), statement.source)
    spliced = Splice([], [], {}, {})
    part = DagFile(file.reader, path, directory, f"{full}+", chain, spliced, statement.source)
    # Before its nodes, so that none of them takes its name.
    file.reader.splices[full] = spliced
    yield from part.parse()
    for node in file.dag.nodes[part.first :]:
        if file.reader.work.due():
            yield
        if node.kind in (Kind.JOB, Kind.SUBDAG):
            if not node.parents:
                spliced.initial.append(node.index)
            if not node.children:
                spliced.terminal.append(node.index)


def _include(file: DagFile, words: list[str], statement: Statement) -> Iterator[None]:
    if len(words) != 1:
        raise usage_error(statement, "INCLUDE FILE")
    path, chain = file.inner(words[0], statement.source)
    yield from file.read(path, chain, statement.source)


def _description(file: DagFile, words: list[str], statement: Statement) -> None:
    if len(words) != 2 or statement.body is None:
        raise usage_error(statement, "SUBMIT-DESCRIPTION NAME { (its lines) }")
    if words[0] in file.descriptions:
        raise config_error(f"{words[0]} is described twice", statement.source, "name one of them otherwise")
    file.descriptions[words[0]] = statement.body


def _reject(file: DagFile, words: list[str], statement: Statement) -> None:
    raise config_error("the DAG is not to be run: it says REJECT", statement.source, "mend it, and take this line out")


# Handlers of what is said of nodes


def _parent(file: DagFile, words: list[str], statement: Statement) -> Iterator[None]:
    at = next((place for place, word in enumerate(words) if len(word) == 5 and word.upper() == "CHILD"), 0)
    if not at or at == len(words) - 1:
        raise usage_error(statement, "PARENT NAME [NAME...] CHILD NAME [NAME...]")
    parents: list[int] = []
    children: list[int] = []
    for name in words[:at]:
        parents += file.ends(name, statement.source, parents=True)
        if file.reader.work.due():
            yield
    for name in words[at + 1 :]:
        children += file.ends(name, statement.source, parents=False)
        if file.reader.work.due():
            yield
    yield from file.tie(parents, children, statement.source)


def _script(file: DagFile, words: list[str], statement: Statement) -> Iterator[None]:
    usage = "SCRIPT [DEFER STATUS SECONDS] [DEBUG FILE STDOUT|STDERR|ALL] PRE|POST|HOLD NODE PROGRAM [ARGUMENTS]"
    rest, source = list(words), statement.source
    status: int | None = None
    wait, debug, kind = 0, "", ""
    if len(rest) > 2 and rest[0].upper() == "DEFER":
        status, wait = integer(rest[1], "DEFER", source), integer(rest[2], "DEFER", source, 0)
        rest = rest[3:]
    if len(rest) > 2 and rest[0].upper() == "DEBUG":
        debug, kind = rest[1], rest[2].upper()
        if kind not in ("STDOUT", "STDERR", "ALL"):
            raise usage_error(statement, usage)
        rest = rest[3:]
    if len(rest) < 3 or rest[0].upper() not in ("PRE", "POST", "HOLD"):
        raise usage_error(statement, usage)
    when = When(rest[0].lower())
    script = Script(rest[2], " ".join(rest[3:]), status, float(wait), debug, kind)
    for node in file.targets(rest[1], statement):
        if when in node.scripts:
            file.dag.warnings.append(Problem(f"{node.name} has another {when.upper()} script before", source))
        node.scripts[when] = script
        if file.reader.work.due():
            yield


@dataclass(frozen=True, slots=True)
class _Set:
    """A command NODE VALUE... that sets something of nodes."""

    usage: str
    least: int
    most: int
    change: Callable[[DagFile, Statement, list[str]], Callable[[Node], None]]
    final: bool = field(default=True)  # whether it goes with a FINAL node

    def __call__(self, file: DagFile, words: list[str], statement: Statement) -> Iterator[None]:
        if not self.least <= len(words) <= self.most:
            raise usage_error(statement, self.usage)
        change = self.change(file, statement, words[1:])
        for node in file.targets(words[0], statement, final=self.final):
            change(node)
            if file.reader.work.due():
                yield


def _retry(file: DagFile, statement: Statement, words: list[str]) -> Callable[[Node], None]:
    retries = integer(words[0], "RETRY", statement.source, 0)
    if len(words) == 2 or (len(words) == 3 and words[1].upper() != "UNLESS-EXIT"):
        raise usage_error(statement, "RETRY NODE NUMBER [UNLESS-EXIT CODE]")
    unless = integer(words[2], "UNLESS-EXIT", statement.source) if len(words) == 3 else None

    def change(node: Node) -> None:
        node.retries, node.unless_exit = retries, unless if not file.rescue or unless is not None else node.unless_exit

    return change


def _abort_on(file: DagFile, statement: Statement, words: list[str]) -> Callable[[Node], None]:
    if len(words) == 2 or (len(words) == 3 and words[1].upper() != "RETURN"):
        raise usage_error(statement, "ABORT-DAG-ON NODE CODE [RETURN CODE]")
    code = integer(words[0], "ABORT-DAG-ON", statement.source)
    returns = integer(words[2], "RETURN", statement.source, 0) if len(words) == 3 else None
    if returns is not None and returns > 255:
        raise config_error(f"RETURN: {returns} is no exit code", statement.source, "write 0 to 255")
    abort = Abort(code, returns)

    def change(node: Node) -> None:
        node.abort = abort

    return change


def _pre_skip(file: DagFile, statement: Statement, words: list[str]) -> Callable[[Node], None]:
    code = integer(words[0], "PRE_SKIP", statement.source)
    if code == 0:
        raise config_error("PRE_SKIP 0: a PRE script that ends so skips nothing", statement.source, "name another code")

    def change(node: Node) -> None:
        node.pre_skip = code

    return change


def _priority(file: DagFile, statement: Statement, words: list[str]) -> Callable[[Node], None]:
    priority = integer(words[0], "PRIORITY", statement.source)

    def change(node: Node) -> None:
        node.priority = priority

    return change


def _category_name(file: DagFile, name: str) -> str:
    return name if name.startswith("+") else file.prefix + name


def _category(file: DagFile, statement: Statement, words: list[str]) -> Callable[[Node], None]:
    name = _category_name(file, words[0])

    def change(node: Node) -> None:
        node.category = name

    return change


def _done(file: DagFile, statement: Statement, words: list[str]) -> Callable[[Node], None]:
    def change(node: Node) -> None:
        if node.kind is not Kind.FINAL or not file.rescue:
            node.done = True

    return change


def _save_point(file: DagFile, statement: Statement, words: list[str]) -> Callable[[Node], None]:
    own = posixpath.basename(statement.source.name)
    save = words[0] if words else f"{statement.words[1]}-{own}.save"

    def change(node: Node) -> None:
        node.save_point = save

    return change


def _vars(file: DagFile, words: list[str], statement: Statement) -> Iterator[None]:
    usage = 'VARS NODE [PREPEND|APPEND] NAME="VALUE" [NAME="VALUE"...]'
    if len(words) < 2:
        raise usage_error(statement, usage)
    parts = statement.text.split(None, 2)
    text, append = parts[2], None
    if words[1].upper() in ("PREPEND", "APPEND"):
        append = words[1].upper() == "APPEND"
        text = text.split(None, 1)[1] if len(words) > 2 else ""
    found: list[Var] = []
    at, text = 0, text.rstrip()
    while at < len(text):
        match = _VAR.match(text, at)
        if match is None:
            raise usage_error(statement, usage)
        name = match[1]
        if not _VAR_NAME.match(name) or name.lower().startswith("queue"):
            raise config_error(f"VARS: {name[:40]!r} can not be the name of a macro", statement.source, "rename it")
        found.append(Var(name, re.sub(r'\\(["\\])', r"\1", match[2]), append))
        at = match.end()
        if file.reader.work.due():
            yield
    if not found:
        raise usage_error(statement, usage)
    targets = file.targets(words[0], statement)
    file.reader.work.count(len(targets) * len(found), statement.source)
    for node in targets:
        node.vars += found
        if file.reader.work.due():
            yield


# Handlers of what concerns the DAG


def _maxjobs(file: DagFile, words: list[str], statement: Statement) -> None:
    if len(words) != 2:
        raise usage_error(statement, "MAXJOBS CATEGORY NUMBER")
    file.dag.categories[_category_name(file, words[0])] = integer(words[1], "MAXJOBS", statement.source, 1)


def _config(file: DagFile, words: list[str], statement: Statement) -> None:
    if len(words) != 1:
        raise usage_error(statement, "CONFIG FILE")
    place = file.place(words[0])
    if file.splice is not None:
        return  # as in DAGMan: what concerns the DAG is read before splices are
    if file.dag.config and file.dag.config != place:
        raise config_error("the DAG has another CONFIG before", statement.source, "put both into one file")
    file.dag.config = place


def _env(file: DagFile, words: list[str], statement: Statement) -> None:
    usage = "ENV GET NAME [NAME...], or ENV SET NAME=VALUE;NAME=VALUE"
    if len(words) < 2 or words[0].upper() not in ("GET", "SET"):
        raise usage_error(statement, usage)
    if file.splice is not None:
        return
    if words[0].upper() == "GET":
        file.dag.env_get += words[1:]
        return
    for one in statement.text.split(None, 2)[2].split(";"):
        name, equals, value = one.partition("=")
        if one.strip() and (not equals or not name.strip()):
            raise usage_error(statement, usage)
        if one.strip():
            file.dag.env_set[name.strip()] = value


def _set_attribute(file: DagFile, words: list[str], statement: Statement) -> None:
    match = _EXPRESSION.match(statement.text.split(None, 1)[1] if words else "")
    if match is None:
        raise usage_error(statement, "SET_JOB_ATTR NAME = EXPRESSION")
    if file.splice is None:
        file.dag.attributes[match[1]] = match[2]


def _dot(file: DagFile, words: list[str], statement: Statement) -> None:
    usage = "DOT FILE [UPDATE|DONT-UPDATE] [OVERWRITE|DONT-OVERWRITE] [INCLUDE FILE]"
    if not words:
        raise usage_error(statement, usage)
    update, overwrite, include = False, True, ""
    rest = iter(words[1:])
    for word in rest:
        match word.upper():
            case "UPDATE" | "DONT-UPDATE":
                update = word.upper() == "UPDATE"
            case "OVERWRITE" | "DONT-OVERWRITE":
                overwrite = word.upper() == "OVERWRITE"
            case "INCLUDE" if include := next(rest, ""):
                include = file.place(include)
            case _:
                raise usage_error(statement, usage)
    if file.splice is None:
        file.dag.dot = Dot(file.place(words[0]), update, overwrite, include)


def _status_file(file: DagFile, words: list[str], statement: Statement) -> None:
    usage = "NODE_STATUS_FILE FILE [SECONDS] [ALWAYS-UPDATE]"
    rest = words[1:]
    every = 60
    if rest and rest[0].isdigit():
        every = integer(rest.pop(0), "NODE_STATUS_FILE", statement.source, 0)
    always = bool(rest) and rest[0].upper() == "ALWAYS-UPDATE"
    if not words or len(rest) > always:
        raise usage_error(statement, usage)
    if file.splice is None and file.dag.status_file is None:
        file.dag.status_file = StatusFile(file.place(words[0]), float(every), always)


def _jobstate_log(file: DagFile, words: list[str], statement: Statement) -> None:
    if len(words) != 1:
        raise usage_error(statement, "JOBSTATE_LOG FILE")
    if file.dag.jobstate_log:
        file.dag.warnings.append(Problem("the DAG has another JOBSTATE_LOG before: this one is left", statement.source))
    elif file.splice is None:
        file.dag.jobstate_log = file.place(words[0])


def _pin(inside: bool) -> Handler:
    def handle(file: DagFile, words: list[str], statement: Statement) -> None:
        if len(words) != 2:
            raise usage_error(statement, f"{statement.words[0].upper()} NODE NUMBER")
        if file.splice is None:
            raise config_error("pins are for DAGs that are spliced", statement.source, "take the line out")
        node = file.node(words[0], statement.source)
        number = integer(words[1], "pin", statement.source, 1)
        pins = file.splice.pins_in if inside else file.splice.pins_out
        pins.setdefault(number, []).append(node.index)

    return handle


def _connect(file: DagFile, words: list[str], statement: Statement) -> Iterator[None]:
    if len(words) != 2:
        raise usage_error(statement, "CONNECT SPLICE SPLICE")
    found = [file.reader.splices.get(file.prefix + word) for word in words]
    for word, splice in zip(words, found, strict=True):
        if splice is None:
            raise config_error(f"there is no splice {word}", statement.source, f"add a line: SPLICE {word} FILE")
    outer, inner = found
    assert outer is not None
    assert inner is not None
    lack = outer.pins_out.keys() ^ inner.pins_in.keys()
    if lack or not outer.pins_out:
        which = f"pin {min(lack)} is on one side only" if lack else "neither has pins"
        raise config_error(f"CONNECT {' '.join(words)}: {which}", statement.source, "add PIN_OUT and PIN_IN")
    for number, nodes in outer.pins_out.items():
        yield from file.tie(nodes, inner.pins_in[number], statement.source)


_FIRST: Final[dict[str, Handler]] = {
    "JOB": _node_command(Kind.JOB, "DIR", "NOOP", "DONE"),
    "NODE": _node_command(Kind.JOB, "DIR", "NOOP", "DONE"),
    "FINAL": _node_command(Kind.FINAL, "DIR", "NOOP"),
    "PROVISIONER": _node_command(Kind.PROVISIONER, "DIR", "NOOP"),
    "SERVICE": _node_command(Kind.SERVICE, "DIR", "NOOP"),
    "SUBDAG": _subdag,
    "SPLICE": _splice,
    "INCLUDE": _include,
    "SUBMIT-DESCRIPTION": _description,
    "REJECT": _reject,
}
_LATER: Final[dict[str, Handler]] = {
    "PARENT": _parent,
    "SCRIPT": _script,
    "RETRY": _Set("RETRY NODE NUMBER [UNLESS-EXIT CODE]", 2, 4, _retry, final=False),
    "ABORT-DAG-ON": _Set("ABORT-DAG-ON NODE CODE [RETURN CODE]", 2, 4, _abort_on, final=False),
    "PRE_SKIP": _Set("PRE_SKIP NODE CODE", 2, 2, _pre_skip),
    "PRIORITY": _Set("PRIORITY NODE NUMBER", 2, 2, _priority, final=False),
    "CATEGORY": _Set("CATEGORY NODE NAME", 2, 2, _category, final=False),
    "DONE": _Set("DONE NODE", 1, 1, _done, final=False),
    "SAVE_POINT_FILE": _Set("SAVE_POINT_FILE NODE [FILE]", 1, 2, _save_point),
    "VARS": _vars,
    "MAXJOBS": _maxjobs,
    "CONFIG": _config,
    "ENV": _env,
    "SET_JOB_ATTR": _set_attribute,
    "DOT": _dot,
    "NODE_STATUS_FILE": _status_file,
    "JOBSTATE_LOG": _jobstate_log,
    "PIN_IN": _pin(inside=True),
    "PIN_OUT": _pin(inside=False),
    "CONNECT": _connect,
}
_COMMANDS: Final = Commands(
    _FIRST,
    _LATER,
    of_rescue=frozenset(("DONE", "RETRY")),
    with_body=frozenset(("JOB", "NODE", "FINAL", "PROVISIONER", "SERVICE", "SUBMIT-DESCRIPTION")),
)


def reading(files: Sequence[str], read: Read, *, rescue: str = "") -> Steps:
    """Read the DAG of one or more files. rescue: a partial rescue file or save point file, read after them. Nodes of
    several files get the file's number before their names ("0.A"), as in DAGMan. Raises ConfigError."""
    dag = Dag(tuple(files))
    reader = Reader(dag, read, _COMMANDS)
    try:
        for number, file in enumerate(files):
            prefix = f"{number}." if len(files) > 1 else ""
            yield from DagFile(reader, file, "", prefix, (file,), None, Source("<command line>")).parse()
        if not reader.problems and not any(node.counted for node in dag.nodes):
            reader.problems.append(Problem("the DAG has no node", Source(files[0]), "add a line: JOB NAME FILE"))
        if rescue and not reader.problems:
            yield from DagFile(reader, rescue, "", "", (rescue,), None, Source("<command line>"), rescue=True).parse()
    except Stop as stop:
        reader.problems += stop.error.problems
    if reader.problems:
        raise ConfigError(reader.problems[:TOLD])
    yield from check_acyclic(dag)
    return dag
