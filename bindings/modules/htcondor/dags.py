"""htcondor.dags: a DAG as Python objects, written as files of the DAG language (docs/bindings.md)."""

from roost_htcondor.dags import *  # noqa: F403
from roost_htcondor.dags import __all__ as __all__
