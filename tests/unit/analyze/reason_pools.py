"""Made-up pools in which jobs wait for all kinds of causes, and what lifts each cause.

    python -m tests.unit.analyze.reason_pools --seeds 10000 [--from 0]

holds what is said of so many pools against the negotiation cycle (`wrongs_of`), and prints what is not true.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from engine.analyze import Slots, explain_job
from engine.analyze.report import JobReport
from engine.match.cycle import negotiate
from engine.match.model import Result
from engine.reasons import blockers
from tests.unit.analyze.pools import table
from tests.unit.negotiator.pools import NOW, Pool, ad

FITS = "TARGET.RequestCpus <= MY.Cpus && TARGET.RequestMemory <= MY.Memory"
WANTS = "TARGET.Cpus >= RequestCpus && TARGET.Memory >= RequestMemory"
#: Longest row of causes that are met one after the other.
_MOST_STEPS = 12


def reason_pool(seed: int) -> Pool:
    """Without preemption; every fifth with ranks and priorities that preempt."""
    return _Maker(random.Random(seed), seed).pool()


class _Maker:
    def __init__(self, r: random.Random, seed: int) -> None:
        self.r = r
        self.preempting = seed % 5 == 4
        self.limited = r.random() < 0.3
        self.grouped = r.random() < 0.3
        self.trouble = r.choice((0.15, 0.5, 0.9))
        self.nameless: list[str] = []
        self.withheld: list[str] = []

    def may(self, chance: float) -> bool:
        return self.r.random() < chance

    def pool(self) -> Pool:
        r = self.r
        slots = [slot for host in range(r.randint(0 if self.may(0.05) else 1, 5)) for slot in self.machine(f"m{host}")]
        asks = [ask for number in range(r.randint(1, 3)) for ask in self.asks(number)]
        records = {}
        for name in {ask["submitter"] for ask in asks} | {f"u{number}@pool" for number in range(4)}:
            records[name] = {"priority": r.choice((0.5, 5.0, 100.0)), "factor": 1.0}
            if self.may(0.1):
                records[name]["ceiling"] = float(r.choice((0, 1, 2)))
        groups: dict[str, Any] = {}
        if self.grouped:
            groups = {"names": ["g"], "quota": {"g": float(r.choice((0, 1, 2, 50)))}, "accept_surplus": self.may(0.3)}
        limits = {"limits": {"lic": float(r.choice((0, 1, 2, 5)))}} if self.limited else {}
        config: dict[str, Any] = {"consider_preemption": self.preempting}
        if self.preempting and self.may(0.5):
            config["preemption_requirements"] = r.choice(("true", "RemoteUserPrio > SubmitterUserPrio * 1.2"))
        if self.may(0.1):
            config["slot_constraint"] = 'Machine != "m0"'
        return Pool(slots, asks, records, config, groups, limits, self.withheld, self.nameless)

    def machine(self, host: str) -> Iterator[dict[str, str]]:
        r = self.r
        common = {"Machine": f'"{host}"', "Arch": '"X86_64"', "START": "true", "SlotWeight": "Cpus", "Rank": "0.0"}
        common["Requirements"] = f"START && {FITS}"
        trouble = r.choice(("arch", "start", "draining", "offline", "nameless", "withheld")) if self.may(0.4) else ""
        if trouble == "arch":
            common["Arch"] = '"ARM"'
        elif trouble == "start":
            common["START"] = r.choice(("false", 'TARGET.Owner == "zoe"', "undefined"))
        elif trouble == "draining":
            common |= {"START": "false", "Draining": "true"}
        elif trouble == "offline":
            common["Offline"] = "true"
        if self.may(0.5):
            slots = [self.static(common, f"slot{n}@{host}", n) for n in range(1, r.randint(2, 4))]
        else:
            slots = self.partitionable(common, host)
        for slot in slots:
            if trouble in ("nameless", "withheld") and slot["State"] == '"Unclaimed"':
                getattr(self, trouble).append(slot["Name"].strip('"'))
            if trouble == "offline":
                slot |= {"State": '"Unclaimed"', "Activity": '"Idle"'}
        yield from slots

    def static(self, common: dict[str, str], name: str, number: int) -> dict[str, str]:
        cpus, memory = str(self.r.choice((1, 2, 4))), str(self.r.choice((512, 2048, 8192)))
        slot = {"Name": f'"{name}"', "SlotID": str(number), **common, "Cpus": cpus, "Memory": memory, "Disk": "100000"}
        slot |= {"TotalSlotCpus": cpus, "TotalSlotMemory": memory, "TotalSlotDisk": "100000"}
        slot |= {"State": '"Unclaimed"', "Activity": '"Idle"', "MachineResources": '"Cpus Memory Disk"'}
        if self.may(self.trouble):
            self.claim(slot)
        return slot

    def claim(self, slot: dict[str, str]) -> None:
        user = self.r.choice(("u0", "u1", "u2", "u3"))
        slot |= {"State": '"Claimed"', "Activity": '"Busy"', "RemoteUser": f'"{user}@pool"', "CurrentRank": "0.0"}
        slot["RemoteOwner"] = f'"{user}"'
        if self.limited and self.may(0.4):
            slot["ConcurrencyLimits"] = '"lic"'

    def partitionable(self, common: dict[str, str], host: str) -> list[dict[str, str]]:
        r = self.r
        cpus, memory = r.choice((1, 2, 4, 8)), r.choice((1024, 8192, 32768))
        whole = {"Name": f'"slot1@{host}"', "SlotID": "1", **common, "PartitionableSlot": "true"}
        whole |= {"MachineResources": '"Cpus Memory Disk"', "Disk": "100000", "TotalSlotDisk": "100000"}
        whole |= {"TotalSlotCpus": str(cpus), "TotalSlotMemory": str(memory), "State": '"Unclaimed"'}
        whole["Activity"] = '"Idle"'
        made = [whole]
        while "Offline" not in common and self.may(self.trouble) and cpus and memory >= 256:
            mine, much = r.randint(1, cpus), r.choice((128, memory // 2, memory))
            cpus, memory = cpus - mine, memory - much
            number = len(made)
            part = {"Name": f'"slot1_{number}@{host}"', "SlotID": "1", **common, "DynamicSlot": "true"}
            part |= {"DSlotID": str(number), "Cpus": str(mine), "Memory": str(much), "Disk": "1024"}
            part |= {"TotalSlotCpus": str(mine), "TotalSlotMemory": str(much)}
            self.claim(part)
            made.append(part)
        whole |= {"Cpus": str(cpus), "Memory": str(memory)}
        return made

    def asks(self, number: int) -> Iterator[dict[str, Any]]:
        r = self.r
        owner = f"u{number}"
        name = f"{r.choice(('', 'g.')) if self.grouped else ''}{owner}@pool"
        for autocluster in range(r.randint(1, 2)):
            job = {"Owner": f'"{owner}"', "JobUniverse": "5", "RequestDisk": "10", "Rank": "0.0", "JobStatus": "1"}
            job["RequestCpus"] = str(r.choice((1, 1, 2, 4, 16)))
            job["RequestMemory"] = str(r.choice((1, 128, 1000, 4000, 10**6)))
            job["Requirements"] = r.choice((WANTS, f'{WANTS} && TARGET.Arch == "X86_64"', "true", "TARGET.HasGadget"))
            if self.limited and self.may(0.6):
                job["ConcurrencyLimits"] = r.choice(('"lic"', '"lic:2"'))
            yield {
                "submitter": name, "schedd": "schedd.a", "autocluster": 10 * number + autocluster,
                "count": r.choice((1, 2, 5)), "ad": job,
            }  # fmt: skip


# --- what is said, and whether it is true


def cycle(pool: Pool) -> Result:
    config = pool.cycle_config()
    return negotiate(pool.snapshot(config), config, NOW)


def said_of(pool: Pool, job: dict[str, str]) -> JobReport:
    """What `analyze` says of a job that the negotiator has not met yet."""
    unoffered = dict.fromkeys(pool.nameless, "no-claim-id") | dict.fromkeys(pool.withheld, "match-under-way")
    slots = Slots(
        table([ad(slot) for slot in pool.slots]), NOW, unoffered, constraint=pool.cycle_config().slot_constraint
    )
    return explain_job(slots, ad(job))


def alone(pool: Pool, ask: dict[str, Any]) -> Pool:
    """One job of this request, and nobody else who asks."""
    return replace(pool, asks=[{**ask, "count": 1}])


def lifted(pool: Pool, cause: str) -> Pool:
    """The pool without this cause of waiting."""
    slots = [dict(slot) for slot in pool.slots]
    if cause == "limit":
        return replace(pool, limits={})
    if cause == "ceiling":
        records = {name: {k: v for k, v in record.items() if k != "ceiling"} for name, record in pool.records.items()}
        return replace(pool, records=records)
    if cause == "quota":
        return replace(pool, groups={}, asks=[{**ask, "submitter": ask["submitter"][2:]} for ask in pool.asks])
    if cause in ("claimed", "in-use", "consumed"):
        slots = [slot for slot in slots if "DynamicSlot" not in slot]
        for slot in slots:
            for key in ("RemoteUser", "RemoteOwner", "CurrentRank", "ConcurrencyLimits"):
                slot.pop(key, None)
            slot |= {"State": '"Unclaimed"', "Activity": '"Idle"', "Cpus": slot["TotalSlotCpus"]}
            slot["Memory"] = slot["TotalSlotMemory"]
        return replace(pool, slots=slots)
    if cause == "match-under-way":
        return replace(pool, withheld=[], config={k: v for k, v in pool.config.items() if k != "slot_constraint"})
    if cause == "constraint":
        return replace(pool, config={k: v for k, v in pool.config.items() if k != "slot_constraint"})
    if cause == "no-claim-id":
        return replace(pool, nameless=[])
    for slot in slots:
        if cause == "draining" and slot.pop("Draining", None):
            slot["START"] = "true"
        elif cause == "offline":
            slot.pop("Offline", None)
        elif cause == "slot-requirements":
            slot |= {"Requirements": "true", **dict.fromkeys(("Cpus", "TotalSlotCpus"), "64")}
            slot |= dict.fromkeys(("Memory", "TotalSlotMemory"), "10000000")
    asks = pool.asks
    if cause == "job-requirements":
        least = {"Requirements": "true", "RequestCpus": "1", "RequestMemory": "1"}
        asks = [{**ask, "ad": ask["ad"] | least} for ask in pool.asks]
    if cause == "no-slots":
        slots = [_Maker(random.Random(0), 0).static({"Machine": '"m"', "Requirements": "true"}, "slot1@m", 1)]
        slots[0] |= {"State": '"Unclaimed"', "Cpus": "99", "Memory": "99999999"}
    return replace(pool, slots=slots, asks=asks)


def wrongs_of(pool: Pool, met: Counter[tuple[str, ...]] | None = None) -> Iterator[str]:
    """What is said of the pool's jobs and is not true. met: counts what jobs waited for."""
    for ask in pool.asks:
        yield from _wrong_of_now(alone(pool, ask), ask)
    for no in cycle(pool).rejections:
        ask = next(each for each in pool.asks if each["autocluster"] == no.request.autocluster)
        yield from _wrong_when_lifted(alone(pool, ask), blockers(no.code, no.counts), met)


