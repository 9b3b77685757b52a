"""What a job's own policy expressions, and the pool's, say should become of it.

Attributes and numbers are HTCondor's: PeriodicHold, PeriodicRelease, PeriodicRemove, PeriodicVacate, OnExitHold,
OnExitRemove, TimerRemove, AllowedJobDuration, AllowedExecuteDuration; SYSTEM_PERIODIC_*. `max_retries`, `retry_until`
and `success_exit_code` of a submit file come as OnExitRemove. Pure: `now` is an argument.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from engine.queue.jobs import ACTIVE, JobStatus
from shared.classad import ClassAd, Expr, evaluate, is_true, unparse
from shared.classad.budget import Budget, policies


class Hold(IntEnum):
    """HoldReasonCode, HTCondor's numbers."""

    UNSPECIFIED = 0
    USER_REQUEST = 1
    JOB_POLICY = 3
    CORRUPTED_CREDENTIAL = 4
    JOB_POLICY_UNDEFINED = 5
    FAILED_TO_CREATE_PROCESS = 6
    UNABLE_TO_OPEN_OUTPUT = 7
    UNABLE_TO_OPEN_INPUT = 8
    TRANSFER_OUTPUT_ERROR = 12
    TRANSFER_INPUT_ERROR = 13
    IWD_ERROR = 14
    SUBMITTED_ON_HOLD = 15
    SPOOLING_INPUT = 16
    MISSED_DEFERRED_EXECUTION_TIME = 20
    STARTD_HELD_JOB = 21
    UNABLE_TO_INIT_USER_LOG = 22
    INVALID_CRON_SETTINGS = 25
    SYSTEM_POLICY = 26
    MAX_TRANSFER_INPUT_SIZE_EXCEEDED = 32
    MAX_TRANSFER_OUTPUT_SIZE_EXCEEDED = 33
    JOB_OUT_OF_RESOURCES = 34
    JOB_DURATION_EXCEEDED = 46
    JOB_EXECUTE_EXCEEDED = 47


class Action(StrEnum):
    HOLD = "hold"
    RELEASE = "release"
    REMOVE = "remove"
    VACATE = "vacate"
    REQUEUE = "requeue"  # after an exit: run it again
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Decision:
    action: Action
    reason: str = ""
    code: int = 0
    subcode: int = 0


@dataclass(frozen=True, slots=True)
class SystemRule:
    """One of the pool's SYSTEM_PERIODIC_* expressions. knob: its name. reason, subcode: of a hold, if they are set."""

    knob: str
    expr: Expr
    reason: Expr | None = None
    subcode: Expr | None = None


@dataclass(frozen=True, slots=True)
class SystemPolicy:
    """The pool's SYSTEM_PERIODIC_* expressions, in the order in which they are looked at: the first that is true
    counts."""

    hold: tuple[SystemRule, ...] = ()
    release: tuple[SystemRule, ...] = ()
    remove: tuple[SystemRule, ...] = ()
    vacate: tuple[SystemRule, ...] = ()

    def __bool__(self) -> bool:
        return any((self.hold, self.release, self.remove, self.vacate))


#: Attributes that make a periodic look at a job worth while, unless they are plainly false.
WATCHED: Final = (
    "TimerRemove",
    "PeriodicHold",
    "PeriodicRelease",
    "PeriodicRemove",
    "PeriodicVacate",
    "AllowedJobDuration",
    "AllowedExecuteDuration",
)


#: Larger numbers are no codes.
_WHOLE: Final = 2**31


def needs_watching(ad: ClassAd) -> bool:
    """Whether any of the job's periodic expressions could ever say something."""
    for name in WATCHED:
        if name in ad:
            value = ad[name]
            if isinstance(value, Expr) or is_true(value):
                return True
    return False


def _evaluated(ad: ClassAd, name: str, now: float) -> bool:
    return is_true(ad.eval(name, None, now))


def _words(ad: ClassAd, name: str, otherwise: str, now: float) -> str:
    value = ad.eval(name, None, now)
    return value if isinstance(value, str) and value else otherwise


def _whole(ad: ClassAd, name: str, now: float) -> int:
    value = ad.eval(name, None, now)
    return int(value) if isinstance(value, int | float) and abs(value) < _WHOLE else 0


