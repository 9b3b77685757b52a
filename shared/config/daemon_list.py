"""Names in DAEMON_LIST. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from shared.config.config import Config

#: Names that HTCondor's files list, and that nothing has to be started for here.
QUIET: Final = frozenset({"MASTER", "SHARED_PORT", "REPLICATION", "TRANSFERER", "PROCD", "KBDD"})
_REFERENCE: Final = re.compile(r"\$\(([A-Za-z0-9_]+)\)")


def kind_of(config: Config, word: str, kinds: Collection[str]) -> str:
    """The kind of daemon that `word` is a name of: itself, `$(COLLECTOR)`, or the path of a condor_collector. "": of
    none."""
    for _ in range(8):  # names of names of names
        if word in kinds:
            return word
        reference = _REFERENCE.fullmatch((config.raw(word) or "").strip())
        if reference is None:
            break
        word = reference[1].upper()
    program = (config.get(word) or "").rpartition("/")[2].removeprefix("condor_").upper()
    return program if program in kinds else ""
