"""Whether a DAG has no cycle; which one it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.dag.model import Dag
from shared.config.errors import config_error

STEP: Final = 2000
#: Nodes of a cycle that are named.
NAMED: Final = 20


def check_acyclic(dag: Dag) -> Iterator[None]:
    """Raises ConfigError that names the nodes of a cycle. In steps."""
    waits = [len(node.parents) for node in dag.nodes]
    ready = [node.index for node in dag.nodes if not waits[node.index]]
    left = len(dag.nodes)
    work = 0
    while ready:
        left -= 1
        for child in dag.nodes[ready.pop()].children:
            waits[child] -= 1
            if not waits[child]:
                ready.append(child)
            work += 1
            if work % STEP == 0:
                yield
    if not left:
        return
    # Every node that is left has a parent that is left: going up from any of them leads into a cycle.
    node = next(index for index, count in enumerate(waits) if count)
    place: dict[int, int] = {}
    way: list[int] = []
    while node not in place:
        place[node] = len(way)
        way.append(node)
        node = next(parent for parent in dag.nodes[node].parents if waits[parent])
        if len(way) % STEP == 0:
            yield
    cycle = [dag.nodes[index] for index in reversed(way[place[node] :])]
    names = [one.name for one in cycle if one.counted]
    shown = " > ".join([*names[:NAMED], *(["..."] if len(names) > NAMED else []), names[0]])
    raise config_error(f"the DAG has a cycle: {shown}", cycle[0].source, "take one of these PARENT ... CHILD out")
