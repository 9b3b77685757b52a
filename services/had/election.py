"""Who is the active negotiator: what one HAD decides from what it sees (spec rows HA-02 to HA-10).

The lead is a lease in Redis with an epoch (shared/state/lua/had_lease.lua). Every HAD says there that it is
present and whether its negotiator answers, and learns who leads. At most one lease exists at a time, so at
most one HAD of a pool believes to lead but for the length of a pause; what a paused one still does is
refused by its epoch.

    Pre        the negotiator does not answer (yet): no candidate
    Passive    a candidate; somebody else leads
    Election   a candidate; nobody leads
    Leader     the lease is ours, and the negotiator was told
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

#: A HAD seen within this time (s) counts as present. Several polls long, so that one slow answer hides
#: nobody.
PRESENT_S = 1.0
#: How long a returning primary must be there before the lead is handed to it (s).
RETURNED_S = 0.5


class State(Enum):
    PRE = "Pre"
    PASSIVE = "Passive"
    ELECTION = "Election"
    LEADER = "Leader"


@dataclass(frozen=True, slots=True)
class Rules:
    """What does not change during a HAD's life."""

    name: str
    life: str  # unique for each start
    order: tuple[str, ...] = ()  # HAD_LIST as host names
    use_primary: bool = False  # HAD_USE_PRIMARY
    shard: str = ""  # NEGOTIATOR_NAME: which of a pool's elections this is


@dataclass(frozen=True, slots=True)
class Seen:
    """What Redis answered, times in seconds of Redis's clock."""

    now: float
    owner: str  # empty: nobody leads
    life: str
    epoch: int
    until: float
    highest: int  # epoch ever given
    present: Mapping[str, tuple[float, bool]] = field(default_factory=dict)  # HAD -> last seen, negotiator answers


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a HAD stands."""

    state: State = State.PRE
    epoch: int = 0  # of its lead
    lease_ends: float = 0.0  # monotonic clock; by then somebody else may lead
    known: int = 0  # highest epoch ever heard of
    leader: str = ""
    primary_since: float | None = None  # Redis's clock: since when the primary could take over


@dataclass(frozen=True, slots=True)
class Lead:
    """Tell the negotiator to be the active one."""

    epoch: int


@dataclass(frozen=True, slots=True)
class StepDown:
    """Tell the negotiator to cease."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """Give the lease up."""

    reason: str


@dataclass(frozen=True, slots=True)
class Announce:
    """Publish that the state changed."""

    state: State
    epoch: int


@dataclass(frozen=True, slots=True)
class GiveWay:
    """Another process runs under this HAD's name and has the lease: end."""

    life: str


Effect = Lead | StepDown | Release | Announce | GiveWay


def candidate(rules: Rules, standing: Standing, seen: Seen | None, answering: bool) -> bool:
    """Whether to take the lead when it is free, or to keep it: not without a negotiator that answers, and
    not while an earlier entry of HAD_LIST could (HA-09)."""
    if not answering:
        return False
    if standing.state is State.LEADER or seen is None:
        return True
    mine = rank(rules.order, rules.name)
    return not any(
        _ready(seen, other) and rank(rules.order, other) < mine for other in seen.present if other != rules.name
    )


def step(
    rules: Rules, standing: Standing, seen: Seen | None, *, answering: bool, asked_at: float, lease_s: float, now: float
) -> tuple[Standing, tuple[Effect, ...]]:
    """Take in one look at the lease; None when Redis did not answer. Times `asked_at` (when the look began)
    and `now` are the monotonic clock's."""
    if seen is None:
        if standing.state is State.LEADER and now >= standing.lease_ends:
            return _lost(standing, answering, "Redis did not answer until the lease ran out")
        return standing, ()
    standing = replace(standing, known=max(standing.known, seen.highest), leader=seen.owner)
    if seen.owner == rules.name and seen.life != rules.life and standing.state is State.LEADER:
        lost, effects = _lost(standing, answering, "another HAD runs under this name")
        return lost, (*effects, GiveWay(seen.life))
    if seen.owner != rules.name or seen.life != rules.life:
        if standing.state is State.LEADER:
            return _lost(standing, answering, f"{seen.owner or 'nobody'} has the lease")
        return replace(standing, state=_following(seen, answering)), ()
    if not answering:
        return _given_up(standing, State.PRE, "the negotiator does not answer")
    since = _primary_since(rules, standing, seen)
    if since is not None and seen.now - since >= RETURNED_S:
        return _given_up(standing, State.PASSIVE, f"{rules.order[0]} is the primary and is back")
    won = standing.state is not State.LEADER or standing.epoch != seen.epoch
    led = replace(standing, state=State.LEADER, epoch=seen.epoch, lease_ends=asked_at + lease_s, primary_since=since)
    return led, (Lead(seen.epoch), Announce(State.LEADER, seen.epoch)) if won else ()


def stop(standing: Standing) -> tuple[Effect, ...]:
    """What to do before ending."""
    if standing.state is not State.LEADER:
        return ()
    return (StepDown(standing.epoch, "the HAD stops"), Release("the HAD stops"), Announce(State.PRE, standing.epoch))


def rank(order: Sequence[str], name: str) -> int:
    """Place in HAD_LIST; behind all others when it is not there. A host is known by its full name or its
    first part."""
    for place, listed in enumerate(order):
        if listed.lower() == name.lower() or listed.partition(".")[0].lower() == name.partition(".")[0].lower():
            return place
    return len(order)


def hosts(had_list: str) -> tuple[str, ...]:
    """The host names in HAD_LIST: entries are host:port, or a sinful string <host:port?...>, with commas or
    blanks between them."""
    found = []
    for entry in had_list.replace(",", " ").split():
        address = entry.strip("<>").partition("?")[0]
        host, colon, port = address.rpartition(":")
        found.append((host if colon and port.isdigit() else address).strip("[]"))
    return tuple(found)


def _lost(standing: Standing, answering: bool, reason: str) -> tuple[Standing, tuple[Effect, ...]]:
    state = State.PASSIVE if answering else State.PRE
    after = replace(standing, state=state, primary_since=None)
    return after, (StepDown(standing.epoch, reason), Announce(state, standing.epoch))


def _given_up(standing: Standing, state: State, reason: str) -> tuple[Standing, tuple[Effect, ...]]:
    after = replace(standing, state=state, primary_since=None, leader="")
    if standing.state is not State.LEADER:
        return after, (Release(reason),)
    # First the negotiator, then the lease: the other way there would be two for a moment.
    return after, (StepDown(standing.epoch, reason), Release(reason), Announce(state, standing.epoch))


def _following(seen: Seen, answering: bool) -> State:
    if not answering:
        return State.PRE
    return State.PASSIVE if seen.owner else State.ELECTION


def _ready(seen: Seen, name: str) -> bool:
    at, answers = seen.present.get(name, (float("-inf"), False))
    return answers and seen.now - at <= PRESENT_S


def _primary_since(rules: Rules, standing: Standing, seen: Seen) -> float | None:
    """Since when the primary is there to take the lead from us (HA-05)."""
    if not rules.use_primary or not rules.order or rank(rules.order, rules.name) == 0:
        return None
    if not any(rank(rules.order, name) == 0 and _ready(seen, name) for name in seen.present):
        return None
    return seen.now if standing.primary_since is None else standing.primary_since
