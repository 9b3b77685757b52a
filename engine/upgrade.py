"""Whether the daemons of a pool can be restarted with another release one after the other, while it works, and in which
order: by what each says it knows and keeps (shared.daemon.health_told).

Daemons of two releases understand each other as long as neither sends what the other does not know. New fields of
messages are no matter, as readers leave out what they do not know (shared.messages.compatibility). A new request is:
who answers it is restarted before who sends it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.doctor import Told
from shared import stored_versions
from shared.messages.flows import EVERY, REQUESTS, Request

#: Who is restarted before whom, where messages do not say otherwise: who only listens, who chooses, who places jobs,
#: who runs them, and who asks all of them for people.
USUAL: Final = (
    "REGISTRAR",
    "JOURNAL",
    "COLLECTOR",
    "HAD",
    "NEGOTIATOR",
    "DEFRAG",
    "ROOSTER",
    "GANGLIAD",
    "ADSTASH",
    "SCHEDD",
    "STARTD",
    "GATEWAY",
)
#: Inboxes that are not called like who serves them.
_SERVES: Final[Mapping[str, str]] = {"poolhistory": "COLLECTOR"}


@dataclass(frozen=True, slots=True)
class Build:
    """Daemons that run the same: their release, their messages, and who they are, by subsystem. own: it is the one that
    was asked about. protocol: empty of an earlier release, which does not tell."""

    release: str
    protocol: str
    daemons: Mapping[str, Sequence[str]]
    own: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """builds: what runs, most daemons first. problems: why a rolling restart would do harm; none: it is safe. order:
    subsystems that are to be restarted, the first first. notes: what people should know."""

    builds: Sequence[Build]
    problems: Sequence[str] = ()
    order: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def is_done(self) -> bool:
        """Whether all that answer run the release that was asked about."""
        return not self.order


@dataclass(frozen=True, slots=True)
class Release:
    """A release: of Roost, of its messages ("type/version"), and versions of what it reads on disk."""

    release: str
    protocol: str
    messages: Collection[str]
    keeps: Mapping[str, int] = field(default_factory=lambda: stored_versions.VERSIONS)


def plan(daemons: Sequence[Told], known: Mapping[str, Collection[str]], wanted: Release) -> Plan:
    """known: messages by protocol, of what runs. wanted: what they are to be restarted with."""
    answering = [one for one in daemons if not (one.silent or one.off)]
    builds = _builds(answering, wanted)
    problems, notes = [], []
    for one in answering:
        for name, version in sorted((one.health.get("keeps") or {}).items()):
            if version > wanted.keeps.get(name, 0):
                problems.append(
                    f"the {one.called} keeps its {name} in version {version}, and {wanted.release} reads "
                    f"{wanted.keeps.get(name, 0)}: it would refuse to start. Take a newer release, or restore a backup "
                    "that is older than the upgrade"
                )
    edges: dict[str, set[str]] = defaultdict(set)
    for protocol in sorted({build.protocol for build in builds if build.protocol and not build.own}):
        messages = set(known.get(protocol, ()))
        if gone := sorted(messages - set(wanted.messages)):
            problems.append(
                f"daemons that run send what {wanted.release} does not know ({_some(gone)}): it would be lost while "
                "both run. Stop the pool, restart all of it, or take a release between the two"
            )
        for kind in set(wanted.messages) - messages:
            for server, sender in _goes_to(kind.partition("/")[0]):
                edges[sender].add(server)
    if silent := [one.called for one in daemons if one.silent]:
        notes.append(f"{len(silent)} daemons do not answer, and are not judged: {_some(silent)} (roost doctor)")
    if older := [one.called for one in answering if not one.health]:
        notes.append(
            f"{len(older)} daemons are of a release that does not tell what it knows, such as the {older[0]}: they are "
            "judged by the usual order only"
        )
    there = {one.subsystem for one in answering if not _runs(one, wanted)}
    order, circle = _ordered(there, edges)
    if circle:
        notes.append(
            f"{_some(circle)} send each other what the other one does not know yet; until both are restarted they do "
            "without it"
        )
    return Plan(builds, problems, order, notes)


def _runs(one: Told, wanted: Release) -> bool:
    return one.health.get("release") == wanted.release and one.health.get("protocol") == wanted.protocol


def _builds(daemons: Iterable[Told], wanted: Release) -> list[Build]:
    found: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in daemons:
        key = str(one.health.get("release") or ""), str(one.health.get("protocol") or "")
        found[key][one.subsystem].append(one.name)
    builds = [
        Build(release, protocol, dict(names), (release, protocol) == (wanted.release, wanted.protocol))
        for (release, protocol), names in found.items()
    ]
    return sorted(builds, key=lambda one: -sum(map(len, one.daemons.values())))


def _goes_to(kind: str) -> list[tuple[str, str]]:
    """Pairs of who answers a request and who sends it, in upper case; none for what is none."""
    request: Request | None = REQUESTS.get(kind)
    if request is None or EVERY in request.by:
        return []
    role = request.inbox.partition(".")[0]
    servers = USUAL if role == "{subsystem}" else (_SERVES.get(role, role.upper()),)
    return [(server, sender.upper()) for server in servers for sender in request.by if sender.upper() != server]


def _ordered(there: Collection[str], before: Mapping[str, Collection[str]]) -> tuple[list[str], list[str]]:
    """Those that are there so that each comes after those `before` it, else in the usual order; and those that would
    each have to come before the other."""
    left = [one for one in USUAL if one in there] + sorted(set(there) - set(USUAL))
    found: list[str] = []
    circle: list[str] = []
    while left:
        free = [one for one in left if not (set(before.get(one, ())) & (set(left) - {one}))]
        if not free:
            circle = circle or list(left)
        found.append((free or left)[0])
        left.remove(found[-1])
    return found, circle


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
