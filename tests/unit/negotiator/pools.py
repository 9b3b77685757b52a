"""Small made-up pools with a little of everything, to hold the negotiation cycle against its plain twin.

    python -m tests.unit.negotiator.pools --seeds 10000 [--from 0]

decides so many pools both ways, and shows what differs, cut down to the least that does. A pool is data of plain
types, so that it can be printed, cut down and read back (`Pool(**json.loads(text))`).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.fairshare.group_tree import GroupConfig
from engine.fairshare.priorities import Record
from engine.match.concurrency_limits import LimitConfig
from engine.match.cycle import negotiate
from engine.match.model import CycleConfig, Request, Snapshot
from engine.match.slot_table import snapshot_of
from shared.classad import ClassAd, parse_expr
from tests.unit.negotiator.outcomes import Outcome, outcome_of
from tests.unit.negotiator.plain_cycle import plain_negotiate

NOW = 1_000_000_000.0
#: Knobs whose values are expressions.
EXPRESSIONS = frozenset(
    (
        "pre_job_rank",
        "post_job_rank",
        "preemption_requirements",
        "preemption_rank",
        "slot_constraint",
        "poolsize_constraint",
        "slot_weight",
    )
)
#: NEGOTIATOR_PRE_JOB_RANK, _POST_JOB_RANK and PREEMPTION_RANK as they are by default.
PRE = "(10000000 * MY.Rank) + (1000000 * (RemoteOwner =?= UNDEFINED)) - (100000 * Cpus) - Memory"
POST = (
    "(RemoteOwner =?= UNDEFINED) * (ifThenElse(isUndefined(KFlops), 1000, KFlops) - SlotID - 1.0e10*(Offline=?=True))"
)
PREEMPTION = "(RemoteUserPrio * 1000000) - ifThenElse(isUndefined(TotalJobRunTime), 0, TotalJobRunTime)"


@dataclass(frozen=True)
class Pool:
    """slots: attributes as texts. asks: submitter, schedd, autocluster, count, ad; in the submitters' order. records:
    fields of Record, by submitter. config: fields of CycleConfig, groups and limits: of GroupConfig and LimitConfig."""

    slots: list[dict[str, str]]
    asks: list[dict[str, Any]]
    records: dict[str, dict[str, Any]]
    config: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    withheld: list[str] = field(default_factory=list)
    nameless: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)

    def cycle_config(self) -> CycleConfig:
        knobs: dict[str, Any] = {
            name: parse_expr(value) if name in EXPRESSIONS else value for name, value in self.config.items()
        }
        groups = dict(self.groups)
        if "sort_expr" in groups:
            groups["sort_expr"] = parse_expr(groups["sort_expr"])
        if groups:
            groups["weighted_slots"] = knobs.get("use_slot_weights", True)
            groups["consider_preemption"] = knobs.get("consider_preemption", True)
        names = tuple(groups.pop("names", ()))
        return CycleConfig(
            **knobs, groups=GroupConfig(names=names, **groups) if names else None, limits=LimitConfig(**self.limits)
        )

    def snapshot(self, config: CycleConfig, shuffled: random.Random | None = None) -> Snapshot:
        """shuffled: with what has no order in another order."""
        slots = [ad(slot) for slot in self.slots]
        requests: dict[str, list[Request]] = {}
        for ask in self.asks:
            request = Request(ask["schedd"], ask["autocluster"], ask["count"], ad(ask["ad"]))
            requests.setdefault(ask["submitter"], []).append(request)
        records = {name: Record(updated=NOW, **fields) for name, fields in self.records.items()}
        if shuffled is not None:
            shuffled.shuffle(slots)
            requests = dict(shuffled.sample(sorted(requests.items()), len(requests)))
            records = dict(shuffled.sample(sorted(records.items()), len(records)))
        return snapshot_of(
            slots,
            requests,
            records,
            config,
            withheld=frozenset(self.withheld),
            nameless=frozenset(self.nameless),
            running=frozenset(self.running),
        )


def ad(attributes: dict[str, str]) -> ClassAd:
    made = ClassAd()
    for name, text in attributes.items():
        made.set_text(name, text)
    return made


def both(pool: Pool) -> tuple[Outcome, Outcome]:
    """What the cycle and its twin decide."""
    config = pool.cycle_config()
    snapshot = pool.snapshot(config)
    fast = outcome_of(negotiate(snapshot, config, NOW), snapshot)
    return fast, plain_negotiate(pool.snapshot(config), config, NOW)


# --- making pools


def random_pool(seed: int) -> Pool:
    return _Maker(random.Random(seed)).pool()


class _Maker:
    def __init__(self, r: random.Random) -> None:
        self.r = r

    def may(self, chance: float) -> bool:
        return self.r.random() < chance

    def pool(self) -> Pool:
        r = self.r
        self.grouped = self.may(0.3)
        self.preempting = self.may(0.5)
        self.limited = self.may(0.3)
        self.machines = r.choice(("static", "static", "partitionable", "mixed"))
        self.weights = r.choice(("Cpus", "Cpus", "one", "none", "various"))
        self.submitters = [self.submitter(i) for i in range(r.randint(1, 6))]
        self.users = [*self.submitters, self.submitter(9)]
        slots = self.slots()
        asks = [ask for name in self.submitters for ask in self.asks(name)]
        names = [json.loads(slot["Name"]) for slot in slots]
        return Pool(
            slots,
            asks,
            self.records(),
            self.config(),
            self.groups() if self.grouped else {},
            self.limits() if self.limited else {},
            [name for name in names if self.may(0.02)],
            [name for name in names if self.may(0.02)],
            [name for name in dict.fromkeys(self.users) if self.may(0.5)],
        )

    def submitter(self, number: int) -> str:
        name = f"u{number}@pool"
        if self.grouped:
            name = self.r.choice(("", "g1.", "g1.", "g2.", "g1.s1.", "g1.s1.x.", "g3.")) + name
        return name

    # slots

    def slots(self) -> list[dict[str, str]]:
        r = self.r
        slots: list[dict[str, str]] = []
        most = r.choice((4, 8, 12, 25))
        while len(slots) < most and (len(slots) < 3 or self.may(0.9)):
            kind = r.choice(("static", "partitionable")) if self.machines == "mixed" else self.machines
            host = f"m{len(slots)}"
            common = self.machine(host)
            if kind == "static":
                number = r.randint(1, 3)
                slots += [self.static(common, f"slot{i}@{host}", i) for i in range(1, number + 1)]
            else:
                slots += self.partitionable(common, host)
        return slots

    def machine(self, host: str) -> dict[str, str]:
        r = self.r
        common = {"Machine": f'"{host}"', "Arch": r.choice(('"X86_64"', '"X86_64"', '"x86_64"', '"ARM"'))}
        if self.may(0.4):
            common["KFlops"] = r.choice(("1000", "1500.5", "undefined", '"fast"'))
        if self.may(0.3):
            common["HasGadget"] = r.choice(("true", "false", "1", '"yes"'))
        common["NETWORK"] = r.choice(('"net_a"', '"net_b"', '"lic:2 net_a"'))
        common["Requirements"] = "START"
        common["START"] = r.choice(
            (
                *("true",) * 8,
                "TARGET.RequestMemory < 900",
                "TARGET.JobPrio >= 0",
                "false",
                "undefined",
                "TARGET.SubmitterUserPrio < 50",
                "TARGET.SubmitterUserResourcesInUse < 3",
                "SlotID != 2 || TARGET.JobPrio =?= 3",
                "RemoteUserResourcesInUse =?= undefined || RemoteUserResourcesInUse > 1",
                "Slot1_RemoteUserPrio =?= undefined || Slot1_RemoteUserPrio < 100",
            )
        )
        common["Rank"] = r.choice(
            (
                *("0.0",) * 3,
                "TARGET.JobPrio",
                'TARGET.Owner == "u0"',
                "TARGET.RequestMemory / 100.0",
                "undefined",
                '"x"',
            )
        )
        if self.may(0.03):
            common["Offline"] = "true"
        if self.may(0.03):
            common["DaemonShutdown"] = f"time() > {int(NOW) + r.choice((-5, 50, 500))}"
        return common

    def weigh(self, slot: dict[str, str]) -> None:
        r = self.r
        if self.weights == "Cpus":
            slot["SlotWeight"] = "Cpus"
        elif self.weights == "one":
            slot["SlotWeight"] = "1"
        elif self.weights == "various":
            odd = ("0.5", "Memory / 1024", "-1", "0", "undefined", '"x"', "true", "Cpus + Memory / 1000.0", "1e10")
            slot["SlotWeight"] = r.choice(("Cpus", "Cpus", "2", "1.5", *odd))
            if self.may(0.1):
                del slot["SlotWeight"]

    def static(self, common: dict[str, str], name: str, number: int) -> dict[str, str]:
        r = self.r
        slot = {"Name": f'"{name}"', "SlotID": str(number), **common, "Cpus": str(r.choice((1, 1, 1, 2, 4)))}
        slot |= {"Memory": str(r.choice((512, 1024, 2048, 4096))), "Disk": "100000"}
        slot |= {"State": '"Unclaimed"', "Activity": '"Idle"'}
        self.weigh(slot)
        if self.may(0.45 if self.preempting else 0.15):
            self.claim(slot)
        elif self.may(0.05):
            slot["State"] = r.choice(('"Owner"', '"Matched"', '"Drained"'))
        return slot

    def claim(self, slot: dict[str, str]) -> None:
        r = self.r
        user = r.choice(self.users)
        slot |= {"State": '"Claimed"', "Activity": '"Busy"', "RemoteOwner": '"somebody"', "RemoteUser": f'"{user}"'}
        slot["CurrentRank"] = r.choice(("0.0", "0.0", "0.0", "1.0", "-1.0", "3", "undefined"))
        if self.grouped:
            slot["AccountingGroup"] = f'"{user}"'
        if self.may(0.5):
            slot["TotalJobRunTime"] = str(r.randrange(0, 5000, 10))
        if self.may(0.15):
            slot["RetirementTimeRemaining"] = r.choice(("0", "100", "undefined", "-1"))
        if self.may(0.1):
            slot["Activity"] = r.choice(('"Idle"', '"Suspended"', '"Retiring"'))
        if self.may(0.05):
            slot["State"], slot["Activity"] = '"Preempting"', '"Vacating"'
        if self.may(0.08):
            slot["PreemptingUser"] = f'"{r.choice(self.users)}"'
        if self.limited and self.may(0.4):
            slot["ConcurrencyLimits"] = r.choice(('"lic"', '"lic:2,net_a"', '"db.one"', '"9bad, lic"'))

    def partitionable(self, common: dict[str, str], host: str) -> list[dict[str, str]]:
        r = self.r
        cpus = r.choice((1, 4, 8, 8, 16))
        slot = {"Name": f'"slot1@{host}"', "SlotID": "1", **common, "PartitionableSlot": "true"}
        slot |= {"Cpus": str(cpus), "Memory": str(r.choice((1000, 2048, 8192, 16000))), "Disk": "100000"}
        slot |= {"State": '"Unclaimed"', "Activity": '"Idle"', "MachineResources": '"Cpus Memory Disk Swap"'}
        if self.may(0.25):
            slot["GPUs"], slot["MachineResources"] = str(r.choice((1, 2, 4))), '"Cpus Memory Disk Swap GPUs"'
        if self.may(0.3):
            slot["Requirements"] = (
                "START && TARGET.RequestCpus <= MY.Cpus && TARGET.RequestMemory <= MY.Memory"
                " && (TARGET.RequestGPUs ?: 0) <= (MY.GPUs ?: 0)"
            )
        if self.may(0.15):
            slot["START"] = r.choice(("MY.Memory > 700", "MY.Cpus >= 2", "TARGET.RequestCpus * 2 <= MY.Cpus"))
        self.weigh(slot)
        if self.may(0.25):
            slot["ConsumptionCpus"] = r.choice(("quantize(target.RequestCpus,{1})", "quantize(target.RequestCpus,{2})"))
            slot["ConsumptionMemory"] = r.choice(("quantize(target.RequestMemory,{128})", "target.RequestMemory", "0"))
            slot["ConsumptionDisk"] = "quantize(target.RequestDisk,{1024})"
            if "GPUs" in slot:
                slot["ConsumptionGPUs"] = "quantize(target.RequestGPUs,{0})"
        made = [slot]
        for number in range(1, r.choice((1, 1, 2, 4))):
            part = self.static(common, f"slot1_{number}@{host}", 1)
            part |= {"DynamicSlot": "true", "DSlotID": str(number)}
            if part["State"] != '"Claimed"':
                self.claim(part)
            made.append(part)
        return made

    # who asks

    def asks(self, name: str) -> Iterator[dict[str, Any]]:
        r = self.r
        owner = name.rpartition("@")[0].rpartition(".")[2]
        for cluster in range(r.randint(1, r.choice((1, 2, 5)))):
            yield {
                "submitter": name,
                "schedd": r.choice(("schedd.a", "schedd.a", "schedd.b")),
                "autocluster": r.choice((cluster, cluster, 0)),
                "count": r.choice((1, 1, 2, 3, 5, 12)),
                "ad": self.job(owner),
            }

    def job(self, owner: str) -> dict[str, str]:
        r = self.r
        job = {"Owner": f'"{owner}"', "JobUniverse": "5", "RequestCpus": str(r.choice((1, 1, 1, 2, 3)))}
        job["RequestMemory"] = r.choice(("1", "100", "128", "300", "1000", "1500", "0.5"))
        job["RequestDisk"] = r.choice(("1", "10", "1024", "30000"))
        if self.may(0.5):
            job["JobPrio"] = r.choice(("0", "3", "-2"))
        job["Requirements"] = r.choice(
            (
                *("true",) * 3,
                "TARGET.Memory >= RequestMemory && TARGET.Cpus >= RequestCpus",
                "TARGET.Memory >= 1024",
                "TARGET.Cpus >= 2",
                'TARGET.Arch == "X86_64"',
                'TARGET.Arch =?= "X86_64" || TARGET.SlotID == 2',
                "TARGET.HasGadget",
                "TARGET.SlotID == 1 && TARGET.Disk >= RequestDisk",
                'regexp("m[0-4]", TARGET.Machine)',
                "member(TARGET.SlotID, {1, 3})",
                "TARGET.RemoteUserPrio =?= undefined || MY.SubmitterUserPrio < TARGET.RemoteUserPrio",
                "SubmitterUserResourcesInUse < 4",
                "TARGET.Nothing",
            )
        )
        job["Rank"] = r.choice(
            (
                *("0.0",) * 2,
                "TARGET.Memory",
                "-TARGET.Memory",
                "TARGET.Cpus * 10",
                "TARGET.SlotID",
                "TARGET.KFlops / 1000.0",
                "TARGET.Nothing",
                "TARGET.Memory > 2000",
                "(TARGET.Cpus - 3) * (TARGET.Cpus - 3)",
                '"text"',
            )
        )
        if self.may(0.1):
            job["RequestMemory"] = r.choice(
                ('ifThenElse(TARGET.Arch == "ARM", 700, 300)', "undefined", "-5", '"x"', "true", "JobPrio * 100")
            )
        if self.may(0.05):
            job["RequestCpus"] = r.choice(("undefined", "0", "-1", "1.5", "TARGET.SlotID", "1e300", 'real("NaN")'))
        if self.may(0.05):
            del job[r.choice(("RequestDisk", "RequestCpus", "Rank", "RequestMemory"))]
        if self.may(0.2):
            job["RequestGPUs"] = r.choice(("1", "2", "0", "undefined", "0.5"))
        if self.limited and self.may(0.6):
            job["ConcurrencyLimits"] = r.choice(
                (
                    *('"lic"', '"lic:2"', '"db.one, lic"', '"db.two:0.5"', '"other"', '"a-b"'),
                    *("TARGET.NETWORK", 'strcat("lic:2 ", TARGET.NETWORK)', "TARGET.Nothing"),
                )
            )
            if self.may(0.05):
                job["JobUniverse"] = "7"
        return job

    def records(self) -> dict[str, dict[str, float]]:
        r = self.r
        records: dict[str, dict[str, float]] = {}
        for name in self.users:
            if self.may(0.1):
                continue
            record = {"priority": r.choice((0.5, 1.0, 5.0, 10.0, 20.0, 3.7, round(r.uniform(0.5, 200.0), 2)))}
            record["factor"] = r.choice((1.0, 1.0, 1.0, 10.0, 1000.0))
            if self.may(0.12):
                record["ceiling"] = r.choice((0.0, 1.0, 2.0, 3.0, 5.0, 2.5))
            if self.may(0.12):
                record["floor"] = r.choice((1.0, 2.0, 4.0, 7.0, 1.5))
            records[name] = record
        return records

    # knobs

    def config(self) -> dict[str, Any]:
        r = self.r
        knobs: dict[str, Any] = {}

        def one(name: str, chance: float, *values: Any) -> None:
            if self.may(chance):
                knobs[name] = r.choice(values)

        one("pre_job_rank", 0.7, PRE, PRE, PRE, "Memory", "-Memory", "-Cpus", "undefined", "MY.Rank", "Cpus % 3")
        one("post_job_rank", 0.7, POST, POST, POST, "KFlops", "-SlotID", '"text"')
        if self.preempting:
            one(
                "preemption_requirements",
                0.8,
                *("true", "true", "RemoteUserPrio > SubmitterUserPrio * 1.2", "undefined", "1"),
                *("TotalJobRunTime > 1000", "SubmitterUserResourcesInUse < 4", "RemoteUserResourcesInUse > 1"),
                "SubmitterGroup =?= RemoteGroup",
                "SubmitterGroupResourcesInUse < SubmitterGroupQuota",
            )
            one("preemption_rank", 0.8, PREEMPTION, PREEMPTION, "-RemoteUserResourcesInUse", "TotalJobRunTime")
            one("consider_preemption", 0.1, False)
            one("consider_early_preemption", 0.2, True)
            one("allow_pslot_preemption", 0.25, True)
            one("preemption_requirements_stable", 0.2, False)
            one("preemption_rank_stable", 0.2, False)
        one("use_slot_weights", 0.07, False)
        one("force_slot_weight", 0.05, True)
        one("slot_weight", 0.1, "Memory / 1024.0", "Cpus * 2", "undefined")
        one("slot_constraint", 0.07, "Memory > 600", "Cpus < 8", "SlotID == 1 || Cpus > 1")
        one("poolsize_constraint", 0.07, "Memory > 600", "SlotID == 1")
        one("trim_shutdown_s", 0.1, 100.0, 1000.0)
        one("depth_first", 0.12, True)
        one("matchlist_caching", 0.15, False)
        one("all_jobs_in_cluster", 0.15, True)
        return knobs

    def groups(self) -> dict[str, Any]:
        r = self.r
        names = ["g1", "g2", "g1.s1"] if self.may(0.6) else ["g1", "g2"]
        quota, dynamic = {}, {}
        for name in names:
            if self.may(0.5):
                quota[name] = float(r.choice((0, 1, 2, 3, 5, 8, 20)))
            elif self.may(0.9):
                dynamic[name] = r.choice((0.1, 0.25, 0.3333, 0.5, 0.75, 1.0))
        groups: dict[str, Any] = {"names": names, "quota": quota, "dynamic_quota": dynamic}
        groups["accept_surplus"] = self.may(0.4)
        groups["accept_surplus_by"] = {name: self.may(0.5) for name in names if self.may(0.3)}
        groups["autoregroup_by"] = {name: True for name in names if self.may(0.12)}
        if self.may(0.3):
            groups["allow_oversubscription"] = False
        if self.may(0.1):
            groups["strict_enforce"] = False
        if self.may(0.1):
            groups["sort_expr"] = r.choice(('ifThenElse(AccountingGroup == "g1", 1, 2)', "-GroupQuota", "undefined"))
        if self.may(0.15):
            groups["round_robin_rate"] = r.choice((1.0, 2.0, 3.0))
        return groups

    def limits(self) -> dict[str, Any]:
        r = self.r
        limits: dict[str, Any] = {"limits": {"lic": float(r.randint(0, 8))}}
        if self.may(0.5):
            limits["limits"]["net_a"] = r.choice((1.0, 2.0, 4.0, 2.5))
        if self.may(0.5):
            limits["defaults"] = {"db": r.choice((1.0, 2.0, 1.5))}
        if self.may(0.3):
            limits["default"] = r.choice((0.0, 2.0, 5.0))
        return limits


def differ(pool: Pool) -> bool:
    fast, plain = both(pool)
    return fast != plain


def report(pool: Pool) -> str:
    fast, plain = both(pool)
    lines = [f"  {name}: {value}" for name, value in asdict(pool).items() if value]
    for name, mine, its in (("fast", fast, plain), ("plain", plain, fast)):
        lines += [f"  only {name}: {gift}" for gift in mine.gifts if gift not in its.gifts]
        lines += [f"  {name} left: {list(zip(mine.left, mine.codes, strict=True))}"]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Decide made-up pools by the cycle and by its plain twin.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first")
    parser.add_argument("--show", type=int, default=3, help="how many differences to cut down and show")
    arguments = parser.parse_args()
    found = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        pool = random_pool(seed)
        if differ(pool):
            found += 1
            if found <= arguments.show:
                from tests.unit.negotiator.cutting import cut_down  # which needs Pool

                print(f"seed {seed} differs:\n{report(cut_down(pool, differ))}", flush=True)
    print(f"{found} of {arguments.seeds} pools differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
