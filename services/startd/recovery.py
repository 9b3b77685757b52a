"""Adopts the claims and runs of an earlier life of this startd."""

from __future__ import annotations

import asyncio
from pathlib import Path

from services.startd.context import StartdContext
from services.startd.core import journal_records
from services.startd.core.journal_records import RunRecord
from services.startd.core.slots.drain import MachineOrders
from services.startd.core.slots.effects import SlotEffects
from services.startd.core.slots.model import Claim
from services.startd.isolation import scratch_dirs
from services.startd.journal import Journal
from services.startd.slot_services import SlotServices


def _sweep(places: set[Path], startd: str, keep: set[str]) -> list[str]:
    return [name for place in places if place.is_dir() for name in scratch_dirs.sweep(place, startd, keep)]


async def recover(startd: StartdContext, journal: Journal) -> SlotEffects:
    """Bring back to life what the journal knows. Launchers are asked which runs they still have; directories that
    nobody owns are removed; claims that do not fit any more are told to their access points."""
    lost, effects = _claims(startd, journal)
    startd.follow_clock()  # it may have been set while no startd was there
    startd.keep_clock()
    kept = [RunRecord.unpack(record) for record in journal.load("runs").values()]
    for name, launcher in startd.launchers.items():
        await launcher.adopt({one.name for one in kept if one.launcher == name})
    startd.fork_server.forget_others({one.name for one in kept})
    scratch = {Path(one.scratch).name for one in kept if one.scratch}
    places = {startd.context.execute, *(Path(path) for slot, path in startd.settings.execute.items() if slot)}
    resisted = await asyncio.to_thread(_sweep, places, startd.name, scratch)
    if resisted:
        startd.context.log.warning("scratch_not_removed", names=resisted)
    for one in kept:
        # Without files to fetch, a start is written down up to JOURNAL_S late: it may have been. Who knows of no
        # such process then says that the run is lost, rather than to start it twice under one attempt.
        one.launched |= not one.transfer_url
        run = startd.runs.adopt(one)
        if one.claim_id in lost:
            run.stop("evicted", "evict", lost[one.claim_id][1], fast=True)
    # The end of a run says that the claim is over, too: whoever heard of that first would take a job that has ended by
    # now, and whose end nobody has acknowledged, for one that is to run again.
    told_by_runs = {one.claim_id for one in kept}
    for claim_id, (claim, trouble) in lost.items():
        if claim_id not in told_by_runs:
            startd.publisher.lost(claim.schedd, claim.slot, claim_id, trouble)
    for claim in list(startd.slot_manager.claims.values()):
        known = startd.runs.by_key.get(claim.run)
        if claim.run and (known is None or known.ended):
            # Killed between writing down the end and freeing the slot.
            effects.add(startd.slot_manager.run_gone(claim.claim_id, claim.run, startd.now()))
    effects.add(startd.slot_manager.resume(startd.now()))
    if kept or startd.slot_manager.claims:
        startd.context.log.info("recovered", runs=len(kept), claims=len(startd.slot_manager.claims), lost=len(lost))
    return effects


def _claims(startd: SlotServices, journal: Journal) -> tuple[dict[str, tuple[Claim, str]], SlotEffects]:
    """Give the slots their claims back. Returns those that do not fit any more, by id, with the reason."""
    effects = SlotEffects()
    manager, granted = startd.slot_manager, list[Claim]()
    for record in journal.load("steering").values():
        effects.add(manager.restore_machine_orders(MachineOrders.unpack(record)))
    for slot_name, record in journal.load("offers").items():
        effects.add(manager.restore_children(slot_name, record["children"]))
    for slot_name, record in journal.load("past").items():
        effects.add(manager.restore_past(slot_name, journal_records.unpack_past(record)))
    lost: dict[str, tuple[Claim, str]] = {}
    # The oldest first: where the machine has become smaller, those that have run longest keep their place.
    claims = [journal_records.unpack_claim(record) for record in journal.load("claims").values()]
    for claim, slot in sorted(claims, key=lambda one: (one[0].made_at + one[0].clock_set, one[1].name)):
        claim_id = claim.claim_id
        trouble, changed = manager.restore(claim, slot, startd.now())
        effects.add(changed)
        if trouble:
            lost[claim_id] = claim, trouble
            journal.write([("claims", claim_id, None)])
        else:
            granted.append(claim)
    for claim_id, record in journal.load("waiting").items():
        waiting = journal_records.unpack_waiting(record)
        trouble, changed = manager.restore_waiting(waiting, startd.now())
        effects.add(changed)
        if trouble:
            journal.write([("waiting", claim_id, None)])
            startd.publisher.lost(waiting.claim.schedd, waiting.claim.slot, claim_id, trouble)
        else:
            granted.append(waiting.claim)
    leases = journal.load("leases")
    startd.leases.restore(granted, leases)
    journal.write([("leases", claim_id, None) for claim_id in leases if claim_id not in startd.leases])
    return lost, effects
