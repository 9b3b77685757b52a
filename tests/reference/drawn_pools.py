"""Pools drawn from dice for the family `negotiation`, in the form that tests/data/reference_pools/README.md tells, as
far as it is known before a negotiator has seen them: configuration, slots, jobs, submitters.

Not drawn is what the manual and the reference are known to differ in (docs/negotiation.md), and what nothing decides:
no two submitters of a pool have one effective priority, and no two slots one rank.
"""

from __future__ import annotations

import random
from typing import Any, Final

from tests.reference.family import Case

USERS: Final = ("alice", "bob", "carol", "dave", "erin", "frank", "zoe")
GROUPS: Final = ("group_a", "group_b", "group_c", "group_a.x", "group_a.y", "group_b.x", "group_b.y")
#: Groups that nobody has made.
STRANGE: Final = ("group_zz", "group_a.nosuch", "group_b.y.nosuch")
PRIORITIES: Final = (0.5, 0.5, 0.5, 1.0, 1.5, 1.96, 2.25, 3.7, 4.0, 5.75, 12.25, 20.0, 84.34, 187.94)
FACTORS: Final = (1000.0, 1000.0, 1000.0, 1000.0, 500.0, 12.5, 2.0, 1.0)
LIMITS: Final = ("db", "db:2", "xsw", "xsw:1.5", "large.a", "large.b", "db,xsw", "other")
KINDS: Final = (
    "simple",
    "weights",
    "preempt",
    "ranks",
    "limits",
    "groups",
    "groups-busy",
    "groups-preempt",
    "pslot",
    "parts",
)
_PREEMPTION: Final = (
    "RemoteUserPrio > SubmitterUserPrio",
    "RemoteUserPrio > SubmitterUserPrio * 1.2",
    "(RemoteUserPrio > SubmitterUserPrio) && TARGET.RequestMemory < 1000",
    "(RemoteUserPrio > SubmitterUserPrio) && MY.TotalJobRunTime > 150",
)
_RANKS: Final = ("0.0", "0.0", "0.0", "TARGET.Memory", "0 - TARGET.Memory", "TARGET.Cpus", "TARGET.SlotID")
_WANTS: Final = (
    "",
    "",
    "",
    "",
    "TARGET.SlotID != 2 || TARGET.Memory > 4096",
    "HasGadget =?= true",
    "TARGET.SlotID == 1",
)
#: What all schedds' jobs say, and what all slots say that no case changes.
_JOB: Final = {"JobUniverse": "5", "RequestDisk": "10", "FileSystemDomain": '"pool"'}
_SLOT: Final = {
    "MyType": '"Machine"',
    "TargetType": '"Job"',
    "FileSystemDomain": '"pool"',
    "Arch": '"X86_64"',
    "OpSys": '"LINUX"',
    "Requirements": "START",
    "START": "true",
}


def make(rng: random.Random) -> Case:
    kind = rng.choice(KINDS)
    busy = kind not in ("ranks", "groups", "pslot", "parts") and (kind != "limits" or rng.random() < 0.6)
    users = _users(rng, kind)
    config = _config(rng, kind, users)
    slots = _slots(rng, kind, users if busy else [])
    return {
        "name": kind,
        "config": config,
        "slots": {"common": dict(_SLOT), "each": slots},
        "jobs": _jobs(rng, kind, users),
        "submitters": _submitters(rng, kind, users),
    }


def _users(rng: random.Random, kind: str) -> list[str]:
    names = rng.sample(USERS, rng.choice((2, 3, 3, 4, 4, 5, 6, 7)))
    if not kind.startswith("groups"):
        return [f"{name}@pool" for name in names]
    return [f"{_group_of(rng)}{name}@pool" for name in names]


def _group_of(rng: random.Random) -> str:
    dice = rng.random()
    return "" if dice < 0.08 else f"{rng.choice(STRANGE if dice < 0.18 else GROUPS)}."


def _config(rng: random.Random, kind: str, users: list[str]) -> list[str]:
    lines = [rng.choice(("", "NEGOTIATOR_MATCHLIST_CACHING = False"))] if "preempt" not in kind else []
    if "preempt" in kind:
        lines += ["NEGOTIATOR_MATCHLIST_CACHING = False", f"PREEMPTION_REQUIREMENTS = {rng.choice(_PREEMPTION)}"]
        lines += rng.choice(
            ([], [], ["PREEMPTION_RANK = 0 - Memory"], ["PREEMPTION_RANK = RemoteUserPrio * 10000000 + Memory"])
        )
    if kind == "ranks":
        lines += rng.choice(
            (
                ["NEGOTIATOR_PRE_JOB_RANK = TARGET.RequestMemory > 1000 ? Memory : 0 - Memory"],
                ["NEGOTIATOR_PRE_JOB_RANK = undefined", "NEGOTIATOR_POST_JOB_RANK = Memory"],
                ["NEGOTIATOR_PRE_JOB_RANK = Cpus", "NEGOTIATOR_POST_JOB_RANK = 0 - Memory"],
                ["NEGOTIATOR_POST_JOB_RANK = 0 - Memory"],
                [],
            )
        )
    if kind == "limits" or rng.random() < 0.1:
        lines += [
            f"{name}_LIMIT = {rng.choice((0, 1, 2, 3, 4, 5, 2.5))}" for name in ("XSW", "DB") if rng.random() < 0.9
        ]
        lines += rng.choice(([], ["CONCURRENCY_LIMIT_DEFAULT = 3"], ["CONCURRENCY_LIMIT_DEFAULT_LARGE = 2"]))
    if kind.startswith("groups"):
        lines += _groups(rng, kind == "groups-preempt")
    if "preempt" not in kind and rng.random() < 0.15:
        lines.append("NEGOTIATOR_CONSIDER_PREEMPTION = False")
    return [line for line in lines if line]


