"""What a DAG file says: nodes, their scripts, their edges, and what concerns the DAG as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from shared.config.errors import Problem, Source

#: Stands for every node of a DAG file, but FINAL, PROVISIONER and SERVICE nodes and those of its splices.
ALL_NODES: Final = "all_nodes"


class Kind(StrEnum):
    """What a node is."""

    JOB = "job"
    SUBDAG = "subdag"  # a DAG of its own, as one node
    FINAL = "final"  # runs last, whatever happened
    PROVISIONER = "provisioner"  # is ready before any other begins
    SERVICE = "service"  # runs beside the others, and ends with them
    JOIN = "join"  # stands between many parents and many children; nothing runs


#: The nodes that DAGMan counts, and that a rescue file has.
COUNTED: Final = frozenset((Kind.JOB, Kind.SUBDAG, Kind.FINAL, Kind.PROVISIONER))


class When(StrEnum):
    PRE = "pre"
    POST = "post"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Script:
    """A program that runs on the access point before or after a node's job, or when that is put on hold."""

    executable: str
    arguments: str = ""
    defer_status: int | None = None  # this exit code: run it again later
    defer_s: float = 0.0
    debug_file: str = ""
    debug_type: str = ""  # STDOUT, STDERR or ALL


@dataclass(frozen=True, slots=True)
class Var:
    """A macro for the submit description of a node. append: read after the description; None: as configured."""

    name: str
    value: str
    append: bool | None = None


@dataclass(frozen=True, slots=True)
class Abort:
    """The exit code of a node that ends the DAG, and the DAG's own then; None: the node's."""

    exit_code: int
    returns: int | None = None


@dataclass(slots=True)
class Node:
    """One node. Others are named by their index in Dag.nodes."""

    index: int
    name: str
    kind: Kind
    source: Source
    submit: str = ""  # the file of its submit description or, of a subdag, of its DAG
    inline: str | None = None  # its submit description, where the DAG file has it
    directory: str = ""  # where it is submitted from
    noop: bool = False
    done: bool = False
    parents: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    scripts: dict[When, Script] = field(default_factory=dict)
    retries: int = 0
    unless_exit: int | None = None
    vars: list[Var] = field(default_factory=list)
    priority: int = 0
    category: str = ""
    abort: Abort | None = None
    pre_skip: int | None = None
    save_point: str | None = None  # a file; empty: <node>-<dag>.save

    @property
    def counted(self) -> bool:
        return self.kind in COUNTED


@dataclass(frozen=True, slots=True)
class Dot:
    """The picture of a DAG for Graphviz."""

    file: str
    update: bool = False
    overwrite: bool = True
    include: str = ""


@dataclass(frozen=True, slots=True)
class StatusFile:
    """The file that says how every node stands. every_s: at most so often; always: also where nothing changed."""

    file: str
    every_s: float = 60.0
    always: bool = False


@dataclass(slots=True)
class Dag:
    """A whole DAG, with everything that its files include and splice. files: those that were named, the first of which
    gives its name to the files that are written about it."""

    files: tuple[str, ...]
    nodes: list[Node] = field(default_factory=list)
    by_name: dict[str, int] = field(default_factory=dict)
    categories: dict[str, int] = field(default_factory=dict)  # MAXJOBS
    final: int | None = None
    provisioner: int | None = None
    services: list[int] = field(default_factory=list)
    config: str = ""
    env_get: list[str] = field(default_factory=list)
    env_set: dict[str, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)  # SET_JOB_ATTR: name -> expression
    dot: Dot | None = None
    status_file: StatusFile | None = None
    jobstate_log: str = ""
    warnings: list[Problem] = field(default_factory=list)

    @property
    def counted(self) -> int:
        """The nodes that users count."""
        return sum(node.counted for node in self.nodes)
