"""ALLOW_<LEVEL> and DENY_<LEVEL>: which users of which machines have a level, as HTCondor's lists say it. Pure.

A list has entries `user@domain/host`, `user@domain` (of any machine) and `host` (any user there). A user may have `*`;
a host is a name, one that begins with `*`, an address, one that ends in `*`, or a net as `10.0.0.0/8`. DENY wins over
ALLOW. A level includes those that it implies: who may WRITE may READ, and who may not READ may not WRITE."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from shared.operations import Level

#: Level -> those that it implies, as HTCondor has it.
IMPLIES: Final[Mapping[str, tuple[str, ...]]] = {
    "READ": (),
    "WRITE": ("READ",),
    "ADMINISTRATOR": ("WRITE", "READ"),
    "CONFIG": ("READ",),
    "DAEMON": ("WRITE", "READ"),
    "NEGOTIATOR": ("READ",),
}
#: What HTCondor lists for daemons among themselves: here the broker knows its users, and says what each may send.
ELSEWHERE: Final = {
    "ADVERTISE_MASTER": "which daemon may advertise what is said by the users of the broker",
    "ADVERTISE_STARTD": "which daemon may advertise what is said by the users of the broker",
    "ADVERTISE_SCHEDD": "which daemon may advertise what is said by the users of the broker",
    "DAEMON": "daemons are known by their users of the broker; a person with it may WRITE and READ",
    "NEGOTIATOR": "the negotiator is known by its user of the broker; a person with it may READ",
    "CLIENT": "whom clients believe is said by AUTH_SSL_CLIENT_CAFILE",
    "SOAP": "there is no SOAP",
    "OWNER": "there is no such level any more",
}
#: Daemons whose lists are gone by, as the gateway does their work: ALLOW_WRITE_SCHEDD.
SUBSYSTEMS: Final = ("SCHEDD", "COLLECTOR", "NEGOTIATOR", "STARTD", "GATEWAY")
#: Levels of people, from low to high.
LEVELS: Final = ("READ", "WRITE", "ADMINISTRATOR")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. user: a pattern, `*` for any; host: a pattern in lower case, `*` for any; net: where it is one."""

    text: str
    user: str
    host: str
    net: Network | None = None

    def fits(self, user: str, address: str, names: Sequence[str]) -> bool:
        """Whether it is about this user of this machine. names: of the machine, in lower case."""
        if self.user != "*" and not _glob(_folded(self.user), _folded(user)):
            return False
        if self.host == "*":
            return True
        if self.net is not None:
            try:
                return ipaddress.ip_address(address) in self.net
            except ValueError:
                return False
        return any(_glob(self.host, one) for one in (address.lower(), *names))


def parse(text: str) -> Entry:
    """Raises ValueError with the mend."""
    word = text.strip()
    if word.startswith("+"):
        raise ValueError(f"{word}: netgroups are not asked for; name the users")
    before, slash, after = word.partition("/")
    if not slash:
        user, host = (word, "*") if "@" in word else ("*", word)
    elif "@" not in before and (net := _net(word)) is not None:
        return Entry(word, "*", str(net), net)
    else:
        user, host = before, after
    if not user or not host:
        raise ValueError(f"{word}: want user@domain/host, user@domain, or host")
    if user != "*" and "@" not in user:
        raise ValueError(f"{word}: the user wants a domain: {user}@DOMAIN, or {user}@* for any")
    if any(letter in user + host for letter in "?[]{}()|\\") and not _address(host):
        raise ValueError(f"{word}: of patterns there is only *")
    host = host.strip("[]").lower()
    return Entry(word, user, host, _net(host))


def _net(text: str) -> Network | None:
    """A net or a whole address; None: something else."""
    try:
        return ipaddress.ip_network(text.strip("[]"), strict=False)
    except ValueError:
        return None


def _address(text: str) -> bool:
    return _net(text) is not None


def _glob(pattern: str, text: str) -> bool:
    if "*" not in pattern:
        return pattern == text
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL) is not None


def _folded(user: str) -> str:
    """Domains are compared in any case, names as they are."""
    name, at, domain = user.partition("@")
    return f"{name}{at}{domain.lower()}"


