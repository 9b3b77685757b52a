"""What must be true of the queue, its claims and their runs at every moment. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from engine.queue.job_table import JobTable
from engine.queue.jobs import ACTIVE, STATUS_NAMES
from services.schedd.core.claim import Claim

#: Sums of weights are compared to so much.
_NEARLY = 1e-6


def check_invariants(table: JobTable, claims: Mapping[str, Claim], by_claim_id: Mapping[str, Claim]) -> list[str]:
    """Every contradiction in words. claims: by our own id; by_claim_id: by the startd's.

    A run belongs to one job and one claim, which know it and each other; a job that is on a slot has a run; a claim has
    a run, waits for its slot, or is kept for a run to come. A run of the scheduler universe has no claim; one of a
    parallel job has those of its nodes.
    """
    found = table.check_invariants()
    for job in (one for whole in table.jobs() for one in (whole, *whole.nodes)):
        run = job.shadow
        if run is None:
            if job.status in ACTIVE:
                found.append(f"job {job.id} is {STATUS_NAMES[job.status]} without a run")
        else:
            claim = claims.get(run.claim)
            if run.job != job.id:
                found.append(f"job {job.id} has a run of job {run.job}")
            if job.cluster.here or job.nodes:
                if run.claim:
                    found.append(f"job {job.id} of the scheduler or parallel universe has a run on claim {run.claim}")
            elif claim is None:
                found.append(f"the run of job {job.id} is on a claim that is not there")
            elif claim.shadow is not run:
                found.append(f"the run of job {job.id} is on claim {claim.id} of {claim.slot}, which has another run")
        if job.waits_for:
            waiting = claims.get(job.waits_for)
            if waiting is None or waiting.waits != job.id:
                found.append(f"job {job.id} waits for claim {job.waits_for}, which does not wait for it")
    weights: dict[str, float] = {}
    for key, claim in claims.items():
        if claim.id != key:
            found.append(f"claim {claim.id} stands in the place of claim {key}")
        run = claim.shadow
        if run is None:
            if claim.waits is None and not claim.idle_until:
                found.append(f"claim {claim.id} of {claim.slot} has no run and waits for none")
            continue
        weights[claim.submitter] = weights.get(claim.submitter, 0.0) + claim.weight()
        runs_for = table.get(run.job)
        if runs_for is None:
            found.append(f"the run on claim {claim.id} of {claim.slot} is of job {run.job}, which is not there")
        elif runs_for.shadow is not run:
            found.append(f"job {run.job} does not know of its run on claim {claim.id} of {claim.slot}")
    for claim_id, claim in by_claim_id.items():
        if claims.get(claim.id) is not claim:
            found.append(f"claim {claim.id} of {claim.slot} is gone, but is still found by the id of its startd")
        elif claim_id not in (claim.claim_id, claim.waits_as):
            found.append(f"claim {claim.id} of {claim.slot} is found by the id of another")
    for submitter, count in table.counts.items():
        weight = weights.pop(submitter, 0.0)
        if abs(count.weighted_running - weight) > _NEARLY * max(1.0, weight):
            found.append(f"{submitter}: runs of weight {count.weighted_running} are counted, {weight} are there")
    found += [f"{submitter}: runs of weight {weight} are not counted" for submitter, weight in weights.items()]
    return found
