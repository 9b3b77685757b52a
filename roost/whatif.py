"""One negotiation cycle on paper: who would get what.

    from roost.whatif import what_if
    from shared.classad import parse_ads
    from shared.config import load_config

    config = load_config(["pool.config"], subsystem="NEGOTIATOR", overrides={"GROUP_QUOTA_group_physics": "20"})
    answer = what_if(parse_ads(slots), parse_ads(jobs), parse_ads(accounting), config, now=1795294462.0)
    for placed in answer.placed:
        print(placed.job, placed.submitter, placed.slot, placed.preempts)
    answer.result          # all that the cycle itself tells: engine.match.model.Result

Ads are as `condor_status -long`, `condor_q -long` and `condor_userprio -long -modular` write them, or the pool gives
them. Every step is done by the code of the daemon whose step it is: schedds sort their idle jobs into requests
(NEG-15, NEG-17, NEG-29), the accountant's records come to what they are at `now` (ACC-03), the cycle decides. Pure:
equal arguments give equal answers. What ads do not tell is taken for absent: matches on their way, claim ids that are
missing, preemptions of the past, time limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from engine.fairshare.accounting_ads import record_of
from engine.fairshare.group_negotiation import GroupResult
from engine.fairshare.group_tree import ROOT, SubmitterDemand, group_demand
from engine.fairshare.priorities import Record, Share, choose_factor, effective, restore, settle
from engine.match.cycle import negotiate
from engine.match.model import CycleConfig, Request, Result
from engine.match.slot_arrays import frame_of, slot_weight
from engine.match.slot_table import snapshot_of
from engine.policy import Policy, read_policy
from engine.queue.autoclusters import Autoclusters, looked_at
from engine.queue.bucket import Key
from engine.queue.job_table import JobTable
from engine.queue.jobs import BadSubmit, Cluster, Job, JobId, JobStatus, full_ad, priority_of
from engine.queue.submitters import Identity, submitter_ad, submitter_of
from shared.classad import ClassAd, evaluate, is_true
from shared.classad.budget import Budget
from shared.classad.cells import PackedText, Stored
from shared.config import Config
from shared.config.knobs import ScheddSettings
from shared.errors import PermanentError

#: JobUniverse of jobs that run beside their schedd and ask for no slot: scheduler and local.
_WITHOUT_SLOT: Final = (7, 12)
#: Attributes in which ads say when they were true.
_MOMENTS: Final = ("MyCurrentTime", "LastHeardFrom", "ServerTime", "LastUpdate")
#: What a schedd does not keep of a job, as it follows from the rest.
_DERIVED: Final = frozenset(("procid", "globaljobid", "servertime", "autoclusterid"))
_ALL: Final = 1 << 60


class BadAd(PermanentError):
    """An ad that can not be negotiated with. kind: slot, job or accounting; number: its place in the list, from 0."""

    def __init__(self, kind: str, number: int, reason: str) -> None:
        super().__init__(f"{kind} ad number {number + 1}: {reason}")
        self.kind, self.number, self.reason = kind, number, reason


@dataclass(frozen=True, slots=True)
class Placed:
    """A job that gets a slot. job: "12.3". weight: charged for it. reason: see engine.match.model.Matched.
    preempts: (slot, who has it now) of every claim that ends; those of a partitionable slot are told with the first job
    that goes there."""

    submitter: str
    schedd: str
    job: str
    slot: str
    weight: float
    reason: str
    preempts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Unplaced:
    """`count` jobs, `job` the first of them, that are alike and get nothing. code, reason, counts, details: see
    engine.match.model.Rejected."""

    submitter: str
    schedd: str
    job: str
    count: int
    code: str
    reason: str
    counts: Mapping[str, int]
    details: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Standing:
    """A submitter. group: key of its accounting group. priority: effective. in_use: weight before the cycle; lost: of
    it by preemption; given: weight that it gets. share: its part of the pie (0 to 1) in the first spin of its group;
    limit: the weight that it might take in that spin. asked, matched: jobs."""

    name: str
    group: str
    priority: float
    factor: float
    in_use: float
    asked: int
    matched: int
    given: float
    lost: float
    share: float
    limit: float


@dataclass(frozen=True, slots=True)
class Answer:
    """See the module. slots: how many there are, outside NEGOTIATOR_SLOT_CONSTRAINT not counted; their weight as far as
    it counts for shares. groups: in order of negotiation, without groups <none> alone. standings: by group in that
    order, best priority first. placed: by match. problems: what the administrator should hear of his configuration."""

    now: float
    slots: int
    weight: float
    groups: Sequence[GroupResult]
    standings: tuple[Standing, ...]
    placed: tuple[Placed, ...]
    unplaced: tuple[Unplaced, ...]
    result: Result
    problems: tuple[str, ...]

    @property
    def has_groups(self) -> bool:
        return any(plan.group != ROOT for plan in self.groups)


#: Processor seconds that the evaluations of one question may take, and steps of these: a large pool is looked at whole.
MOST_S: Final = 60.0
MOST_STEPS: Final = 120_000_000


def what_if(
    slots: Iterable[ClassAd],
    jobs: Iterable[ClassAd],
    accounting: Iterable[ClassAd],
    config: Config,
    now: float,
    *,
    most_s: float = MOST_S,
) -> Answer:
    """What a cycle at `now` (seconds since 1970) would decide.

    slots: machine ads, each with a Name of its own. jobs: of any state; idle ones ask. accounting: of submitters; who
    has none is taken for a newcomer, ads of groups are passed over. config: with subsystem NEGOTIATOR. most_s:
    processor seconds for the evaluations. Raises BadAd, ConfigError, TooExpensive.
    """
    with Budget("this what-if", steps=MOST_STEPS, made=1 << 32, seconds=most_s).open() as budget:
        answer = _what_if(slots, jobs, accounting, config, now)
        budget.check()  # what met the limit while reasons were looked for lacks some
        return answer


def _what_if(
    slots: Iterable[ClassAd], jobs: Iterable[ClassAd], accounting: Iterable[ClassAd], config: Config, now: float
) -> Answer:
    policy = read_policy(config, lambda: 0.0)
    # Which slots are this negotiator's is decided here, as by its daemon: of others a cycle never hears.
    cycle = replace(policy.cycle, monotonic=None, slot_constraint=None)
    ads = _slots(slots, policy, now)
    snapshot = snapshot_of(ads.values(), {}, {}, cycle)
    significant = policy.significant.of(frame_of(snapshot.slots).table)
    queues = _queues(jobs, policy, ScheddSettings.from_config(config), significant)
    requests = _requests(queues, policy, now)
    records = _records(accounting, {*requests, *snapshot.in_use}, policy, now)
    asked = _demand(queues, requests, snapshot.in_use, policy)
    running = frozenset(name for name, record in records.items() if record.slots_in_use)
    moment = replace(snapshot, requests=requests, records=records, demand=asked, running=running)
    result = negotiate(moment, cycle, now)
    placed, unplaced = _told(result, queues)
    return Answer(
        now=now,
        slots=len(ads),
        weight=snapshot.total_weight,
        groups=result.groups,
        standings=_standings(policy, result, records, snapshot.in_use, requests, _lost(placed, ads, cycle)),
        placed=placed,
        unplaced=unplaced,
        result=result,
        problems=policy.problems,
    )


def moment_of(*lists: Iterable[ClassAd]) -> float:
    """The newest time that these ads tell of (seconds since 1970): when they were true. 0: they tell none."""
    newest = 0.0
    for ads in lists:
        for ad in ads:
            for name in _MOMENTS:
                value = ad.eval(name) if name in ad else 0
                if isinstance(value, int | float) and newest < value < math.inf:
                    newest = float(value)
    return newest


# --- slots and the accounting records


def _slots(slots: Iterable[ClassAd], policy: Policy, now: float) -> dict[str, ClassAd]:
    """This negotiator's slots by name, with NEGOTIATOR_MATCH_EXPRS (NEG-04, NEG-32)."""
    constraint = policy.settings.negotiator_slot_constraint
    told = policy.match_exprs.exprs
    places: dict[str, int] = {}
    found: dict[str, ClassAd] = {}
    for number, ad in enumerate(slots):
        _check("slot", number, ad, "Machine", "Slot")
        name = ad.eval_string("Name")
        if not name:
            raise BadAd("slot", number, "it has no Name; give whole ads, as `roost status -long` writes them")
        if name in places:
            raise BadAd(
                "slot",
                number,
                f"slot {name[:80]} comes twice, ad number {places[name] + 1} is it too; keep one of them",
            )
        places[name] = number
        if constraint is None or evaluate(constraint, ad, now=now) is True:
            if told:
                ad = ad.copy()
                ad.update(told)
            found[name] = ad
    return found


