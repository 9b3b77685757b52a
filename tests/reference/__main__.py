"""`bin/fidelity`: made-up cases, answered by Roost and by the reference, and how many agree."""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import secrets
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from tests.reference.asked import Missing, Reference
from tests.reference.class_ad_api import CLASS_AD_API
from tests.reference.classads import CLASSADS
from tests.reference.configuration import CONFIGURATION
from tests.reference.dags import DAGS
from tests.reference.event_logs import EVENT_LOGS
from tests.reference.family import REFUSED, Asked, Case, Facts, Family, Tally
from tests.reference.layouts import LAYOUTS
from tests.reference.negotiation import NEGOTIATION
from tests.reference.queries import QUERIES
from tests.reference.slots import SLOTS
from tests.reference.states import STATES
from tests.reference.submit import SUBMIT
from tests.reference.user_logs import USER_LOGS
from tests.reference.userprio import USERPRIO

MADE: Final = (
    *(CLASSADS, CLASS_AD_API, CONFIGURATION, EVENT_LOGS, SUBMIT, QUERIES, LAYOUTS, USERPRIO, SLOTS, NEGOTIATION),
    *(STATES, USER_LOGS, DAGS),
)
FAMILIES: Final = {family.name: family for family in MADE}


def compare(family: Family, count: int, seed: int, *, recorded: bool = False) -> Tally:
    """Make so many cases of this seed, and ask both sides. recorded, or a family that makes none: the first `count` of
    those that were recorded. Raises Missing."""
    tally = Tally()
    if family.make is None or recorded:
        assert family.recorded is not None, family.name
        for case, theirs in itertools.islice(family.recorded(), count):
            take(tally, family, case, theirs)
        return tally
    with _reference(family) as reference:
        for number in range(count):
            case = family.make(random.Random(f"{family.name} {seed} {number}"))
            take(tally, family, case, reference.ask(case))
    return tally


def _reference(family: Family) -> AbstractContextManager[Asked]:
    return family.reference() if family.reference is not None else Reference(family.name)


def record(family: Family, count: int, seed: int) -> list[dict[str, Any]]:
    """Such cases with the reference's answers: what `replay` compares where it can not be asked. Left out is where it
    gave none."""
    assert family.make is not None, f"{family.name} is made of recorded cases"
    with _reference(family) as reference:
        cases = [family.make(random.Random(f"{family.name} {seed} {number}")) for number in range(count)]
        answers = [(case, reference.ask(case)) for case in cases]
    return [{"case": case, "theirs": theirs} for case, theirs in answers if theirs is not None]


def replay(family: Family, path: Path) -> Tally:
    """Our answers to recorded cases, beside the reference's of then."""
    tally = Tally()
    with gzip.open(path, "rt") as lines:
        for line in lines:
            one = json.loads(line)
            take(tally, family, one["case"], one["theirs"])
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
    parser.add_argument(
        "--record", type=Path, help="compare nothing: write the cases of one family and its answers here"
    )
    options = parser.parse_args()
    seed = secrets.randbits(32) if options.seed is None else options.seed
    print(f"seed {seed}")
    if options.record:
        rows = record(FAMILIES[options.family[0]], options.count, seed)
        packed = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), mtime=0)
        options.record.write_bytes(packed)
        print(f"{len(rows)} cases, {len(packed)} bytes")
        return 0
    figures, differ = {}, False
    for name in options.family:
        try:
            tally = compare(FAMILIES[name], options.count, seed)
        except Missing as missing:
            differ = True
            if FAMILIES[name].recorded is None:
                print(f"{name}: not compared. {missing}")
                continue
            print(f"{name}: {missing}\n{name}: nothing new is compared, only what was recorded")
            tally = compare(FAMILIES[name], options.count, seed, recorded=True)
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
    try:
        sys.exit(main())
    except Missing as missing:
        sys.exit(f"bin/fidelity: {missing}")
