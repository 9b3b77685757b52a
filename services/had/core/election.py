"""Who is the active negotiator: what one HAD decides from what it sees (spec rows HA-02 to HA-10).

The lead is a lease in Redis with an epoch (shared/state/lua/had_lease.lua). Every HAD says there that it is
present and whether its negotiator answers, and learns who leads. At most one lease exists at a time, so at
most one HAD of a pool believes to lead but for the length of a pause; what a paused one still does is
refused by its epoch.

Redis may come back empty, or with what it had some time ago. Then nobody leads before the books are restored: the HADs
that are there say which version each could restore (its snapshot, its negotiator's memory), and the one with the newest
takes the lease and restores, under its new epoch, before its negotiator is told to lead.

A leader that goes of its own free will, because the primary is back or because it is stopped, gives the lease to the
next one in one step, under that one's new epoch: it is never free, and nobody has to find out.

    Pre        the negotiator does not answer (yet): no candidate
    Passive    a candidate; somebody else leads
    Election   a candidate; nobody leads
    Leader     the lease is ours, and the negotiator was told
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import ip_address
from typing import NamedTuple

from shared.accounting_version import NONE, NOTHING, Version

#: A HAD seen within this time (s) counts as present. Several polls long, so that one slow answer hides
#: nobody.
PRESENT_S = 1.0
#: How long a returning primary must be there before the lead is handed to it (s).
RETURNED_S = 0.5
#: How long HADs of HAD_LIST that are not there are waited for when the books must be restored: one of them may have
#: newer ones (s).
ABSENT_S = 5.0
#: The same for one that is there and has newer books than we, but a negotiator that does not answer yet, and for one
#: that does not know yet what Redis lost (s).
SILENT_S = 10.0


class State(Enum):
    PRE = "Pre"
    PASSIVE = "Passive"
    ELECTION = "Election"
    LEADER = "Leader"


@dataclass(frozen=True, slots=True)
class Rules:
    """What a HAD goes by. A reconfiguration may change order and use_primary, and nothing else of it."""

    name: str
    life: str  # unique for each start
    order: tuple[str, ...] = ()  # HAD_LIST as host names and addresses
    use_primary: bool = False  # HAD_USE_PRIMARY
    shard: str = ""  # NEGOTIATOR_NAME: which of a pool's elections this is
    started: float = float("-inf")  # monotonic clock
    entry: str = ""  # the entry of HAD_LIST that this HAD is; empty: the one that its name fits


class Presence(NamedTuple):
    """What a HAD last said of itself."""

    at: float  # Redis's clock
    answers: bool  # its negotiator does
    offer: Version = NOTHING  # newest version of the books that it could restore
    held_back: bool = False  # behind all others: its negotiator crashed not long ago
    asked: bool = (
        False  # it knows that Redis lost books, and has asked its negotiator since: the offer is the last word
    )
    life: str = ""  # empty: a HAD of an earlier version, which does not say
    entry: str = ""  # the entry of HAD_LIST that it is, by its own account; empty: it does not say


@dataclass(frozen=True, slots=True)
class Wish:
    """What to ask for with the next look at the lease."""

    wants: bool  # the lead
    least: Version | None = NOTHING  # with books of this version or newer; None: whatever there is


@dataclass(frozen=True, slots=True)
class Seen:
    """What Redis answered, times in seconds of Redis's clock."""

    now: float
    owner: str  # empty: nobody leads
    life: str
    epoch: int
    until: float
    highest: int  # epoch ever given
    present: Mapping[str, Presence] = field(default_factory=dict)
    books: Version = NOTHING  # of the books in Redis; NONE: there are none
    expected: Version = NOTHING  # newest that was known when this look began
    whatever: bool = False  # it asked for the lead with whatever books there are


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a HAD stands."""

    state: State = State.PRE
    epoch: int = 0  # of its lead
    lease_ends: float = 0.0  # monotonic clock; by then somebody else may lead
    known: int = 0  # highest epoch ever heard of
    leader: str = ""
    primary_since: float | None = None  # Redis's clock: since when the primary could take over
    books: Version = NOTHING  # newest version of the books ever heard of
    behind_since: float | None = None  # monotonic clock: since when Redis has older ones
    mending: bool = False  # we lead, or are about to, and restore them
    settled: bool = False  # the others were there, or somebody led (also our former life): Redis is not an old one


@dataclass(frozen=True, slots=True)
class Lead:
    """Tell the negotiator to be the active one."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Restore the books, then tell the negotiator to be the active one."""

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
class HandOver:
    """Have the negotiator step down, then give the lease under `epoch` to this HAD."""

    epoch: int
    heir: str
    life: str  # the heir's
    reason: str


