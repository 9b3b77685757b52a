"""Slots of a machine: made-up configurations of types, shares, custom resources with and without names, and inventory
programs. A side's answers are the attributes of each slot's ad that tell of resources, or that it refuses.

The reference is a startd of its own (`daemons`); where it can not be had, what was recorded of one is replayed.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from shared.classad import ClassAd, ParseError, parse_expr
from shared.errors import RoostError
from tests.reference.daemons import Daemons
from tests.reference.family import REFUSED, Case, Facts, Family
from tests.unit.startd import test_reference_slots as recorded

CUSTOM: Final = ("Cogs", "actuator", "Licences", "my_tape", "FPGA")
_ASKED: Final = frozenset(
    [
        *(
            "Cpus",
            "Disk",
            "MachineResources",
            "Memory",
            "Name",
            "PartitionableSlot",
            "SlotID",
            "SlotType",
            "SlotTypeID",
        ),
        # Not TotalSlotDisk: a startd that has just begun says 0.
        *("TotalDisk", "TotalSlotCpus", "TotalSlotMemory", "TotalSlots"),
    ]
)
_WORDS: Final = {
    "cpus": ("cpus", "Cpus", "c", "cpu", "CPUS"),
    "memory": ("memory", "mem", "ram", "RAM", "m", "Memory"),
    "disk": ("disk", "d", "Disk", "dis"),
    "swap": ("swap", "v", "virtualmemory", "s"),
}


def make(rng: random.Random) -> Case:
    cpus = rng.choice((1, 2, 4, 7, 8, 12, 16, 24, 32, 48, 64, 128))
    memory = rng.choice((512, 1000, 4095, 8000, 8192, 16000, 16384, 64000, 257000, 1031000))
    config = [f"NUM_CPUS = {cpus}", f"MEMORY = {memory}"]
    outputs: dict[str, str] = {}
    names = rng.sample(CUSTOM, rng.choice((0, 0, 0, 1, 1, 2)))
    for name in names:
        config.append(_resource(rng, name, outputs))
    if names and rng.random() < 0.1:
        config.append(f"MACHINE_RESOURCE_NAMES = {', '.join(rng.sample(names, rng.randint(0, len(names))))}")
    if rng.random() < 0.15:
        config.append(
            rng.choice(
                (
                    f"NUM_SLOTS = {rng.choice((1, 2, 3, 5))}",
                    "use FEATURE : StaticSlots",
                    "use FEATURE : PartitionableSlot",
                )
            )
        )
    else:
        for number in range(1, rng.choice((1, 1, 2, 2, 3, 4)) + 1):
            config += _type(rng, number, names, cpus)
    if rng.random() < 0.15:
        config += ["STARTD_ATTRS = Colour", 'Colour = "red"', *_coloured(rng)]
    return {"config": config, "outputs": outputs}


def _resource(rng: random.Random, name: str, outputs: dict[str, str]) -> str:
    kind = rng.random()
    ids = [f"{name[:2].lower()}{number}" for number in range(rng.randint(1, 6))]
    if kind < 0.45:
        return f"MACHINE_RESOURCE_{name} = {rng.choice((0, 1, 2, 3, 5, 8, 16, 2.5, 100))}"
    if kind < 0.8:
        return f"MACHINE_RESOURCE_{name} = {rng.choice((', ', ',', ' ')).join(ids)}"
    lines = [f'Detected{name}="{", ".join(ids)}"']
    if rng.random() < 0.4:
        lines.append(f'Offline{name}="{rng.choice(ids)}"')
    outputs[name] = "\n".join(lines) + "\n"
    return f"MACHINE_RESOURCE_INVENTORY_{name} = $(LOCAL_DIR)/{name}"


def _type(rng: random.Random, number: int, names: list[str], cpus: int) -> list[str]:
    entries = [
        f"{rng.choice(_WORDS[what])}{rng.choice(('=', '='))}{_amount(rng, what)}"
        for what in _WORDS
        if rng.random() < 0.4
    ]
    entries += [f"{name}={_amount(rng, 'custom')}" for name in names if rng.random() < 0.5]
    if rng.random() < 0.4:
        entries.append(rng.choice(("auto", "10%", "25%", "1/4", "1/3", "50%", "100%", "33.3%")))
    rng.shuffle(entries)
    if rng.random() < 0.35:
        lines = [f"SLOT_TYPE_{number} @=t", *(f"  {one}" for one in entries), "@t"]
    else:
        lines = [f"SLOT_TYPE_{number} = {rng.choice((', ', ',', ' , ')).join(entries)}"]
    lines.append(f"NUM_SLOTS_TYPE_{number} = {rng.choice((1, 1, 1, 2, 2, 3, 4, 0))}")
    if rng.random() < 0.6:
        lines.append(f"SLOT_TYPE_{number}_PARTITIONABLE = {rng.choice(('true', 'True', 'false', 'TRUE'))}")
    return lines


def _amount(rng: random.Random, what: str) -> str:
    kind = rng.random()
    if kind < 0.25:
        return "auto"
    if kind < 0.45:
        return f"{rng.choice((1, 5, 10, 20, 25, 33, 50, 62.5))}%"
    if kind < 0.65:
        return f"{rng.randint(1, 3)}/{rng.randint(3, 16)}"
    if what in ("disk", "swap"):
        return f"{rng.choice((10, 25, 30))}%"
    return str(rng.choice({"cpus": (1, 1, 2, 3, 4), "memory": (64, 512, 609, 2048), "custom": (0, 1, 2, 3)}[what]))


def _coloured(rng: random.Random) -> list[str]:
    return rng.choice(
        (
            [],
            ['SLOT1_Colour = "blue"'],
            ['SLOT_TYPE_1_Colour = "green"'],
            ["SLOT_TYPE_1_STARTD_ATTRS = Size", "Size = 3"],
        )
    )


# Answers


def asks(ad: ClassAd) -> list[str]:
    """The attributes of a slot's ad that are compared."""
    resources = (ad.eval_string("MachineResources") or "").split()
    custom = [name for name in resources if name not in ("Cpus", "Memory", "Disk", "Swap", "GPUs")]
    around = {
        f"{before}{name}".lower()
        for name in custom
        for before in ("", "Detected", "Offline", "Total", "TotalSlot", "Assigned", "Available")
    }
    own = tuple(f"{name}_".lower() for name in custom)
    more = {"colour", "size"} | around | {name.lower() for name in _ASKED}
    return [name for name in ad if name.lower() in more or name.lower().startswith(own or "\0")]


