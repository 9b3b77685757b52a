"""Versions of the records in Redis: each kind has one, which whoever writes a later one raises. Who knows only earlier
ones reads and writes nothing of it: it waits, and says which release it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.state import keys
from shared.state.api import Store, StoreUnavailable
from shared.stored_versions import VERSIONS


class LaterRecords(StoreUnavailable):
    """Redis has records of a later release. It is as if it were away for this one, until that changes."""


async def agree(store: Store, kinds: Sequence[str], known: Mapping[str, int] = VERSIONS) -> None:
    """Have it written down that records of these kinds are written as this release does. known: by kind. Raises
    LaterRecords, and changes nothing then; StoreUnavailable."""
    if not kinds:
        return
    found = await store.run("versions_agree", [keys.version(kind) for kind in kinds], [known[kind] for kind in kinds])
    assert isinstance(found, list)
    words = [_text(one) for one in found]
    _refuse({kinds[int(number) - 1]: said for number, said in zip(words[::2], words[1::2], strict=True)}, known)


async def check(store: Store, *kinds: str, known: Mapping[str, int] = VERSIONS) -> None:
    """Raises LaterRecords where records of these kinds are not to be read; StoreUnavailable."""
    found = [(kind, await store.get(keys.version(kind))) for kind in kinds]  # not MGET: it would be one more right
    _refuse({kind: _text(said) for kind, said in found if said is not None}, known)


def _refuse(found: Mapping[str, str], known: Mapping[str, int]) -> None:
    if why := later_than(found, known):
        raise LaterRecords(why)


def later_than(found: Mapping[str, str], known: Mapping[str, int] = VERSIONS) -> str:
    """Why records of these versions, by kind, are not to be used, in words; empty: they may be. Pure."""
    later = {kind: said for kind, said in found.items() if not (said.isdigit() and int(said) <= known[kind])}
    told = ", ".join(f"{kind} of version {said[:20]}, and this one reads {known[kind]}" for kind, said in later.items())
    mend = "run that release, or restore a backup of before its upgrade"
    return f"a later release of Roost has written {told}: {mend}" if later else ""


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
