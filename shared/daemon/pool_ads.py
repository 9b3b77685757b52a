"""Asks the collector for the pool's ads, a page at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from shared.bus.api import Bus
from shared.classad import ClassAd
from shared.daemon.readable_ads import checked, of_each
from shared.messages.ads import AdPage, QueryAds

#: Ads in one page, and seconds for it.
_PAGE, _ASK_S = 2000, 30.0

T = TypeVar("T")


async def pool_ads(
    bus: Bus, my_type: str, *, constraint: str = "", projection: Sequence[str] = ()
) -> AsyncIterator[list[ClassAd]]:
    """Pages of ads of this type for which the constraint is true; without a projection they are whole. An ad that can
    not be read is left out, so that it costs nobody else anything. Raises RetryableError, RemoteFailure."""
    async for page in made_of_pool_ads(bus, my_type, checked, constraint=constraint, projection=projection):
        yield page


async def made_of_pool_ads(
    bus: Bus, my_type: str, make: Callable[[ClassAd], T], *, constraint: str = "", projection: Sequence[str] = ()
) -> AsyncIterator[list[T]]:
    """The same with what is made of each ad, so that others have their turn in between. make: may raise PackedError
    over an ad that is none."""
    after = ""
    while True:
        query = QueryAds(
            my_types=[my_type], constraint=constraint, projection=list(projection), limit=_PAGE, after=after
        )
        page = await bus.call("collector", query, timeout=_ASK_S)
        assert isinstance(page, AdPage)
        yield await of_each(page.ads, make)
        if not page.next:
            return
        after = page.next
