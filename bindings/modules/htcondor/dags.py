"""Of HTCondor's htcondor.dags there is nothing in Roost: importing it says so."""

raise ImportError(
    "htcondor.dags is not in Roost: write the DAG as a file (docs/dags.md has the language), or with a program "
    "that does, such as the distribution ezdag; Submit.from_dag runs it",
    name=__name__,
)
