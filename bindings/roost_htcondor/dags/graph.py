"""A DAG: nodes, the edges between them, and what holds for all of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

from roost_htcondor.dags.edges import BaseEdge, ManyToMany
from roost_htcondor.dags.exceptions import DuplicateNodeName, UnrecognizedWalkOrder
from roost_htcondor.dags.nodes import BaseNode, FinalNode, NodeLayer, Nodes, SubDAG
from roost_htcondor.dags.walk_order import WalkOrder

_Node = TypeVar("_Node", bound=BaseNode)


@dataclass
class DotConfig:
    """Have the DAG drawn into a file for graphviz.

    update: again as it goes on. overwrite: the same file each time, in place of new ones beside it. include_file: what
    is put into it as it is."""

    path: str | Path
    update: bool = False
    overwrite: bool = True
    include_file: str | Path | None = None

    def __post_init__(self) -> None:
        self.path = Path(self.path)
        self.include_file = Path(self.include_file) if self.include_file is not None else None


@dataclass
class NodeStatusFile:
    """Have the states of all nodes written into a file.

    update_time: not more often than once in so many seconds. always_update: also where nothing changed."""

    path: str | Path
    update_time: int | None = None
    always_update: bool | None = False

    def __post_init__(self) -> None:
        self.path = Path(self.path)


class DAG:
    """Layers of jobs and other DAGs, and which come before which."""

    def __init__(
        self,
        dagman_config: Mapping[str, Any] | None = None,
        dagman_job_attributes: Mapping[str, Any] | None = None,
        max_jobs_by_category: Mapping[str, int] | None = None,
        dot_config: DotConfig | None = None,
        jobstate_log: str | Path | None = None,
        node_status_file: NodeStatusFile | None = None,
    ) -> None:
        """dagman_config: knobs for this DAG (CONFIG). dagman_job_attributes: attributes of its line in the queue, as
        texts of the ClassAd language (SET_JOB_ATTR). max_jobs_by_category: how many nodes of each may have jobs in the
        queue (MAXJOBS)."""
        self.dagman_config = dagman_config or {}
        self.dagman_job_attrs = dagman_job_attributes or {}
        self.max_jobs_per_category = max_jobs_by_category or {}
        self.dot_config = dot_config
        self.jobstate_log = Path(jobstate_log) if jobstate_log is not None else None
        self.node_status_file = node_status_file
        self.final_node: FinalNode | None = None
        self._nodes: dict[str, BaseNode] = {}
        self._children: dict[BaseNode, dict[BaseNode, BaseEdge]] = {}
        self._parents: dict[BaseNode, dict[BaseNode, None]] = {}

    # Making

    def layer(self, **kwargs: Any) -> NodeLayer:
        """A new layer without parents or children, see NodeLayer."""
        return self._add(NodeLayer(self, **kwargs))

    def subdag(self, **kwargs: Any) -> SubDAG:
        """A new node that is a DAG, without parents or children, see SubDAG."""
        return self._add(SubDAG(self, **kwargs))

    def final(self, **kwargs: Any) -> FinalNode:
        """The job at the end, in place of the one that there may be, see FinalNode."""
        node = FinalNode(self, **kwargs)
        self._check_name(node.name)
        self.final_node = node
        return node

    def _add(self, node: _Node) -> _Node:
        self._check_name(node.name)
        self._nodes[node.name] = node
        self._children[node], self._parents[node] = {}, {}
        return node

    def _check_name(self, name: str) -> None:
        if name in self._nodes or (self.final_node is not None and self.final_node.name == name):
            raise DuplicateNodeName(f"the DAG has a node {name} already")

    def connect(self, parent: BaseNode, child: BaseNode, edge: BaseEdge | None = None) -> None:
        """Have `parent` come before `child`. Raises ValueError where one of them is no node of this DAG, or both are
        the same."""
        for node in (parent, child):
            if node not in self._children:
                raise ValueError(f"{node!r} is no layer and no SubDAG of this DAG: nothing can come before or after it")
        if parent is child:
            raise ValueError(f"{parent!r} can not come before itself")
        self._children[parent][child] = ManyToMany() if edge is None else edge
        self._parents[child][parent] = None

    def disconnect(self, parent: BaseNode, child: BaseNode) -> None:
        """Have `parent` no longer come before `child`, if it did."""
        self._children.get(parent, {}).pop(child, None)
        self._parents.get(child, {}).pop(parent, None)

    # Looking

    def __contains__(self, node: object) -> bool:
        """Nodes, and their names."""
        return node in self._nodes if isinstance(node, str) else node in self._children

    @property
    def nodes(self) -> Nodes:
        """All but the final one."""
        return Nodes(self._nodes.values())

    @property
    def edges(self) -> Iterator[tuple[BaseNode, BaseNode]]:
        """Parent and child of each edge."""
        return ((parent, child) for parent, children in self._children.items() for child in children)

    def edge(self, parent: BaseNode, child: BaseNode) -> BaseEdge | None:
        """How they are joined; None: they are not."""
        return self._children.get(parent, {}).get(child)

    def children_of(self, node: BaseNode) -> Iterable[BaseNode]:
        return self._children.get(node, {})

    def parents_of(self, node: BaseNode) -> Iterable[BaseNode]:
        return self._parents.get(node, {})

    @property
    def node_to_children(self) -> dict[BaseNode, Nodes]:
        return {node: Nodes(children) for node, children in self._children.items()}

    @property
    def node_to_parents(self) -> dict[BaseNode, Nodes]:
        return {node: Nodes(parents) for node, parents in self._parents.items()}

    @property
    def roots(self) -> Nodes:
        """Nodes without parents."""
        return self.select(lambda node: not self._parents[node])

    @property
    def leaves(self) -> Nodes:
        """Nodes without children."""
        return self.select(lambda node: not self._children[node])

    def select(self, selector: Callable[[BaseNode], bool]) -> Nodes:
        """The nodes of which that is true."""
        return Nodes(node for node in self._nodes.values() if selector(node))

    def glob(self, pattern: str) -> Nodes:
        """The nodes with names of this pattern, like group-*."""
        return self.select(lambda node: fnmatchcase(node.name, pattern))

    def walk(self, order: WalkOrder = WalkOrder.DEPTH_FIRST) -> Iterator[BaseNode]:
        """All nodes, each once, from the roots down."""
        return _walk(self.roots, self.children_of, order)

    def walk_ancestors(self, node: BaseNode, order: WalkOrder = WalkOrder.DEPTH_FIRST) -> Iterator[BaseNode]:
        """All that come before a node, each once, without itself."""
        return _walk(self.parents_of(node), self.parents_of, order)

    def walk_descendants(self, node: BaseNode, order: WalkOrder = WalkOrder.DEPTH_FIRST) -> Iterator[BaseNode]:
        """All that come after a node, each once, without itself."""
        return _walk(self.children_of(node), self.children_of, order)

    def describe(self) -> str:
        """A table: kind, name, nodes, children, and parents with their edges."""
        rows = [("Type", "Name", "# Nodes", "# Children", "Parents")]
        for node in self.walk(WalkOrder.BREADTH_FIRST):
            kind, count = ("Layer", str(len(node))) if isinstance(node, NodeLayer) else ("SubDAG", "")
            parents = ", ".join(f"{one.name}[{self._children[one][node]}]" for one in self._parents[node])
            rows.append((kind, node.name, count, str(len(self._children[node])), parents))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
        )


def _walk(
    first: Iterable[BaseNode], following: Callable[[BaseNode], Iterable[BaseNode]], order: WalkOrder
) -> Iterator[BaseNode]:
    if not isinstance(order, WalkOrder):
        raise UnrecognizedWalkOrder(f"{order!r} is no WalkOrder")
    seen: set[BaseNode] = set()
    waiting = deque(first)
    while waiting:
        node = waiting.pop() if order is WalkOrder.DEPTH_FIRST else waiting.popleft()
        if node not in seen:
            seen.add(node)
            waiting.extend(following(node))
            yield node
