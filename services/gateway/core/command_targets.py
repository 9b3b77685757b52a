"""Finds the daemons that an administrator's command means: from names, subsystems and ads to inboxes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from shared.classad import ClassAd

#: Subsystem -> MyType of the ads by which its daemons are found.
MY_TYPES: Final = {
    "STARTD": "Machine",
    "SCHEDD": "Scheduler",
    "NEGOTIATOR": "Negotiator",
    "HAD": "HAD",
    "COLLECTOR": "Collector",
    "JOURNAL": "Journal",
    "GANGLIAD": "Gangliad",
    "ADSTASH": "Adstash",
    "DEFRAG": "Defrag",
    "ROOSTER": "Rooster",
    "REGISTRAR": "Registrar",
}
#: MyType of the ad of whoever minds the place of a daemon that is off.
OFF: Final = "DaemonMaster"
#: Attributes that ads are read for.
PROJECTION: Final = ("MyType", "Name", "Machine", "MyAddress", "DaemonName", "Subsystem")
#: In this order daemons are ended: who places jobs before who looks after them, and the collector, which knows where
#: everybody is, before the gateway only. They are begun the other way round.
END_ORDER: Final = (
    "STARTD",
    "SCHEDD",
    "DEFRAG",
    "ROOSTER",
    "HAD",
    "NEGOTIATOR",
    "COLLECTOR",
    "JOURNAL",
    "GANGLIAD",
    "ADSTASH",
    "REGISTRAR",
    "GATEWAY",
)


@dataclass(slots=True)
class CommandTarget:
    """A daemon. inbox: where it takes orders. slots: those that were named, of a startd; none: all of it."""

    subsystem: str
    name: str
    inbox: str
    aliases: set[str] = field(default_factory=set)  # other words for it: its machine, the name in its ad
    slots: list[str] = field(default_factory=list)
    off: bool = False

    def answers_to(self, word: str) -> bool:
        """Whether a person who types this may mean it: its name, its machine, or the host in its name."""
        plain = word.casefold()
        names = {self.name, self.name.rpartition("@")[2], *self.aliases}
        return plain in {name.casefold() for name in names}


def read(ads: Iterable[ClassAd]) -> list[CommandTarget]:
    """The daemons that ads tell of, with their slots, by name. An ad that leads elsewhere than to a daemon of its kind
    is passed over."""
    found: dict[str, CommandTarget] = {}
    for ad in ads:
        my_type, name, inbox = (ad.plain_string(attribute) for attribute in ("MyType", "Name", "MyAddress"))
        if my_type == OFF:
            subsystem, daemon = ad.plain_string("Subsystem").upper(), ad.plain_string("DaemonName")
            begins = f"{subsystem.lower()}.off."
        else:
            subsystem = next((s for s, kind in MY_TYPES.items() if kind == my_type), "")
            begins = f"{subsystem.lower()}."
            daemon = inbox.removeprefix(begins)
        if subsystem not in MY_TYPES or not daemon or not inbox.startswith(begins):
            continue
        target = found.setdefault(inbox, CommandTarget(subsystem, daemon, inbox, off=my_type == OFF))
        if machine := ad.plain_string("Machine"):
            target.aliases.add(machine)
        if subsystem == "STARTD" and name:
            target.slots.append(name)
        elif name:
            target.aliases.add(name)
    return sorted(found.values(), key=lambda target: (target.name, END_ORDER.index(target.subsystem)))


def choose(
    known: Sequence[CommandTarget],
    *,
    subsystems: Sequence[str] = (),
    names: Sequence[str] = (),
    everybody: bool = False,
) -> tuple[list[CommandTarget], list[str]]:
    """Those that are meant, and the names that fit nobody. subsystems: only these; none: all. A name of a slot means
    its startd, and of its slots that one; with `everybody` and no names all slots of all."""
    there = [target for target in known if not subsystems or target.subsystem in subsystems]
    if everybody and not names:
        return [_whole(target) for target in there], []
    chosen: dict[str, CommandTarget] = {}
    missing = []
    for word in names:
        fit = [(target, _slots(target, word)) for target in there]
        fit = [(target, slots) for target, slots in fit if slots or target.answers_to(word)]
        if not fit:
            missing.append(word)
        for target, slots in fit:
            before = chosen.get(target.inbox)
            one = _whole(target)
            if not target.answers_to(word) and (before is None or before.slots):
                one.slots = list(dict.fromkeys([*(before.slots if before is not None else ()), *slots]))
            chosen[target.inbox] = one
    return list(chosen.values()), missing


def of_slots(known: Sequence[CommandTarget], slots: Iterable[str]) -> list[CommandTarget]:
    """The startds of these slots, each with those of them that are its own."""
    wanted = set(slots)
    found = []
    for target in known:
        own = [slot for slot in target.slots if slot in wanted]
        if own:
            one = _whole(target)
            one.slots = own
            found.append(one)
    return found


def addressed(subsystems: Sequence[str], names: Sequence[str]) -> list[CommandTarget]:
    """Where daemons of these names would be, both those that are on and those that are off: for while nobody knows who
    there is."""
    return [
        CommandTarget(subsystem, name, f"{subsystem.lower()}.{between}{name}", off=bool(between))
        for subsystem in (subsystems or MY_TYPES)
        if subsystem in MY_TYPES
        for name in names
        for between in ("", "off.")
        if not (between and subsystem == "STARTD")
    ]


def in_turns(targets: Iterable[CommandTarget], *, begin: bool) -> list[list[CommandTarget]]:
    """In which order they are told: kind after kind."""
    turns: dict[str, list[CommandTarget]] = {}
    for target in targets:
        turns.setdefault(target.subsystem, []).append(target)
    order = sorted(turns, key=END_ORDER.index, reverse=begin)
    return [turns[subsystem] for subsystem in order]


def _whole(target: CommandTarget) -> CommandTarget:
    return CommandTarget(target.subsystem, target.name, target.inbox, set(target.aliases), [], target.off)


def _slots(target: CommandTarget, word: str) -> list[str]:
    """Its slots of that name."""
    plain = word.casefold()
    return [slot for slot in target.slots if slot.casefold() == plain]
