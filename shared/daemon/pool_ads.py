"""Asks the collector for the pool's ads, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from shared.bus.api import Bus
from shared.classad import ClassAd
from shared.messages.ads import AdPage, QueryAds

#: Ads in one page, and seconds for it.
_PAGE, _ASK_S = 2000, 30.0


async def pool_ads(
    bus: Bus, my_type: str, *, constraint: str = "", projection: Sequence[str] = ()
) -> AsyncIterator[list[ClassAd]]:
    """Pages of ads of this type for which the constraint is true; without a projection they are whole. An ad that can
    not be read is left out, so that it costs nobody else anything. Raises RetryableError, RemoteFailure."""
    after = ""
    while True:
        query = QueryAds(
            my_types=[my_type], constraint=constraint, projection=list(projection), limit=_PAGE, after=after
        )
        page = await bus.call("collector", query, timeout=_ASK_S)
        assert isinstance(page, AdPage)
        yield list(_readable(page.ads))
        if not page.next:
            return
        after = page.next


def _readable(packed: Iterable[bytes]) -> Iterator[ClassAd]:
    for one in packed:
        try:
            yield ClassAd.unpack(one).check()
        except (ValueError, RecursionError):
            continue
