"""Who gets what in one negotiation cycle: made-up pools of slots, some of them claimed, submitters with priorities,
floors, ceilings, groups and quotas, requests with ranks and concurrency limits. A side's answers: who gets how many
slots, and each match.

The reference is a collector, a schedd and a negotiator of its own (`pool`). The slots are ads with claim ids that lead
nowhere, the jobs are submitted, the priorities are in the negotiator's journal when it starts. Where it can not be had,
what was recorded is replayed. A pool has the form that tests/data/reference_pools/README.md tells.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from engine.match.cycle import negotiate
from engine.match.model import CycleConfig, Result, Snapshot
from tests.reference.daemons import Daemons
from tests.reference.drawn_pools import make
from tests.reference.family import Case, Facts, Family
from tests.reference.htcondors_cycle import negotiate_as_htcondor
from tests.reference.pool import Shell
from tests.reference_pools import Recorded, recorded
from tests.unit.negotiator import test_reference_pools as pools

_CONFIG: Final = (
    "PRIORITY_HALFLIFE = 1e15",
    "NEGOTIATOR_INTERVAL = 3600",
    "NEGOTIATOR_MIN_INTERVAL = 0",
    "NEGOTIATOR_CYCLE_DELAY = 0",
    "NEGOTIATOR_DEBUG = D_MATCH",
    "SCHEDD_INTERVAL = 300",
    "SCHEDD_MIN_INTERVAL = 0",
    "SCHEDD_ASSUME_NEGOTIATOR_GONE = 100000",
)


#: Where the startds seem to be: they take connections and never answer, so that a match is on its way for the whole
#: cycle.
SILENT_PORT: Final = 9


# The reference


class NegotiationReference:
    """A pool of the reference for each case."""

    def __init__(self) -> None:
        self._daemons = Daemons(alone=False)

    def __enter__(self) -> NegotiationReference:
        self._daemons.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._daemons.__exit__()

    def ask(self, case: Case) -> Facts | None:
        """Its cycle. The case learns what it went by: now, each submitter's demand, the matches."""
        case["demand"] = _demand(case)
        with Shell(self._daemons, [*_CONFIG, *case["config"]]) as shell:
            shell.start("collector")
            shell.advertise(_slot_ads(case))
            shell.listen(SILENT_PORT)
            shell.start("schedd")
            shell.write("jobs.sub", _submit_file(case))
            shell.run("chroot --userspec=65534:65534 --skip-chdir / condor_submit /pool/jobs.sub")
            shell.run("condor_reschedule")
            shell.until(f'[ "$(condor_status -submitters -af Name | wc -l)" = {len(case["demand"])} ]')
            shell.write("submitters.ads", _submitter_ads(case, shell.run("head -n 1 /pool/log/schedd_address").strip()))
            shell.run("condor_advertise -multiple UPDATE_SUBMITTOR_AD /pool/submitters.ads")
            case["now"] = int(time.time())
            shell.write("spool/Accountantnew.log", _journal(case))
            shell.run("chown 64:64 /pool/spool/Accountantnew.log")
            shell.start("negotiator")
            try:
                shell.until("grep -q 'Finished Negotiation Cycle' /pool/log/NegotiatorLog", 60.0)
            except TimeoutError:
                return None
            log = shell.run("cat /pool/log/NegotiatorLog")
        if "Ignoring submitter for this cycle" in log:  # it lost the schedd: no answer
            return None
        case["matches"] = _told(case, log)
        return matches_of(case)


def _demand(case: Case) -> dict[str, list[float]]:
    """What the submitter ads say: weights of idle jobs and of slots in use, numbers of both."""
    found: dict[str, list[float]] = {}
    for job in case["jobs"]:
        one = found.setdefault(job["submitter"], [0.0, 0.0, 0, 0])
        one[0] += job["count"] * float(job["ad"]["RequestCpus"])
        one[2] += job["count"]
    for slot in case["slots"]["each"]:
        if user := slot.get("RemoteUser", "").strip('"'):
            one = found.setdefault(user, [0.0, 0.0, 0, 0])
            one[1] += float(slot["Cpus"])
            one[3] += 1
    return found


def _slot_ads(case: Case) -> list[tuple[dict[str, str], dict[str, str]]]:
    ads = []
    startd = f'"<127.0.0.1:{SILENT_PORT}>"'
    for number, slot in enumerate(case["slots"]["each"]):
        address = {"MyAddress": startd, "Name": slot["Name"]}
        public = {**case["slots"]["common"], **slot, **address, "StartdIpAddr": startd}
        claim = f'"<127.0.0.1:{SILENT_PORT}>#1#{number}#..."'
        ads.append((public, {**address, "ClaimId": claim, "Capability": claim}))
    return ads


def _submit_file(case: Case) -> str:
    lines = ["executable = /bin/true", "should_transfer_files = NO"]
    for job in case["jobs"]:
        ad = job["ad"]
        lines.append(f"accounting_group_user = {ad['AcctGroupUser'].strip(chr(34))}")
        lines.append(f"accounting_group = {ad.get('AcctGroup', '').strip(chr(34))}")
        # Not by its command: without a value, that takes over what the jobs before have.
        lines.append(f"+ConcurrencyLimits = {ad.get('ConcurrencyLimits', 'undefined')}")
        lines.append(f"requirements = {ad['Requirements']}")
        lines.append(f"rank = {ad['Rank']}")
        lines.append(f"priority = {ad['JobPrio']}")
        lines.append(f"request_cpus = {ad['RequestCpus']}")
        lines.append(f"request_memory = {ad['RequestMemory']}")
        lines.append(f"request_disk = {ad['RequestDisk']}")
        lines.append(f"queue {job['count']}")
    asking = {job["submitter"] for job in case["jobs"]}
    for user in case["demand"].keys() - asking:  # the schedd must know of them, or it ends the conversation
        group, _, owner = user.split("@")[0].rpartition(".")
        lines += [f"accounting_group = {group}", f"accounting_group_user = {owner}", "hold = true", "queue"]
    return "\n".join(lines)