def _said(ad: ClassAd, attribute: str, became: str = "TRUE") -> str:
    """In HTCondor's words, which people look for in logs."""
    cell = ad.lookup(attribute)
    text = "" if cell is None else unparse(cell, "old")
    return f"The job attribute {attribute} expression '{text[:1000]}' evaluated to {became}"


def periodic(ad: ClassAd, status: JobStatus, now: float, system: SystemPolicy = SystemPolicy()) -> Decision | None:
    """What a periodic look at a job says: the first that applies of timer, hold, release, remove, vacate; the job's own
    before the pool's. None: leave it. Expressions that are neither true nor false count as false.

    The job's expressions have a budget together, and the pool's one of their own: a job whose policies are too
    expensive evades no SYSTEM_PERIODIC_*.
    """
    with policies("the job's policies").open():
        return _periodic(ad, status, now, system, policies("the pool's policies"))


def _periodic(ad: ClassAd, status: JobStatus, now: float, system: SystemPolicy, pool: Budget) -> Decision | None:
    deadline = ad.eval("TimerRemove", None, now)
    if isinstance(deadline, int | float) and not isinstance(deadline, bool) and 0 < deadline <= now:
        return Decision(Action.REMOVE, "The job's timer for its removal (TimerRemove) ran out")
    if status in (JobStatus.REMOVED, JobStatus.COMPLETED):
        if _evaluated(ad, "PeriodicRemove", now) and status == JobStatus.COMPLETED:
            return Decision(Action.REMOVE, _said(ad, "PeriodicRemove"))
        return None
    durations = _durations(ad, status, now)
    if durations is not None:
        return durations
    if status != JobStatus.HELD:
        if _evaluated(ad, "PeriodicHold", now):
            reason = _words(ad, "PeriodicHoldReason", _said(ad, "PeriodicHold"), now)
            return Decision(Action.HOLD, reason, Hold.JOB_POLICY, _whole(ad, "PeriodicHoldSubCode", now))
        if (rule := _first_true(system.hold, ad, now, pool)) is not None:
            with pool.open():
                text = evaluate(rule.reason, ad, None, now) if rule.reason is not None else ""
                code = evaluate(rule.subcode, ad, None, now) if rule.subcode is not None else 0
            reason = text if isinstance(text, str) and text else _pool_said(rule)
            return Decision(Action.HOLD, reason, Hold.SYSTEM_POLICY, code if isinstance(code, int) else 0)
    elif _may_be_released(ad):
        if _evaluated(ad, "PeriodicRelease", now):
            return Decision(Action.RELEASE, _said(ad, "PeriodicRelease"))
        if (rule := _first_true(system.release, ad, now, pool)) is not None:
            return Decision(Action.RELEASE, _pool_said(rule))
    if _evaluated(ad, "PeriodicRemove", now):
        return Decision(Action.REMOVE, _said(ad, "PeriodicRemove"))
    if (rule := _first_true(system.remove, ad, now, pool)) is not None:
        return Decision(Action.REMOVE, _pool_said(rule))
    if status in ACTIVE:
        if _evaluated(ad, "PeriodicVacate", now):
            return Decision(Action.VACATE, _said(ad, "PeriodicVacate"))
        if (rule := _first_true(system.vacate, ad, now, pool)) is not None:
            return Decision(Action.VACATE, _pool_said(rule))
    return None


def _first_true(rules: tuple[SystemRule, ...], ad: ClassAd, now: float, budget: Budget) -> SystemRule | None:
    if not rules:
        return None
    with budget.open():
        return next((rule for rule in rules if is_true(evaluate(rule.expr, ad, None, now))), None)


def _pool_said(rule: SystemRule) -> str:
    return f"The system macro {rule.knob} expression '{unparse(rule.expr, 'old')}' evaluated to TRUE"


def _may_be_released(ad: ClassAd) -> bool:
    """A job held by its owner, or waiting for its files, is not released by policy."""
    return ad.eval("HoldReasonCode") not in (Hold.USER_REQUEST, Hold.SPOOLING_INPUT)


