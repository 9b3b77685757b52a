"""What `userprio` prints: made-up command lines over files of accounting ads, which are made up too: users and groups
with priorities, usage, quotas, floors and ceilings. A side's answers are the lines.

The reference is HTCondor's own tool, which asks for a negotiator even where it reads a file, so it has one of its own
(`pool`). Where it can not be had, what was recorded is replayed with the other `layouts`.
"""

from __future__ import annotations

import random
import shlex
from typing import Any, Final

from tests.reference import layouts
from tests.reference.daemons import Daemons
from tests.reference.family import REFUSED, Case, Facts, Family
from tests.reference.pool import Shell

_COLUMNS: Final = (
    *("-all", "-most", "-priority", "-usage", "-quotas", "-surplus", "-sortkey", "-order", "-groupid", "-prio"),
    *("-quota", ""),
)
_ORDERS: Final = ("", "", "-hierarchical", "-flat", "-grouporder", "-grouprollup")
_WHOLE: Final = ("-long", "-long -legacy", "-long -modular")
_EXPRESSIONS: Final = (
    *("Priority > 500", "IsAccountingGroup", "!IsAccountingGroup", 'regexp("alice", Name)', "ResourcesUsed > 0"),
    *("PriorityFactor == 1000", "undefined", "WeightedAccumulatedUsage > 3600"),
)
_ATTRIBUTES: Final = ("Name", "Priority", "PriorityFactor", "ResourcesUsed", "AccumulatedUsage", "Ceiling", "NoSuch")
_USERS: Final = (
    "alice@pool",
    "bob@pool",
    "carol@other.edu",
    "nobody@ref",
    "nice-user.dave@pool",
    "a.very.long.name@pool",
)
_GROUPS: Final = ("group_bio", "group_physics", "group_physics.hep", "group_physics.hep.higgs", "group_x", "chem")
#: When the ads of all cases were made.
_NOW: Final = 1_795_352_160


def make(rng: random.Random) -> Case:
    whole = rng.random() < 0.12
    words = shlex.split(rng.choice(_WHOLE)) if whole else []
    if rng.random() < 0.85:
        words.append("-allusers")
    else:
        words += ["-activefrom", *rng.choice(("1 1 2020", "11 20 2026", "1 1 2030")).split()]
    if not whole:
        if rng.random() < 0.15:
            letters = "".join(rng.sample("hlrVt,", rng.choice((0, 0, 1, 1, 2))))
            words += [f"-af{':' if letters else ''}{letters}", *rng.sample(_ATTRIBUTES, rng.randint(1, 4))]
        else:
            words += [word for word in rng.sample(_COLUMNS, rng.choice((1, 1, 2))) if word]
            words += [word for word in (rng.choice(_ORDERS),) if word]
    if rng.random() < 0.25:
        words += ["-constraint", rng.choice(_EXPRESSIONS)]
    return {"command": ["userprio", "-inputfile", layouts.MADE, *words], "made": _ads(rng)}


def _ads(rng: random.Random) -> str:
    """As `-long -legacy` writes them: one ad, the attributes of each user and group with its number."""
    groups = ["<none>", *_with_parents(rng.sample(_GROUPS, rng.choice((0, 0, 1, 2, 3, 4))))]
    users = []
    for user in rng.sample(_USERS, rng.randint(0, 5)):
        group = rng.choice(groups)
        users.append(user if group == "<none>" else f"{group}.{user}")
    entries = [_group(rng, name) for name in groups] + [_user(rng, name, groups) for name in users]
    lines = [f"LastUpdate = {_NOW}", f"NumSubmittors = {len(entries)}"]
    lines += [f"{name}{number} = {text}" for number, ad in enumerate(entries, 1) for name, text in ad.items()]
    return "\n".join(lines) + "\n"


def _with_parents(names: list[str]) -> list[str]:
    return sorted({name[: len(name) - cut] for name in names for cut in _cuts(name)})


def _cuts(name: str) -> list[int]:
    return [0, *(len(name) - at for at, letter in enumerate(name) if letter == ".")]


