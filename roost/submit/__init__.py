"""HTCondor's submit language: a file in, job ads out. The schedd trusts none of it."""

from roost.submit.commands import SubmitContext
from roost.submit.description import DescribedCluster, Description, here, read_file

__all__ = ["DescribedCluster", "Description", "SubmitContext", "here", "read_file"]
