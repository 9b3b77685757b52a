"""`roost status -cod`: a line for each claim of Computing On Demand."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from roost.cli.print_mask import integer, string
from roost.cli.printas import words_of
from roost.cli.printf import span
from shared.classad import ClassAd

_HEADING = ("Name", "ID", "ClaimState", "TimeInState ", "RemoteUser", "JobId", "Keyword")


def lines(ads: Sequence[ClassAd]) -> Iterator[str]:
    """The table; an empty line goes before it, and none at all comes of no ads."""
    if not ads:
        return
    name, ident, state, since, user, job, keyword = _HEADING
    yield ""
    yield f"{name:<13} {ident:<5} {state:<10} {since:>13} {user:<12} {job:<6} {keyword:<14}"
    yield ""
    for ad in ads:
        for claim in words_of(string(ad, "CODClaims") or ""):
            yield _line(ad, claim)


def _line(ad: ClassAd, claim: str) -> str:
    def text(attribute: str, missing: str) -> str:
        found = string(ad, f"{claim}_{attribute}")
        return missing if found is None else found

    heard = integer(ad, "LastHeardFrom")
    now = int(time.time()) if heard is None else heard
    name = string(ad, "Name")
    cells = (
        ("[???????????]" if name is None else name, 13),
        (claim, 5),
        (text("ClaimState", "[????????]"), 10),
        (span(now - (integer(ad, f"{claim}_EnteredCurrentState") or 0)), 13),
        (text("RemoteUser", "[?????????]"), 12),
        (text("JobId", " "), 6),
        (text("JobKeyword", " "), 14),
    )
    return " ".join(cell[:width].ljust(width) for cell, width in cells)
