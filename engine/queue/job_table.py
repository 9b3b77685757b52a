"""All jobs in memory, with the views that are kept up to date: idle jobs in order, counts, autoclusters. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from engine.queue.autoclusters import AutoclusterChanges, Autoclusters
from engine.queue.bucket import Key, key_of
from engine.queue.idle_queue import IdleQueue
from engine.queue.jobs import (
    START_RULES,
    STATUS_NAMES,
    WAITING,
    Cluster,
    Job,
    JobId,
    JobStatus,
    priority_of,
    unpacked,
    write_status,
)
from engine.queue.packed_jobs import MOST_GROUPS, NOTHING, WRITTEN, PackedJobs
from engine.queue.parallel import make_nodes, renew
from engine.queue.submitters import Count, cores_asked
from shared.classad import ClassAd


class JobTable:
    """The queue as the schedd sees it. Changes of a job's state, priority or submitter go through here."""

    def __init__(self, autoclusters: Autoclusters) -> None:
        self.clusters: dict[int, Cluster] = {}
        self.counts: dict[str, Count] = {}
        self.idle: dict[str, IdleQueue] = {}
        self.per_user: dict[str, int] = {}
        self.autoclusters = autoclusters
        self.total = 0
        self._weights: dict[int, float] = {}  # of each autocluster
        #: Clusters whose factory may give a job now.
        self.due: set[int] = set()
        #: By user: clusters whose factory waits because the user has as many jobs as one may have.
        self.crowded: dict[str, set[int]] = {}
        self.sorting = AutoclusterChanges()
        #: Idle jobs that are to be looked at before they are offered, as one of START_RULES says.
        self.undecided: dict[JobId, None] = {}
        #: Idle jobs of the scheduler universe, which are to be started here.
        self.due_here: dict[JobId, None] = {}

    def get(self, job_id: JobId) -> Job | None:
        """The job, or node of a parallel job, that an id names."""
        cluster = self.clusters.get(job_id.cluster)
        job = cluster.jobs.get(job_id.proc) if cluster is not None else None
        if job is None or job_id.node < 0:
            return job
        return job.nodes[job_id.node] if job_id.node < len(job.nodes) else None

    def jobs(self) -> Iterator[Job]:
        """All jobs in (cluster, proc) order, to look at: those that are packed stay so."""
        for number in sorted(self.clusters):
            cluster = self.clusters.get(number)
            for proc in cluster.jobs.following(-1) if cluster is not None else ():
                if cluster is not None and (job := cluster.jobs.peek(proc)) is not None:
                    yield job

    def made(self) -> Iterator[Job]:
        """The jobs that are not packed (engine.queue.packed_jobs), in the same order; a snapshot cluster by cluster."""
        for number in sorted(self.clusters):
            cluster = self.clusters.get(number)
            if cluster is not None:
                yield from cluster.jobs.made()

    def totals(self) -> dict[str, int]:
        """Jobs by the name of their state."""
        return _summed(count.by_status for count in self.counts.values())

    def scheduler_totals(self) -> dict[str, int]:
        """Of them those of the scheduler universe."""
        return _summed(count.scheduler for count in self.counts.values())

    def add(self, cluster: Cluster, jobs: Iterable[Job]) -> None:
        """New jobs of a cluster."""
        self.clusters[cluster.id] = cluster
        for job in jobs:
            cluster.jobs[job.proc] = job
            cluster.waiting += job.status in WAITING
            self.count(job.submitter).move(None, job.status, here=cluster.here)
            self.total += 1
            if cluster.parallel:
                job.nodes = make_nodes(job)
            self.per_user[cluster.user] = self.per_user.get(cluster.user, 0) + job.size
            self.refresh(job)

    def add_packed(
        self,
        cluster: Cluster,
        ads: dict[int, bytes],
        names: set[str],
        idle_from: float,
        status: JobStatus = JobStatus.IDLE,
        state: bytes = NOTHING,
    ) -> bool:
        """New jobs of a cluster that are idle or held and not looked at before they start. ads: what is their own,
        packed, by proc; names: folded, of attributes that are some of theirs, none of packed_jobs.LOOKED_AT; state:
        what each of them has besides of packed_jobs.WRITTEN, packed. False, and nothing happens: they have to be made
        and added."""
        jobs = cluster.jobs
        shared = cluster.ad.table()
        if not ads or cluster.here or cluster.parallel or not START_RULES.isdisjoint(shared):
            return False
        if len(jobs.groups) >= MOST_GROUPS:
            return False
        packed = PackedJobs(
            priority_of(cluster.ad), cluster.submitter, idle_from, names, ads, status=status, state=state
        )
        idle = status == JobStatus.IDLE
        autocluster = self._autocluster(cluster, packed) if idle else 0
        if autocluster is None:
            return False
        self.clusters[cluster.id] = cluster
        jobs.add_packed(packed, partial(unpacked, cluster))
        cluster.waiting += len(ads)
        self.count(packed.submitter).move(None, status, jobs=len(ads))
        self.total += len(ads)
        self.per_user[cluster.user] = self.per_user.get(cluster.user, 0) + len(ads)
        if idle:
            self._offer(cluster, packed, autocluster)
        return True

    def restate(
        self, cluster: Cluster, packed: PackedJobs, procs: Sequence[int], status: JobStatus, state: bytes, now: float
    ) -> bool:
        """Packed jobs of a group come into another state together: idle or held. procs: ascending; state: what each
        of them has of packed_jobs.WRITTEN from now on, packed. False, and nothing happens: they have to be made."""
        idle = status == JobStatus.IDLE
        new = PackedJobs(packed.priority, packed.submitter, packed.idle_from, packed.names, status=status, state=state)
        new.sorted_as = packed.sorted_as
        new.autocluster, new.generation = packed.autocluster, packed.generation
        autocluster = 0
        if idle:
            new.idle_from = now  # what held it may have changed what slots look at
            found = self._autocluster(cluster, new)
            if found is None:
                return False
            autocluster = found
            new.autocluster, new.generation = found, self.autoclusters.generation
        groups = cluster.jobs.groups
        into = next((one for one in groups if one is not packed and _alike(one, new)), None)
        if into is None and len(groups) >= MOST_GROUPS:
            return False
        self._withdraw_row(cluster, packed, procs)
        self.count(packed.submitter).move(JobStatus(packed.status), status, jobs=len(procs))
        cluster.jobs.move(packed, procs, into or new)
        if idle:
            if into is not None and packed.sorted_as != autocluster and (example := cluster.jobs.peek(procs[0])):
                self.sorting.note_row(example, autocluster, procs)
            self._offer(cluster, into or new, autocluster, procs)
        self.note_due(cluster)
        return True

    def forget_packed(self, cluster: Cluster, packed: PackedJobs, procs: Sequence[int]) -> bool:
        """Packed jobs are no more. procs: ascending. True as of `forget`."""
        self._withdraw_row(cluster, packed, procs)
        self.count(packed.submitter).move(JobStatus(packed.status), None, jobs=len(procs))
        cluster.jobs.move(packed, procs, None)
        cluster.waiting -= len(procs)
        return self._gone(cluster, len(procs))

    def _autocluster(self, cluster: Cluster, packed: PackedJobs) -> int | None:
        """Which all of a group have; None: they do not."""
        names = packed.names if packed.state == NOTHING else packed.names | WRITTEN
        return self.autoclusters.of_cluster(cluster, names)

    def _offer(
        self, cluster: Cluster, packed: PackedJobs, autocluster: int, procs: Sequence[int] | None = None
    ) -> None:
        """Offer packed jobs to claims and the negotiator. procs: these of a group, ascending; none: all."""
        procs = procs or sorted(packed.ads)
        packed.autocluster, packed.generation = autocluster, self.autoclusters.generation
        if packed.sorted_as != autocluster:
            packed.sorted_as = autocluster
            self.note_packed(cluster, packed)
        queue = self.idle.get(packed.submitter)
        if queue is None:
            queue = self.idle[packed.submitter] = IdleQueue()
        queue.add_row(autocluster, packed.priority, cluster.id, procs, self._weight(autocluster, cluster.ad))
        packed.offered = True
        self.count(packed.submitter).offered += len(procs)

    def _withdraw_row(self, cluster: Cluster, packed: PackedJobs, procs: Sequence[int]) -> None:
        if packed.offered:
            self.idle[packed.submitter].remove_row(packed.autocluster, packed.priority, cluster.id, procs)

    def note_packed(self, cluster: Cluster, packed: PackedJobs) -> None:
        """Have it told of which autocluster a group of jobs is."""
        procs = sorted(packed.ads)
        example = cluster.jobs.peek(procs[0]) if procs else None
        if packed.sorted_as and example is not None:
            self.sorting.note_row(example, packed.sorted_as, procs)

    def count(self, submitter: str) -> Count:
        count = self.counts.get(submitter)
        if count is None:
            count = self.counts[submitter] = Count()
        return count

    def set_status(self, job: Job, status: JobStatus, now: float) -> None:
        """Put a job into another state."""
        if status == job.status:
            return
        write_status(job.ad, job.status, status, now)
        if job.whole is None:  # what is counted are jobs
            self.count(job.submitter).move(job.status, status, here=job.cluster.here)
            if change := (status in WAITING) - (job.status in WAITING):
                job.cluster.waiting += change
                self.note_due(job.cluster)
        job.status = status
        job.due = False
        if status == JobStatus.IDLE:
            job.idle_from = now
            job.generation = -1  # its run, or whoever held it, may have changed what slots look at
        self.refresh(job)

    def refresh(self, job: Job) -> None:
        """Offer the job to claims and the negotiator, or not, as it is now."""
        if not job.startable:
            self.withdraw(job)
            if job.status == JobStatus.IDLE and not job.due and job.has_start_rule and job.whole is None:
                self.undecided[job.id] = None
        elif job.cluster.here:
            self.due_here[job.id] = None
        elif job.nodes:
            for node in job.nodes:
                self.refresh(node)
        elif job.idle_key is None:
            autocluster = self.autoclusters.assign(job)
            if job.whole is not None:
                job.whole.autocluster, job.whole.generation = autocluster, job.generation
            self.sorting.note(job.whole or job, autocluster)
            job.idle_key = key_of(job.priority, job.cluster.id, job.proc, job.node)
            queue = self.idle.get(job.submitter)
            if queue is None:
                queue = self.idle[job.submitter] = IdleQueue()
            queue.add(autocluster, job.idle_key, self._weight(autocluster, job.ad))
            self.count(job.submitter).offered += 1

    def look_again(self, job: Job) -> None:
        """Have the job looked at once more before it is offered, as its ad or the time has changed."""
        job.due = False
        self.refresh(job)

    def withdraw(self, job: Job) -> None:
        if job.cluster.here:
            self.due_here.pop(job.id, None)
        for node in job.nodes:
            self.withdraw(node)
        if job.idle_key is not None:
            self.idle[job.submitter].remove(job.autocluster, job.idle_key)
            job.idle_key = None

    def changed(self, job: Job, *, priority: int, submitter: str) -> None:
        """The job's ad was edited: sort it in anew."""
        self.withdraw(job)
        if submitter != job.submitter:
            self.count(job.submitter).move(job.status, None, here=job.cluster.here)
            self.count(submitter).move(None, job.status, here=job.cluster.here)
        job.priority, job.submitter = priority, submitter
        job.generation = -1
        job.due = False
        self.renew_nodes(job)
        self.refresh(job)

    def renew_nodes(self, job: Job) -> None:
        """Have the nodes of a parallel job, of which none has a run, follow what it is now."""
        resting = [node for node in job.nodes if node.shadow is None]
        for node in resting:
            self.withdraw(node)
        renew(job, resting)

    def forget(self, job: Job) -> bool:
        """The job is no more. True if it was the last of its cluster, which is gone then too: no factory gives it
        another."""
        self.withdraw(job)
        self.count(job.submitter).move(job.status, None, here=job.cluster.here)
        del job.cluster.jobs[job.proc]
        job.cluster.waiting -= job.status in WAITING
        return self._gone(job.cluster, 1, job.size)

    def _gone(self, cluster: Cluster, jobs: int, size: int | None = None) -> bool:
        """Jobs of a cluster have left. size: as how many they counted. True if the cluster is gone with them."""
        self.total -= jobs
        user = cluster.user
        self.per_user[user] -= jobs if size is None else size
        if not self.per_user[user]:
            del self.per_user[user]
        self.note_due(cluster)
        for number in self.crowded.pop(user, ()):
            if (other := self.clusters.get(number)) is not None:
                self.note_due(other)
        if not cluster.over:
            return False
        del self.clusters[cluster.id]
        return True

    def note_due(self, cluster: Cluster) -> None:
        """Its factory, if there is one, may have room for another job."""
        if cluster.factory is not None and not cluster.factory.over:
            self.due.add(cluster.id)

    def all_due(self) -> None:
        for cluster in self.clusters.values():
            self.note_due(cluster)

    def promised(self, user: str | None = None) -> int:
        """Jobs that are not materialized yet, of one user or of all."""
        return sum(
            cluster.factory.total - cluster.next_proc
            for cluster in self.clusters.values()
            if cluster.factory is not None and not cluster.factory.over and user in (None, cluster.user)
        )

    def set_significant(self, names: Iterable[str], needed: Iterable[str] = ()) -> Iterable[Job]:
        """Attributes that slots look at, told by the negotiator. Gives the jobs that are to be refreshed now, as that
        changes how they are sorted. They may be refreshed some at a time: who waits for it is not offered meanwhile.
        needed: see Autoclusters."""
        if not self.autoclusters.set_significant(names, needed):
            return ()
        waiting = [one for job in self.made() for one in (job.nodes or (job,)) if one.idle_key is not None]
        for job in waiting:
            job.idle_key = None
        self.idle.clear()
        self._weights.clear()
        differing: list[tuple[Cluster, PackedJobs]] = []
        for cluster in self.clusters.values():
            for packed in cluster.jobs.groups:
                if packed.status != JobStatus.IDLE:
                    continue
                autocluster = self._autocluster(cluster, packed)
                if autocluster is None:
                    packed.offered = False
                    differing.append((cluster, packed))
                else:
                    self._offer(cluster, packed, autocluster)
        return chain(waiting, _made(differing))

    def at(self, key: Key) -> Job:
        """The idle job that stands at this place of an idle queue."""
        job = self.clusters[key[1]].jobs[key[2]]
        return job.nodes[key[3]] if len(key) > 3 else job

    def _weight(self, autocluster: int, ad: ClassAd) -> float:
        """What one job of an autocluster asks for, in cores: the weight of its demand. ad: of such a job."""
        known = self._weights.get(autocluster)
        if known is None:
            known = self._weights[autocluster] = cores_asked(ad)
        return known

    def demand(self, submitter: str) -> tuple[int, float]:
        """Idle jobs of a submitter that may start now, and their weight."""
        queue = self.idle.get(submitter)
        return (queue.total, queue.weight()) if queue is not None else (0, 0.0)

    # Invariants

    def check_invariants(self) -> list[str]:
        """Every contradiction within the table, in words: its counts, its idle queues and its jobs must agree."""
        found: list[str] = []
        counted: dict[tuple[str, JobStatus], int] = {}
        per_user: dict[str, int] = {}
        offered = total = 0
        for number, cluster in self.clusters.items():
            if cluster.id != number:
                found.append(f"cluster {cluster.id} stands in the place of cluster {number}")
            waiting = 0
            for proc in cluster.jobs.following(-1):
                job = cluster.jobs.peek(proc)
                if job is None:
                    continue  # it has left
                if job.cluster is not cluster or job.proc != proc:
                    found.append(f"job {job.id} stands in the place of job {number}.{proc}")
                counted[job.submitter, job.status] = counted.get((job.submitter, job.status), 0) + 1
                waiting += job.status in WAITING
                for one in job.nodes or (job,):
                    offered += one.idle_key is not None
                    self._check_job(one, found)
            if waiting != cluster.waiting:
                found.append(f"cluster {number}: {cluster.waiting} idle and held jobs are counted, {waiting} are there")
            total += len(cluster.jobs)
            size = len(cluster.jobs) + sum(job.size - 1 for job in cluster.jobs.made())
            per_user[cluster.user] = per_user.get(cluster.user, 0) + size
        for submitter, count in self.counts.items():
            for status, number in count.by_status.items():
                there = counted.pop((submitter, status), 0)
                if number != there:
                    found.append(f"{submitter}: {number} jobs are counted as {STATUS_NAMES[status]}, {there} are there")
        for (submitter, status), number in counted.items():
            found.append(f"{submitter}: {number} jobs that are {STATUS_NAMES[status]} are not counted")
        if total != self.total:
            found.append(f"{self.total} jobs are counted in all, {total} are there")
        if self.per_user != {user: number for user, number in per_user.items() if number}:
            found.append(f"jobs of users: {self.per_user} are counted, {per_user} are there")
        queued = 0
        for submitter, queue in self.idle.items():
            listed = sum(len(bucket) for bucket in queue.buckets.values())
            queued += listed
            if listed != queue.total:
                found.append(f"{submitter}: {queue.total} jobs are counted in the idle queue, {listed} are there")
        if queued != offered:
            found.append(f"the idle queues have {queued} jobs, but {offered} jobs say that they stand in one")
        return found

    def _check_job(self, job: Job, found: list[str]) -> None:
        """Add what contradicts itself in a job."""
        status = job.ad.find("jobstatus")
        if isinstance(status, int) and status != job.status:
            found.append(f"job {job.id} is {STATUS_NAMES[job.status]}, but its ad says JobStatus = {status}")
        if job.cluster.here:
            if job.idle_key is not None or job.startable != (job.id in self.due_here):
                found.append(
                    f"job {job.id} of the {job.cluster.here} universe is due or not, but the table has it otherwise"
                )
            return
        if job.idle_key is None:
            # One that is not sorted into an autocluster yet, since slots look at more attributes, is about to be.
            if job.startable and job.generation == self.autoclusters.generation:
                found.append(f"job {job.id} may start, but no idle queue has it")
            return
        if not job.startable:
            found.append(f"job {job.id} is {STATUS_NAMES[job.status]} and may not start, but an idle queue has it")
        queue = self.idle.get(job.submitter)
        bucket = queue.buckets.get(job.autocluster) if queue is not None else None
        key = key_of(job.priority, job.cluster.id, job.proc, job.node)
        if job.idle_key != key or bucket is None or key not in bucket:
            found.append(f"job {job.id} does not stand in the idle queue of {job.submitter} where it says")


def _summed(counts: Iterable[Mapping[JobStatus, int]]) -> dict[str, int]:
    result = dict.fromkeys(STATUS_NAMES.values(), 0)
    for by_status in counts:
        for status, number in by_status.items():
            result[STATUS_NAMES[status]] += number
    return result


def _alike(one: PackedJobs, other: PackedJobs) -> bool:
    """Whether these may be one group."""
    return (
        (one.status, one.state, one.priority, one.submitter, one.autocluster, one.generation)
        == (*(other.status, other.state, other.priority, other.submitter, other.autocluster, other.generation),)
        and one.names == other.names
        and (one.offered or one.status != JobStatus.IDLE)
    )


def _made(groups: Iterable[tuple[Cluster, PackedJobs]]) -> Iterator[Job]:
    """The jobs of some groups, one after the other."""
    for cluster, packed in groups:
        for proc in list(packed.ads):
            if (job := cluster.jobs.get(proc)) is not None:
                yield job