def _wrong_of_now(pool: Pool, ask: dict[str, Any]) -> Iterator[str]:
    """`analyze` against the cycle, of one job: the same slots for the same causes; it runs or it does not."""
    free = replace(pool, limits={}, groups={}, asks=[{**ask, "count": 1, "submitter": "other@pool"}])
    if free.config["consider_preemption"]:
        return
    report, result = said_of(free, ask["ad"]), cycle(free)
    if bool(result.matches) != (not report.blocked_by):
        yield f"analyze says {report.blocked_by}: {report.verdict!r}; the cycle gives {result.matches!r}"
    for no in result.rejections:
        mine = Counter(report.outcomes)
        mine["match-under-way"] += mine.pop("constraint", 0)
        if +mine != +Counter(no.counts):
            yield f"analyze counts {dict(mine)}, the cycle {dict(no.counts)}"


def _wrong_when_lifted(pool: Pool, causes: tuple[str, ...], met: Counter[tuple[str, ...]] | None) -> Iterator[str]:
    """One job of a request that got nothing: what it waits for is lifted, until it is matched. Who else asks has gone,
    so a share or slots given to others are no cause any more; and no cause comes twice."""
    told: list[str] = []
    for _ in range(_MOST_STEPS):
        if met is not None:
            met[causes] += 1
        told += causes
        for cause in causes:
            pool = lifted(pool, cause)
        result = cycle(pool)
        if result.matches:
            return
        (no,) = result.rejections
        causes = blockers(no.code, no.counts)
        if not causes:
            yield f"after {told} nothing keeps it ({no.code}: {no.reason}), yet it is not matched"
            return
        again = [cause for cause in causes if cause in told]
        if again:
            yield f"after {told} it is {again} once more: {no.code}: {no.reason}"
            return
    yield f"after {told} it is not matched"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", type=int, default=0, dest="start")
    asked = parser.parse_args()
    met: Counter[tuple[str, ...]] = Counter()
    wrong = 0
    for seed in range(asked.start, asked.start + asked.seeds):
        for text in wrongs_of(reason_pool(seed), met):
            wrong += 1
            print(f"seed {seed}: {text}")
    print(f"{asked.seeds} pools, {sum(met.values())} causes met, {wrong} wrong")
    for causes, number in met.most_common():
        print(f"{number:>8}  {' + '.join(causes)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
