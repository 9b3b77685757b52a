"""A pool to measure with: ads as long as HTCondor's own, drawn by a seed.

`machine(n)` has 134 attributes and `job(n)` 89, as the ads of a real pool have. Some 25 of a machine's are
looked at by policies; the rest is what makes an ad long.
"""

from __future__ import annotations

import random
from typing import Final

STARTS: Final = (
    "true",
    '(stringListMember(TARGET.Owner, "u1,u2,u3,u4,u5,u6"))',
    "KeyboardIdle > 15 * 60 && LoadAvg - CondorLoadAvg < 0.3",
    'TARGET.JobUniverse == 5 && TARGET.Owner != "u9"',
    "TARGET.RequestGPUs is undefined || TARGET.RequestGPUs <= GPUs",
    'regexp("^u[1-4]", TARGET.Owner)',
    "(TARGET.AcctGroup ?: \"none\") == \"physics\" || TARGET.RequestCpus > 1",
    "TARGET.JobPrio >= 0 && (KeyboardIdle > 300 || TARGET.Nice =?= true)",
    "TARGET.ImageSize < 4000000",
    'TARGET.Owner != "u3" && TARGET.Owner != "u7"',
    "ifThenElse(TARGET.RequestMemory > 4000, TARGET.Owner == \"u1\", true)",
    "LoadAvg < 0.9 && TARGET.DiskUsage < 10000000",
)  # fmt: skip
WITHIN: Final = (
    "(MY.Cpus > 0 && TARGET.RequestCpus <= MY.Cpus && MY.Memory > 0 && TARGET.RequestMemory <= MY.Memory "
    "&& MY.Disk > 0 && TARGET.RequestDisk <= MY.Disk "
    "&& (TARGET.RequestGPUs is undefined || MY.GPUs >= TARGET.RequestGPUs))"
)
RANKS: Final = (
    "0.0",
    'TARGET.Owner == "u1"',
    "TARGET.RequestMemory / 1000.0",
    'ifThenElse(TARGET.AcctGroup =?= "physics", 10, 0)',
    "TARGET.JobPrio",
)
REQUIREMENTS: Final = (
    '(TARGET.Arch == "X86_64") && (TARGET.OpSys == "LINUX") && (TARGET.Disk >= RequestDisk) && '
    "(TARGET.Memory >= RequestMemory) && (TARGET.Cpus >= RequestCpus) && "
    "((TARGET.FileSystemDomain == MY.FileSystemDomain) || (TARGET.HasFileTransfer))",
    '(TARGET.OpSysAndVer == "Debian12" || TARGET.OpSysAndVer == "AlmaLinux9") && TARGET.Memory >= RequestMemory '
    "&& TARGET.Cpus >= RequestCpus && TARGET.Disk >= RequestDisk",
    "TARGET.HasDocker && TARGET.Memory >= RequestMemory && TARGET.Cpus >= RequestCpus && TARGET.KFlops > 1500000",
    'TARGET.Arch == "X86_64" && TARGET.Memory >= RequestMemory && TARGET.Microarch =!= "x86_64-v1" '
    "&& TARGET.LoadAvg < 0.8",
    "TARGET.TotalSlots > 4 && TARGET.HasFileTransfer && TARGET.Memory >= RequestMemory && TARGET.Disk >= RequestDisk",
    "TARGET.Machine != MY.LastRemoteHost && TARGET.Memory >= RequestMemory && TARGET.Cpus >= RequestCpus",
)  # fmt: skip
JOB_RANKS: Final = ("0.0", "TARGET.KFlops", "TARGET.Memory + 100 * TARGET.Cpus", "TARGET.Mips - TARGET.LoadAvg * 100")
_OSES: Final = ("Debian12", "AlmaLinux9", "Ubuntu22", "AlmaLinux8", "Windows10")
_LEVELS: Final = ("x86_64-v1", "x86_64-v2", "x86_64-v3", "x86_64-v4")
MACHINE_ATTRIBUTES: Final = 134
JOB_ATTRIBUTES: Final = 89


