"""What a run needs to know: the job's ad as the execution point gets it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgpack

from services.schedd.expansion import MARK, Expanded, expand
from services.schedd.jobs import Job, full_ad, global_id
from services.schedd.shadow import Claim, Shadow
from shared.classad import ClassAd
from shared.classad.expr import fold
from shared.messages.claims import Activation

#: How the names of such attributes begin, folded.
MATCH_EXPR: Final = "negotiatormatchexpr"


def expansion(schedd: str, job: Job, claim: Claim, now: float) -> Expanded:
    """`$$()` filled in from the slot; cheap for the many jobs that have none."""
    if MARK not in job.ad.pack() and not any(_has_mark(cell) for _, cell in job.cluster.packed_cells().values()):
        return Expanded()
    return expand(full_ad(schedd, job, now), claim.slot_classad(), now)


def match_exprs(slot: ClassAd) -> bytes:
    """What the negotiator added to the ad of a matched slot about itself (NEG-32), packed; empty if nothing."""
    told = {entry[0]: slot.lookup(key) for key, entry in slot.table().items() if key.startswith(MATCH_EXPR)}
    return ClassAd(told).pack() if told else b""


def tell_match(job: Job, claim: Claim) -> None:
    """Put what the negotiator told with the match into the job's ad, in place of what an earlier one told (NEG-32)."""
    job.drop(*(name for name in job.ad if fold(name).startswith(MATCH_EXPR)))
    if claim.match_exprs:
        job.ad.update(ClassAd.unpack(claim.match_exprs))


def _has_mark(cell: Any) -> bool:
    return isinstance(cell, str) and "$$(" in cell


def make(
    schedd: str, job: Job, claim: Claim, shadow: Shadow, expanded: Mapping[str, str], url: str, now: float
) -> Activation:
    """The message part that starts a run. `url` is the base of the transfer endpoint."""
    cells = dict(job.cluster.packed_cells())
    body: dict[str, Any] = dict(cells.values())
    own = msgpack.unpackb(job.ad.pack(), unicode_errors="surrogateescape")
    for name, cell in own.items():
        known = cells.get(fold(name))
        body[known[0] if known is not None else name] = cell
    for name, text in expanded.items():
        body[name] = text
    body["ProcId"] = job.proc
    body["GlobalJobId"] = global_id(schedd, job)
    body["ServerTime"] = int(now)
    body["ScheddName"] = schedd
    body["SubmitterName"] = job.submitter
    body["RemoteUser"] = job.submitter
    packed: bytes = msgpack.packb(body, unicode_errors="surrogateescape")
    return Activation(
        job_id=str(job.id),
        attempt=shadow.attempt,
        job_ad=packed,
        transfer_url=f"{url}/runs/{job.id}/{shadow.attempt}" if shadow.transfer else "",
        transfer_token=shadow.token if shadow.transfer else "",
    )
