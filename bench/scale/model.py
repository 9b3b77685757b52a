"""What a pool of any size takes, by what was measured: `python -m bench.scale.model FILE [FILE...]`.

FILE: as `python -m bench.scale --json` writes it. Each role is taken to use so much processor time a second in any
case, so much a second for each machine, whose ads are refreshed at the interval of the measurement, and so much for
each job that begins and ends under a claim of its own. That this is so is checked by what is told first: what a unit
took in pools of each size that was measured. The figures of the largest pool are the model's.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.scale.pool import STAND_INS, Row

DAY_S: Final = 86_400
#: What is asked of a role at its busiest, to what is asked on average over a day.
PEAK: Final = 3.0
#: (machines, slots of each, jobs a day)
SIZES: Final = ((1_000, 10, 100_000), (2_000, 50, 1_000_000), (15_625, 64, 10_000_000))
#: What a job does, and a machine.
JOB, UPKEEP, JOIN, RETURN = ("begin", "end"), "upkeep", "join", "return"
BROKER: Final = "rabbitmq-server"
#: What is told of the broker: name, unit, and how many are one of these.
RATES: Final = (
    ("published", "messages/s in", 1.0),
    ("delivered", "messages/s out", 1.0),
    ("bytes in", "MB/s in", 1e6),
    ("bytes out", "MB/s out", 1e6),
)


class Model:
    """slots: of each machine that was measured; rows: in order of growing pools."""

    def __init__(self, rows: Sequence[Row], slots: int) -> None:
        self.rows, self.slots = rows, slots
        self.roles = [role for role in rows[0].by_role if role != STAND_INS]

    def _last(self, kind: str) -> Row | None:
        found = [row for row in self.rows if row.kind == kind]
        return found[-1] if found else None

    def ms(self, kind: str, role: str) -> float:
        row = self._last(kind)
        return max(0.0, row.by_role.get(role, 0.0)) if row else 0.0

    def messages(self, kind: str, name: str) -> float:
        row = self._last(kind)
        return max(0.0, row.messages[name]) if row else 0.0

    def alike(self, role: str, machines: int, slots: int) -> float:
        """How many machines of the size that was measured these are like. The broker's work is a connection's, the
        others' grows with the slots at the most."""
        return machines if role == BROKER else machines * slots / self.slots

    def processors(self, role: str, machines: int, slots: int, jobs_a_s: float) -> float:
        """How many a role keeps busy."""
        job = sum(self.ms(kind, role) for kind in JOB)
        return (
            self.ms("empty", role) + self.ms(UPKEEP, role) * self.alike(role, machines, slots) + job * jobs_a_s
        ) / 1e3

    def rate(self, name: str, machines: int, slots: int, jobs_a_s: float) -> float:
        """Messages, or bytes, of the broker a second."""
        job = sum(self.messages(kind, name) for kind in JOB)
        return self.messages(UPKEEP, name) * machines + job * jobs_a_s

    def memory_mib(self, role: str, machines: int, slots: int) -> float:
        """Of one process of a role: a line through the smallest pool that was measured and the largest."""
        found = [row for row in self.rows if row.kind == "memory"]
        few, many = found[0], found[-1]
        if few is many:
            return few.by_role[role]
        a_slot = (many.by_role[role] - few.by_role[role]) / ((many.machines - few.machines) * self.slots)
        return few.by_role[role] + max(0.0, a_slot) * (machines * slots - few.machines * self.slots)

    def measured(self) -> Iterator[str]:
        yield f"| ms of processor time | machines | load | {' | '.join(self.roles)} | messages in, out |"
        yield "|---|---|---|" + "---|" * (len(self.roles) + 1)
        for row in self.rows:
            if row.kind == "memory":
                continue
            cells = [f"{row.by_role.get(role, 0.0):.3g}" for role in self.roles]
            told = f"{row.messages['published']:.2g}, {row.messages['delivered']:.2g}"
            yield f"| a {row.unit}: {row.what} | {row.machines} | {row.load:.0f} | {' | '.join(cells)} | {told} |"
        yield ""
        yield f"| MiB resident | {' | '.join(self.roles)} |"
        yield "|---|" + "---|" * len(self.roles)
        for row in self.rows:
            if row.kind == "memory":
                cells = [f"{row.by_role[role]:.0f}" for role in self.roles]
                yield f"| {row.machines} machines, {row.machines * self.slots} slots | {' | '.join(cells)} |"

    def on_paper(self) -> Iterator[str]:
        names = [f"{machines * slots:,} slots, {jobs:,} jobs a day" for machines, slots, jobs in SIZES]
        yield f"| processors busy: on average; at {PEAK:g} times the jobs; MiB | {' | '.join(names)} |"
        yield "|---|" + "---|" * len(SIZES)
        for role in self.roles:
            cells = []
            for machines, slots, jobs in SIZES:
                mean, peak = (self.processors(role, machines, slots, jobs / DAY_S * more) for more in (1.0, PEAK))
                cells.append(f"{mean:.2f}; {peak:.2f}; {self.memory_mib(role, machines, slots):,.0f}")
            yield f"| {role} | {' | '.join(cells)} |"
        for name, unit, per in RATES:
            cells = []
            for machines, slots, jobs in SIZES:
                mean, peak = (self.rate(name, machines, slots, jobs / DAY_S * more) / per for more in (1.0, PEAK))
                cells.append(f"{mean:,.1f}; {peak:,.1f}")
            yield f"| broker: {unit} | {' | '.join(cells)} |"
        for kind, title in ((JOIN, "all machines join"), (RETURN, "all return to a broker that was killed")):
            role = max(self.roles, key=lambda each: self.ms(kind, each))
            cells = [
                f"{self.ms(kind, role) * self.alike(role, machines, slots) / 1e3:,.0f} s of {role}"
                for machines, slots, _ in SIZES
            ]
            yield f"| {title}, at least | {' | '.join(cells)} |"


def main() -> None:
    told = [json.loads(Path(name).read_text()) for name in sys.argv[1:]]
    rows = [Row(**row) for one in told for row in one["rows"]]
    model = Model(sorted(rows, key=lambda row: row.machines), told[0]["slots"])
    print(*model.measured(), "", *model.on_paper(), sep="\n")


if __name__ == "__main__":
    main()
