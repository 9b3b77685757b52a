"""Roost's implementation of the Python modules htcondor2, classad2, htcondor and classad.

It stands on Roost's client of the gateway, its submit language and its ClassAds; nothing of HTCondor's is in it.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

#: The modules' names and signatures are those of this version of HTCondor's.
API_VERSION = "25.14.1"


def refuse_mixture(module_file: str) -> None:
    """Raise ImportError where HTCondor's own distribution is installed into the same directory as the module whose file
    this is: the two would overwrite each other, and nobody could say which one runs."""
    here = Path(module_file).resolve().parent.parent
    for found in metadata.distributions(name="htcondor", path=[str(here)]):
        raise ImportError(
            f"the distribution htcondor {found.version} and roost-htcondor are both installed in {here}, and have "
            "modules of the same names. Keep one: pip uninstall htcondor roost-htcondor, then pip install the one "
            "that is wanted (docs/bindings.md)"
        )
