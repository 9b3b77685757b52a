"""htcondor2.personal: a pool that a Python program starts and stops (docs/bindings.md)."""

from roost_htcondor.personal import PersonalPool, PersonalPoolState, SetCondorConfig

__all__ = ["PersonalPool", "PersonalPoolState", "SetCondorConfig"]
