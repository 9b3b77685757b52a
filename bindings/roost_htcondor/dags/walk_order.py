"""In which order the nodes of a DAG are walked over."""

from enum import StrEnum


class WalkOrder(StrEnum):
    """What comes first: what is below a node, or the nodes beside it."""

    DEPTH_FIRST = "DEPTH"
    BREADTH_FIRST = "BREADTH"