def machine(number: int, start: str | None = None) -> str:
    """A slot's ad in old syntax: 134 attributes."""
    rng = random.Random(number)
    host = f"node{number // 16:05}.example.org"
    kind = random.Random(number // 16 % 8)
    memory, cpus = kind.choice((2048, 4096, 8192, 16384, 65536)), kind.choice((1, 2, 4, 8, 16))
    policy = start or STARTS[number // 16 % len(STARTS)]
    lines = {
        "MyType": '"Machine"',
        "Name": f'"slot{number % 16 + 1}@{host}"',
        "Machine": f'"{host}"',
        "SlotID": number % 16 + 1,
        "Arch": '"X86_64"' if number % 10 else '"aarch64"',
        "OpSys": '"LINUX"' if rng.random() < 0.95 else '"WINDOWS"',
        "OpSysAndVer": f'"{kind.choice(_OSES)}"',
        "Microarch": f'"{kind.choice(_LEVELS)}"',
        "FileSystemDomain": f'"site{number // 16 % 6}.example.org"',
        "Cpus": cpus,
        "Memory": memory,
        "Disk": rng.randrange(10**6, 10**8),
        "GPUs": 1 if number % 50 == 0 else 0,
        "KFlops": kind.randrange(10**6, 3 * 10**6),
        "Mips": kind.randrange(20000, 60000),
        "LoadAvg": round(rng.random(), 3),
        "CondorLoadAvg": round(rng.random() / 4, 3),
        "KeyboardIdle": rng.randrange(0, 5000),
        "TotalSlots": 16,
        "HasFileTransfer": "true",
        "HasDocker": "true" if number // 16 % 3 else "false",
        "State": '"Unclaimed"',
        "Activity": '"Idle"',
        "START": policy,
        "WithinResourceLimits": WITHIN,
        "Requirements": "START && (WithinResourceLimits)",
        "Rank": RANKS[number // 16 % len(RANKS)],
        "MyCurrentTime": 1_700_000_000 + rng.randrange(1000),
        "UpdateSequenceNumber": rng.randrange(10**5),
        "MyAddress": f'"<10.0.{number // 16 % 250}.{number // 4000 % 250}:9618?alias={host}>"',
    }
    for extra in range(MACHINE_ATTRIBUTES - len(lines)):
        if extra % 4 == 0:
            lines[f"StarterAbility{extra}"] = "true"
        elif extra % 4 == 1:
            lines[f"TotalTimeInState{extra}"] = (number // 16 * 31 + extra) % 9000
        elif extra % 4 == 2:
            lines[f"Detected{extra}"] = f'"value {extra} of a machine of kind {number // 16 % 8}"'
        else:
            lines[f"Policy{extra}"] = f'(Activity == "Idle") && (KeyboardIdle > {extra} * 60)'
    return "".join(f"{name} = {text}\n" for name, text in lines.items())


def job(number: int) -> str:
    """A job's ad in old syntax: 89 attributes."""
    rng = random.Random(number * 7 + 1)
    lines: dict[str, object] = {
        "MyType": '"Job"',
        "ClusterId": number,
        "ProcId": 0,
        "Owner": f'"u{rng.randrange(100)}"',
        "User": f'"u{number % 100}@example.org"',
        "JobUniverse": 5,
        "JobPrio": rng.choice((0, 0, 0, 5, -5)),
        "AcctGroup": rng.choice(('"physics"', '"biology"', "undefined")),
        "RequestCpus": rng.choice((1, 1, 1, 2, 4, 8)),
        "RequestMemory": rng.choice((128, 512, 1024, 2048, 3000, 4096, 8000)),
        "RequestDisk": "DiskUsage",
        "DiskUsage": rng.choice((100, 1000, 10**5, 10**6, 5 * 10**6, 2 * 10**7)),
        "ImageSize": rng.choice((1000, 20000, 3 * 10**6, 5 * 10**6)),
        "FileSystemDomain": f'"site{rng.randrange(6)}.example.org"',
        "LastRemoteHost": f'"node{rng.randrange(20):05}.example.org"',
        "Requirements": REQUIREMENTS[number % len(REQUIREMENTS)],
        "Rank": JOB_RANKS[number % len(JOB_RANKS)],
    }
    if number % 25 == 0:
        lines["RequestGPUs"] = 1
    for extra in range(JOB_ATTRIBUTES - len(lines)):
        if extra % 3 == 0:
            lines[f"Submitted{extra}"] = f'"/home/u{number % 100}/work/{extra}"'
        elif extra % 3 == 1:
            lines[f"Count{extra}"] = extra * number % 1000
        else:
            lines[f"OnExit{extra}"] = "false"
    return "".join(f"{name} = {text}\n" for name, text in lines.items())
