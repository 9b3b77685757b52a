"""Decides which ads go to the collectors of CONDOR_VIEW_HOST, and what a view makes of them (spec row COL-09).

A view gets all ads of a daemon when one of them changed, and a heartbeat when none did. So it never has to ask a daemon
that it can not reach, and the next message makes up for one that was lost. Sequence numbers are the daemon's own, so it
does no harm if several collectors of a pool forward the same ads. Forwarded ads are not forwarded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from shared.daemon.ad_plan import MOST_IN_PART, PART_BYTES
from shared.daemon.ad_rows import BadAd
from shared.daemon.ad_table import AdMessage, AdTable, Group, GroupKey
from shared.messages.ads import AdHeartbeat, AdInvalidate, AdUpdate, ForwardedAds

#: Groups whose parts are waited for, and bytes of these; the oldest gives way.
MOST_OPEN, MOST_OPEN_BYTES = 64, 256 << 20
#: Ads that are made ready before others get their turn.
STEP = 200
AMQP_PORT = 5672


def targets(hosts: Sequence[str], own_url: str) -> tuple[list[str], list[str]]:
    """URLs of the brokers of CONDOR_VIEW_HOST, and what is wrong with others. A host is `host`, `host:port` (then with
    user, password and virtual host of `own_url`) or a URL. The pool itself is left out, wherever it is named."""
    own = urlsplit(own_url.partition(",")[0])
    found: dict[str, None] = {}
    problems = []
    for host in hosts:
        if "://" in host:
            url = host
            if urlsplit(host).scheme not in ("amqp", "amqps"):
                problems.append(f"{_shown(host)}: want host[:port], or amqp://user:password@host/vhost")
                continue
        elif not own_url:
            problems.append(f"{host}: a pool without ROOST_AMQP_URL needs amqp://user:password@host/vhost here")
            continue
        else:
            credentials = own.netloc.rpartition("@")[0]
            url = urlunsplit(own._replace(netloc=f"{credentials}@{host}" if credentials else host))
        try:
            place = _place(url)
        except ValueError:
            problems.append(f"{_shown(host)}: its port is no number from 0 to 65535")
            continue
        if place not in {_place(f"{own.scheme}://{part}{own.path}") for part in _hosts(own_url)}:
            found[url] = None
    return list(found), problems


def _hosts(url: str) -> Iterator[str]:
    for part in url.split(","):
        if part:
            yield urlsplit(part if "://" in part else f"amqp://{part}").netloc


def _place(url: str) -> tuple[str, int, str]:
    parts = urlsplit(url)
    port = parts.port or (AMQP_PORT + (parts.scheme == "amqps"))
    return (parts.hostname or "").lower(), port, parts.path.strip("/")


def _shown(url: str) -> str:
    """Without a password."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}://...@{rest.rpartition('@')[2]}" if mark and "@" in rest else url