def facts(ads: list[ClassAd]) -> Facts:
    found: Facts = {"slots": len(ads)}
    for number, ad in enumerate(ads):
        for name in asks(ad):
            value = recorded.plain(ad, name)
            if name.lower() == "machineresources" and isinstance(value, str):
                value = value.replace(" GPUs", "")  # that version always has it
            found[f"{number} {name.lower()}"] = value
    return found


def ours(case: Case) -> Facts:
    with tempfile.TemporaryDirectory() as place:
        try:
            ads = recorded.ads_of(case, recorded.read(case, Path(place)))
        except RoostError as error:
            return {REFUSED: str(error)}
    return facts(ads)


class SlotReference:
    """A startd of the reference for each case."""

    def __init__(self) -> None:
        self._daemons = Daemons()

    def __enter__(self) -> SlotReference:
        self._daemons.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._daemons.__exit__()

    def ask(self, case: Case) -> Facts | None:
        said = self._daemons.slots(case["config"], case["outputs"])
        if said is None:
            return None
        if isinstance(said, str):
            return {REFUSED: said}
        return facts([_parsed(ad) for ad in said])


def _parsed(ad: dict[str, str]) -> ClassAd:
    found = ClassAd()
    for name, text in ad.items():
        try:
            found[name] = parse_expr(text, "old")
        except ParseError:
            continue  # a line of the log that is none of the ad's
    return found


def _recorded() -> Iterator[tuple[Case, Facts]]:
    for case in recorded.CASES:
        if "slots" not in case:
            yield case, {REFUSED: case["error"]}
        else:
            yield case, facts([_parsed(ad) for ad in case["slots"]])


_WHOLE: Final = re.compile(r"(NUM_SLOTS|NUM_CPUS)\s*=\s*(\d+)$")


def _meant(case: Case, question: str, mine: Any, theirs: Any) -> str:
    if question.endswith(" partitionableslot") and mine is False and theirs is None:
        return "a static slot says that it is not partitionable; there it says nothing"
    if question == REFUSED and mine is None and _slots_beyond_cores(case["config"]):
        return recorded.REASONS["NUM_SLOTS"]
    return recorded.REASONS.get(case.get("differs", ""), "")


def _slots_beyond_cores(config: list[str]) -> bool:
    said = {name: int(number) for line in config if (found := _WHOLE.match(line)) for name, number in [found.groups()]}
    return "NUM_SLOTS" in said and said["NUM_SLOTS"] > said.get("NUM_CPUS", sys.maxsize)


def _cause(question: str, mine: Any, theirs: Any) -> str:
    return question.partition(" ")[2] or question


SLOTS: Final = Family("slots", make, ours, _meant, _cause, recorded=_recorded, reference=SlotReference)
