"""DAG files that are nowhere but in a test."""

from __future__ import annotations

from engine.dag.language import finished, reading
from engine.dag.model import Dag


def dag_of(text: str, /, *, rescue: str = "", **others: str) -> Dag:
    """The DAG of a file main.dag and others: name of the file, with _ for its dot -> text."""
    files = {"main.dag": text, "rescue": rescue, **{name.replace("_", "."): text for name, text in others.items()}}
    return finished(reading(["main.dag"], lambda path: read_of(files, path), rescue="rescue" if rescue else ""))


def read_of(files: dict[str, str], path: str) -> str:
    try:
        return files[path]
    except KeyError:
        raise FileNotFoundError(2, "No such file or directory", path) from None


def edges(dag: Dag) -> set[tuple[str, str]]:
    """(parent, child) by name, as if there were no join nodes."""
    found = set()
    for node in dag.nodes:
        for child in node.children:
            if node.kind == "join":
                continue
            ends = dag.nodes[child].children if dag.nodes[child].kind == "join" else [child]
            found |= {(node.name, dag.nodes[one].name) for one in ends}
    return found
