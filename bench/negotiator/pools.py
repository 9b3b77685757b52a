"""Pools to negotiate for, drawn by a seed: slots of some 160 attributes (5 KB of text), START expressions of a dozen
kinds, job Requirements of 3 to 9 terms, a Rank on half of the jobs.

16 slots of one core a machine, or one partitionable slot of 64 cores.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from shared.classad import parse_ad

ATTRIBUTES: Final = 160
STARTS: Final = (
    "true",
    '(stringListMember(TARGET.Owner, "u1,u2,u3,u4,u5,u6,u7,u8,u9") =!= true)',
    "KeyboardIdle > 60 || LoadAvg - CondorLoadAvg < 0.9",
    'TARGET.JobUniverse == 5 && TARGET.Owner != "u9"',
    "TARGET.RequestGPUs is undefined || TARGET.RequestGPUs <= GPUs",
    'regexp("^u[0-7]", TARGET.Owner)',
    '(TARGET.AcctGroup ?: "none") != "biology" || TARGET.RequestCpus > 1',
    "TARGET.JobPrio >= 0 && (KeyboardIdle > 300 || TARGET.Nice =!= true)",
    "TARGET.ImageSize < 4000000",
    'TARGET.Owner != "u3" && TARGET.Owner != "u7"',
    'ifThenElse(TARGET.RequestMemory > 4000, TARGET.AcctGroup =?= "physics", true)',
    "LoadAvg < 0.95 && TARGET.DiskUsage < 10000000",
)  # fmt: skip
WITHIN: Final = (
    "(MY.Cpus > 0 && TARGET.RequestCpus <= MY.Cpus && MY.Memory > 0 && TARGET.RequestMemory <= MY.Memory "
    "&& MY.Disk > 0 && TARGET.RequestDisk <= MY.Disk "
    "&& (TARGET.RequestGPUs is undefined || MY.GPUs >= TARGET.RequestGPUs))"
)
RANKS: Final = ("0.0", "0.0", 'ifThenElse(TARGET.AcctGroup =?= "physics", 10, 0)', 'TARGET.Owner == "u1"')
REQUIREMENTS: Final = (
    "TARGET.Memory >= RequestMemory && TARGET.Cpus >= RequestCpus && TARGET.HasFileTransfer",
    '(TARGET.Arch == "X86_64") && (TARGET.OpSys == "LINUX") && (TARGET.Disk >= RequestDisk) && '
    "(TARGET.Memory >= RequestMemory) && (TARGET.Cpus >= RequestCpus) && "
    "((TARGET.FileSystemDomain == MY.FileSystemDomain) || (TARGET.HasFileTransfer))",
    '(TARGET.OpSysAndVer == "Debian12" || TARGET.OpSysAndVer == "AlmaLinux9") && TARGET.Memory >= RequestMemory '
    "&& TARGET.Cpus >= RequestCpus && TARGET.Disk >= RequestDisk && TARGET.HasFileTransfer",
    "TARGET.HasDocker && TARGET.Memory >= RequestMemory && TARGET.Cpus >= RequestCpus && TARGET.KFlops > 1200000",
    'TARGET.Arch == "X86_64" && TARGET.Memory >= RequestMemory && TARGET.Microarch =!= "x86_64-v1" '
    "&& TARGET.LoadAvg < 0.9 && TARGET.Cpus >= RequestCpus",
    'TARGET.TotalSlots > 0 && TARGET.HasFileTransfer && TARGET.Memory >= RequestMemory && TARGET.OpSys == "LINUX" '
    '&& TARGET.Disk >= RequestDisk && TARGET.Cpus >= RequestCpus && TARGET.Arch == "X86_64" && TARGET.Mips > 1000 '
    "&& TARGET.KFlops > 1000",
)  # fmt: skip
JOB_RANKS: Final = ("TARGET.KFlops", "TARGET.Memory + 100 * TARGET.Cpus", "TARGET.Mips - TARGET.LoadAvg * 100")
_OSES: Final = ("Debian12", "AlmaLinux9", "Debian12", "AlmaLinux9", "Ubuntu22")
_LEVELS: Final = ("x86_64-v1", "x86_64-v2", "x86_64-v3", "x86_64-v4")


@dataclass(frozen=True, slots=True)
class Shape:
    """What pool to make. claimed: part of the slots that are in use; groups: accounting groups; jobs: asked for in
    all."""

    slots: int
    autoclusters: int
    submitters: int
    pslots: bool = False
    claimed: float = 0.0
    groups: int = 0
    jobs: int = 0


def submitter(shape: Shape, number: int) -> str:
    group = f"group{number % shape.groups}." if shape.groups else ""
    return f"{group}u{number}@example.org"


def machines(shape: Shape) -> Iterator[tuple[str, bytes]]:
    """Name and packed ad of each slot."""
    for number in range(shape.slots):
        text = slot(shape, number)
        ad = parse_ad(text, "old")
        yield str(ad.eval("Name")), ad.pack()


def slot(shape: Shape, number: int) -> str:
    """A slot's ad in old syntax."""
    rng = random.Random(number)
    a_machine = 1 if shape.pslots else 16
    box = number // a_machine
    host = f"node{box:05}.example.org"
    kind = random.Random(box % 8)
    memory, cpus = kind.choice((4096, 8192, 8192, 16384)), 1
    if shape.pslots:
        memory, cpus = 64 * 4096, 64
    lines: dict[str, object] = {
        "MyType": '"Machine"',
        "Name": f'"slot{number % a_machine + 1}@{host}"',
        "Machine": f'"{host}"',
        "SlotID": number % a_machine + 1,
        "Arch": '"X86_64"' if box % 20 else '"aarch64"',
        "OpSys": '"LINUX"',
        "OpSysAndVer": f'"{kind.choice(_OSES)}"',
        "Microarch": f'"{kind.choice(_LEVELS)}"',
        "FileSystemDomain": f'"site{box % 6}.example.org"',
        "Cpus": cpus,
        "Memory": memory,
        "Disk": rng.randrange(10**8, 10**9),
        "GPUs": (8 if number % 10 == 0 else 0) if shape.pslots else 1 if number % 50 == 0 else 0,
        "MachineResources": '"Cpus Memory Disk Swap GPUs"',
        "PartitionableSlot": "true" if shape.pslots else "false",
        "SlotWeight": "Cpus",
        "KFlops": kind.randrange(10**6, 3 * 10**6),
        "Mips": kind.randrange(20000, 60000),
        "LoadAvg": round(rng.random(), 3),
        "CondorLoadAvg": round(rng.random() / 4, 3),
        "KeyboardIdle": rng.randrange(0, 5000),
        "TotalSlots": a_machine,
        "HasFileTransfer": "true",
        "HasDocker": "true" if box % 3 else "false",
        "State": '"Unclaimed"',
        "Activity": '"Idle"',
        "Start": STARTS[box % len(STARTS)],
        "WithinResourceLimits": WITHIN,
        "Requirements": "START && (WithinResourceLimits)",
        "Rank": RANKS[box % len(RANKS)],
        "CurrentRank": 0.0,
        "MyCurrentTime": 1_700_000_000 + rng.randrange(1000),
        "RoostClaims": rng.randrange(1000),
        "MyAddress": f'"startd.node{box:05}"',
    }
    if rng.random() < shape.claimed:
        user = submitter(shape, rng.randrange(shape.submitters))
        lines |= {
            "State": '"Claimed"',
            "Activity": '"Busy"',
            "RemoteUser": f'"{user}"',
            "RemoteOwner": f'"{user}"',
            "TotalJobRunTime": rng.randrange(100_000),
            "JobId": f'"{number}.0"',
        }
    for extra in range(ATTRIBUTES - len(lines)):
        if extra % 4 == 0:
            lines[f"StarterAbility{extra}"] = "true"
        elif extra % 4 == 1:
            lines[f"TotalTimeInState{extra}"] = (box * 31 + extra) % 9000
        elif extra % 4 == 2:
            lines[f"Detected{extra}"] = f'"kind {box % 8}"'
        else:
            lines[f"Policy{extra}"] = f'(Activity == "Idle") && (KeyboardIdle > {extra} * 60)'
    return "".join(f"{name} = {text}\n" for name, text in lines.items())


