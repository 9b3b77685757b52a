"""Queries: a constraint and a projection over ads of slots, jobs and daemons, as the collector answers them."""

from __future__ import annotations

import random
import re
import time
from typing import Any

from services.collector.core.queries import BadQuery, fitting, read
from shared.classad import ClassAd, unparse
from shared.classad.old import parse_old_ad
from tests.reference.family import REFUSED, Case, Facts, Family

NUMBERS = (
    "Cpus",
    "Memory",
    "Disk",
    "TotalLoadAvg",
    "JobStatus",
    "ClusterId",
    "ProcId",
    "QDate",
    "RequestMemory",
    "JobPrio",
)
TEXTS = ("Name", "Machine", "State", "Activity", "Owner", "OpSys", "Arch", "AccountingGroup", "Cmd", "GPUs_Names")
EXPRESSIONS = ("Start", "Requirements", "Rank", "RequestCpus", "Weight", "Sum")
NAMES = NUMBERS + TEXTS + EXPRESSIONS
WORDS = (
    '"slot1@a.example"',
    '"Unclaimed"',
    '"claimed"',
    '"Idle"',
    '"alice"',
    '"LINUX"',
    '"X86_64"',
    '"group_a.bob"',
    '""',
    '"a, b"',
)
FORMULAS = (
    *(
        "Memory > 1000",
        "Cpus * 2",
        "TARGET.Owner == Owner",
        "ifThenElse(Cpus > 1, Memory, Disk)",
        "Sum + 1",
        "MY.Cpus",
        "x",
    ),
    *(
        'State == "Claimed" && Start',
        "strcat(Name, Machine)",
        "{Cpus, Memory}",
        "[Inner = Cpus; Other = Inner]",
        "Weight",
    ),
    *("undefined", "error", "Memory / Cpus", "size(Owner) > 3", 'regexp("a", Machine)', "Rank ?: 5", "time() - QDate"),
)
COMPARED = ("==", "!=", "<", "<=", ">", ">=", "=?=", "=!=")


def _ad(rng: random.Random) -> str:
    lines = []
    for name in rng.sample(NAMES, rng.randint(2, 14)):
        if name in NUMBERS:
            value = str(rng.choice((0, 1, 2, 4, 1024, 4096, -1, 1.5, 1e9, 1790000000)))
        else:
            value = rng.choice(WORDS if name in TEXTS else FORMULAS)
        if rng.random() < 0.05:
            value = rng.choice(("undefined", "true", '"7"', "error", "{1, 2}"))
        spelt = rng.choice((name, name, name, name.upper(), name.lower()))
        lines.append(f"{spelt} = {value}")
    return "\n".join(lines) + "\n"


def _term(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth and kind < 0.4:
        left, right = _term(rng, depth - 1), _term(rng, depth - 1)
        return f"({left}) {rng.choice(('&&', '||'))} ({right})"
    if depth and kind < 0.5:
        return f"!({_term(rng, depth - 1)})"
    name = rng.choice(NAMES)
    scoped = rng.choice(("", "", "", "", "MY.", "TARGET.")) + rng.choice((name, name, name.lower()))
    if kind < 0.8:
        value = (
            rng.choice(WORDS)
            if name in TEXTS
            else rng.choice(("0", "1", "2", "1024", "1.5", "undefined", "Cpus", "true"))
        )
        return f"{scoped} {rng.choice(COMPARED)} {value}"
    made = (
        f'regexp("^[a-s]", {scoped}, "i")',
        f'stringListMember({scoped}, "alice,Idle,LINUX")',
        f"isUndefined({scoped})",
        f"{scoped}",
        f'member({scoped}, {{1, 2, "alice"}})',
        f"time() - {scoped} < 1000",
        f'strcmp({scoped}, "b") < 0',
        f"ifThenElse({scoped} > 1, true, {scoped})",
        f"({scoped} ?: 0) > 1",
        f"size({scoped}) > 4",
        f'substr({scoped}, 0, 2) == "sl"',
    )
    return rng.choice(made)


def _make(rng: random.Random) -> Case:
    constraint = _term(rng, rng.choice((0, 1, 2, 3)))
    if rng.random() < 0.05:
        constraint = rng.choice(
            ("true", "", "1", "0.0", "3 >", "Name ==", '"true"', "undefined", "Cpus = 1", "a b", "2.5")
        )
    projection = rng.sample(NAMES, rng.randint(1, 4)) if rng.random() < 0.7 else []
    return {"ads": [_ad(rng) for _ in range(4)], "constraint": constraint, "projection": projection}


def _ours(case: Case) -> Facts:
    try:
        query = read((), case["constraint"], case["projection"], 0, "", absent=False)
    except BadQuery as error:
        return {REFUSED: str(error)}
    found: Facts = {}
    for number, text in enumerate(case["ads"]):
        packed = fitting(query, parse_old_ad(text).pack(), time.time())
        found[f"{number} fits"] = packed is not None
        if packed is not None:
            ad = ClassAd.unpack(packed)
            found |= {f"{number} {name}": unparse(expr, syntax="old") for name, expr in ad.exprs()}
    return found


def _cause(question: str, mine: Any, theirs: Any) -> str:
    asked = re.sub(r"^\d+ ", "", question)
    return asked if asked == "fits" else "left out" if mine is None else "not left out" if theirs is None else "text"


QUERIES = Family("queries", _make, _ours, cause=_cause)