def _records(accounting: Iterable[ClassAd], names: Iterable[str], policy: Policy, now: float) -> dict[str, Record]:
    """What the accounting records say at this moment of each of these submitters."""
    told: dict[str, Record] = {}
    for number, ad in enumerate(accounting):
        _check("accounting", number, ad, "Accounting")
        if ad.eval("IsAccountingGroup") is True:
            continue
        name = ad.eval_string("Name")
        if not name:
            raise BadAd("accounting", number, "it has no Name; give ads as `roost userprio -long` writes them")
        try:
            told[name] = record_of(ad)
        except ValueError as error:
            raise BadAd("accounting", number, f"{name[:80]}: {error}") from None
    half_life = float(policy.settings.priority_halflife)
    found: dict[str, Record] = {}
    for name in sorted(names):
        record = told.get(name, Record())
        if not record.factor:
            record = replace(record, factor=choose_factor(name, policy.factors, policy.tree.group_of(name)))
        found[name], _ = restore(settle(record, now, half_life), now)
    return found


# --- queues, as their schedds keep them


def _queues(
    jobs: Iterable[ClassAd], policy: Policy, schedd: ScheddSettings, significant: Iterable[str]
) -> dict[str, JobTable]:
    """The queue of each schedd, by its name."""
    needed = looked_at(policy.settings.negotiator_job_constraint)
    clusters: dict[tuple[str, int], list[_Asking]] = {}
    places: dict[tuple[str, JobId], int] = {}
    for number, ad in enumerate(jobs):
        job = _asking(number, ad, policy)
        if job is None:
            continue
        other = places.setdefault((job.schedd, job.id), number)
        if other != number:
            raise BadAd("job", number, f"job {job.id} comes twice, ad number {other + 1} is it too; keep one of them")
        clusters.setdefault((job.schedd, job.id.cluster), []).append(job)
    queues: dict[str, JobTable] = {}
    for (name, cluster), members in sorted(clusters.items()):
        table = queues.get(name)
        if table is None:
            table = queues[name] = JobTable(Autoclusters(significant=schedd.significant_attributes))
            table.set_significant(significant, needed)
        table.add(*_cluster(cluster, members))
    return queues