@dataclass(frozen=True, slots=True)
class Lists:
    """allow, deny: level -> entries, only of levels that have a list; owners: users who own the pool, administrators
    whom only DENY shuts out; admins: administrators where there is no list of them; own: subsystem -> the lists that
    hold for its work alone."""

    allow: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    deny: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)
    owners: tuple[Entry, ...] = ()
    admins: tuple[Entry, ...] = ()
    own: Mapping[str, Lists] = field(default_factory=dict)

    def denied(self, level: str, user: str, address: str, names: Sequence[str]) -> Entry | None:
        """The entry that shuts somebody out of a level, itself or of one that it implies."""
        for one in (level, *IMPLIES[level]):
            for entry in self.deny.get(one, ()):
                if entry.fits(user, address, names):
                    return entry
        return None

    def has(self, level: str, user: str, address: str, names: Sequence[str], *, granted: bool) -> bool:
        """Whether somebody has a level. granted: it stands in what they logged in with, so a level without a list of
        its own is theirs."""
        if self.denied(level, user, address, names):
            return False
        if any(entry.fits(user, address, names) for entry in self.owners):
            return True
        for one, implied in IMPLIES.items():
            if one != level and level not in implied:
                continue
            if one in self.allow:
                if any(entry.fits(user, address, names) for entry in self.allow[one]):
                    return True
            elif one == "ADMINISTRATOR" and any(entry.fits(user, address, names) for entry in self.admins):
                return True
            elif one == level and (one in _OPEN or granted):
                # Without a list everybody who is known may read and write, which implies nothing more.
                return True
        return False

    def level(self, user: str, address: str, names: Sequence[str], most: Level, *, granted: bool) -> Level:
        """The highest level that somebody has, and all below it, up to `most`."""
        found = Level.NONE
        for name in LEVELS:
            if Level[name] > most or not self.has(name, user, address, names, granted=granted):
                break
            found = Level[name]
        return found

    def levels(
        self, user: str, address: str, names: Sequence[str], most: Level, *, granted: bool
    ) -> tuple[tuple[str, Level], ...]:
        """The same for each subsystem that has lists of its own."""
        return tuple(
            (subsystem, lists.level(user, address, names, most, granted=granted))
            for subsystem, lists in self.own.items()
        )

    @property
    def by_name(self) -> bool:
        """Whether an entry asks for the name of a machine."""
        entries = [*_entries(self.allow), *_entries(self.deny)]
        wanted = any(e.host != "*" and e.net is None and not _is_numbers(e.host) for e in entries)
        return wanted or any(lists.by_name for lists in self.own.values())


#: Levels that everybody has who is known, where there is no list.
_OPEN: Final = ("READ", "WRITE")


def _entries(lists: Mapping[str, tuple[Entry, ...]]) -> Iterator[Entry]:
    for entries in lists.values():
        yield from entries


def _is_numbers(host: str) -> bool:
    """128.105.*: of an address, not of a name."""
    return not host.strip("0123456789.:*")


def read(
    allow: Mapping[str, Sequence[str]],
    deny: Mapping[str, Sequence[str]],
    owners: Sequence[str],
    admins: Sequence[str] = (),
) -> tuple[Lists, list[str]]:
    """The lists of a configuration, and what a person should hear of them. allow, deny: what stands behind ALLOW_ and
    DENY_ (`WRITE`, `WRITE_SCHEDD`), in any case, with the entries; owners: users who own the pool; admins:
    administrators where no list says otherwise.

    An entry of a DENY list that can not be read shuts everybody out: nobody may come in by a slip of the pen."""
    told: list[str] = []
    kinds = {"ALLOW": _by_level(allow, "ALLOW", told), "DENY": _by_level(deny, "DENY", told)}
    entries = tuple(Entry(one, one, "*") for one in owners)
    others = tuple(Entry(one, one, "*") for one in admins)
    general = {kind: lists.get("", {}) for kind, lists in kinds.items()}
    own = {
        subsystem: Lists(
            {**general["ALLOW"], **kinds["ALLOW"].get(subsystem, {})},
            {**general["DENY"], **kinds["DENY"].get(subsystem, {})},
            entries,
            others,
        )
        for subsystem in SUBSYSTEMS
        if any(subsystem in lists for lists in kinds.values())
    }
    return Lists(general["ALLOW"], general["DENY"], entries, others, own), told


def _by_level(
    lists: Mapping[str, Sequence[str]], kind: str, told: list[str]
) -> dict[str, dict[str, tuple[Entry, ...]]]:
    """Subsystem (empty: all) -> level -> entries."""
    found: dict[str, dict[str, tuple[Entry, ...]]] = {}
    for name, words in sorted(lists.items()):
        level, subsystem = _split(name.upper())
        knob = f"{kind}_{name.upper()}"
        if level in ELSEWHERE and level not in IMPLIES:
            told.append(f"{knob} has no effect: {ELSEWHERE[level]}")
            continue
        if level not in IMPLIES:
            told.append(f"{knob} has no effect: there is no level {level}; want {', '.join(IMPLIES)}")
            continue
        if subsystem and subsystem not in SUBSYSTEMS:
            told.append(f"{knob} has no effect: the gateway does the work of {', '.join(SUBSYSTEMS)} only")
            continue
        if level in ELSEWHERE:
            told.append(f"{knob}: {ELSEWHERE[level]}")
        entries = []
        for word in words:
            try:
                entries.append(parse(word))
            except ValueError as error:
                told.append(f"{knob}: {error}" + ("" if kind == "ALLOW" else "; until then it shuts everybody out"))
                if kind == "DENY":
                    entries.append(Entry(word, "*", "*"))
        if kind == "ALLOW" and level == "ADMINISTRATOR" and (hosts := [e.text for e in entries if e.user == "*"]):
            told.append(f"{knob}: whoever logs in from {', '.join(hosts)} is an administrator, whatever their name")
        found.setdefault(subsystem, {})[level] = tuple(entries)
    return found


def _split(name: str) -> tuple[str, str]:
    """WRITE_SCHEDD -> WRITE, SCHEDD; ADVERTISE_STARTD stays whole."""
    for level in (*IMPLIES, *ELSEWHERE):
        if name == level:
            return level, ""
        if name.startswith(f"{level}_"):
            return level, name.removeprefix(f"{level}_")
    return name, ""
