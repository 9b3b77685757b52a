"""Of HTCondor's htcondor2.personal there is nothing in Roost: importing it says so."""

raise ImportError(
    "htcondor2.personal is not in Roost: `roost up` starts a personal pool, which these modules find by themselves",
    name=__name__,
)
