"""Filters of events: by type, and by what the events say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from roost.consumer.source import Received
from roost.events import Event, UnknownEvent
from shared.bus.topics import matches
from shared.bus.topology import CONSUMER_READS

#: A type or pattern of types by AMQP's rules (`job.*`, `#`), or a class of roost.events.
Wanted = str | type[Event]


def patterns_of(types: Iterable[Wanted]) -> tuple[str, ...]:
    """Topic patterns for types and classes. A class without a type of its own stands for all its subclasses. Raises
    ValueError for an empty pattern, or one with characters that no type has."""
    found: list[str] = []
    for one in types:
        if isinstance(one, str):
            if not one or any(not (c.isalnum() or c in ".*#-_") for c in one):
                raise ValueError(f"event type {one[:80]!r}: want a type such as job.ended, or a pattern: job.*, #")
            found.append(one)
        elif one is Event:
            found.append("#")
        else:
            found += [kind.type for kind in _family(one) if kind.type]
    return tuple(dict.fromkeys(found)) or ("#",)


def _family(kind: type[Event]) -> list[type[Event]]:
    if kind.type:
        return [kind]
    return [one for sub in kind.__subclasses__() for one in _family(sub)]


def binding_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """What a consumer's queue is bound with, whose user may read some families of events only: each pattern that leaves
    the family open stands for all of those."""
    found: list[str] = []
    for pattern in patterns:
        first, _, rest = pattern.partition(".")
        if first not in ("*", "#"):
            found.append(pattern)
        else:
            # No event's type is longer than two words.
            found += [f"{family}.{rest or '#'}" for family in CONSUMER_READS]
    return tuple(dict.fromkeys(found))


def shell_patterns(patterns: Sequence[str]) -> list[str]:
    """What to ask the gateway for, which knows shell patterns: at least what the topic patterns take."""
    shell = [pattern.replace("#", "*") for pattern in patterns]
    # "job.#" takes "job" too, and "#.ended" takes "ended"; no event has one word, but a pattern may.
    return (
        []
        if "*" in shell
        else [s for p, s in zip(patterns, shell, strict=True)]
        + [p.replace(".#", "").replace("#.", "") for p in patterns if ".#" in p or "#." in p]
    )


@dataclass(frozen=True, slots=True)
class Filter:
    """Events must be of one of the types, and say what is asked for; what an event does not speak of, it does not have:
    with owner="alice" no slot event without an owner comes. Empty: anything.

    group: accounting group, with those below it: events whose submitter is of it. job: "12.3", or "12" for a cluster.
    where: any other condition; what it raises is the caller's.
    """

    patterns: tuple[str, ...] = ("#",)
    owner: str = ""
    group: str = ""
    job: str = ""
    schedd: str = ""
    where: Callable[[Received], bool] | None = None

    def takes(self, got: Received) -> bool:
        event = got.event
        if not any(matches(pattern, event.type) for pattern in self.patterns):
            return False
        if self.owner and not self._owned(event):
            return False
        if self.group and not in_group(_said(event, "submitter"), self.group):
            return False
        if self.job and not self._of_job(event):
            return False
        if self.schedd and _said(event, "schedd") != self.schedd:
            return False
        return self.where is None or bool(self.where(got))

    def job_constraint(self) -> str:
        """The ClassAd condition for jobs whose events this takes, as far as types and `where` do not decide."""
        cluster, _, proc = self.job.partition(".")
        parts = [
            f"Owner == {_quoted(self.owner)} || User == {_quoted(self.owner)}" if self.owner else "",
            f"ClusterId == {int(cluster)}" if cluster else "",
            f"ProcId == {int(proc)}" if proc else "",
            f'strcat(AcctGroup, ".") == {_quoted(group + ".")} || '
            f"substr(AcctGroup, 0, {len(group) + 1}) == {_quoted(group + '.')}"
            if (group := self.group.rstrip("."))
            else "",
        ]
        return " && ".join(f"({part})" for part in parts if part)

    def _owned(self, event: Event | UnknownEvent) -> bool:
        """By account name, or by [group.]user@domain where that was asked for."""
        names = {_said(event, "owner"), _said(event, "submitter")}
        if "@" in self.owner:
            return self.owner in names
        return any(f".{name.partition('@')[0]}".endswith(f".{self.owner}") for name in names)

    def _of_job(self, event: Event | UnknownEvent) -> bool:
        named = _said(event, "job_id") or _said(event, "cluster")
        cluster, _, proc = self.job.partition(".")
        return named.partition(".")[0] == cluster and (not proc or "." not in named or named == self.job)


def in_group(submitter: str, group: str) -> bool:
    """Whether a submitter ("physics.cms.alice@pool") is of this accounting group or one below it."""
    return submitter.partition("@")[0].lower().startswith(group.lower().rstrip(".") + ".")


def _said(event: Event | UnknownEvent, name: str) -> str:
    value = event.body.get(name) if isinstance(event, UnknownEvent) else getattr(event, name, None)
    return "" if value is None else str(value)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
