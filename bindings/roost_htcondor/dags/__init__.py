"""The classes of `htcondor2.dags`: a DAG as Python objects, of layers of jobs that are alike, written as files of the
DAG language (docs/dags.md, docs/bindings.md). `Submit.from_dag(str(write_dag(dag, directory)))` runs it."""

from roost_htcondor.dags import exceptions
from roost_htcondor.dags.edges import BaseEdge, Grouper, JoinFactory, JoinNode, ManyToMany, OneToOne, Slicer
from roost_htcondor.dags.graph import DAG, DotConfig, NodeStatusFile
from roost_htcondor.dags.names import DEFAULT_SEPARATOR, NodeNameFormatter, SimpleFormatter
from roost_htcondor.dags.nodes import BaseNode, DAGAbortCondition, FinalNode, NodeLayer, Nodes, Script, SubDAG
from roost_htcondor.dags.rescue_files import find_rescue_file, rescue
from roost_htcondor.dags.walk_order import WalkOrder
from roost_htcondor.dags.writing import CONFIG_FILE_NAME, DEFAULT_DAG_FILE_NAME, write_dag

__all__ = [
    "CONFIG_FILE_NAME",
    "DAG",
    "DEFAULT_DAG_FILE_NAME",
    "DEFAULT_SEPARATOR",
    "BaseEdge",
    "BaseNode",
    "DAGAbortCondition",
    "DotConfig",
    "FinalNode",
    "Grouper",
    "JoinFactory",
    "JoinNode",
    "ManyToMany",
    "NodeLayer",
    "NodeNameFormatter",
    "NodeStatusFile",
    "Nodes",
    "OneToOne",
    "Script",
    "SimpleFormatter",
    "Slicer",
    "SubDAG",
    "WalkOrder",
    "exceptions",
    "find_rescue_file",
    "rescue",
    "write_dag",
]