@dataclass(frozen=True, slots=True)
class Announce:
    """Publish that the state changed."""

    state: State
    epoch: int
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class GiveWay:
    """Another process runs under this HAD's name and has the lease: end."""

    life: str


Effect = Lead | Restore | StepDown | Release | HandOver | Announce | GiveWay


def wish(
    rules: Rules, standing: Standing, seen: Seen | None, *, answering: bool, now: float, held_back: bool = False
) -> Wish:
    """What to ask for. `seen`: the last look; `now`: the monotonic clock.

    A HAD that has just started waits for the others of HAD_LIST: Redis may be an old one, and one of them know it."""
    if not standing.settled and now - rules.started < ABSENT_S:
        return Wish(False, standing.books)
    if standing.behind_since is None or seen is None:
        return Wish(candidate(rules, standing, seen, answering, held_back), standing.books)
    if answering and (standing.mending or restores(rules, standing, seen, now)):
        return Wish(True, None)
    return Wish(False, standing.books)


def candidate(rules: Rules, standing: Standing, seen: Seen | None, answering: bool, held_back: bool = False) -> bool:
    """Whether to take the lead when it is free, or to keep it: not without a negotiator that answers, and
    not while an earlier entry of HAD_LIST could (HA-09), or any other one where ours crashed not long ago (HA-12)."""
    if not answering:
        return False
    if standing.state is State.LEADER or seen is None:
        return True
    mine = (held_back, own_place(rules))
    return not any(
        _ready(seen, other) and (presence.held_back, _place(rules, other, presence)) < mine
        for other, presence in seen.present.items()
        if other != rules.name
    )


def restores(rules: Rules, standing: Standing, seen: Seen, now: float) -> bool:
    """Whether it is for us to restore the books: ours are the newest of all that can be had."""
    since = now if standing.behind_since is None else standing.behind_since
    there = _there(seen)
    mine = there.get(rules.name)
    if mine is None:
        return False
    if now - since < ABSENT_S and not _all_there(rules, there):
        return False
    if now - since < SILENT_S and any(
        one.offer > mine.offer if not one.answers else not one.asked for one in there.values()
    ):
        return False

    def precedence(name: str) -> tuple[Version, int, str]:
        return (there[name].offer, -_place(rules, name, there[name]), name)

    return max((name for name, one in there.items() if one.answers), key=precedence, default="") == rules.name


def step(
    rules: Rules, standing: Standing, seen: Seen | None, *, answering: bool, asked_at: float, lease_s: float, now: float
) -> tuple[Standing, tuple[Effect, ...]]:
    """Take in one look at the lease; None when Redis did not answer. Times `asked_at` (when the look began)
    and `now` are the monotonic clock's."""
    if seen is None:
        if standing.state is State.LEADER and now >= standing.lease_ends:
            return _lost(standing, answering, "Redis did not answer until the lease ran out")
        return standing, ()
    newest = max((one.offer for one in _there(seen).values()), default=NOTHING)
    newest = max(newest, seen.expected)
    behind = seen.books < newest or seen.books == NONE
    since = standing.behind_since
    standing = replace(
        standing,
        known=max(standing.known, seen.highest),
        leader=seen.owner,
        books=max(standing.books, seen.books, newest),
        behind_since=(now if since is None else since) if behind else None,
        mending=standing.mending and behind,
        settled=standing.settled or bool(seen.owner) or _all_there(rules, _there(seen)),
    )
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
    if since is not None and seen.now - since >= RETURNED_S and not behind:
        return _handed_over(rules, standing, seen, f"{rules.order[0]} is the primary and is back")
    won = standing.state is not State.LEADER or standing.epoch != seen.epoch
    if behind and not standing.mending and not (won and seen.whatever):
        # Also when we won it just now, and learn from what the others offer that we should not have.
        reason = f"Redis has books of version {seen.books.text}, not {newest.text}"
        return _given_up(standing, State.ELECTION, reason)
    led = replace(standing, state=State.LEADER, epoch=seen.epoch, lease_ends=asked_at + lease_s, primary_since=since)
    if not won:
        return led, ()
    if behind:
        return replace(led, mending=True), (Restore(seen.epoch),)
    return led, (Lead(seen.epoch), Announce(State.LEADER, seen.epoch))


