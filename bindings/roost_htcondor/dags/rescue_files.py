"""What a DAG's rescue file says was done."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from roost_htcondor.dags.exceptions import NoRescueFileFound
from roost_htcondor.dags.graph import DAG
from roost_htcondor.dags.names import NodeNameFormatter, SimpleFormatter
from roost_htcondor.dags.writing import DEFAULT_DAG_FILE_NAME


def rescue(dag: DAG, rescue_file: str | Path, formatter: NodeNameFormatter | None = None) -> None:
    """Mark as done the nodes that the rescue file names, and no others. formatter: the one with which the DAG was
    written."""
    names = formatter or SimpleFormatter()
    done: defaultdict[str, dict[int, bool]] = defaultdict(dict)
    for line in Path(rescue_file).read_text().splitlines():
        word, _, name = line.strip().partition(" ")
        if word.upper() == "DONE":
            layer, index = names.parse(name.strip())
            done[layer][index] = True
    for node in dag.nodes:
        node.done = done[node.name]


def find_rescue_file(dag_dir: str | Path, dag_file_name: str = DEFAULT_DAG_FILE_NAME) -> Path:
    """The last rescue file of a DAG file. Raises NoRescueFileFound."""
    found = sorted(Path(dag_dir).glob(f"{dag_file_name}.rescue*"))
    if not found:
        raise NoRescueFileFound(f"{dag_dir} has no rescue file of {dag_file_name}")
    return found[-1]