def job(shape: Shape, number: int) -> bytes:
    """The packed ad of an autocluster's jobs: some 90 attributes."""
    rng = random.Random(number * 7 + 1)
    user = number % shape.submitters
    cpus = rng.choice((1, 1, 1, 2, 4, 8)) if shape.pslots else 1
    lines: dict[str, object] = {
        "MyType": '"Job"',
        "ClusterId": number,
        "ProcId": 0,
        "Owner": f'"u{user}"',
        "User": f'"u{user}@example.org"',
        "JobUniverse": 5,
        "JobPrio": rng.choice((0, 0, 0, 5, -5)),
        "AcctGroup": rng.choice(('"physics"', '"biology"', "undefined")),
        "RequestCpus": cpus,
        "RequestMemory": rng.choice((128, 512, 1024, 2048, 3000, 4000)) * (cpus if shape.pslots else 1),
        "RequestDisk": "DiskUsage",
        "DiskUsage": rng.choice((100, 1000, 10**5, 10**6, 5 * 10**6)),
        "ImageSize": rng.choice((1000, 20000, 3 * 10**6, 5 * 10**6)),
        "FileSystemDomain": f'"site{rng.randrange(6)}.example.org"',
        "Requirements": REQUIREMENTS[number % len(REQUIREMENTS)],
        "Rank": JOB_RANKS[number // 2 % len(JOB_RANKS)] if number % 2 else "0.0",
    }
    if number % 25 == 0:
        lines["RequestGPUs"] = 1
    for extra in range(90 - len(lines)):
        if extra % 3 == 0:
            lines[f"Submitted{extra}"] = f'"/home/u{user}/work/{extra}"'
        elif extra % 3 == 1:
            lines[f"Count{extra}"] = extra * number % 1000
        else:
            lines[f"OnExit{extra}"] = "false"
    return parse_ad("".join(f"{name} = {text}\n" for name, text in lines.items()), "old").pack()
