"""Which daemons run, which are to be started, and when. Pure: told what happened with the time, it says what to do."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from services.master.core.daemon_words import Program
from shared.backoff import wait_s
from shared.daemon.runner import FIRST_BACKOFF_S, GOOD_LIFE_S, LONGEST_BACKOFF_S

#: Exit statuses of daemons (shared.daemon.main): told to restart; wrong arguments or configuration; over for good.
AGAIN: Final = 75
HOPELESS: Final = (2, 78)
OVER: Final = 99


class State(Enum):
    WAITING = "waiting"  # to be started when it is time
    STARTING = "starting"  # not yet ready
    RUNNING = "running"
    STOPPING = "stopping"  # told to end
    OVER = "over"  # ended, and nobody starts it again before the configuration is read anew


@dataclass(slots=True)
class Watched:
    """One daemon. due: when it is to be started (WAITING). heard: when it last said that its loop turns."""

    program: Program
    state: State = State.WAITING
    due: float = 0.0
    pid: int = 0
    began: float = 0.0
    heard: float = 0.0
    failures: int = 0  # in a row
    last: str = ""  # how its last life ended
    says: str = ""  # its own status
    gone: bool = False  # not listed any more: forgotten when it has ended


@dataclass(frozen=True, slots=True)
class Kill:
    pid: int
    signal: signal.Signals
    why: str


@dataclass(slots=True)
class Supervision:
    """not_responding_s: a daemon that was ready, and says for so long nothing, is killed; 0: never. stop_s: one that is
    told to end has so long for it."""

    not_responding_s: float
    stop_s: float
    watched: dict[str, Watched] = field(default_factory=dict)
    stopping: bool = False

    def want(self, programs: Sequence[Program], now: float) -> list[Kill]:
        """These are to run, no others. One that ended for good is tried again; one whose program changed is started
        anew."""
        kills: list[Kill] = []
        named = {program.word: program for program in programs}
        for word, one in self.watched.items():
            new = named.get(word)
            one.gone = new is None
            if one.pid and new != one.program:
                kills += self._end(one, now, "it is not listed any more" if new is None else "its command line changed")
            if new is not None:
                one.program = new
                if one.state is State.OVER:
                    one.state, one.due, one.failures = State.WAITING, now, 0
        for word, program in named.items():
            self.watched.setdefault(word, Watched(program, due=now))
        self._forget()
        return kills

    def due(self, now: float) -> Sequence[Watched]:
        """Those to be started now."""
        if self.stopping:
            return ()
        return [one for one in self.watched.values() if one.state is State.WAITING and one.due <= now]

    def next_due(self) -> float | None:
        """When there is something to do next, if nothing happens before; None: never."""
        moments = [one.due for one in self.watched.values() if one.state is State.WAITING and not self.stopping]
        moments += [one.due for one in self.watched.values() if one.state is State.STOPPING]
        if self.not_responding_s:
            running = (one for one in self.watched.values() if one.state is State.RUNNING)
            moments += [one.heard + self.not_responding_s for one in running]
        return min(moments, default=None)

    def started(self, word: str, pid: int, now: float) -> None:
        one = self.watched[word]
        one.state, one.pid, one.began, one.heard, one.says = State.STARTING, pid, now, now, ""

    def told(self, word: str, lines: Mapping[str, str], now: float) -> None:
        """What the daemon said of itself (sd_notify(3))."""
        one = self.watched[word]
        one.heard = now
        one.says = lines.get("STATUS", one.says)
        if "READY" in lines and one.state is State.STARTING:
            one.state = State.RUNNING

    def ended(self, pid: int, status: int, now: float) -> Watched | None:
        """A child ended: with this exit status, or by the signal -status. None: it is none of ours."""
        one = next((one for one in self.watched.values() if one.pid == pid), None)
        if one is None:
            return None
        asked = one.state is State.STOPPING
        one.pid, one.says = 0, ""
        one.last = f"exit status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
        one.state, one.due = State.WAITING, now
        if asked or status == AGAIN:
            one.failures = 0
        elif status in HOPELESS or status == OVER:
            one.state = State.OVER
        else:
            one.failures = 1 if now - one.began > GOOD_LIFE_S else one.failures + 1
            one.due = now + wait_s(one.failures, FIRST_BACKOFF_S, LONGEST_BACKOFF_S)
        self._forget()
        return one

    def overdue(self, now: float) -> list[Kill]:
        """Those that hang, and those that do not end though they were told to."""
        kills = []
        for one in self.watched.values():
            if one.state is State.STOPPING and one.due <= now:
                one.due = now + self.stop_s
                kills.append(Kill(one.pid, signal.SIGKILL, "it did not end"))
            elif one.state is State.RUNNING and self.not_responding_s and now >= one.heard + self.not_responding_s:
                one.heard = now  # until it has gone
                kills.append(Kill(one.pid, signal.SIGKILL, f"it said nothing for {self.not_responding_s:g} s"))
        return kills

    def stop(self, now: float) -> list[Kill]:
        """All are to end, and none to be started."""
        self.stopping = True
        return [kill for one in self.watched.values() for kill in self._end(one, now, "the master stops")]

    @property
    def ready(self) -> bool:
        """Whether each daemon does its work, or has ended for good."""
        return all(one.state in (State.RUNNING, State.OVER) for one in self.watched.values())

    @property
    def empty(self) -> bool:
        return not any(one.pid for one in self.watched.values())

    def status(self) -> str:
        """In words, for systemd and whoever looks."""
        return "; ".join(
            f"{one.program.word}: {one.says if one.says and one.pid else _words(one)}" for one in self.watched.values()
        )

    def _end(self, one: Watched, now: float, why: str) -> list[Kill]:
        if not one.pid or one.state is State.STOPPING:
            return []
        one.state, one.due = State.STOPPING, now + self.stop_s
        return [Kill(one.pid, signal.SIGTERM, why)]

    def _forget(self) -> None:
        for word in [word for word, one in self.watched.items() if one.gone and not one.pid]:
            del self.watched[word]


def _words(one: Watched) -> str:
    return f"{one.state.value} after {one.last}" if one.last and not one.pid else one.state.value
