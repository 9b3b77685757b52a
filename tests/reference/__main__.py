"""`bin/fidelity`: made-up cases, answered by Roost and by the reference, and how many agree."""

from __future__ import annotations

import argparse
import json
import random
import secrets
import sys
from pathlib import Path
from typing import Final

from tests.reference.asked import Reference
from tests.reference.classads import CLASSADS
from tests.reference.configuration import CONFIGURATION
from tests.reference.event_logs import EVENT_LOGS
from tests.reference.family import REFUSED, Case, Facts, Family, Tally

FAMILIES: Final = {family.name: family for family in (CLASSADS, CONFIGURATION, EVENT_LOGS)}


def compare(family: Family, count: int, seed: int) -> Tally:
    """Make so many cases of this seed, and ask both sides."""
    tally = Tally()
    with Reference(family.name) as reference:
        for number in range(count):
            case = family.make(random.Random(f"{family.name} {seed} {number}"))
            take(tally, family, case, reference.ask(case))
    return tally


def take(tally: Tally, family: Family, case: Case, theirs: Facts | None) -> None:
    """One case's answers. The reference ends where it refuses a file: no answer is a refusal where ours refuses too."""
    ours = family.ours(case)
    if theirs is None and REFUSED in ours:
        tally.take(family, case, {REFUSED: True}, {REFUSED: True})
    elif theirs is None:
        tally.unanswered += 1
    else:
        tally.take(family, case, ours, theirs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bin/fidelity", description=__doc__)
    parser.add_argument("--family", choices=FAMILIES, nargs="+", default=list(FAMILIES))
    parser.add_argument("--count", type=int, default=1000, help="cases of each family")
    parser.add_argument("--seed", type=int, help="of the dice; none: another one in every run")
    parser.add_argument("--shown", type=int, default=1, help="examples of each cause")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--write", type=Path, help="append the cases that differ here, a JSON line each")
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}")
    figures, differ = {}, False
    for name in options.family:
        tally = compare(FAMILIES[name], options.count, seed)
        figures[name] = tally.counts()
        differ |= bool(tally.differences)
        _report(name, tally, options.shown)
        if options.write:
            with options.write.open("a") as file:
                for found in tally.differences.values():
                    file.write(
                        json.dumps({"family": name, "case": found[0].case, "question": found[0].question}) + "\n"
                    )
    if options.json:
        options.json.write_text(json.dumps({"seed": seed, "families": figures}, indent=1) + "\n")
    return 1 if differ else 0


def _report(name: str, tally: Tally, shown: int) -> None:
    counts = tally.counts()
    print(
        f"{name}: {counts['percent']} % of {tally.questions} answers agree; all of them in {tally.agreed_cases} of "
        f"{tally.cases} cases; in {tally.unanswered} more the reference gave none"
    )
    for why, times in sorted(tally.known.items()):
        print(f"  on purpose: {times} x {why}")
    for cause, found in sorted(tally.differences.items(), key=lambda pair: -len(pair[1])):
        print(f"  {len(found)} x {cause}")
        for one in found[:shown]:
            print(f"      {one.question}: {one.ours!r}, the reference: {one.theirs!r}\n      of {json.dumps(one.case)}")


if __name__ == "__main__":
    sys.exit(main())
