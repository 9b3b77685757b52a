"""How long a run took, by its machine's own clock: what its job used, whoever hears of it how late. Pure.

Durations are of a clock that nobody sets (`Clock.boottime`). Where that does not help, as the machine was started anew
since the run began or an older release wrote the run down, those of the wall clock must do.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.startd.core.journal_records import RunRecord


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment by both clocks. boot: the start of the machine that `boottime` counts from."""

    boot: str
    boottime: float
    wall: float


def begin(record: RunRecord, at: Moment) -> None:
    """Note that the run has begun."""
    record.boot, record.began_boottime, record.began = at.boot, at.boottime, at.wall


def end(record: RunRecord, at: Moment) -> None:
    """Note that the run has ended."""
    if record.boot != at.boot:
        record.began_boottime = at.boottime - max(0.0, at.wall - record.began)
        record.boot = at.boot
    record.ended_boottime, record.ended_at = at.boottime, at.wall


def had_s(record: RunRecord) -> float:
    """How long the machine had a run that has ended, files on their way included."""
    return max(0.0, record.ended_boottime - record.began_boottime)


def ran_s(record: RunRecord) -> float:
    """How long its program ran, and its output travelled."""
    if not record.started_at:
        return 0.0
    return max(0.0, had_s(record) - max(0.0, record.started_at - record.began))


def over_s(record: RunRecord, now: Moment) -> float:
    """How long it has been over."""
    passed = now.boottime - record.ended_boottime if record.boot == now.boot else now.wall - record.ended_at
    return max(0.0, passed)
