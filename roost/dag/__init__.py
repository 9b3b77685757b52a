"""The manager of a DAG: a process of the DAG's user, which submits its nodes and runs its scripts (docs/dags.md)."""
