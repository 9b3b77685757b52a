"""Takes up the claims and runs of an earlier life of this startd."""

from __future__ import annotations

import asyncio
from pathlib import Path

from services.startd.book import records, restoring
from services.startd.book.draining import Steering
from services.startd.book.records import RunRecord
from services.startd.journal import Journal
from services.startd.parts import Inside
from services.startd.sandbox import directories


def _sweep(places: set[Path], startd: str, keep: set[str]) -> list[str]:
    return [name for place in places if place.is_dir() for name in directories.sweep(place, startd, keep)]


async def recover(inside: Inside, journal: Journal) -> None:
    """What the journal knows comes back to life. Launchers are asked which runs they still have; directories that
    nobody owns are removed; claims that do not fit any more are told to their access points."""
    lost = _claims(inside, journal)
    kept = [RunRecord.unpack(record) for record in journal.load("runs").values()]
    for name, launcher in inside.launchers.items():
        await launcher.adopt({one.name for one in kept if one.launcher == name})
    inside.fork_server.forget_others({one.name for one in kept})
    scratch = {Path(one.scratch).name for one in kept if one.scratch}
    places = {inside.context.execute, *(Path(path) for slot, path in inside.settings.execute.items() if slot)}
    resisted = await asyncio.to_thread(_sweep, places, inside.name, scratch)
    if resisted:
        inside.context.log.warning("scratch_not_removed", names=resisted)
    for one in kept:
        # Without files to fetch, a start is written down up to JOURNAL_S late: it may have been. Who knows of no
        # such process then says that the run is lost, rather than to start it twice under one attempt.
        one.launched |= not one.transfer_url
        run = inside.runs.take_up(one)
        if one.claim_id in lost:
            run.stop("evicted", "evict", lost[one.claim_id], fast=True)
    for claim in list(inside.book.claims.values()):
        known = inside.runs.by_key.get(claim.run)
        if claim.run and (known is None or known.ended):
            # Killed between writing down the end and freeing the slot.
            inside.book.run_gone(claim.claim_id, claim.run, inside.now())
    inside.book.resume(inside.now())
    if kept or inside.book.claims:
        inside.context.log.info("recovered", runs=len(kept), claims=len(inside.book.claims), lost=len(lost))


def _claims(inside: Inside, journal: Journal) -> dict[str, str]:
    """Give the book its claims back; those that do not fit any more, with the reason."""
    book, mono = inside.book, inside.context.clock.monotonic()
    for record in journal.load("steering").values():
        book.restore_steering(Steering.unpack(record))
    for slot_name, offer in journal.load("offers").items():
        book.restore_offer(slot_name, offer["claim_id"], offer["children"])
    for slot_name, record in journal.load("past").items():
        restoring.past(book.slots, slot_name, records.unpack_past(record))
    lost: dict[str, str] = {}
    for claim_id, record in journal.load("claims").items():
        claim, slot = records.unpack_claim(record)
        trouble = book.restore(claim, slot, inside.now())
        if trouble:
            lost[claim_id] = trouble
            journal.write([("claims", claim_id, None)])
            inside.herald.lost(claim.schedd, claim.slot, claim_id, trouble)
        else:
            inside.leases.grant(claim_id, claim.lease_s, mono)
    for claim_id, record in journal.load("waiting").items():
        waiting = records.unpack_waiting(record)
        trouble = book.restore_waiting(waiting, inside.now())
        if trouble:
            journal.write([("waiting", claim_id, None)])
            inside.herald.lost(waiting.claim.schedd, waiting.claim.slot, claim_id, trouble)
        else:
            inside.leases.grant(claim_id, waiting.claim.lease_s, mono)
    return lost
