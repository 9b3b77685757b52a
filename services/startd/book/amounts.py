"""Amounts of resources: what a machine has, a slot holds, a job asks for.

Cpus (cores), Memory (MiB), Disk (KiB), and custom resources under the names the administrator gave them.
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
    """Amounts by resource name; what is not named is 0."""

    of: Mapping[str, Number] = field(default_factory=lambda: MappingProxyType({}))

    def __getitem__(self, name: str) -> Number:
        return self.of.get(name, 0)

    def __iter__(self) -> Iterator[str]:
        return iter(self.of)

    def __len__(self) -> int:
        return len(self.of)

    def plus(self, other: Amounts) -> Amounts:
        return Amounts({name: self[name] + other[name] for name in {**self.of, **other.of}})

    def minus(self, other: Amounts) -> Amounts:
        return Amounts({name: self[name] - other[name] for name in {**self.of, **other.of}})

    def least(self, other: Amounts) -> Amounts:
        """Of each resource of `other`, as much as both have."""
        return Amounts({name: min(self[name], amount) for name, amount in other.of.items()})

    def holds(self, other: Amounts) -> bool:
        """Whether `other` can be taken out of this."""
        return all(self[name] >= amount for name, amount in other.of.items())

    def lacking(self, other: Amounts) -> list[str]:
        """Names of the resources of which `other` wants more than there is."""
        return [name for name, amount in other.of.items() if self[name] < amount]
