"""The ad with which a job is launched on a slot, and whether its files travel.

It is the whole ad of the job, with what the negotiator told with the match, and with `$$(Attr)`, `$$(Attr:default)` and
`$$([expression])` filled in from the slot (spec rows SLT-27, TLS-04, NEG-32). These forms stand in strings: arguments,
environment, file names. `$$(Attr)` is an attribute of the slot; in `$$([expr])` the job is MY and the slot TARGET. What
was used is recorded in the job as MATCH_EXP_<attribute>. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack

from engine.queue.jobs import Job, JobStatus, Shadow, full_ad, global_id
from services.schedd.core.claim import Claim
from services.schedd.core.job_end import on_start
from shared.chirp import wish_of
from shared.classad import ERROR, UNDEFINED, ClassAd, Expr, ParseError, Value, evaluate, parse_expr, unparse
from shared.classad.ad import is_private
from shared.classad.expr import Literal, fold
from shared.messages.claims import Activation
from shared.transfer.urls import goes_by_url

#: How the names of such attributes begin, folded.
MATCH_EXPR: Final = "negotiatormatchexpr"


def expand_for(schedd: str, job: Job, claim: Claim, now: float) -> Expanded:
    """`$$()` filled in from the slot; cheap for the many jobs that have none."""
    if MARK not in job.ad.pack() and not any(_has_mark(cell) for _, cell in job.cluster.packed_cells().values()):
        return Expanded()
    return expand_dollar_dollar(full_ad(schedd, job, now), claim.slot_classad(), now)


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
    """A packed cell: a string is one, or the text of one that nobody has read yet."""
    return "$$(" in cell if isinstance(cell, str) else isinstance(cell, msgpack.ExtType) and MARK in cell.data


def _as_running(job: Job, claim: Claim, now: float) -> ClassAd:
    """The job's own attributes as they are once the execution point has taken it."""
    if job.status != JobStatus.IDLE:
        return job.ad
    ad = job.ad.copy()
    on_start(ad, job.autocluster, claim, now)
    ad.update({"LastJobStatus": int(job.status), "JobStatus": int(JobStatus.RUNNING), "EnteredCurrentStatus": int(now)})
    return ad


def make_activation(
    schedd: str, job: Job, claim: Claim, shadow: Shadow, expanded: Mapping[str, str], url: str, now: float
) -> Activation:
    """The message part that starts a run. `url` is the base of the transfer endpoint."""
    cells = dict(job.cluster.packed_cells())
    body: dict[str, Any] = dict(cells.values())
    own = msgpack.unpackb(_as_running(job, claim, now).pack(), unicode_errors="surrogateescape")
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
    place = f"{url}/runs/{job.id}/{shadow.attempt}"
    asks = _may_ask(job) and wish_of(full_ad(schedd, job, now)).remote
    return Activation(
        job_id=str(job.id),
        attempt=shadow.attempt,
        job_ad=packed,
        transfer_url=place if shadow.transfer else "",
        transfer_token=shadow.token if shadow.transfer or asks else "",
        chirp_url=place if asks else "",
    )


def _may_ask(job: Job) -> bool:
    """Whether the job says anything of Chirp: most do not."""
    return any(name in ad for ad in (job.ad, job.cluster.ad) for name in ("WantIOProxy", "WantRemoteUpdates"))


#: Only in the text of a packed ad: whether there can be anything to do at all.
MARK: Final = b"$$"
MAX_EXPANDED: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


@dataclass(frozen=True, slots=True)
class Expanded:
    """What to change in the job's ad; `problem` says why nothing can be (then the job goes on hold)."""

    changes: dict[str, str] = field(default_factory=dict)
    problem: str = ""