def stop(rules: Rules, standing: Standing, seen: Seen | None) -> tuple[Effect, ...]:
    """What to do before ending. `seen`: the last look."""
    if standing.state is not State.LEADER:
        return ()
    why = "the HAD stops"
    left = Announce(State.PRE, standing.epoch, why)
    heir = None if standing.mending else _heir(rules, seen)
    if heir is None:
        return (StepDown(standing.epoch, why), Release(why), left)
    return (HandOver(standing.epoch, *heir, why), left)


#: Addresses of hosts, as `ipaddress` writes them: what is known of names that HAD_LIST may have by address.
Addresses = Mapping[str, frozenset[str]]


def own_place(rules: Rules) -> int:
    """Place of this HAD in HAD_LIST; behind all others when it is not there."""
    return rank(rules.order, rules.entry or rules.name)


def _place(rules: Rules, name: str, presence: Presence) -> int:
    """The same of another one. Which entry it is it knows best; where our list lacks that one its name must do."""
    said = rank(rules.order, presence.entry) if presence.entry else len(rules.order)
    return said if said < len(rules.order) else rank(rules.order, name)


def rank(order: Sequence[str], name: str, addresses: Addresses | None = None) -> int:
    """Place in HAD_LIST; behind all others when it is not there.

    A host is known by its full name or its address. A name without a domain, on either side, stands for the one host
    that begins with it; where several do it stands for none of them. What no name fits is looked for by `addresses`: it
    is the one entry that has an address of the host's, if there is but one."""
    wanted = _host(name)
    known = [_host(listed) for listed in order]
    if wanted in known:
        return known.index(wanted)
    short = {place: one for place, one in enumerate(known) if _short_for(one, wanted)}
    if len(set(short.values())) == 1:
        return min(short)
    if short or not addresses:
        return len(order)
    own = _addresses(wanted, addresses)
    same = [place for place, one in enumerate(known) if own & _addresses(one, addresses)]
    return same[0] if len(same) == 1 else len(order)


def own_entry(order: Sequence[str], name: str, addresses: Addresses | None = None) -> str:
    """The entry of HAD_LIST that is the host of this name; empty: none is."""
    place = rank(order, name, addresses)
    return order[place] if place < len(order) else ""


def _addresses(host: str, addresses: Addresses) -> frozenset[str]:
    return frozenset({host}) if _is_address(host) else addresses.get(host, frozenset())


def to_resolve(rules: Rules, central_managers: Sequence[str]) -> tuple[str, ...]:
    """Names whose addresses must be known to tell which entries of HAD_LIST they are; none where names alone tell."""
    hosts_ = [rules.name, *(central_managers if len(central_managers) > 1 else ())]
    if len(rules.order) < 2 or all(rank(rules.order, host) < len(rules.order) for host in hosts_):
        return ()
    return tuple(sorted({_host(host) for host in (*hosts_, *rules.order) if not _is_address(_host(host))}))


def _host(name: str) -> str:
    """A host as it is compared: addresses as `ipaddress` writes them, names in small letters without the last dot."""
    try:
        return str(ip_address(name))
    except ValueError:
        return name.lower().rstrip(".")


def _short_for(one: str, other: str) -> bool:
    """Whether one of the two is the other without its domain."""
    short, long = sorted((one, other), key=len)
    return "." not in short and long.startswith(f"{short}.") and not _is_address(long)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def hosts(had_list: str) -> tuple[str, ...]:
    """The hosts in HAD_LIST, names or addresses: entries are host:port, or a sinful string <host:port?...>, with commas
    or blanks between them. An address of IPv6 stands in brackets where a port follows."""
    found = []
    for entry in had_list.replace(",", " ").split():
        address = entry.strip("<>").partition("?")[0]
        host, colon, port = address.rpartition(":")
        whole = not colon or not port.isdigit() or _is_address(address)
        found.append((address if whole else host).strip("[]"))
    return tuple(found)