@dataclass(frozen=True, slots=True)
class _Asking:
    """A job ad, read."""

    schedd: str
    id: JobId
    status: JobStatus
    user: str
    submitter: str
    priority: int
    ad: ClassAd


def _asking(number: int, ad: ClassAd, policy: Policy) -> _Asking | None:
    """None for a job that has nothing to do with negotiation."""
    _check("job", number, ad, "Job")
    cluster, proc = (_whole(number, ad, name) for name in ("ClusterId", "ProcId"))
    job = JobId(cluster, proc)
    status = _whole(number, ad, "JobStatus")
    if ad.eval("JobUniverse") in _WITHOUT_SLOT or status not in list(JobStatus):
        return None
    user = ad.eval_string("User") or ad.eval_string("Owner")
    if not user:
        raise BadAd("job", number, f"job {job} has no User: nobody would be charged; give it one, as alice@pool")
    try:
        submitter = submitter_of(ad, user, policy.factors.nice_group)
        priority = priority_of(ad) if "JobPrio" in ad else 0
    except BadSubmit as error:
        raise BadAd("job", number, f"job {job}: {error}") from None
    schedd = ad.eval_string("ScheddName") or ad.eval_string("GlobalJobId").partition("#")[0]
    return _Asking(schedd, job, JobStatus(status), user, submitter, priority, ad)


