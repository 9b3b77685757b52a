"""What `roost what-if` costs: an hour of a pool replayed, with as many jobs as its cores can do.

    python -m bench.replay                          # 20,000 jobs of 50 users on 125 machines of 16 cores
    python -m bench.replay --jobs 3000 --machines 30
    python -m bench.replay --kinds 20               # autoclusters of each user

The interval is made up: arrivals all over the hour, lengths from a minute to half an hour, more work than fits, so that
jobs wait all the time. Printed are seconds of processor time of one replay (`roost what-if -set` does two).
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import resource
import time
from collections.abc import Mapping
from typing import Any, Final

from roost.replay.compare import compare
from roost.replay.recorded import Recording, read
from shared.classad import ClassAd, parse_ad
from shared.config import load_config

START: Final = 1_700_000_000.0
HOUR_S: Final = 3600.0
#: As execution points offer themselves.
SLOT: Final = """
MyType = "Machine"
Machine = "{host}"
Arch = "X86_64"
OpSys = "LINUX"
State = "Unclaimed"
Activity = "Idle"
Cpus = {cores}
TotalSlotCpus = {cores}
Memory = {memory}
TotalSlotMemory = {memory}
Disk = 100000000
TotalSlotDisk = 100000000
PartitionableSlot = true
SlotWeight = Cpus
MachineResources = "Cpus Memory Disk"
Start = true
Requirements = START && (TARGET.RequestCpus <= MY.Cpus) && (TARGET.RequestMemory <= MY.Memory)
MyAddress = "startd.{host}"
Rank = 0
"""
JOB: Final = """
RequestCpus = {cpus}
RequestMemory = {memory}
RequestDisk = 1024
Owner = "{owner}"
Requirements = (TARGET.Arch == "X86_64") && (TARGET.OpSys == "LINUX") && (TARGET.Disk >= RequestDisk) && {more}
"""


def interval(jobs: int, users: int, machines: int, cores: int, kinds: int, seed: int = 1) -> Recording:
    """An hour in which this pool has a fifth more to do than it can."""
    rng = random.Random(seed)
    slots = {}
    for number in range(machines):
        host = f"node{number + 1}"
        ad = parse_ad(SLOT.format(host=host, cores=cores, memory=cores * 4096), "old")
        slots[f"slot1@{host}"] = [[START, _packed(ad)]]
    mean = 1.2 * machines * cores * HOUR_S / jobs
    ads: dict[str, str] = {}
    offers: list[list[Any]] = []
    for cluster in range(1, jobs + 1):
        user = rng.randrange(users)
        kind = user * kinds + rng.randrange(kinds)
        ads.setdefault(f"ap/{kind}", "")
        at = START + rng.random() * HOUR_S * 0.95
        runs = min(max(rng.expovariate(1 / mean), mean / 6), mean * 5)
        offers.append(
            [
                "ap",
                cluster,
                0,
                f"u{user}@pool",
                kind,
                at,
                None,
                runs,
                "",
                10.0,
                runs,
                at + 10.0,
                at + runs < START + HOUR_S,
            ]
        )
    for key in ads:
        kind = int(key.partition("/")[2])
        more = f"(TARGET.Memory >= {(kind % kinds) * 64})"
        ad = parse_ad(JOB.format(cpus=1, memory=1024 + (kind % kinds) * 8, owner=f"u{kind // kinds}", more=more), "old")
        ads[key] = _packed(ad)
    first: Mapping[str, Any] = {
        "start": START,
        "end": START + HOUR_S,
        "shard": "",
        "policy": {"at": 0.0, "knobs": {}},
        "policy_changes": [],
        "standings": {},
        "cycles": 1000,
        "start_s": 1.0,
        "recorded_since": START - 1,
    }
    return read([first, {"slots": slots}, {"offers": offers, "kinds": ads}])


def _packed(ad: ClassAd) -> str:
    return base64.b64encode(ad.pack()).decode()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.replay", description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--machines", type=int, default=125)
    parser.add_argument("--cores", type=int, default=16)
    parser.add_argument("--kinds", type=int, default=4, help="autoclusters of each user")
    parser.add_argument("--step", type=float, default=0.0, help="as of roost what-if")
    options = parser.parse_args()
    recording = interval(options.jobs, options.users, options.machines, options.cores, options.kinds)
    began, wall = time.process_time(), time.monotonic()
    found = compare(recording, load_config([], subsystem="NEGOTIATOR", env={}), None, options.step)
    outcomes = found.baseline.outcomes.values()
    print(
        json.dumps(
            {
                "jobs": len(recording.work),
                "slots": len(recording.slots),
                "cores": options.machines * options.cores,
                "cycles": found.baseline.cycles,
                "matches": found.baseline.matches,
                "finished": sum(one.finished for one in outcomes),
                "waited_s": round(sum(one.waited_s for one in outcomes), 3),
                "cpu_s": round(time.process_time() - began, 2),
                "s": round(time.monotonic() - wall, 2),
                "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
            }
        )
    )


if __name__ == "__main__":
    main()