def _clock(seconds: float) -> str:
    """MM:SS, with hours and days where there are some."""
    minutes, second = divmod(int(min(seconds, 1e12)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}+{hour:02}:{minute:02}:{second:02}"
    return f"{hour:02}:{minute:02}:{second:02}" if hour else f"{minute:02}:{second:02}"


def _durations(ad: ClassAd, status: JobStatus, now: float) -> Decision | None:
    if status not in ACTIVE:
        return None
    for limit_name, start_name, code, what in (
        ("AllowedJobDuration", "JobCurrentStartDate", Hold.JOB_DURATION_EXCEEDED, "job"),
        ("AllowedExecuteDuration", "JobCurrentStartExecutingDate", Hold.JOB_EXECUTE_EXCEEDED, "execute"),
    ):
        limit, start = ad.eval(limit_name, None, now), ad.eval(start_name, None, now)
        if isinstance(limit, int | float) and isinstance(start, int | float) and start and now - start >= limit:
            return Decision(Action.HOLD, f"The job exceeded allowed {what} duration of {_clock(limit)}", code)
    return None


def next_duration(ad: ClassAd, now: float) -> float | None:
    """Seconds until a duration limit of a running job is reached; None where there is none."""
    with policies("the job's durations").open():
        return _next_duration(ad, now)


def _next_duration(ad: ClassAd, now: float) -> float | None:
    waits = []
    for limit_name, start_name in (
        ("AllowedJobDuration", "JobCurrentStartDate"),
        ("AllowedExecuteDuration", "JobCurrentStartExecutingDate"),
    ):
        if limit_name in ad:
            limit, start = ad.eval(limit_name, None, now), ad.eval(start_name, None, now)
            if isinstance(limit, int | float) and isinstance(start, int | float) and start:
                waits.append(max(0.0, start + limit - now))
    # NaN would put the loop's timers out of order.
    return min((wait for wait in waits if wait < math.inf), default=None)


def after_exit(ad: ClassAd, now: float) -> Decision:
    """What becomes of a job whose program ended by itself; ExitCode, ExitBySignal, ... are in the ad already.

    OnExitHold first, then OnExitRemove; absent they are false and true, and so is, as in HTCondor 23.9.6, an expression
    that is neither (undefined, an error, a string).
    """
    with policies("the job's policies").open():
        return _after_exit(ad, now)


def _after_exit(ad: ClassAd, now: float) -> Decision:
    for name, default in (("OnExitHold", False), ("OnExitRemove", True)):
        value = ad.eval(name, None, now) if name in ad else default
        if not isinstance(value, bool | int | float):
            value = default
        if name == "OnExitHold" and value:
            reason = _words(ad, "OnExitHoldReason", _said(ad, "OnExitHold"), now)
            return Decision(Action.HOLD, reason, Hold.JOB_POLICY, _whole(ad, "OnExitHoldSubCode", now))
        if name == "OnExitRemove" and not value:
            return Decision(Action.REQUEUE, _said(ad, name, "FALSE"))
    return Decision(Action.COMPLETE)


def stays_in_queue(ad: ClassAd, now: float) -> bool:
    """Whether LeaveJobInQueue keeps a job that is completed or removed."""
    return "LeaveJobInQueue" in ad and _evaluated(ad, "LeaveJobInQueue", now)


def stop_how(ad: ClassAd, now: float, *, graceful: bool) -> str:
    """How the run of a job that is removed or held is ended, "graceful" or "fast": WantGracefulRemoval says it where it
    is true or false, else GRACEFULLY_REMOVE_JOBS."""
    if "WantGracefulRemoval" in ad:
        with policies("the job's want_graceful_removal").open():
            value = ad.eval("WantGracefulRemoval", None, now)
        if isinstance(value, bool | int | float):
            graceful = bool(value)
    return "graceful" if graceful else "fast"


@dataclass(frozen=True, slots=True)
class CoolDown:
    """How long a job waits after its run failed to start: doubles with every failure in a row, so that a job that fails
    everywhere does not keep the pool busy."""

    first_s: float = 1.0
    longest_s: float = 300.0
    factor: float = 2.0

    @staticmethod
    def refused_s(refusals: int) -> float:
        """After claims were refused: the negotiator's view of the slots was out of date, and soon is not."""
        return float(min(10.0, 0.05 * 2.0 ** min(refusals - 1, 30)))

    def wait_s(self, failures: int) -> float:
        """failures: in a row, at least 1. The first costs nothing: the next machine may do better."""
        if failures <= 1:
            return 0.0
        return float(min(self.longest_s, self.first_s * self.factor ** min(failures - 2, 30)))
