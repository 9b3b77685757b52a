"""HTCondor's submit language: a file in, job ads out. The schedd trusts none of it."""

from roost.submit.description import Cluster, Description, here, read_file
from roost.submit.place import Place

__all__ = ["Cluster", "Description", "Place", "here", "read_file"]
