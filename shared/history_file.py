"""Files of jobs that are over, in HTCondor's form: the ad of each, and behind it a line of stars with what is looked
for most (spec row TLS-12). `roost history -file` reads them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from shared.classad import ClassAd, unparse_old


def as_text(ad: ClassAd, old_text: Callable[[ClassAd], str] = unparse_old) -> str:
    """One record. old_text: writes an ad in old syntax."""
    text = old_text(ad.public())
    cluster, proc, completed = (ad.eval(name) for name in ("ClusterId", "ProcId", "CompletionDate"))
    owner = "".join(letter for letter in ad.eval_string("Owner") if letter.isprintable() and letter != '"')
    return (
        f"{text.rstrip(chr(10))}\n*** Offset = 0 ClusterId = {_whole(cluster, -1)} ProcId = {_whole(proc, -1)} "
        f'Owner = "{owner}" CompletionDate = {_whole(completed, 0)}\n'
    )


def _whole(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def put_away(path: Path, now: float, rotations: int) -> None:
    """Rename the file by the time, as HTCondor does, and keep so many of those. Raises OSError."""
    put = _named(path, now)
    while put.exists():  # one was put away in this very second
        now += 1
        put = _named(path, now)
    path.rename(put)
    for old in away(path)[:-rotations]:
        old.unlink(missing_ok=True)


def away(path: Path) -> list[Path]:
    """Those that were put away, the oldest first."""
    return sorted(path.parent.glob(f"{path.name}.[0-9]*T[0-9]*"))


def _named(path: Path, now: float) -> Path:
    return path.with_name(f"{path.name}.{time.strftime('%Y%m%dT%H%M%S', time.localtime(now))}")