def expand_dollar_dollar(job: ClassAd, slot: ClassAd, now: float) -> Expanded:
    """Fill in every attribute of `job` (the whole ad) that holds a string with `$$`."""
    changes: dict[str, str] = {}
    for name, held in job.cells():
        cell = held.value if isinstance(held, Literal) else held  # a constant that came as text
        if not isinstance(cell, str) or "$$(" not in cell or name.lower().startswith("match_exp_"):
            continue
        pieces: list[str] = []
        at = 0
        while (start := cell.find("$$(", at)) >= 0:
            end = _end(cell, start + 3)
            if end < 0:
                return Expanded(problem=f"{name}: `{cell[start : start + 60]}` lacks its closing parenthesis")
            inner = cell[start + 3 : end]
            text, problem = _value(inner, job, slot, now)
            if problem:
                return Expanded(problem=f"Cannot expand $$({inner[:200]}) in {name}: {problem}")
            pieces += [cell[at:start], text]
            at = end + 1
            label = inner.partition(":")[0]
            if _NAME.fullmatch(label):
                changes[f"MATCH_EXP_{label}"] = text
            if sum(map(len, pieces)) > MAX_EXPANDED:
                return Expanded(problem=f"{name}: becomes longer than {MAX_EXPANDED} characters")
        changes[name] = "".join(pieces) + cell[at:]
    return Expanded(changes)


def _end(text: str, at: int) -> int:
    """Where the parenthesis opened before `at` is closed, -1 if nowhere. Those inside quotes do not count."""
    depth = 1
    quoted = False
    while at < len(text):
        char = text[at]
        if char == '"' and text[at - 1] != "\\":
            quoted = not quoted
        elif not quoted and char in "([{":
            depth += 1
        elif not quoted and char in ")]}":
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return -1


def _value(inner: str, job: ClassAd, slot: ClassAd, now: float) -> tuple[str, str]:
    """(text, problem) of what stands between `$$(` and `)`."""
    if inner.startswith("[") and inner.endswith("]"):
        try:
            expr: Expr = parse_expr(inner[1:-1])
        except ParseError as error:
            return "", str(error)
        value = evaluate(expr, job, slot, now)
        if value is UNDEFINED or value is ERROR:
            return "", f"the expression is {value!r} for the matched slot"
        return _text(value), ""
    name, colon, default = inner.partition(":")
    if not _NAME.fullmatch(name):
        return "", "want $$(Attribute), $$(Attribute:default) or $$([expression])"
    value = UNDEFINED if is_private(name.lower()) else slot.eval(name, job, now)
    if value is UNDEFINED or value is ERROR:
        return (default, "") if colon else ("", f"the matched slot has no attribute {name}, and no default is given")
    return _text(value), ""


def _text(value: Value) -> str:
    if isinstance(value, str):
        return value
    holder = ClassAd({"v": value})
    return unparse(holder.find("v"))  # type: ignore[arg-type]


def is_container_job(ad: ClassAd) -> bool:
    return any(ad.eval(name) is True for name in ("WantDocker", "WantContainer", "WantDockerImage")) or bool(
        ad.eval_string("DockerImage") or ad.eval_string("ContainerImage")
    )


def wants_checkpoints(ad: ClassAd) -> bool:
    """Whether the job saves its work: the access point keeps it, so files must travel."""
    return ad.eval("WantFTOnCheckpoint") is True or ad.eval_string("WhenToTransferOutput") == "ON_EXIT_OR_EVICT"


def wants_transfer(ad: ClassAd, slot: ClassAd, *, spooled: bool) -> bool:
    """Whether files travel: ShouldTransferFiles YES, or IF_NEEDED (the default) and the slot does not see the schedd's
    files (another FileSystemDomain, a container, or a spooled job), or some go by URL."""
    should = ad.eval_string("ShouldTransferFiles").upper() or "IF_NEEDED"
    if spooled or should == "YES":
        return True
    if should == "NO":
        return False
    domain, theirs = ad.eval("FileSystemDomain"), slot.eval("FileSystemDomain")
    same = isinstance(domain, str) and isinstance(theirs, str) and domain.lower() == theirs.lower()
    # Credentials come the same way.
    return (
        wants_checkpoints(ad)
        or not same
        or is_container_job(ad)
        or bool(ad.eval_string("OAuthServicesNeeded"))
        or goes_by_url(ad)
    )