class Outbox:
    """What one view has been told, and has to be told."""

    def __init__(self, by: str, whole_every_s: float) -> None:
        self._by = by
        self._whole_every_s = whole_every_s
        self._dirty: dict[GroupKey, None] = {}
        self._sent: dict[GroupKey, tuple[int, int, int, float]] = {}  # start time, content, as sequence; when
        self.told = 0  # groups

    def __len__(self) -> int:
        return len(self._dirty)

    def note(self, keys: Iterable[GroupKey]) -> None:
        """Something was said about these groups."""
        for key in keys:
            self._dirty[key] = None

    def forget(self) -> None:
        """The view may have missed anything: it gets all groups again."""
        for key in self._sent:
            self.failed(key)

    def take(self, table: AdTable, most: int, now: float) -> Iterator[ForwardedAds | None]:
        """What to say now, of `most` groups; None now and then, so that who sends it can give way. A failure must be
        told with `failed`."""
        for key in list(self._dirty)[:most]:
            del self._dirty[key]
            self.told += 1
            group = table.group(*key)
            if group is None or not group.rows:
                self._sent.pop(key, None)
                if group is not None:  # taken back; what expired here expires there
                    yield self._message(key, group.start_time, group.sequence, gone=True)
                continue
            yield from self._group(key, group, now)

    def failed(self, key: GroupKey) -> None:
        """The view did not hear of it."""
        sent = self._sent.get(key)
        if sent is not None:
            start, _, sequence, at = sent
            self._sent[key] = (start, -1, sequence, at)
        self._dirty[key] = None

    def _group(self, key: GroupKey, group: Group, now: float) -> Iterator[ForwardedAds | None]:
        start, content, sequence, at = self._sent.get(key, (-1, -1, -1, 0.0))
        if (start, content) == (group.start_time, group.content) and now - at < self._whole_every_s:
            if group.sequence > sequence:
                yield self._message(key, start, group.sequence, base=sequence)
            return
        head = (group.start_time, group.sequence)
        self._sent[key] = (group.start_time, group.content, group.sequence, now)
        parts: list[tuple[list[str], list[bytes]]] = [([], [])]
        size = 0
        for number, (name, row) in enumerate(list(group.rows.items()), 1):
            if number % STEP == 0:
                yield None
            try:
                packed = row.packed()
            except BadAd:
                continue
            if parts[-1][0] and (size + len(packed) > PART_BYTES or len(parts[-1][0]) == MOST_IN_PART):
                parts.append(([], []))
                size = 0
            size += len(packed)
            parts[-1][0].append(name)
            parts[-1][1].append(packed)
        for number, (names, ads) in enumerate(parts):
            yield self._message(key, *head, names=names, ads=ads, part=number, parts=len(parts))

    def _message(
        self,
        key: GroupKey,
        start_time: int,
        sequence: int,
        *,
        names: Sequence[str] = (),
        ads: Sequence[bytes] = (),
        base: int = 0,
        part: int = 0,
        parts: int = 1,
        gone: bool = False,
    ) -> ForwardedAds:
        return ForwardedAds(
            by=self._by,
            my_type=key[0],
            daemon=key[1],
            start_time=start_time,
            sequence=sequence,
            names=list(names),
            ads=list(ads),
            base=base,
            part=part,
            parts=parts,
            gone=gone,
        )


class Inbox:
    """What a view makes of it: the message as the daemon itself might have sent it."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, GroupKey, int, int], dict[int, ForwardedAds]] = {}

    def take(self, message: ForwardedAds, known: Group | None) -> AdMessage | None:
        """None while other parts are not there yet. `known`: the group as it is. Raises BadAd."""
        head: dict[str, Any] = {
            "my_type": message.my_type,
            "daemon": message.daemon,
            "start_time": message.start_time,
            "sequence": message.sequence,
        }
        if message.gone:
            return AdInvalidate(**head)
        if message.base:
            # What was changed meanwhile, and another collector forwarded, lives on too.
            same = known is not None and known.start_time == message.start_time and known.content >= message.base
            return AdHeartbeat(**head, base=known.content if known is not None and same else message.base)
        if not 1 <= message.parts <= 1000 or not 0 <= message.part < message.parts:
            raise BadAd(f"{message.daemon}: part {message.part} of {message.parts}")
        if message.parts == 1:
            return AdUpdate(**head, names=message.names, ads=message.ads)
        key = (message.by, (message.my_type, message.daemon), message.start_time, message.sequence)
        parts = self._open.setdefault(key, {})
        parts[message.part] = message
        if len(parts) < message.parts:
            while len(self._open) > MOST_OPEN or self._bytes() > MOST_OPEN_BYTES:
                del self._open[next(iter(self._open))]
            return None
        del self._open[key]
        whole = [parts[number] for number in sorted(parts)]
        return AdUpdate(
            **head, names=[name for one in whole for name in one.names], ads=[ad for one in whole for ad in one.ads]
        )

    def _bytes(self) -> int:
        return sum(sum(map(len, part.ads)) for parts in self._open.values() for part in parts.values())