def _submitter_ads(case: Case, schedd: str) -> str:
    ads = []
    for name, (weight, weight_running, idle, running) in case["demand"].items():
        ads.append(
            f'MyType = "Submitter"\nName = "{name}"\nMachine = "refhost.ref"\nScheddName = "refhost.ref"\n'
            f'ScheddIpAddr = "{schedd}"\nMyAddress = "{schedd}"\nIdleJobs = {idle}\nRunningJobs = {running}\n'
            f"WeightedIdleJobs = {weight}\nWeightedRunningJobs = {weight_running}\nHeldJobs = 0\nFlockedJobs = 0\n"
            f'SubmitterTag = ""\nWantResAd = true\nCondorVersion = "$CondorVersion: 23.9.6 2024-08-08 $"\n'
        )
    return "\n".join(ads)


def _journal(case: Case) -> str:
    lines = ["107 1 CreationTimestamp 1", "101 Accountant. * *", f"103 Accountant. LastUpdateTime {case['now']}"]
    for name, one in case["submitters"].items():
        key = f"Customer.{name}"
        lines += [f"101 {key} * *", f"103 {key} Priority {one['priority']:.6f}"]
        lines.append(f"103 {key} PriorityFactor {one['factor']:.6f}")
        lines += [f"103 {key} Floor {int(one['floor'])}", f"103 {key} Ceiling {int(one['ceiling'])}"]
    return "\n".join(lines) + "\n"


_SPIN: Final = re.compile(r"Phase 4\.(\d+):")
_MATCHED: Final = re.compile(r"Matched (\d+)\.(\d+) (\S+) <[^>]*> preempting (\S+)(?: \(\S+\))? <[^>]*> (\S+)$")


def _told(case: Case, log: str) -> list[tuple[int, str, str, int]]:
    """Of a negotiator's log: place in `jobs`, slot, whom it preempts, spin."""
    spin, found = 1, []
    ends = []
    total = 0
    for job in case["jobs"]:
        total += job["count"]
        ends.append(total)
    for line in log.partition("Finished Negotiation Cycle")[0].splitlines():
        if phase := _SPIN.search(line):
            spin = int(phase[1])
        elif match := _MATCHED.search(line.rstrip()):
            _, proc, _, preempts, slot = match.groups()
            place = next(n for n, end in enumerate(ends) if int(proc) < end)
            found.append((place, slot, preempts, spin))
    return found


# Answers


def recorded_pools() -> Iterator[tuple[Case, Facts]]:
    for pool in recorded():
        yield pool.row, matches_of(pool.row)


_Matches = list[tuple[str, int, str, str]]

#: Why HTCondor's matches are others, where they are just what comes out if this is done as there (`htcondors_cycle`).
SPINS: Final = (
    "later spins divide what is free, as the manual has it (NEG-10, W-13), not the whole pool again; allocations in "
    "later rounds do not exceed the pool where groups regroup"
)
ROUNDING: Final = "the reference takes quotas of 1.9999999999999998 for less than 2"
PARTS: Final = "several jobs get their part of a partitionable slot in one cycle, there is one match for each slot"


def _decided(row: Case, negotiate: Callable[[Snapshot, CycleConfig, float], Result]) -> _Matches:
    pool = Recorded(row)
    with tempfile.TemporaryDirectory() as place:
        result = pools.decide(pool, pools.config_of(pool, Path(place)), negotiate)
    users = pools.users_of(pool)
    return [one for match in result.matches for one in pools.told(match, users)]


def ours(row: Case) -> Facts:
    told = _decided(row, negotiate)
    theirs = Counter(pools.expected(Recorded(row)))
    if "until" not in row and Counter(told) != theirs:
        if Counter(_decided(row, negotiate_as_htcondor)) == theirs:
            row["because"] = SPINS
        elif Counter(_decided(row, partial(negotiate_as_htcondor, nearly=0.0))) == theirs:
            row["because"] = ROUNDING
        elif _has_parts(row) and Counter(_decided(_whole(row), negotiate_as_htcondor)) == theirs:
            row["because"] = PARTS
    return _matches(told)


def _has_parts(row: Case) -> bool:
    return any("PartitionableSlot" in slot for slot in row["slots"]["each"])


def _whole(row: Case) -> Case:
    """The same pool, whose partitionable slots are given away whole."""
    each = [
        {name: text for name, text in slot.items() if name not in ("SlotType", "PartitionableSlot")}
        for slot in row["slots"]["each"]
    ]
    return {**row, "slots": {**row["slots"], "each": each}}


def matches_of(row: Case) -> Facts:
    """The reference's answers, of a pool that it has decided."""
    return _matches(pools.expected(Recorded(row)))


def _matches(told: _Matches) -> Facts:
    """Who gets how many, and each match: which of whose requests gets which slot, preempting whom."""
    return {
        "who gets how many": dict(sorted(Counter(who for who, *_ in told).items())),
        **{
            f"match {who} {request} {slot} {preempts}": n for (who, request, slot, preempts), n in Counter(told).items()
        },
    }


def _on_purpose(row: Case, question: str, mine: Any, theirs: Any) -> str:
    return str(row.get("because") or pools.REASONS.get(row.get("until", {}).get("because", ""), ""))


def _cause(question: str, mine: Any, theirs: Any) -> str:
    return "a match" if question.startswith("match") else question


NEGOTIATION: Final = Family(
    "negotiation", make, ours, _on_purpose, _cause, recorded=recorded_pools, reference=NegotiationReference
)
