"""Nodes as a program has them: a layer of jobs, another DAG, the node at the end; and several of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import total_ordering
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from roost_htcondor.dags.edges import BaseEdge
from roost_htcondor.dags.walk_order import WalkOrder
from roost_htcondor.submit import Submit

if TYPE_CHECKING:
    from roost_htcondor.dags.graph import DAG


class Script:
    """A program that runs at the access point before or after a node's job."""

    def __init__(
        self,
        executable: str | Path,
        arguments: Sequence[object] | None = None,
        retry: bool = False,
        retry_status: int = 1,
        retry_delay: int = 0,
    ) -> None:
        """retry: run it again while it ends with `retry_status`, after `retry_delay` seconds each time."""
        self.executable = executable
        self.arguments = [str(one) for one in arguments or ()]
        self.retry = retry
        self.retry_status = retry_status
        self.retry_delay = retry_delay

    def __repr__(self) -> str:
        return f"Script({' '.join((str(self.executable), *self.arguments))!r})"


@dataclass
class DAGAbortCondition:
    """The DAG ends at once when a node exits with this value; with `dag_return_value`, or with the same."""

    node_exit_value: int
    dag_return_value: int | None = None


@total_ordering
class BaseNode:
    """A node of a DAG. Methods of the DAG and of other nodes make them; they sort by name."""

    def __init__(
        self,
        dag: DAG,
        *,
        name: str,
        dir: str | Path | None = None,
        noop: bool | Mapping[int, bool] = False,
        done: bool | Mapping[int, bool] = False,
        retries: int | None = None,
        retry_unless_exit: int | None = None,
        pre: Script | None = None,
        post: Script | None = None,
        pre_skip_exit_code: int | None = None,
        priority: int = 0,
        category: str | None = None,
        abort: DAGAbortCondition | None = None,
    ) -> None:
        """dir: where it is submitted from; else the DAG's directory. noop, done: its jobs do nothing, or have been
        done: all, or those of which the mapping says so by index. The others are what RETRY, SCRIPT, PRE_SKIP,
        PRIORITY, CATEGORY and ABORT-DAG-ON are in the DAG language."""
        self._dag = dag
        self.name = name
        self.dir = Path(dir) if dir is not None else None
        self.noop = noop
        self.done = done
        self.retries = retries
        self.retry_unless_exit = retry_unless_exit
        self.pre = pre
        self.post = post
        self.pre_skip_exit_code = pre_skip_exit_code
        self.priority = priority
        self.category = category
        self.abort = abort

    def __len__(self) -> int:
        """How many nodes of the DAG language it is."""
        return 1

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Self]:
        yield self

    def __lt__(self, other: object) -> bool:
        return self.name < other.name if isinstance(other, BaseNode) else NotImplemented

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name = {self.name})"

    @property
    def children(self) -> Nodes:
        return Nodes(self._dag.children_of(self))

    @property
    def parents(self) -> Nodes:
        return Nodes(self._dag.parents_of(self))

    def child_layer(self, edge: BaseEdge | None = None, **kwargs: Any) -> NodeLayer:
        """A new layer below this node. edge: how, in place of ManyToMany; the others are those of NodeLayer."""
        layer = self._dag.layer(**kwargs)
        self.add_children(layer, edge=edge)
        return layer

    def parent_layer(self, edge: BaseEdge | None = None, **kwargs: Any) -> NodeLayer:
        """A new layer above this node."""
        layer = self._dag.layer(**kwargs)
        self.add_parents(layer, edge=edge)
        return layer

    def child_subdag(self, edge: BaseEdge | None = None, **kwargs: Any) -> SubDAG:
        """A new node below this one that is a DAG."""
        subdag = self._dag.subdag(**kwargs)
        self.add_children(subdag, edge=edge)
        return subdag

    def parent_subdag(self, edge: BaseEdge | None = None, **kwargs: Any) -> SubDAG:
        """A new node above this one that is a DAG."""
        subdag = self._dag.subdag(**kwargs)
        self.add_parents(subdag, edge=edge)
        return subdag

    def add_children(self, *nodes: Iterable[BaseNode], edge: BaseEdge | None = None) -> Self:
        """These nodes, or collections of nodes, come after this one. An edge that is there is replaced."""
        for node in chain.from_iterable(nodes):
            self._dag.connect(self, node, edge)
        return self

    def add_parents(self, *nodes: Iterable[BaseNode], edge: BaseEdge | None = None) -> Self:
        """These nodes, or collections of nodes, come before this one."""
        for node in chain.from_iterable(nodes):
            self._dag.connect(node, self, edge)
        return self

    def remove_children(self, *nodes: Iterable[BaseNode]) -> Self:
        """These nodes need not come after this one any more."""
        for node in chain.from_iterable(nodes):
            self._dag.disconnect(self, node)
        return self

    def remove_parents(self, *nodes: Iterable[BaseNode]) -> Self:
        """These nodes need not come before this one any more."""
        for node in chain.from_iterable(nodes):
            self._dag.disconnect(node, self)
        return self

    def walk_ancestors(self, order: WalkOrder = WalkOrder.DEPTH_FIRST) -> Iterator[BaseNode]:
        """All that come before this node."""
        return self._dag.walk_ancestors(self, order)

    def walk_descendants(self, order: WalkOrder = WalkOrder.DEPTH_FIRST) -> Iterator[BaseNode]:
        """All that come after this node."""
        return self._dag.walk_descendants(self, order)


