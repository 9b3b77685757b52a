"""Ends of runs on their way to their access points: several in one message where they come at about the same time.

The first goes at once. Those that come before it is answered gather until it is, for GATHER_S at most: so a machine
that ends many short jobs a second asks less often, and the access point writes down in one transaction, and answers in
one message, what it heard in one. Each end is answered for itself, and repeated by who gave it here. An access point of
an older release does not say that it takes several, and gets each in a message of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from shared.bus.api import Bus, RemoteFailure
from shared.errors import RetryableError, RoostError
from shared.messages.base import Message
from shared.messages.claims import JobReport, JobReportAck, JobReports, JobReportsAck, ReportAnswer

#: An end waits for others so long at most, seconds: behind one that is not answered yet, and behind none, where those
#: of the same turn of the loop go together.
GATHER_S, AT_ONCE_S = 0.005, 0.0
#: Ends in one message: each takes the schedd's loop for a millisecond.
MOST: Final = 16


class NotTaken(RetryableError):
    """Several ends in one message were not taken; one by one they may be."""


@dataclass(slots=True)
class _Waiting:
    report: JobReport
    answer: asyncio.Future[Message]


@dataclass(slots=True)
class _Schedd:
    """What is on its way to one access point."""

    takes_batches: bool = False  # it said so
    under_way: int = 0  # messages that are not answered yet
    waiting: list[_Waiting] = field(default_factory=list)
    timer: asyncio.Handle | None = None  # for the first of them


class EndReports:
    """Those of one startd. spawn: runs something in the background, until the daemon ends."""

    def __init__(self, bus: Bus, startd: str, spawn: Callable[[Coroutine[Any, Any, None], str], None]) -> None:
        self._bus = bus
        self._startd = startd
        self._spawn = spawn
        self._schedds: dict[str, _Schedd] = {}

    async def call(self, schedd: str, report: JobReport) -> Message:
        """Tell one end, and wait for the answer. Raises like Bus.call, and NotTaken."""
        to = self._schedds.setdefault(schedd, _Schedd())
        loop = asyncio.get_running_loop()
        waiting = _Waiting(report, loop.create_future())
        to.waiting.append(waiting)
        if len(to.waiting) >= MOST or not to.takes_batches:
            self._send(schedd, to)
        elif to.timer is None:
            wait_s = GATHER_S if to.under_way else AT_ONCE_S
            to.timer = loop.call_later(wait_s, self._send, schedd, to)
        return await waiting.answer

    def _send(self, schedd: str, to: _Schedd) -> None:
        """Send all that wait."""
        if to.timer is not None:
            to.timer.cancel()
            to.timer = None
        most = MOST if to.takes_batches else 1
        to.waiting = [one for one in to.waiting if not one.answer.done()]  # who waited for those was cancelled
        while to.waiting:
            some, to.waiting = to.waiting[:most], to.waiting[most:]
            to.under_way += 1
            self._spawn(self._ask(schedd, to, some), f"ends:{schedd}")

    async def _ask(self, schedd: str, to: _Schedd, some: list[_Waiting]) -> None:
        try:
            answers = await (self._alone(schedd, to, some[0]) if len(some) == 1 else self._together(schedd, to, some))
        except asyncio.CancelledError:
            for one in some:
                one.answer.cancel()
            raise
        except Exception as error:  # noqa: BLE001  each is told it where it waits, whatever it is
            answers = [error] * len(some)
        finally:
            to.under_way -= 1
        for one, answer in zip(some, answers, strict=True):
            if one.answer.done():
                continue
            if isinstance(answer, Exception):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)
        if to.waiting and not to.under_way:
            self._send(schedd, to)

    async def _alone(self, schedd: str, to: _Schedd, one: _Waiting) -> list[Message | Exception]:
        answer = await self._bus.call(f"schedd.{schedd}", one.report)
        if isinstance(answer, JobReportAck):
            to.takes_batches = answer.takes_batches
        return [answer]

    async def _together(self, schedd: str, to: _Schedd, some: list[_Waiting]) -> list[Message | Exception]:
        """Raises NotTaken, and what is worth another try."""
        message = JobReports(startd=self._startd, reports=[one.report for one in some])
        try:
            answer = await self._bus.call(f"schedd.{schedd}", message)
        except RoostError as error:
            if isinstance(error, RetryableError) or (isinstance(error, RemoteFailure) and error.retryable):
                raise
            # An older release came in place of the one that said that it takes them; or all are too large together.
            to.takes_batches = False
            raise NotTaken(f"{len(some)} ends in one message were not taken: {error}") from error
        if not isinstance(answer, JobReportsAck) or len(answer.answers) != len(some):
            to.takes_batches = False
            raise NotTaken(f"{len(some)} ends in one message were answered by {answer.type}")
        return [_read(each) for each in answer.answers]


def _read(answer: ReportAnswer) -> Message | Exception:
    if answer.ack is not None:
        return answer.ack
    return RemoteFailure(answer.code, answer.reason, retryable=answer.retryable)