def _cluster(number: int, members: Sequence[_Asking]) -> tuple[Cluster, list[Job]]:
    """A cluster and its jobs as a schedd holds them: together what they have in common."""
    first = members[0]
    shared = {key: entry for key, entry in first.ad.table().items() if key not in _DERIVED}
    for member in members[1:]:
        table = member.ad.table()
        for key in [key for key, entry in shared.items() if not _same(entry, table.get(key))]:
            del shared[key]
    queued = first.ad.eval("QDate")
    cluster = Cluster(
        id=number,
        owner=first.user.partition("@")[0],
        user=first.user,
        submitter=first.submitter,
        qdate=queued if isinstance(queued, int) else 0,
        ad=ClassAd.from_table(shared),
    )
    found = []
    for member in members:
        own = {key: entry for key, entry in member.ad.table().items() if key not in shared and key not in _DERIVED}
        ad = ClassAd.from_table(own)
        ad.chain(cluster.ad)
        found.append(Job(cluster, member.id.proc, ad, member.status, member.priority, member.submitter))
    return cluster, found


def _same(entry: tuple[str, Stored], other: tuple[str, Stored] | None) -> bool:
    """Whether two attributes say the same. 1, 1.0 and True are equal to Python, not to a ClassAd."""
    if other is None:
        return False
    cell, its = entry[1], other[1]
    if isinstance(cell, PackedText) and isinstance(its, PackedText):
        return cell.data == its.data
    return cell is its or (type(cell) is type(its) and cell == its)


def _requests(queues: Mapping[str, JobTable], policy: Policy, now: float) -> dict[str, list[Request]]:
    """By submitter: what it asks for, the jobs of one schedd together (NEG-06, NEG-16, NEG-31)."""
    settings, counts = policy.settings, policy.settings.use_resource_request_counts
    found: dict[str, list[Request]] = {}
    for schedd, table in queues.items():
        who = Identity(schedd, schedd, schedd.rpartition("@")[2], 0, "")
        for name in sorted(table.idle):
            idle, weighted = table.demand(name)
            ad = submitter_ad(who, name, table.counts[name], idle=idle, weighted_idle=weighted)
            constraint = settings.negotiator_submitter_constraint
            if not idle or (constraint is not None and evaluate(constraint, ad, now=now) is not True):
                continue
            only = None
            if settings.negotiator_job_constraint is not None:
                allowed = (
                    (number, full_ad(schedd, table.at(bucket.first()), now))
                    for number, bucket in table.idle[name].buckets.items()
                )
                wanted = settings.negotiator_job_constraint
                only = frozenset(number for number, job in allowed if is_true(evaluate(wanted, job, None, now)))
            runs, _ = table.idle[name].runs(_ALL, counts=counts, only=only)
            listed = [
                Request(schedd, run.autocluster, run.count, full_ad(schedd, table.at(run.first), now)) for run in runs
            ]
            if listed:
                found.setdefault(name, []).extend(listed)
    return found


def _demand(
    queues: Mapping[str, JobTable],
    requests: Mapping[str, Sequence[Request]],
    in_use: Mapping[str, tuple[float, int]],
    policy: Policy,
) -> dict[str, float]:
    """By submitter: the weight of what it runs and asks for (GRP-17). What runs is told by the slots."""
    waiting = [
        SubmitterDemand(name, number, 0, weighted, 0.0)
        for table in queues.values()
        for name in table.idle
        if name in requests
        for number, weighted in (table.demand(name),)
    ]
    waiting += [SubmitterDemand(name, 0, number, 0.0, weighted) for name, (weighted, number) in in_use.items()]
    found: dict[str, float] = {}
    for one in waiting:
        asked = sum(group_demand(policy.tree, policy.groups, [one]).values())
        found[one.submitter] = found.get(one.submitter, 0.0) + asked
    return found


