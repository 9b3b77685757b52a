"""Records of history files: an ad, a line for each attribute, and behind it a line of stars. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from services.adstash.documents import EPOCH_HISTORY
from shared.classad import ClassAd, ParseError, parse_ad

_BANNER: Final = re.compile(rb"(?m)^\*\*\*([^\n]*)\n")


@dataclass(frozen=True, slots=True)
class Record:
    """ad: None for what can not be read. end: offset of the byte behind it, from the beginning of the data."""

    ad: ClassAd | None
    source: str
    end: int


def records(data: bytes, source: str) -> Iterator[Record]:
    """The complete records of a piece of a file that begins with one. What stands behind the last line of stars is
    still being written. Lines of stars that begin with EPOCH are of runs of jobs, not of whole jobs."""
    start = 0
    for banner in _BANNER.finditer(data):
        text = data[start : banner.start()].decode(errors="surrogateescape")
        lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
        start = banner.end()
        kind = EPOCH_HISTORY if banner[1].lstrip(b" *").startswith(b"EPOCH") else source
        if not lines:
            continue
        try:
            ad: ClassAd | None = parse_ad("\n".join(lines), "old")
        except (ParseError, ValueError):
            ad = None
        yield Record(ad, kind, start)
