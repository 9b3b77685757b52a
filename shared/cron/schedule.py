"""Who runs when: the decisions of a crontab. Pure; `now` is any clock that never steps back, in seconds.

    orders = schedule.due(now)            # Start and Stop, in order
    schedule.ended(name, now)             # for every Start, once its program is gone, or could not be started
    schedule.next_look(now)               # when `due` has something new to say, if nothing happens before

The loads of what runs never add up to more than MAX_JOB_LOAD (CRN-09): who does not fit waits, the one that waits
longest first in line; smaller ones may pass it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from shared.cron.jobs import SLACK, CronJob, Mode

#: A program that ends at once is not started again sooner than this, whatever its PERIOD says, seconds.
LEAST_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Start:
    job: CronJob


@dataclass(frozen=True, slots=True)
class Stop:
    """End the program of this job, for this reason."""

    job: CronJob
    reason: str


@dataclass(slots=True)
class _State:
    job: CronJob
    due: float | None = None  # when it should start next; None: not by itself
    running: bool = False
    started: float = 0.0
    stopping: bool = False
    load: float = 0.0  # of the run that goes on
    removed: bool = False  # its job is gone from the configuration


class Schedule:
    """The jobs of one crontab."""

    def __init__(self, jobs: Iterable[CronJob], max_load: float, now: float) -> None:
        self.max_load = max_load
        self._states: dict[str, _State] = {}
        for job in jobs:
            self._add(job, now)

    @property
    def running(self) -> list[str]:
        return [name for name, state in self._states.items() if state.running]

    @property
    def load(self) -> float:
        """Of what runs."""
        return sum(state.load for state in self._states.values() if state.running)

    def _add(self, job: CronJob, now: float) -> None:
        self._states[job.name.lower()] = _State(job, due=None if job.mode is Mode.ON_DEMAND else now)

    # -- what happens

    def demand(self, now: float, names: Iterable[str] | None = None) -> None:
        """Run these jobs once (None: all), as soon as they fit. Those that run already are not run again."""
        for name in list(self._states) if names is None else [one.lower() for one in names]:
            state = self._states.get(name)
            if state is not None and not state.running and not state.removed:
                state.due = now if state.due is None else min(state.due, now)

    def forget_demands(self) -> None:
        """Who was asked for and has not begun need not."""
        for state in self._states.values():
            if state.job.mode is Mode.ON_DEMAND and not state.running:
                state.due = None

    def reconfigure(self, jobs: Iterable[CronJob], max_load: float, now: float) -> None:
        """The configuration was read again: new jobs start, removed ones are ended; one that stays goes on in its
        rhythm, and runs again at once if RECONFIG_RERUN says so, or if its mode or program is another."""
        self.max_load = max_load
        wanted = {job.name.lower(): job for job in jobs}
        for name, state in list(self._states.items()):
            if name not in wanted:
                state.removed, state.due = True, None
                if not state.running:
                    del self._states[name]
        for name, job in wanted.items():
            known = self._states.get(name)
            if known is None:
                self._add(job, now)
                continue
            before, known.job, known.removed = known.job, job, False
            other = (before.mode, before.executable, before.args) != (job.mode, job.executable, job.args)
            if job.mode is Mode.ON_DEMAND:
                known.due = None if other else known.due
            elif job.reconfig_rerun or other:
                known.due = now
            elif known.due is not None and before.period_s != job.period_s:
                known.due = min(known.due, now + job.period_s)

    def ended(self, name: str, now: float) -> None:
        """The run of this job is over."""
        state = self._states.get(name.lower())
        if state is None or not state.running:
            return
        state.running = state.stopping = False
        if state.removed:
            del self._states[name.lower()]
        elif state.job.mode is Mode.WAIT_FOR_EXIT and state.due is None:
            state.due = now + max(LEAST_S, state.job.period_s)

    # -- what to do

    def due(self, now: float) -> list[Start | Stop]:
        orders: list[Start | Stop] = []
        for state in self._states.values():
            reason = self._reason_to_stop(state, now)
            if reason and not state.stopping:
                state.stopping = True
                orders.append(Stop(state.job, reason))
        waiting = [one for one in self._states.values() if not one.running and one.due is not None and one.due <= now]
        load = self.load
        for state in sorted(waiting, key=_since):
            if load + state.job.load <= self.max_load + SLACK:
                load += state.job.load
                self._start(state, now)
                orders.append(Start(state.job))
        return orders

    def _reason_to_stop(self, state: _State, now: float) -> str:
        if not state.running:
            return ""
        if state.removed:
            return "it is no longer in the configuration"
        job = state.job
        if state.due is None or state.due > now or job.mode is Mode.WAIT_FOR_EXIT:
            return ""
        if job.kill:
            return f"it still runs after {now - state.started:.0f} s, when it is to run again"
        if job.mode is Mode.PERIODIC:  # this turn is left out
            state.due = _next_turn(state.due, job.period_s, now)
        return ""

    def _start(self, state: _State, now: float) -> None:
        state.running, state.stopping, state.started, state.load = True, False, now, state.job.load
        job, due = state.job, state.due
        # From turn to turn, so that the rhythm does not drift; but a job that waited long is not run twice in a row.
        state.due = None
        if job.mode is Mode.PERIODIC:
            late = due is None or now - due > job.period_s / 2
            state.due = now + job.period_s if late or due is None else due + job.period_s

    def next_look(self, now: float) -> float | None:
        """The next time at which `due` may answer otherwise though nothing ended; None: there is none. Who is due
        already waits for somebody's end."""
        return min((one.due for one in self._states.values() if one.due is not None and one.due > now), default=None)


def _since(state: _State) -> float:
    assert state.due is not None
    return state.due


def _next_turn(due: float, period_s: float, now: float) -> float:
    """The first turn after now, in the rhythm of `due`."""
    return due + period_s * (int((now - due) / period_s) + 1)
