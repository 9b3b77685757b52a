"""Amounts of resources: what a machine has, a slot holds, a job asks for.

Cpus (cores), Memory (MiB), Disk (KiB), and custom resources under the names the administrator gave them. A custom
resource may consist of devices that are told apart by ids (GPUs): then the amount is their number, and the ids go with
it wherever it goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

Number = int | float

CPUS, MEMORY, DISK = "Cpus", "Memory", "Disk"
STANDARD = (CPUS, MEMORY, DISK)


@dataclass(frozen=True, slots=True)
class Amounts(Mapping[str, Number]):
    """Amounts by resource name; what is not named is 0. ids: of the devices, of resources that have such."""

    of: Mapping[str, Number] = field(default_factory=lambda: MappingProxyType({}))
    ids: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def __getitem__(self, name: str) -> Number:
        return self.of.get(name, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self.of)

    def __contains__(self, name: object) -> bool:
        return name in self.of

    def __len__(self) -> int:
        return len(self.of)

    def plus(self, other: Amounts) -> Amounts:
        """Of one with ids and one without, the ids there are: who gives devices back gives those it took."""
        ids = dict(self.ids)
        for name, more in other.ids.items():
            mine = ids.get(name, ())
            ids[name] = (*mine, *(one for one in more if one not in mine))
        return Amounts({name: self[name] + other[name] for name in {**self.of, **other.of}}, ids)

    def minus(self, other: Amounts) -> Amounts:
        """Takes the ids of `other` away; of a number without ids the last ones, so that numbers and ids agree."""
        of = {name: self[name] - other[name] for name in {**self.of, **other.of}}
        ids = {}
        for name, mine in self.ids.items():
            gone = other.ids.get(name, ())
            left = tuple(one for one in mine if one not in gone)
            ids[name] = left[: max(0, int(of[name]))] if other[name] > len(gone) else left
        return Amounts(of, ids)

    def least(self, other: Amounts) -> Amounts:
        """Of each resource of `other`, as much as both have; of devices those that both have."""
        of = {name: min(self[name], amount) for name, amount in other.of.items()}
        ids = {
            name: tuple(one for one in theirs if one in self.ids.get(name, ())) for name, theirs in other.ids.items()
        }
        return Amounts(of | {name: len(both) for name, both in ids.items()}, ids)

    def holds(self, other: Amounts) -> bool:
        """Whether `other` can be taken out of this."""
        return not self.lacking(other)

    def lacking(self, other: Amounts) -> list[str]:
        """Names of the resources of which `other` wants more than there is, or devices that are not there."""
        return [
            name
            for name, amount in other.of.items()
            if self[name] < amount or (name in self.ids and not set(other.ids.get(name, ())) <= set(self.ids[name]))
        ]

    def without(self, name: str) -> Amounts:
        """The same amounts, and nothing of this resource named."""
        return Amounts({one: amount for one, amount in self.of.items() if one != name}, self.ids)

    def choose(self, name: str, ids: tuple[str, ...]) -> Amounts:
        """The same amounts, with these devices as what there is of one resource."""
        return Amounts({**self.of, name: len(ids)}, {**self.ids, name: ids})
