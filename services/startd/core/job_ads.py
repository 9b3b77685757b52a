"""The ads of jobs as they came from access points. One run looks at its job's ad in half a dozen places, each with a
copy of its own, and all of them stand on the same bytes: these are read once."""

from __future__ import annotations

from functools import lru_cache

from shared.classad import ClassAd

#: Ads that are kept read: those of the runs that begin and end just now.
_KEPT = 64


def job_ad(packed: bytes) -> ClassAd:
    """An ad of one's own. Raises ValueError where the bytes, or one of its expressions, can not be read."""
    return _read(packed).copy()


@lru_cache(maxsize=_KEPT)
def _read(packed: bytes) -> ClassAd:
    return ClassAd.unpack(packed).check()
