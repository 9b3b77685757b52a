"""htcondor.personal: a pool that a Python program starts and stops (docs/bindings.md)."""

from roost_htcondor.old_htcondor import PersonalPool
from roost_htcondor.personal import PersonalPoolState, SetCondorConfig

__all__ = ["PersonalPool", "PersonalPoolState", "SetCondorConfig"]