def _entry(rng: random.Random, name: str) -> dict[str, str]:
    used = rng.choice((0, 0, 1, 2, 17, 1234))
    usage = rng.choice((0.0, 42.0, 50.5, 3600.0, 360_000.0, 7.5e8))
    begin = rng.choice((0, 0, _NOW - 20, _NOW - 90_000, _NOW - 40_000_000))
    return {
        "Name": f'"{name}"',
        "ResourcesUsed": str(used),
        "WeightedResourcesUsed": str(used * rng.choice((1.0, 1.0, 2.5))),
        "AccumulatedUsage": str(usage),
        "WeightedAccumulatedUsage": str(usage * rng.choice((1.0, 2.0))),
        "BeginUsageTime": str(begin),
        "LastUsageTime": str(0 if not begin else rng.choice((_NOW, _NOW - 10, _NOW - 4000, _NOW - 500_000))),
    }


def _group(rng: random.Random, name: str) -> dict[str, str]:
    quota = rng.choice((0.0, 0.5, 1.0, 3.0, 12.25, 1000.0))
    return {
        **_entry(rng, name),
        "IsAccountingGroup": "true",
        "AccountingGroup": f'"{name.rpartition(".")[0] or "<none>"}"',
        "Priority": str(rng.choice((0.5, 500.408, 1e7))),
        "PriorityFactor": "0.0",
        "ConfigQuota": str(quota),
        "EffectiveQuota": str(quota * rng.choice((1.0, 1.5))),
        "SubtreeQuota": str(quota),
        "GroupSortKey": str(rng.choice((0.0, 0.6666666666666666, 1.25, 3.4e38))),
        "SurplusPolicy": f'"{rng.choice(("no", "regroup", "byquota"))}"',
        "Requested": str(float(rng.choice((0, 1, 7, 20_000)))),
        "HierWeightedResourcesUsed": str(float(rng.choice((0, 1, 2, 40)))),
    }


def _user(rng: random.Random, name: str, groups: list[str]) -> dict[str, str]:
    factor = rng.choice((1000.0, 1000.0, 1.0, 10.5, 1e10))
    real = rng.choice((0.5, 0.500408, 3.25, 187.94, 123_456.789))
    return {
        **_entry(rng, name),
        "IsAccountingGroup": "false",
        "AccountingGroup": f'"{max((g for g in groups if name.startswith(g + ".")), key=len, default="<none>")}"',
        "Priority": str(real * factor),
        "PriorityFactor": str(factor),
        "Floor": str(rng.choice((0, 0, 3, 12))),
        "Ceiling": str(rng.choice((-1, -1, 0, 7, 100_000))),
        "SubmitterShare": "0.25",
        "SubmitterLimit": str(rng.choice((0.0, 1.999743692660797))),
    }


class UserprioReference:
    """The reference's tool, in a pool with a negotiator."""

    def __init__(self) -> None:
        self._daemons = Daemons(alone=False)
        self._shell = Shell(self._daemons, ["NEGOTIATOR_INTERVAL = 3600"])

    def __enter__(self) -> UserprioReference:
        self._daemons.__enter__()
        self._shell.__enter__()
        self._shell.start("collector", "negotiator")
        self._shell.until("condor_status -negotiator -af Name | grep -q .")
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.__exit__()
        self._daemons.__exit__()

    def ask(self, case: Case) -> Facts | None:
        _, *words = case["command"]
        self._shell.write(layouts.MADE, case["made"])
        said = self._shell.run(f'cd /pool && condor_userprio {shlex.join(words)} 2>/dev/null; echo "status $?"')
        text, _, status = said.rstrip("\n").rpartition("status ")
        return layouts.lines(text) if status == "0" else {REFUSED: status}


def _cause(question: str, mine: Any, theirs: Any) -> str:
    return question if question == REFUSED else "a line"


def ours(case: Case) -> Facts:
    return layouts.ours(case)


USERPRIO: Final = Family("userprio", make, ours, cause=_cause, reference=UserprioReference)