def _groups(rng: random.Random, preempting: bool) -> list[str]:
    """Names in any order; a group below another one only where that is there too."""
    tops = rng.sample(GROUPS[:3], rng.randint(1, 3))
    names = [*tops, *(name for name in GROUPS[3:] if name.split(".")[0] in tops and rng.random() < 0.6)]
    rng.shuffle(names)
    lines = [f"GROUP_NAMES = {', '.join(names)}"]
    for name in names:
        dice = rng.random()
        if dice < 0.5:
            lines.append(f"GROUP_QUOTA_{name} = {rng.choice((0, 1, 2, 3, 4, 5, 8, 12))}")
        elif dice < 0.95:
            lines.append(f"GROUP_QUOTA_DYNAMIC_{name} = {rng.choice(('0.1', '.2', '0.25', '.33', '0.5', '0.66'))}")
    if preempting:  # who refuses surplus preempts others beyond its quota there
        lines.append("GROUP_ACCEPT_SURPLUS = True")
    elif rng.random() < 0.6:
        lines.append(f"GROUP_ACCEPT_SURPLUS = {rng.choice(('True', 'False'))}")
    lines += [
        f"GROUP_ACCEPT_SURPLUS_{name} = {preempting or rng.choice(('True', 'True', 'False'))}"
        for name in names
        if rng.random() < 0.3
    ]
    if rng.random() < 0.3:
        lines.append("GROUP_AUTOREGROUP = True")
    lines += [f"GROUP_AUTOREGROUP_{name} = True" for name in names if rng.random() < 0.1]
    if rng.random() < 0.2:
        lines.append(f"NEGOTIATOR_ALLOW_QUOTA_OVERSUBSCRIPTION = {rng.choice(('True', 'False'))}")
    if rng.random() < 0.1:
        lines.append("NEGOTIATOR_USE_WEIGHTED_DEMAND = False")
    lines += [f"GROUP_PRIO_FACTOR_{name} = {rng.choice((2.0, 10.0, 500.0))}" for name in names if rng.random() < 0.1]
    return lines


def _slots(rng: random.Random, kind: str, users: list[str]) -> list[dict[str, str]]:
    """Each with a memory of its own, so that no two are of equal rank."""
    weight = rng.choice(("Cpus", "Cpus", "1.0", "Memory / 1024")) if kind in ("weights", "preempt") else "Cpus"
    sizes = rng.choice(((1,), (1,), (2,), (1, 1, 2, 4), (1, 2, 8)))
    if kind in ("simple", "groups", "groups-busy"):
        sizes = (rng.choice((1, 1, 2)),)
    share = rng.choice((0.2, 0.5, 0.8)) if users else 0.0
    runners = users + (["yves@pool"] if rng.random() < 0.3 else [])
    slots: list[dict[str, str]] = []
    for host in range(rng.randint(3, 20)):
        for number in range(1, rng.choice((1, 1, 2, 3)) + 1):
            place = len(slots)
            cpus = 8 if kind in ("pslot", "parts") and rng.random() < 0.4 else rng.choice(sizes)
            slot = {
                "Name": f'"slot{number}@h{host:02}"',
                "Machine": f'"h{host:02}"',
                "SlotID": str(number),
                "SlotType": '"Static"',
                "State": '"Unclaimed"',
                "Activity": '"Idle"',
                "Cpus": str(cpus),
                "Memory": str(1024 * rng.randint(1, 8) + place),
                "Disk": str(100_000 + place),
                "KFlops": str(1_000_000 + 37 * place),
                "CurrentRank": "0.0",
                "Rank": "0.0",
                "SlotWeight": weight,
            }
            if rng.random() < 0.3:
                slot["HasGadget"] = "true"
            if kind == "ranks" and rng.random() < 0.3:
                slot["Rank"] = rng.choice(("TARGET.JobPrio > 0", "TARGET.RequestMemory > 1000"))
            if rng.random() < 0.05:
                slot["START"] = rng.choice(("TARGET.RequestMemory < 1000", "false"))
            if kind in ("pslot", "parts"):
                slot |= {
                    "SlotType": '"Partitionable"',
                    "PartitionableSlot": "true",
                    "TotalSlotCpus": str(cpus),
                    "MachineResources": '"Cpus Memory Disk Swap"',
                    "NumDynamicSlots": "0",
                }
            elif rng.random() < share:
                slot |= _claimed(rng, rng.choice(runners), place, kind)
            slots.append(slot)
    return slots