# --- what came of it


def _told(result: Result, queues: Mapping[str, JobTable]) -> tuple[tuple[Placed, ...], tuple[Unplaced, ...]]:
    """Jobs by their names: of each autocluster the first in order are placed first, as their schedd does it."""
    places: dict[tuple[str, str, int], Iterator[Key]] = {}

    def take(submitter: str, request: Request, count: int) -> list[str]:
        at = (submitter, request.schedd, request.autocluster)
        keys = places.get(at)
        if keys is None:
            keys = places[at] = iter(queues[request.schedd].idle[submitter].buckets[request.autocluster])
        return [f"{cluster}.{proc}" for _, (_, cluster, proc) in zip(range(count), keys, strict=False)]

    placed = []
    for match in result.matches:
        ended = tuple((slot, result.preempted_users.get(slot, "")) for slot in match.preempts)
        for job in take(match.submitter, match.request, match.count):
            weight = match.weight / match.count
            placed.append(Placed(match.submitter, match.request.schedd, job, match.slot, weight, match.reason, ended))
            ended = ()
    unplaced: dict[tuple[str, str, int, str, str], Unplaced] = {}
    for one in result.rejections:
        jobs = take(one.submitter, one.request, one.left)
        key = (one.submitter, one.request.schedd, one.request.autocluster, one.code, one.reason)
        before = unplaced.get(key)
        if before is not None:
            unplaced[key] = replace(before, count=before.count + one.left)
            continue
        unplaced[key] = Unplaced(
            one.submitter, one.request.schedd, jobs[0], one.left, one.code, one.reason, one.counts, one.details
        )
    return tuple(placed), tuple(unplaced.values())


def _lost(placed: Iterable[Placed], ads: Mapping[str, ClassAd], config: CycleConfig) -> dict[str, float]:
    """By submitter: weight of the slots that are taken from it."""
    lost: dict[str, float] = {}
    for one in placed:
        for slot, user in one.preempts:
            lost[user] = lost.get(user, 0.0) + slot_weight(ads[slot], config)
    return lost


def _standings(
    policy: Policy,
    result: Result,
    records: Mapping[str, Record],
    in_use: Mapping[str, tuple[float, int]],
    requests: Mapping[str, Sequence[Request]],
    lost: Mapping[str, float],
) -> tuple[Standing, ...]:
    matched: dict[str, int] = {}
    given: dict[str, float] = {}
    for match in result.matches:
        matched[match.submitter] = matched.get(match.submitter, 0) + match.count
        given[match.submitter] = given.get(match.submitter, 0.0) + match.weight
    order = {plan.group: place for place, plan in enumerate(result.groups)}
    found = []
    for name, record in records.items():
        share = result.shares.get(name, Share(0.0, 0.0, 0.0))
        found.append(
            Standing(
                name=name,
                group=policy.tree.group_of(name),
                priority=effective(record),
                factor=record.factor,
                in_use=in_use.get(name, (0.0, 0))[0],
                asked=sum(request.count for request in requests.get(name, ())),
                matched=matched.get(name, 0),
                given=given.get(name, 0.0),
                lost=lost.get(name, 0.0),
                share=share.fraction,
                limit=share.limit,
            )
        )
    return tuple(sorted(found, key=lambda one: (order[one.group], one.priority, one.name)))


# --- reading ads


def _check(kind: str, number: int, ad: ClassAd, *types: str) -> None:
    """All of an ad must be readable, and one that says what it is must say that it is of these types."""
    try:
        ad.check()
    except (ValueError, RecursionError) as error:
        raise BadAd(kind, number, f"it can not be read: {error}") from None
    told = ad.eval_string("MyType")
    if told and told not in types:
        raise BadAd(kind, number, f"MyType is {told[:40]}, not {types[0]}; leave out ads of other types")


def _whole(number: int, ad: ClassAd, name: str) -> int:
    value = ad.eval(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadAd("job", number, f"it has no {name} that is a whole number; give whole ads, as `roost q -long` does")
    return value
