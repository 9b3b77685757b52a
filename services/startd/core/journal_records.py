"""Claims, slots, runs and claims that wait as the journal keeps them: plain maps, and back.

A record of an older release lacks what was added since, and means its default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from engine.slots.amounts import Amounts
from engine.slots.carving import SlotKind
from services.startd.core.slots.model import Claim, Slot, Urgency, WaitingClaim
from services.startd.core.slots.transitions import Activity, Condition, State
from shared.messages.claims import Activation, JobExit, Usage
from shared.past_claims import Past


@dataclass(slots=True)
class RunRecord:
    """One run, as far as it has come."""

    name: str  # unique for ever: how launchers know it
    claim_id: str
    slot: str
    schedd: str
    job_id: str
    attempt: int
    job_ad: bytes
    transfer_url: str
    transfer_token: str
    scratch: str  # name of its directory under EXECUTE, hard to guess
    began: float
    lease_s: float
    launcher: str = "process"
    launched: bool = False
    started_at: float = 0.0
    pid: int = 0
    sequence: int = 0
    before: dict[str, list[int]] = field(default_factory=dict)  # files of the scratch directory before the start
    usage: dict[str, Any] = field(default_factory=dict)
    exit: dict[str, Any] | None = None
    stop: dict[str, Any] | None = None  # it was told to end: the order
    # By the machine's own clock (Clock.boottime), which nobody sets; boot: the start of the machine it counts from.
    # ended_at is of the wall clock.
    boot: str = ""
    began_boottime: float = 0.0
    ended_boottime: float = 0.0
    ended_at: float = 0.0
    cores: tuple[int, ...] = ()  # that its job is bound to
    launches: int = 1  # of the job's program: one more after each checkpoint that it ended with
    earlier_user_s: float = 0.0  # processor time of those before
    earlier_sys_s: float = 0.0
    streams: list[str] = field(default_factory=list)  # of its output that have begun at the access point
    chirp_url: str = ""  # where its access point answers what the job asks
    chirp: list[Any] = field(
        default_factory=list
    )  # address, port and cookie with which the job asks; empty: it does not

    @property
    def key(self) -> str:
        return _key(self.job_id, self.attempt, self.schedd)

    @property
    def outcome(self) -> JobExit | None:
        return None if self.exit is None else JobExit.model_validate(self.exit)

    @property
    def used(self) -> Usage:
        return Usage.model_validate(self.usage)

    def pack(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _RUN_FIELDS}

    @classmethod
    def unpack(cls, record: Mapping[str, Any]) -> RunRecord:
        return cls(**{name: record[name] for name in _RUN_FIELDS if name in record})


_RUN_FIELDS = tuple(one.name for one in fields(RunRecord))
#: Fields of claims that the journal knows by an older name.
_STORED_NAMES = {"urgency": "haste", "end_reason": "ending", "peaceful": "unhurried"}
_CLAIM_FIELDS = tuple((one.name, _STORED_NAMES.get(one.name, one.name)) for one in fields(Claim))
_FIELDS_BY_STORED_NAME = {stored: name for name, stored in _STORED_NAMES.items()}


def run_key(activation: Activation, schedd: str) -> str:
    return _key(activation.job_id, activation.attempt, schedd)


def _key(job_id: str, attempt: int, schedd: str) -> str:
    """Two access points number their jobs alike."""
    return f"{job_id}/{attempt}@{schedd}"


def pack_claim(claim: Claim, slot: Slot) -> dict[str, Any]:
    kept = _packed_claim(claim)
    kept["at"] = {
        "name": slot.name,
        "slot_id": slot.slot_id,
        "dynamic_id": slot.dynamic_id,
        "kind": str(slot.kind),
        "type_id": slot.type_id,
        "total": dict(slot.total.of),
        "ids": _lists(slot.total),
        "disk_share": slot.disk_share,
        "swap_share": slot.swap_share,
        "partition": slot.partition,
        "condition": str(slot.condition),
        "state_since": slot.state_since,
        "activity_since": slot.activity_since,
        "parent": slot.parent,
    }
    return kept


def unpack_claim(record: Mapping[str, Any]) -> tuple[Claim, Slot]:
    kept = dict(record)
    at = dict(kept.pop("at"))
    state, activity = at.pop("condition").split("/")
    total = _amounts(at.pop("total"), at.pop("ids", {}))
    slot = Slot(
        **at | {"kind": SlotKind(at["kind"])},
        total=total,
        free=total,
        condition=Condition(State(state), Activity(activity)),
    )
    return _claim(kept), slot


def pack_waiting(waiting: WaitingClaim) -> dict[str, Any]:
    """Without what it holds already: a restarted startd sees anew what is free."""
    return {
        "claim": _packed_claim(waiting.claim),
        "victims": waiting.victims,
        "code": int(waiting.code),
        "wanted": None if waiting.wanted is None else dict(waiting.wanted.of),
        "ids": {} if waiting.wanted is None else _lists(waiting.wanted),
    }


def unpack_waiting(record: Mapping[str, Any]) -> WaitingClaim:
    wanted = record["wanted"]
    return WaitingClaim(
        claim=_claim(record["claim"]),
        victims=list(record["victims"]),
        code=record["code"],
        wanted=None if wanted is None else _amounts(wanted, record.get("ids", {})),
    )


def pack_clock(boot: str, ahead: float) -> dict[str, Any]:
    """How far the clock of all that is written down is ahead of the machine's own, which counts from `boot`."""
    return {"boot": boot, "ahead": ahead}


def unpack_clock(record: Mapping[str, Any] | None, boot: str) -> float | None:
    """How far; None: nobody knows, as no earlier life wrote it down, or the machine was started anew since."""
    if record is None or record["boot"] != boot:
        return None
    return float(record["ahead"])


def pack_past(past: Iterable[Past]) -> dict[str, Any]:
    return {"claims": [_without_clock(asdict(one)) for one in past]}


def unpack_past(record: Mapping[str, Any]) -> tuple[Past, ...]:
    return tuple(Past(**one) for one in record["claims"])


def _lists(amounts: Amounts) -> dict[str, list[str]]:
    return {name: list(ids) for name, ids in amounts.ids.items()}


def _amounts(of: Mapping[str, float], ids: Mapping[str, list[str]]) -> Amounts:
    return Amounts(of, {name: tuple(listed) for name, listed in ids.items()})


def _packed_claim(claim: Claim) -> dict[str, Any]:
    kept = {stored: getattr(claim, name) for name, stored in _CLAIM_FIELDS}
    kept["haste"], kept["vacate_code"] = int(claim.urgency), int(claim.vacate_code)
    return _without_clock(kept)


def _without_clock(kept: dict[str, Any]) -> dict[str, Any]:
    """Without `clock_set` where it says nothing: earlier releases read no record that has it."""
    if not kept["clock_set"]:
        del kept["clock_set"]
    return kept


def _claim(kept: Mapping[str, Any]) -> Claim:
    claim = Claim(**{_FIELDS_BY_STORED_NAME.get(name, name): value for name, value in kept.items()})
    claim.urgency = Urgency(claim.urgency)
    claim.hold = None if claim.hold is None else (str(claim.hold[0]), int(claim.hold[1]))
    return claim
