"""DAGs: the language of DAGMan's files, and what is to be done next about a DAG that runs. Pure."""
