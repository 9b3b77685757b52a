"""A DAG as files: the DAG file, submit descriptions of its layers, its configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from roost_htcondor.dags.edges import End, JoinFactory, JoinNode
from roost_htcondor.dags.exceptions import DAGsException
from roost_htcondor.dags.graph import DAG
from roost_htcondor.dags.names import NodeNameFormatter, SimpleFormatter
from roost_htcondor.dags.nodes import BaseNode, FinalNode, NodeLayer, Script, SubDAG
from roost_htcondor.dags.walk_order import WalkOrder

DEFAULT_DAG_FILE_NAME: Final = "dagfile.dag"
CONFIG_FILE_NAME: Final = "dagman.config"
#: Of join nodes. Nothing submits it, so it is empty.
JOIN_NAME: Final = "__JOIN__"


def write_dag(
    dag: DAG,
    dag_dir: str | Path,
    dag_file_name: str | None = DEFAULT_DAG_FILE_NAME,
    node_name_formatter: NodeNameFormatter | None = None,
) -> Path:
    """Write the DAG's files into a directory, which is made; the absolute path of the DAG file. Raises DAGsException
    where it is no DAG that can run, and writes nothing then."""
    directory = Path(dag_dir).absolute()
    lines = list(_Lines(dag, node_name_formatter or SimpleFormatter()).all())
    files = {dag_file_name or DEFAULT_DAG_FILE_NAME: "".join(f"{line}\n" for line in lines)}
    for node in (*dag.nodes, *([dag.final_node] if dag.final_node is not None else [])):
        if isinstance(node, NodeLayer | FinalNode) and not isinstance(node.submit_description, str | Path):
            files[f"{node.name}.sub"] = str(node.submit_description)
    if any(line.startswith(f"JOB {JOIN_NAME}") for line in lines):
        files[f"{JOIN_NAME}.sub"] = ""
    if dag.dagman_config:
        files[CONFIG_FILE_NAME] = "".join(f"{name} = {value}\n" for name, value in dag.dagman_config.items())
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text)
    return directory / (dag_file_name or DEFAULT_DAG_FILE_NAME)


class _Lines:
    """The lines of a DAG file, with HTCondor's comments and in its order: programs compare these files by bytes."""

    def __init__(self, dag: DAG, names: NodeNameFormatter) -> None:
        self._dag = dag
        self._names = names
        self._joins = JoinFactory()

    def all(self) -> Iterator[str]:
        yield "# BEGIN META"
        yield from self._of_dag()
        yield "# END META"
        nodes = list(self._dag.walk(WalkOrder.BREADTH_FIRST))
        if left := sorted(set(self._dag.nodes) - set(nodes)):
            raise DAGsException(f"some of {', '.join(node.name for node in left)} come before themselves")
        yield "# BEGIN NODES AND EDGES"
        for node in nodes:
            yield from self._of_node(node)
            for child in self._dag.children_of(node):
                yield from self._between(node, child)
        for join in self._joins.joins:
            yield f"JOB {self._name_of_join(join)} {JOIN_NAME}.sub NOOP"
        yield "# END NODES AND EDGES"
        if (final := self._dag.final_node) is not None:
            yield "# FINAL NODE"
            yield " ".join(("FINAL", final.name, _submit_file(final), *_flags(final, 0)))
            yield from _settings(final, final.name)
            yield "# END FINAL NODE"

    def _of_dag(self) -> Iterator[str]:
        dag = self._dag
        if dag.dagman_config:
            yield f"CONFIG {CONFIG_FILE_NAME}"
        if dag.jobstate_log is not None:
            yield f"JOBSTATE_LOG {dag.jobstate_log}"
        if (status := dag.node_status_file) is not None:
            often = () if status.update_time is None else (str(status.update_time),)
            yield " ".join(
                ("NODE_STATUS_FILE", str(status.path), *often, *(("ALWAYS-UPDATE",) if status.always_update else ()))
            )
        if (dot := dag.dot_config) is not None:
            included = () if dot.include_file is None else ("INCLUDE", str(dot.include_file))
            update = "UPDATE" if dot.update else "DONT-UPDATE"
            yield " ".join(
                ("DOT", str(dot.path), update, "OVERWRITE" if dot.overwrite else "DONT-OVERWRITE", *included)
            )
        yield from (f"SET_JOB_ATTR {name} = {value}" for name, value in dag.dagman_job_attrs.items())
        yield from (f"MAXJOBS {category} {most}" for category, most in dag.max_jobs_per_category.items())

    def _of_node(self, node: BaseNode) -> Iterator[str]:
        if isinstance(node, SubDAG):
            name = self._names.generate(node.name, 0)
            yield " ".join(("SUBDAG EXTERNAL", name, str(node.dag_file), *_flags(node, 0)))
            yield from _settings(node, name)
            return
        if not isinstance(node, NodeLayer):
            raise TypeError(f"{node!r} is neither a NodeLayer nor a SubDAG")
        for index, values in enumerate(node.vars):
            name = self._names.generate(node.name, index)
            yield " ".join(("JOB", name, _submit_file(node), *_flags(node, index)))
            if values:
                yield " ".join(("VARS", name, *(f'{key}="{_quoted(value)}"' for key, value in values.items())))
            yield from _settings(node, name)

    def _between(self, parent: BaseNode, child: BaseNode) -> Iterator[str]:
        edge = self._dag.edge(parent, child)
        if edge is None:
            return
        for above, below in edge.get_edges(parent, child, self._joins):
            if above and below:
                yield f"PARENT {self._ends(parent, above)} CHILD {self._ends(child, below)}"

    def _ends(self, node: BaseNode, end: End) -> str:
        if isinstance(end, JoinNode):
            return self._name_of_join(end)
        return " ".join(self._names.generate(node.name, index) for index in end)

    def _name_of_join(self, join: JoinNode) -> str:
        return self._names.generate(JOIN_NAME, join.id)


def _submit_file(node: NodeLayer | FinalNode) -> str:
    description = node.submit_description
    return str(Path(description).absolute()) if isinstance(description, str | Path) else f"{node.name}.sub"


def _flags(node: BaseNode, index: int) -> list[str]:
    flags = [] if node.dir is None else ["DIR", str(node.dir)]
    return flags + [word for word, said in (("NOOP", node.noop), ("DONE", node.done)) if _holds(said, index)]


def _holds(said: bool | Mapping[int, bool], index: int) -> bool:
    return said if isinstance(said, bool) else said.get(index, False)


def _settings(node: BaseNode, name: str) -> Iterator[str]:
    if node.retries is not None:
        unless = "" if node.retry_unless_exit is None else f" UNLESS-EXIT {node.retry_unless_exit}"
        yield f"RETRY {name} {node.retries}{unless}"
    if node.pre is not None:
        yield _script(node.pre, "PRE", name)
    if node.post is not None:
        yield _script(node.post, "POST", name)
    if node.pre_skip_exit_code is not None:
        yield f"PRE_SKIP {name} {node.pre_skip_exit_code}"
    if node.priority:
        yield f"PRIORITY {name} {node.priority}"
    if node.category is not None:
        yield f"CATEGORY {name} {node.category}"
    if node.abort is not None:
        back = "" if node.abort.dag_return_value is None else f" RETURN {node.abort.dag_return_value}"
        yield f"ABORT-DAG-ON {name} {node.abort.node_exit_value}{back}"


def _script(script: Script, when: str, name: str) -> str:
    again = ("DEFER", str(script.retry_status), str(script.retry_delay)) if script.retry else ()
    return " ".join(("SCRIPT", *again, when, name, str(script.executable), *script.arguments))


def _quoted(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"')
