"""What must add up in a schedd's queue and in a startd's manager, whatever has happened."""

from services.schedd.daemon import Schedd
from services.startd.core.slots.slot_manager import SlotManager


def queue_faults(schedd: Schedd) -> list[str]:
    """What does not add up in a job queue; empty when all does."""
    wrong = []
    table = schedd.table
    counted = {}
    for job in table.jobs():
        counted[job.submitter, job.status] = counted.get((job.submitter, job.status), 0) + 1
        active = job.status in (2, 6, 7)
        if active and job.shadow is None:
            wrong.append(f"{job.id} is {job.status!r} without a run")
        if job.idle_key is not None and (active or job.status != 1):
            wrong.append(f"{job.id} is offered while {job.status!r}")
        if job.ad.eval("JobStatus") not in (int(job.status),) and "JobStatus" in job.ad:
            wrong.append(f"{job.id}: its ad says {job.ad.eval('JobStatus')}, the table {job.status!r}")
        if job.shadow is not None and not job.nodes and job.shadow.claim not in schedd.claim_table.claims:
            wrong.append(f"{job.id} has a run without a claim")
    for name, count in table.counts.items():
        for status, number in count.by_status.items():
            if number != counted.pop((name, status), 0):
                wrong.append(f"{name}: {number} jobs {status!r} are counted")
    wrong += [f"{key}: {number} jobs are not counted" for key, number in counted.items()]
    if table.total != sum(len(cluster.jobs) for cluster in table.clusters.values()):
        wrong.append("the total is another")
    return wrong + schedd.updates.check_invariants()


def slot_faults(manager: SlotManager) -> list[str]:
    """What does not add up in slots and claims; empty when all does."""
    wrong = manager.check_invariants()
    for slot in manager.slots.values():
        if slot.kind.value == "Partitionable":
            parts = [one for one in manager.slots.values() if one.parent == slot.name]
            for resource in slot.total:
                used = sum(part.total[resource] for part in parts)
                used += sum(w.reserved[resource] for w in manager.waiting.values() if w.claim.slot == slot.name)
                if slot.free[resource] + used != slot.total[resource] or slot.free[resource] < 0:
                    wrong.append(f"{slot.name}: {resource} {slot.free[resource]} + {used} of {slot.total[resource]}")
        if slot.claim is not None and manager.claims.get(slot.claim.claim_id) is not slot.claim:
            wrong.append(f"{slot.name}: its claim is not among the claims")
    return wrong
