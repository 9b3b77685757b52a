"""How the nodes of a layer depend on those of the layer above it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, TypeAlias

from roost_htcondor.dags.exceptions import IncompatibleGrouper, OneToOneEdgeNeedsSameNumberOfVars

if TYPE_CHECKING:
    from roost_htcondor.dags.nodes import BaseNode


class JoinNode:
    """A node that does nothing: with it, N nodes before M others take N + M edges in place of N * M."""

    def __init__(self, id: int) -> None:
        self.id = id


class JoinFactory:
    """Makes the join nodes of a DAG. `joins`: those that it made."""

    def __init__(self) -> None:
        self.joins: list[JoinNode] = []

    def get_join_node(self) -> JoinNode:
        join = JoinNode(len(self.joins))
        self.joins.append(join)
        return join


#: Indexes of nodes in their layer, or the join node that stands for them.
End: TypeAlias = "tuple[int, ...] | JoinNode"


class BaseEdge(ABC):
    """One way of joining two layers."""

    @abstractmethod
    def get_edges(self, parent: BaseNode, child: BaseNode, join_factory: JoinFactory) -> Iterable[tuple[End, End]]:
        """Lines PARENT ... CHILD: each of the first nodes stands before each of the second ones. One of both may be a
        join node of the factory, not both."""

    def __repr__(self) -> str:
        return type(self).__name__


class ManyToMany(BaseEdge):
    """Every node of the parent stands before every node of the child."""

    def get_edges(self, parent: BaseNode, child: BaseNode, join_factory: JoinFactory) -> Iterator[tuple[End, End]]:
        above, below = _all(parent), _all(child)
        if len(above) == 1 or len(below) == 1:
            yield above, below
        else:
            yield from _joined(above, below, join_factory)


class OneToOne(BaseEdge):
    """Each node of the parent stands before the child's node of the same index. Both have as many."""

    def get_edges(self, parent: BaseNode, child: BaseNode, join_factory: JoinFactory) -> Iterator[tuple[End, End]]:
        if len(parent) != len(child):
            raise OneToOneEdgeNeedsSameNumberOfVars(
                f"{parent.name} has {len(parent)} nodes and {child.name} has {len(child)}: one to one needs as many"
            )
        yield from (((index,), (index,)) for index in range(len(parent)))


class Grouper(BaseEdge):
    """Both layers are divided into groups of these sizes; each group of the parent stands before the child's group of
    the same index."""

    def __init__(self, parent_chunk_size: int = 1, child_chunk_size: int = 1) -> None:
        self.parent_chunk_size = parent_chunk_size
        self.child_chunk_size = child_chunk_size

    def get_edges(self, parent: BaseNode, child: BaseNode, join_factory: JoinFactory) -> Iterator[tuple[End, End]]:
        above = _groups(parent, parent.name, self.parent_chunk_size)
        below = _groups(child, child.name, self.child_chunk_size)
        if len(above) != len(below):
            raise IncompatibleGrouper(
                f"{parent.name} has {len(above)} groups of {self.parent_chunk_size} nodes, and {child.name} has "
                f"{len(below)} of {self.child_chunk_size}: {self} needs as many"
            )
        for some, others in zip(above, below, strict=True):
            yield from _joined(some, others, join_factory)

    def __repr__(self) -> str:
        return f"Grouper(parent_chunk_size = {self.parent_chunk_size}, child_chunk_size = {self.child_chunk_size})"


class Slicer(BaseEdge):
    """Nodes of the parent's slice stand before those of the child's, one to one, as far as both go."""

    def __init__(self, parent_slice: slice = slice(None), child_slice: slice = slice(None)) -> None:
        self.parent_slice = parent_slice
        self.child_slice = child_slice

    def get_edges(self, parent: BaseNode, child: BaseNode, join_factory: JoinFactory) -> Iterator[tuple[End, End]]:
        pairs = zip(_all(parent)[self.parent_slice], _all(child)[self.child_slice], strict=False)
        yield from (((above,), (below,)) for above, below in pairs)

    def __repr__(self) -> str:
        return f"Slicer(parent_slice = {self.parent_slice}, child_slice = {self.child_slice})"


def _all(layer: Sized) -> tuple[int, ...]:
    return tuple(range(len(layer)))


def _groups(layer: Sized, name: str, size: int) -> list[tuple[int, ...]]:
    if size < 1 or len(layer) % size:
        raise IncompatibleGrouper(f"the {len(layer)} nodes of {name} do not divide into groups of {size}")
    return [_all(layer)[first : first + size] for first in range(0, len(layer), size)]


def _joined(above: tuple[int, ...], below: tuple[int, ...], factory: JoinFactory) -> Iterator[tuple[End, End]]:
    join = factory.get_join_node()
    yield above, join
    yield join, below