def _claimed(rng: random.Random, user: str, place: int, kind: str) -> dict[str, str]:
    group = user.split("@")[0].rpartition(".")[0]
    claim = {
        "State": '"Claimed"',
        "Activity": '"Busy"',
        "RemoteUser": f'"{user}"',
        "RemoteOwner": f'"{user}"',
        "TotalJobRunTime": str(100 + 13 * place),
        "RetirementTimeRemaining": str(rng.choice((0, 0, 3600))),
        "JobId": f'"9.{place}"',
        "GlobalJobId": f'"s#9.{place}#1"',
        "PublicClaimId": f'"<c>#{place}"',
    }
    if kind.startswith("groups"):
        claim |= {"AccountingGroup": f'"{user}"'}
        named = f'"{group or "<none>"}"'
        claim |= {"RemoteGroup": named, "RemoteNegotiatingGroup": named}
    if kind == "limits" and rng.random() < 0.4:
        claim["ConcurrencyLimits"] = f'"{rng.choice(LIMITS)}"'
    if kind == "preempt" and rng.random() < 0.2:
        claim |= {"CurrentRank": rng.choice(("0.0", "1.0")), "Rank": 'TARGET.AcctGroupUser =?= "bob"'}
    return claim


def _jobs(rng: random.Random, kind: str, users: list[str]) -> list[dict[str, Any]]:
    """In the order of submitting: the schedd offers a submitter's jobs by their priority, then in this order."""
    idle = [user for user in users if rng.random() < 0.85] or users[:1]
    found, number = [], 0
    for user in idle:
        asked: list[tuple[int, dict[str, str]]] = []
        memories = rng.sample((10, 100, 128, 129, 512, 1025, 2000, 3000), rng.choice((1, 1, 2, 3)))
        for memory in memories:
            asked.append((rng.choice((0, 0, 0, 5, -3)), _job(rng, kind, user, memory)))
        for priority, ad in sorted(asked, key=lambda one: -one[0]):
            count = rng.choice((1, 2, 3, 7, 13, 20))
            row = {"submitter": user, "count": count, "ad": ad | {"JobPrio": str(priority)}}
            found.append(row | {"autocluster": len(found) + 1, "id": f"1.{number}"})
            number += count
    return found


def _job(rng: random.Random, kind: str, user: str, memory: int) -> dict[str, str]:
    name = user.split("@")[0]
    group, _, owner = name.rpartition(".")
    cpus = rng.choice((1, 1, 1, 2, 4)) if kind in ("weights", "pslot", "parts", "groups-preempt") else 1
    wants = "TARGET.TotalSlotCpus == RequestCpus" if kind == "pslot" else rng.choice(_WANTS)  # one job a slot
    terms = [f"({wants})"] if wants else []
    terms += ['(TARGET.Arch == "X86_64")', '(TARGET.OpSys == "LINUX")', "(TARGET.Disk >= RequestDisk)"]
    terms += ["(TARGET.Memory >= RequestMemory)", "(TARGET.Cpus >= RequestCpus)"]
    terms.append("(TARGET.FileSystemDomain == MY.FileSystemDomain)")
    ad = {
        **_JOB,
        "AccountingGroup": f'"{name}"',
        "AcctGroupUser": f'"{owner}"',
        "Rank": rng.choice(_RANKS) if kind in ("ranks", "weights", "preempt", "pslot", "parts") else "0.0",
        "RequestCpus": str(cpus),
        "RequestMemory": str(memory),
        "Requirements": " && ".join(terms),
    }
    if group:
        ad["AcctGroup"] = f'"{group}"'
    if kind == "limits" and rng.random() < 0.7:
        ad["ConcurrencyLimits"] = f'"{rng.choice(LIMITS)}"'
    return ad


def _submitters(rng: random.Random, kind: str, users: list[str]) -> dict[str, dict[str, float]]:
    """No two of one effective priority: the order of those is nobody's."""
    found: dict[str, dict[str, float]] = {}
    taken: set[float] = set()
    bounded = kind in ("simple", "weights", "limits", "ranks") and rng.random() < 0.5
    for user in [*users, "yves@pool"]:
        while True:
            priority, factor = rng.choice(PRIORITIES), rng.choice(FACTORS)
            if priority * factor not in taken:
                break
        taken.add(priority * factor)
        floor = float(rng.choice((0, 0, 1, 2, 4))) if bounded else 0.0
        ceiling = float(rng.choice((-1, -1, 0, 1, 2, 5))) if bounded else -1.0
        found[user] = {"priority": priority, "factor": factor, "floor": floor, "ceiling": ceiling}
    return found
