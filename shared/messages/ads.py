"""Ads on the bus: whole updates, deltas, heartbeats, invalidations (exchange roost.ads), and the private half of a
machine's ads (exchange roost.private, which only central managers may read).

Routing key: `<verb>.<MyType>.<daemon>`, for instance `update.Machine.startd@node1`. An ad is bytes: what
`ClassAd.pack()` makes. All ads of one daemon and type travel in one message, and share its sequence number.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from pydantic import Field

from shared.messages.base import Large, Message, message
from shared.messages.wire import MOST_VALUES

#: A daemon that says something a thousand times a second gets there after thirty years. What is beyond would be no
#: integer of an ad when what was lost is added up.
MOST_UPDATES: Final = 10**12

#: Ads that one message tells of: a receiver takes them in one turn of its loop, 5 us each. Parts tell of half as many.
MOST_ADS: Final = 2_000
#: Attributes that went, of all ads of a change: what would tell of more is sent whole.
MOST_REMOVED: Final = 4 * MOST_ADS

SequenceNumber = Annotated[int, Field(ge=0, le=MOST_UPDATES)]
StartTime = Annotated[int, Field(ge=0, le=10**11)]  # seconds since 1970


class _OfAds(Large):
    most_entries: ClassVar[int] = MOST_ADS
    most_values: ClassVar[int] = MOST_VALUES  # names, changes, a list of what went for each, MOST_REMOVED


@message
class AdUpdate(_OfAds):
    """The daemon's ads of one type, whole. Ads of that daemon and type that are not listed are gone."""

    type: ClassVar[str] = "ads.update"
    compressed: ClassVar[bool] = True
    my_type: str  # MyType of every ad in it: Machine, Scheduler, Submitter, Negotiator, HAD, Accounting, ...
    daemon: str  # who owns the ads, e.g. "startd@node1"
    start_time: StartTime  # DaemonStartTime, seconds; with `sequence` it tells newer from older
    sequence: SequenceNumber  # UpdateSequenceNumber: starts at 1, one more for each update, delta or heartbeat
    names: list[str]  # Name of each ad
    ads: list[bytes]  # packed, same order
    complete: bool = True  # False: other ads of this daemon and type stay as they are


@message
class AdDelta(_OfAds):
    """What changed since `base` (a sequence number of the same start_time). A receiver that lacks the base asks
    the daemon for everything with SendAds."""

    type: ClassVar[str] = "ads.delta"
    compressed: ClassVar[bool] = True
    my_type: str
    daemon: str
    start_time: StartTime
    base: SequenceNumber
    sequence: SequenceNumber
    names: list[str]  # ads that changed
    changes: list[bytes]  # packed ad of the changed attributes only
    removed_attrs: list[list[str]]  # attributes that went, for each of names
    gone: list[str] = []  # ads that are no more


@message
class AdHeartbeat(Message):
    """Nothing changed since `base`; the ads live on."""

    type: ClassVar[str] = "ads.heartbeat"
    my_type: str
    daemon: str
    start_time: StartTime
    base: SequenceNumber
    sequence: SequenceNumber


@message
class AdInvalidate(_OfAds):
    """The daemon takes its ads back: those named, or all of that type when `names` is empty."""

    type: ClassVar[str] = "ads.invalidate"
    durable: ClassVar[bool] = True
    my_type: str
    daemon: str
    start_time: StartTime
    sequence: SequenceNumber
    names: list[str] = []


@message
class SendAds(Message):
    """Request to a daemon's inbox: publish all your ads of this type whole (the answer is Ack)."""

    type: ClassVar[str] = "ads.send"
    my_type: str


@message
class AskForAds(Message):
    """Broadcast on roost.ads with key `ask.all` by who has just begun to listen: everybody say where your ads stand.
    Who then misses one asks its daemon with SendAds."""

    type: ClassVar[str] = "ads.ask"
    by: str  # the inbox of who asks


@message
class PrivateAds(Large):
    """Claim ids of a startd's slots, by slot name, on roost.private. Never stored or shown with the public ads."""

    type: ClassVar[str] = "ads.private"
    daemon: str
    start_time: StartTime
    sequence: SequenceNumber
    claims: dict[str, str]


@message
class ForwardedAds(_OfAds):
    """A collector tells another pool's (CONDOR_VIEW_HOST) about the ads of one of its daemons, on roost.ads with key
    `forward.<MyType>.<daemon>`: all of them, or that they live on (`base`), or are gone."""

    type: ClassVar[str] = "ads.forwarded"
    compressed: ClassVar[bool] = True
    by: str  # the inbox of who forwards
    my_type: str
    daemon: str
    start_time: StartTime
    sequence: SequenceNumber
    names: list[str] = []
    ads: list[bytes] = []  # packed, same order
    base: SequenceNumber = 0  # not 0: nothing changed since this sequence number was forwarded; no names
    part: int = 0  # many ads come in several messages: this one's number from 0
    parts: int = 1
    gone: bool = False


@message
class QueryAds(Message):
    """Request to inbox `collector`: ads by type, constraint (ClassAd text) and projection, page by page."""

    type: ClassVar[str] = "collector.query"
    my_types: list[str] = []  # empty: any type
    constraint: str = ""
    projection: list[str] = []
    limit: int = 0  # 0: no limit
    after: str = ""  # cursor of the page before
    absent: bool = False  # ask for absent ads too (spec row ABS-02)
    order: str = ""  # of ads of one type, by this attribute, with - before it descending; empty: by daemon and name
    columns: bool = False  # the page may be in columns, see AdPage


@message
class CountAds(Message):
    """Request to inbox `collector`: how many ads of one type, for which a constraint is true, there are of each
    combination of values of some attributes."""

    type: ClassVar[str] = "collector.count"
    my_type: str
    constraint: str = ""
    by: list[str] = []  # attributes; none: all in one


@message
class AdCounts(Large):
    """Answer to CountAds: the values of each combination in the order of `by`, and how many ads have them. A value is a
    text, a number or a truth value, as it stands in the ad; null where it is none of these."""

    type: ClassVar[str] = "collector.counts"
    values: list[list[str | bool | int | float | None]]
    counts: list[int]


@message
class AdPage(Large):
    """Answer to QueryAds. `next` is empty on the last page. fits: how many ads all pages have, where an order was asked
    for; else -1. columns: in place of `ads` a page of so many rows as shared.classad.column_page has it, where that
    was asked for and the collector has columns. collector: the name of the one that answers, which has an inbox of its
    own, collector.<name>; empty: one of an earlier version."""

    type: ClassVar[str] = "collector.page"
    compressed: ClassVar[bool] = True
    ads: list[bytes]
    next: str = ""
    fits: int = -1
    columns: bytes = b""
    rows: int = 0
    collector: str = ""
