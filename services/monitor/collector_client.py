"""Asks the collector for the ads of the pool, with no attribute more than the definitions read: 100,000 slots come as
columns, page by page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from services.monitor.core.definitions import Wanted
from services.monitor.core.metrics import SLOT_ATTRIBUTES
from shared.bus.api import Bus
from shared.classad import ClassAd, PackedError
from shared.classad.column_page import Sheet, reader
from shared.errors import RetryableError
from shared.messages.ads import AdPage, QueryAds

#: Ads in one page.
_PAGE: Final = 5000
#: Seconds that a page may take.
_PATIENCE_S: Final = 60.0
_SLOT1: Final = "SlotID == 1 && DynamicSlot =!= true"


class BadPage(RetryableError):
    """The collector's answer can not be read."""


async def ads(bus: Bus, wanted: Iterable[Wanted], always: Iterable[str], requirements: str) -> dict[str, Sheet]:
    """Ads by MyType. always: attributes (folded) besides those that are wanted; requirements: a ClassAd expression that
    limits the ads (GANGLIAD_REQUIREMENTS), "" for none. Raises what bus.call raises, and BadPage."""
    found: dict[str, Sheet] = {}
    for one in wanted:
        projection = [] if one.attributes is None else sorted({*one.attributes, *always, *SLOT_ATTRIBUTES})
        terms = [f"({term})" for term in (requirements, _SLOT1 if one.slot1 else "") if term]
        sheet = await _sheet(bus, [one.my_type] if one.my_type else [], projection, " && ".join(terms))
        for my_type, part in _by_type(sheet).items():
            found[my_type] = part
    return found


async def collector_ad(bus: Bus) -> ClassAd | None:
    """The ad of a collector, to know its host; None where there is none."""
    sheet = await _sheet(bus, ["Collector"], ["Name", "Machine", "MyAddress"], "")
    return sheet[0] if len(sheet) else None


async def _sheet(bus: Bus, my_types: list[str], projection: list[str], constraint: str) -> Sheet:
    sheet = Sheet()
    after = ""
    while True:
        page = await bus.call(
            "collector",
            QueryAds(
                my_types=my_types,
                projection=projection,
                constraint=constraint,
                limit=_PAGE,
                after=after,
                columns=bool(projection),
            ),
            timeout=_PATIENCE_S,
        )
        assert isinstance(page, AdPage)
        try:
            sheet.add(page.ads)
            if page.columns:
                unpacked: Any = reader()
                unpacked.feed(page.columns)
                for part in unpacked:
                    sheet.add(part)
        except (PackedError, ValueError) as error:
            raise BadPage(f"a page of the collector's: {error}") from error
        if not page.next:
            return sheet
        after = page.next
        await asyncio.sleep(0)


def _by_type(sheet: Sheet) -> Mapping[str, Sheet]:
    kinds = sheet.cells("mytype")
    different = set(kinds)
    if len(different) == 1:
        return {str(next(iter(different))): sheet}
    places: dict[str, list[int]] = {}
    for place, kind in enumerate(kinds):
        places.setdefault(str(kind), []).append(place)
    return {kind: sheet.taken(some) for kind, some in places.items()}
