"""What is sent, what came of it, and how both are written down.

A case is a small JSON object that says all there is to say of one input, so that it can be sent again, to any pool.
Bytes are text of Latin-1 in it, one character a byte.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

Case = dict[str, Any]

FAMILIES: Final = ("http", "bus", "messages", "submit", "configuration", "ads", "expressions")
#: Kinds of what may be wrong.
CRASH, SILENCE, RIGHTS = "crash", "silence", "rights"
#: Processor seconds for which one piece of work may keep a loop.
SILENCE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that must not be. story: for people."""

    kind: str
    family: str
    story: str
    cases: tuple[Case, ...] = ()


@dataclass(slots=True)
class Tally:
    """What came of the inputs of one family. outcomes: how often each answer came, so that a run that reaches nothing
    is seen."""

    sent: int = 0
    seconds: float = 0.0
    longest_s: float = 0.0  # of processor time for one input, where it is measured for each
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.sent += other.sent
        self.seconds += other.seconds
        self.longest_s = max(self.longest_s, other.longest_s)
        self.outcomes.update(other.outcomes)
        self.faults += other.faults

    def count(self, kind: str) -> int:
        return sum(fault.kind == kind for fault in self.faults)


def dice_of(seed: int, family: str, number: int) -> random.Random:
    """The dice of one input: the same for a seed, whatever else is sent."""
    return random.Random(f"{seed}/{family}/{number}")


def text(data: bytes) -> str:
    return data.decode("latin-1")


def data_of(written: str) -> bytes:
    return written.encode("latin-1")


def write(directory: Path, seed: int, faults: Iterable[Fault]) -> None:
    """A file for each fault: its story, then its inputs as JSON lines, which the corpus takes as they are."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, fault in enumerate(faults, len(list(directory.iterdir())) + 1):
        lines = [json.dumps({"story": fault.story, "kind": fault.kind, "family": fault.family, "seed": seed})]
        lines += [json.dumps(case) for case in fault.cases]
        (directory / f"{fault.family}-{fault.kind}-{number}.jsonl").write_text("\n".join(lines) + "\n")


def read(file: Path) -> Iterator[tuple[Mapping[str, Any], list[Case]]]:
    """The entries of a corpus: a story and the inputs that follow it."""
    story: Mapping[str, Any] | None = None
    cases: list[Case] = []
    for line in file.read_text().splitlines():
        found = json.loads(line)
        if "story" not in found:
            cases.append(found)
            continue
        if story is not None:
            yield story, cases
        story, cases = found, []
    if story is not None:
        yield story, cases
