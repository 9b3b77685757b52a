"""What a run tells the schedd: how it goes, and its end until that is acknowledged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from structlog.stdlib import BoundLogger

from services.startd.core.journal_records import RunRecord
from services.startd.core.run import run_times
from services.startd.run.context import RunContext
from shared.backoff import Backoff
from shared.classad import ClassAd
from shared.errors import RetryableError, RoostError
from shared.messages.claims import JobExit, JobReport, JobReportAck, Usage

#: Between two attempts to report an end, seconds: first and longest.
REPORT_FIRST_S, REPORT_LONGEST_S = 0.2, 30.0
#: An end that nobody wants to hear of is forgotten after its lease and this time, seconds.
REPORT_FOR_S = 86400.0
#: Where the last job of a claim ran for less than this, the next one is told to run only when it has done so for as
#: long: one that ends sooner is told with its end, seconds.
BRIEF_S = 0.2
#: Ends that tell the schedd that the program ran, too.
_TELLS_ALL = ("exited", "killed", "evicted")
#: A transfer that takes longer than this is told to the schedd, seconds.
QUIET_TRANSFER_S = 1.0


class Reports:
    """The reports of one run. extras: what components of the startd add to the job's attributes, in every report.
    no_schedd: gets the reports of a run that belongs to no access point, one of fetched work. after_brief: the claim's
    last job ran for less than BRIEF_S."""

    def __init__(
        self,
        record: RunRecord,
        context: RunContext,
        log: BoundLogger,
        no_schedd: Callable[[JobReport], None],
        *,
        after_brief: bool = False,
    ) -> None:
        self._record = record
        self._context = context
        self._log = log
        self._no_schedd = no_schedd
        self._after_brief = after_brief
        self._to_tell: asyncio.TimerHandle | None = None  # that it runs, which was not told yet
        self.extras: dict[str, object] = {}

    def _made(self, phase: Any, updates: ClassAd | None = None, outcome: JobExit | None = None) -> JobReport:
        record = self._record
        record.sequence += 1
        if self.extras:
            updates = ClassAd(self.extras | dict(updates.exprs() if updates else ()))
        begun = phase in ("running", "suspended", "ended") and record.scratch
        return JobReport(
            startd=self._context.startd,
            slot=record.slot,
            claim_id=record.claim_id,
            job_id=record.job_id,
            attempt=record.attempt,
            sequence=record.sequence,
            phase=phase,
            at=self._context.daemon.clock.now(),
            started_at=record.started_at,
            pid=record.pid,
            usage=Usage.model_validate(record.usage),
            exit=outcome,
            updates=updates.pack() if updates else b"",
            scratch=str(self._context.daemon.execute / record.scratch) if begun else "",
        )

    def tell(self, phase: str, updates: ClassAd | None = None) -> None:
        """Tell the schedd, without waiting; what gets lost is repeated by the next report."""
        self.close()
        self._context.in_background(self._send(self._made(phase, updates)), f"report:{self._record.key}")

    def began(self, updates: ClassAd | None) -> None:
        """Tell the schedd that the program runs. Where it may not know of the claim yet it is asked to answer: with the
        answer the claim has its whole lease, so a job that has just begun outlives a broker that goes away now. Of one
        that may be over in a moment the end tells it, unless files or a launcher have more to say."""
        if self._record.schedd and self._context.lease_is_first(self._record.claim_id):
            report = self._made("running", updates).model_copy(update={"renew": True})
            self._context.in_background(self._ask(report), f"report:{self._record.key}")
        elif self._after_brief and not updates and not self._record.transfer_url:
            self._to_tell = asyncio.get_running_loop().call_later(BRIEF_S, self.tell, "running")
        else:
            self.tell("running", updates)

    async def _ask(self, report: JobReport) -> None:
        since = self._context.daemon.clock.boottime()
        try:
            answer = await self._context.daemon.bus.call(f"schedd.{self._record.schedd}", report)
        except RetryableError as error:
            self._log.info("report_not_acknowledged", phase=report.phase, reason=str(error))
            await self._send(report)  # as every other one: it waits where the schedd will find it
        except RoostError as error:
            self._log.info("report_refused", phase=report.phase, reason=str(error))
        else:
            if isinstance(answer, JobReportAck) and answer.renewed:
                self._context.lease_confirmed(report.claim_id, since)

    async def _send(self, report: JobReport) -> None:
        if not self._record.schedd:
            self._no_schedd(report)
            return
        try:
            await self._context.daemon.bus.send(f"schedd.{self._record.schedd}", report)
        except RoostError as error:
            self._log.info("report_not_sent", phase=report.phase, reason=str(error))

    def close(self) -> None:
        """What waits to be told is not told any more: it was told otherwise, or this life is over."""
        if self._to_tell is not None:
            self._to_tell.cancel()
            self._to_tell = None

    def later(self, phase: str) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(QUIET_TRANSFER_S, self.tell, phase)

    async def end(self, updates: ClassAd | None) -> JobReportAck | None:
        """Repeat the final report until it is acknowledged. None: nobody wanted to hear it for very long."""
        context, record = self._context.daemon, self._record
        if self._to_tell is not None and record.outcome is not None and record.outcome.reason not in _TELLS_ALL:
            await self._send(self._made("running"))
        self.close()
        report = self._made("ended", updates, record.outcome)
        if record.ended_at:
            times = {"had_s": run_times.had_s(record), "ran_s": run_times.ran_s(record), "at": record.ended_at}
            report = report.model_copy(update=times)
        if not record.schedd:
            self._no_schedd(report)
            return JobReportAck()
        give_up = context.clock.monotonic() + record.lease_s + REPORT_FOR_S
        backoff = Backoff(REPORT_FIRST_S, REPORT_LONGEST_S, jitter=random.uniform)
        synced = False
        while context.clock.monotonic() < give_up:
            try:
                told = report.model_copy(
                    update={
                        "claim_over": self._context.claim_over(record.claim_id),
                        "over_s": run_times.over_s(record, self._context.moment()) if record.ended_at else None,
                    }
                )
                answer = await self._context.ends.call(record.schedd, told)
            except RetryableError as error:
                self._log.info("end_not_acknowledged", reason=str(error))
            except RoostError as error:
                self._log.warning("end_refused", reason=str(error))
            else:
                if isinstance(answer, JobReportAck):
                    return answer
                self._log.warning("end_refused", reason=f"the schedd answered {answer.type}")
            if not synced:
                await self._context.journal.sync()
                synced = True
            await context.clock.sleep(backoff.next_s())
        self._log.error("end_given_up", after_s=record.lease_s + REPORT_FOR_S)
        return None