class NodeLayer(BaseNode):
    """Jobs of one description, one for each mapping of `vars` (one without any)."""

    def __init__(
        self,
        dag: DAG,
        *,
        submit_description: Submit | Path | None = None,
        vars: Iterable[Mapping[str, object]] | None = None,
        **kwargs: Any,
    ) -> None:
        """submit_description: what is written as NAME.sub, or the path of a submit file that is there."""
        super().__init__(dag, **kwargs)
        self.submit_description = Submit({}) if submit_description is None else submit_description
        self.vars: list[Mapping[str, object]] = [{}] if vars is None else list(vars)

    def __len__(self) -> int:
        return len(self.vars)


class SubDAG(BaseNode):
    """Another DAG, by its file (SUBDAG EXTERNAL)."""

    def __init__(self, dag: DAG, *, dag_file: str | Path, **kwargs: Any) -> None:
        super().__init__(dag, **kwargs)
        self.dag_file = dag_file


class FinalNode(BaseNode):
    """The job that runs at the end, however the others ended."""

    def __init__(self, dag: DAG, submit_description: Submit | Path | None = None, **kwargs: Any) -> None:
        super().__init__(dag, **kwargs)
        self.submit_description = Submit({}) if submit_description is None else submit_description


class Nodes:
    """Several nodes: what is done to it is done to each of them."""

    def __init__(self, *nodes: Iterable[BaseNode]) -> None:
        """Nodes, or collections of nodes."""
        self.nodes = {node.name: node for node in chain.from_iterable(nodes)}

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[BaseNode]:
        return iter(self.nodes.values())

    def __contains__(self, node: object) -> bool:
        """Nodes, and their names."""
        return node in self.nodes if isinstance(node, str) else any(node is one for one in self)

    def __eq__(self, other: object) -> bool:
        return self.nodes == other.nodes if isinstance(other, Nodes) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Nodes({', '.join(map(repr, sorted(self)))})"

    def child_layer(self, type: BaseEdge | None = None, **kwargs: Any) -> NodeLayer:
        """A new layer below all of them. type: how, in place of ManyToMany; the others are those of NodeLayer."""
        return self._dag().layer(**kwargs).add_parents(self, edge=type)

    def parent_layer(self, type: BaseEdge | None = None, **kwargs: Any) -> NodeLayer:
        """A new layer above all of them."""
        return self._dag().layer(**kwargs).add_children(self, edge=type)

    def child_subdag(self, type: BaseEdge | None = None, **kwargs: Any) -> SubDAG:
        """A new node below all of them that is a DAG."""
        return self._dag().subdag(**kwargs).add_parents(self, edge=type)

    def parent_subdag(self, type: BaseEdge | None = None, **kwargs: Any) -> SubDAG:
        """A new node above all of them that is a DAG."""
        return self._dag().subdag(**kwargs).add_children(self, edge=type)

    def add_children(self, *nodes: Iterable[BaseNode], type: BaseEdge | None = None) -> Self:
        for one in self:
            one.add_children(*nodes, edge=type)
        return self

    def add_parents(self, *nodes: Iterable[BaseNode], type: BaseEdge | None = None) -> Self:
        for one in self:
            one.add_parents(*nodes, edge=type)
        return self

    def remove_children(self, *nodes: Iterable[BaseNode]) -> Self:
        for one in self:
            one.remove_children(*nodes)
        return self

    def remove_parents(self, *nodes: Iterable[BaseNode]) -> Self:
        for one in self:
            one.remove_parents(*nodes)
        return self

    def walk_ancestors(self, order: WalkOrder = WalkOrder.DEPTH_FIRST) -> Iterator[BaseNode]:
        """Of one after the other: some may come more than once."""
        return chain.from_iterable(one.walk_ancestors(order) for one in self)

    def walk_descendants(self, order: WalkOrder = WalkOrder.DEPTH_FIRST) -> Iterator[BaseNode]:
        """Of one after the other: some may come more than once."""
        return chain.from_iterable(one.walk_descendants(order) for one in self)

    def _dag(self) -> DAG:
        for one in self:
            return one._dag
        raise ValueError("there are no nodes in it, so it has no DAG to which one could be added")
