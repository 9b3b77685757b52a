"""All machines of a pool in columns, for a picture of them: state, cpus in use, load and age of each. No I/O."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shared.natural_sort import natural_key

#: Of every slot, in this order.
FIELDS: Final = (
    *("Machine", "State", "Cpus", "PartitionableSlot", "LoadAvg"),
    *("LastHeardFrom", "DaemonStartTime", "Offline", "Draining"),
)
#: What a machine is, the first that fits.
STATES: Final = ("Asleep", "Draining", "Claimed", "Owner", "Unclaimed")
#: States of slots whose cpus somebody uses.
USED: Final = ("Claimed", "Preempting", "Backfill")
#: Machines that are told of; a name has no more characters.
MOST: Final = 20_000
MOST_NAME: Final = 255
#: Slots that are looked at in one turn of the loop: a page has 10,000, which take 20 to 50 ms.
STEP: Final = 500


@dataclass(slots=True)
class _Machine:
    cpus: float = 0.0
    used: float = 0.0
    load: float = 0.0
    heard: float = 0.0
    began: float = 0.0
    asleep: bool = False
    draining: bool = False
    others: bool = False  # a slot is neither its owner's nor empty of cpus

    @property
    def state(self) -> str:
        if self.asleep:
            return "Asleep"
        if self.draining:
            return "Draining"
        if self.used > 0:
            return "Claimed"
        return "Unclaimed" if self.others else "Owner"


class MachineMap:
    """Put together from slots, some at a time."""

    def __init__(self) -> None:
        self._machines: dict[str, _Machine] = {}
        self._left_out: set[str] = set()

    def add(self, rows: Iterable[Sequence[Any]]) -> Generator[None, None, None]:
        """rows: what slots have under FIELDS, None where they have nothing that is plain. Some of them in each step."""
        for number, (name, state, cpus, partitionable, load, heard, began, offline, draining) in enumerate(rows):
            if number % STEP == 0:
                yield
            if not isinstance(name, str) or not name or len(name) > MOST_NAME:
                continue
            machine = self._machines.get(name)
            if machine is None:
                if len(self._machines) >= MOST:
                    self._left_out.add(name)
                    continue
                machine = self._machines[name] = _Machine()
            each = _number(cpus)
            machine.cpus += each
            machine.load += _number(load)
            machine.heard = max(machine.heard, _number(heard))
            machine.began = max(machine.began, _number(began))
            machine.asleep |= offline is True
            machine.draining |= draining is True
            if state in USED:
                machine.used += each
            if state != "Owner" and (each > 0 or partitionable is not True):
                machine.others = True

    def told(self, at: float) -> bytes:
        """As JSON: {at, left_out, states, machine, state, cpus, used, load, heard, began}. The last seven are lists
        with a place for each machine, by name; a state is its number in `states`. left_out: machines beyond MOST."""
        names = sorted(self._machines, key=natural_key)
        found = [self._machines[name] for name in names]
        return json.dumps(
            {
                "at": at,
                "left_out": len(self._left_out),
                "states": STATES,
                "machine": names,
                "state": [STATES.index(one.state) for one in found],
                "cpus": [round(one.cpus, 2) for one in found],
                "used": [round(one.used, 2) for one in found],
                "load": [round(one.load, 2) for one in found],
                "heard": [int(one.heard) for one in found],
                "began": [int(one.began) for one in found],
            },
            separators=(",", ":"),
        ).encode()


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0.0
    return float(value) if math.isfinite(value) and 0 <= value < 1e12 else 0.0