def misfits(rules: Rules, central_managers: Sequence[str], addresses: Addresses | None = None) -> list[str]:
    """What is wrong with HAD_LIST on this machine (HA-21); nothing of it keeps the HAD from working."""
    found = []
    if rules.order and own_place(rules) == len(rules.order):
        listed = ", ".join(rules.order)
        found.append(f"HAD_LIST ({listed}) lacks this HAD, {rules.name}: it comes after all others")
    names = [_host(entry) for entry in rules.order]
    if len(set(names)) < len(names):
        found.append(f"HAD_LIST names a host twice: {', '.join(rules.order)}")
    if len(rules.order) > 1 and len(central_managers) > 1:
        ranks = [rank(rules.order, host, addresses) for host in central_managers]
        if ranks != list(range(len(rules.order))):
            found.append(
                f"HAD_LIST ({', '.join(rules.order)}) and the central managers ({', '.join(central_managers)}) differ: "
                "use the same hosts in the same order, on all of them"
            )
    if rules.use_primary and not rules.order:
        found.append("HAD_USE_PRIMARY is true, and HAD_LIST empty: there is no primary")
    return found


def _lost(standing: Standing, answering: bool, reason: str) -> tuple[Standing, tuple[Effect, ...]]:
    state = State.PASSIVE if answering else State.PRE
    after = replace(standing, state=state, primary_since=None, mending=False)
    return after, (StepDown(standing.epoch, reason), Announce(state, standing.epoch, reason))


def _given_up(standing: Standing, state: State, reason: str) -> tuple[Standing, tuple[Effect, ...]]:
    after = replace(standing, state=state, primary_since=None, leader="", mending=False)
    if standing.state is not State.LEADER:
        return after, (Release(reason),)
    # First the negotiator, then the lease: the other way there would be two for a moment.
    return after, (StepDown(standing.epoch, reason), Release(reason), Announce(state, standing.epoch, reason))


def _handed_over(rules: Rules, standing: Standing, seen: Seen, reason: str) -> tuple[Standing, tuple[Effect, ...]]:
    heir = _heir(rules, seen)
    if heir is None:
        return _given_up(standing, State.PASSIVE, reason)
    after = replace(standing, state=State.PASSIVE, primary_since=None, leader=heir[0])
    return after, (HandOver(standing.epoch, *heir, reason), Announce(State.PASSIVE, standing.epoch, reason))


def _heir(rules: Rules, seen: Seen | None) -> tuple[str, str] | None:
    """Name and life of the HAD that is to lead when we cease; None where nobody can be given the lead."""
    if seen is None:
        return None
    ready = [
        (one.held_back, _place(rules, name, one), name, one.life)
        for name, one in seen.present.items()
        if name != rules.name and _ready(seen, name) and one.life
    ]
    return min(ready)[2:] if ready else None


def _following(seen: Seen, answering: bool) -> State:
    if not answering:
        return State.PRE
    return State.PASSIVE if seen.owner else State.ELECTION


def _ready(seen: Seen, name: str) -> bool:
    one = seen.present.get(name)
    return one is not None and one.answers and abs(seen.now - one.at) <= PRESENT_S


def _there(seen: Seen) -> dict[str, Presence]:
    # In the future too: a dead one must not be present for as long as Redis's clock was set back.
    return {name: one for name, one in seen.present.items() if abs(seen.now - one.at) <= PRESENT_S}


def _all_there(rules: Rules, there: Mapping[str, Presence]) -> bool:
    places = {own_place(rules) if name == rules.name else _place(rules, name, one) for name, one in there.items()}
    return {rank(rules.order, entry) for entry in rules.order} <= places


def _primary_since(rules: Rules, standing: Standing, seen: Seen) -> float | None:
    """Since when the primary is there to take the lead from us (HA-05)."""
    if not rules.use_primary or not rules.order or own_place(rules) == 0:
        return None
    if not any(
        _place(rules, name, one) == 0 and _ready(seen, name) and not one.held_back for name, one in seen.present.items()
    ):
        return None
    return seen.now if standing.primary_since is None else standing.primary_since
