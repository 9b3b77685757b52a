"""How a DAG stood when its line in the queue was asked: counts, and for a small one its nodes, drawn in notebooks. What
the attributes mean is in engine/dag/picture.py. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Final

from roost.errors import ClientError
from roost.notebook import table
from shared.classad import ClassAd

#: Letter of a node's state -> its word and its colour.
_STATES: Final = {
    "N": ("waits for its parents", "#9aa0a6"),
    "R": ("ready", "#c58b00"),
    "P": ("PRE script", "#7b61c9"),
    "I": ("idle", "#c58b00"),
    "X": ("running", "#1a73e8"),
    "H": ("held", "#e8710a"),
    "O": ("POST script", "#7b61c9"),
    "D": ("done", "#188038"),
    "E": ("failed", "#d93025"),
    "F": ("never runs: a parent failed", "#5f6368"),
}
_COUNTS: Final = {
    "nodes": "DAG_NodesTotal",
    "done": "DAG_NodesDone",
    "failed": "DAG_NodesFailed",
    "in the queue": "DAG_NodesQueued",
    "PRE script": "DAG_NodesPrerun",
    "POST script": "DAG_NodesPostrun",
    "ready": "DAG_NodesReady",
    "wait for parents": "DAG_NodesUnready",
    "never run": "DAG_NodesFutile",
}
_WIDE: Final = 168
_HIGH: Final = 34
_BOX: Final = (136, 24)
_LETTERS: Final = 16


@dataclass(frozen=True, slots=True)
class DagNode:
    """name: empty for one that only joins others. parents: places in DagState.nodes. job: its last one, or empty."""

    name: str
    state: str
    parents: tuple[int, ...] = ()
    job: str = ""


@dataclass(frozen=True, slots=True)
class DagState:
    """counts: of nodes by what they do. nodes: of a DAG of up to 200, else empty."""

    job: str
    counts: dict[str, int] = field(default_factory=dict)
    nodes: tuple[DagNode, ...] = ()

    def _repr_html_(self) -> str:
        rows = {name: count for name, count in self.counts.items() if count or name == "nodes"}
        return table(f"DAG {self.job}", rows) + picture(self.nodes)


def dag_state(job: str, ad: ClassAd) -> DagState:
    """Of the job that manages a DAG. Raises ClientError for another one."""
    counts = {name: ad.eval(attribute) for name, attribute in _COUNTS.items()}
    if not isinstance(counts["nodes"], int):
        raise ClientError(f"job {job} manages no DAG, or its manager has not said yet how it stands", "not-found")
    names = ad.eval_string("DAG_NodeNames").split()
    parents = ad.eval_string("DAG_NodeParents").split()
    clusters = ad.eval_string("DAG_NodeClusters").split()
    letters = ad.eval_string("DAG_NodeStates")
    nodes = []
    for place, name in enumerate(names):
        above = parents[place] if place < len(parents) else "-"
        cluster = clusters[place] if place < len(clusters) else "-"
        nodes.append(
            DagNode(
                "" if name == "+" else name,
                _STATES.get(letters[place : place + 1], _STATES["N"])[0],
                tuple(int(one) for one in above.split(",") if one.isdigit() and int(one) < len(names)),
                "" if cluster == "-" else f"{cluster}.0",
            )
        )
    return DagState(job, {name: one for name, one in counts.items() if isinstance(one, int)}, tuple(nodes))


def picture(nodes: tuple[DagNode, ...]) -> str:
    """An SVG: each node in a column behind those of its parents, with its state as a colour and in words. Whatever
    users wrote is text in it. Empty without nodes."""
    if not nodes:
        return ""
    column, row = _places(nodes)
    wide, high = (max(column) + 1) * _WIDE, round((max(row) + 1) * _HIGH)
    colours = dict(_STATES.values())
    parts = []
    for place, node in enumerate(nodes):
        x, y = column[place] * _WIDE + 4, row[place] * _HIGH + _HIGH / 2
        for parent in node.parents:
            start = column[parent] * _WIDE + 4 + (_BOX[0] if nodes[parent].name else 0)
            level = row[parent] * _HIGH + _HIGH / 2
            curve = f"M{start},{level:g} C{x - 18},{level:g} {x - 18},{y:g} {x},{y:g}"
            parts.append(f'<path d="{curve}" fill="none" stroke="#9aa0a6"/>')
        if not node.name:
            parts.append(f'<circle cx="{x}" cy="{y:g}" r="3" fill="#9aa0a6"/>')
            continue
        short = node.name if len(node.name) <= _LETTERS else f"{node.name[: _LETTERS - 1]}…"
        told = f"{node.name}: {node.state}" + (f", job {node.job}" if node.job else "")
        parts.append(
            f"<g><title>{escape(told)}</title>"
            f'<rect x="{x}" y="{y - _BOX[1] / 2:g}" width="{_BOX[0]}" height="{_BOX[1]}" rx="6" fill="none" '
            f'stroke="#9aa0a6"/><circle cx="{x + 13}" cy="{y:g}" r="5" fill="{colours[node.state]}"/>'
            f'<text x="{x + 24}" y="{y + 4:g}" font-size="12" fill="currentColor">{escape(short)}</text></g>'
        )
    return (
        f'<div style="overflow-x: auto"><svg width="{wide}" height="{high}" role="img" '
        f'aria-label="Nodes of the DAG, each behind its parents">{"".join(parts)}</svg></div>'
    )


def _places(nodes: tuple[DagNode, ...]) -> tuple[list[int], list[float]]:
    """Column and row of each node: near the middle of its parents' rows."""
    column, row = [0] * len(nodes), [0.0] * len(nodes)
    open_ = [len(node.parents) for node in nodes]
    children: list[list[int]] = [[] for _ in nodes]
    for place, node in enumerate(nodes):
        for parent in node.parents:
            children[parent].append(place)
    order = [place for place, count in enumerate(open_) if not count]
    for place in order:
        for child in children[place]:
            column[child] = max(column[child], column[place] + 1)
            open_[child] -= 1
            if not open_[child]:
                order.append(child)
    columns: dict[int, list[int]] = {}
    for place in order:
        columns.setdefault(column[place], []).append(place)
    for _, some in sorted(columns.items()):
        some.sort(key=lambda place: (_middle([row[one] for one in nodes[place].parents]), place))
        for at, place in enumerate(some):
            row[place] = at
    most = max((len(some) for some in columns.values()), default=1)
    for some in columns.values():
        for place in some:
            row[place] += (most - len(some)) / 2
    return column, row


def _middle(rows: list[float]) -> float:
    return sum(rows) / len(rows) if rows else 0.0
