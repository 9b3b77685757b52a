"""The jobs that ran here, in a file of this machine (STARTD_HISTORY, spec row TLS-12): one ad for each run, as it was
when the run ended, and a line of stars with what is looked for most behind it. `roost history -startd` reads it.

Nobody waits for this file: what can not be written is left out, and the first failure is told in the log.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from services.startd.context import Component, StartdContext
from services.startd.run.run import Run
from shared import private_files
from shared.classad import ClassAd, OldTexts
from shared.classad.ad import PRIVATE_OF_JOBS
from shared.config.knobs import StartdSettings
from shared.daemon import closed_files
from shared.history_file import as_text, away, put_away

#: HTCondor's numbers of job states.
IDLE, REMOVED, COMPLETED, HELD = 1, 3, 4, 5


class History(Component):
    def __init__(self, startd: StartdContext) -> None:
        super().__init__(startd)
        self._told: set[str] = set()  # runs that an earlier life has written down
        self._failing = False
        self._texts = OldTexts()
        self.reread()

    def reread(self) -> None:
        knobs = StartdSettings.from_config(self.startd.context.config)
        self.path = Path(knobs.startd_history) if knobs.startd_history else self.startd.context.spool / "startd_history"
        self.max_bytes = knobs.max_history_log
        self.rotations = knobs.max_history_rotations

    async def setup(self) -> None:
        paths = [self.path, *await asyncio.to_thread(away, self.path)]
        closed_files.tell(private_files.close_all(paths), self.startd.context.log)

    def run_started(self, run: Run) -> None:
        if run.ended:
            self._told.add(run.key)

    def run_over(self, run: Run) -> None:
        if run.key in self._told:
            self._told.discard(run.key)
            return
        try:
            self._append(as_text(_ended(run, self.startd.now()), self._texts.of))
            self._failing = False
        except (OSError, UnicodeError) as error:
            if not self._failing:
                self.startd.context.log.warning("startd_history_not_written", path=str(self.path), reason=str(error))
            self._failing = True

    def _append(self, text: str) -> None:
        data = text.encode(errors="surrogateescape")
        with open(self._opened(), "ab") as file:
            size = os.fstat(file.fileno()).st_size
            if not (self.max_bytes and size and size + len(data) > self.max_bytes):
                file.write(data)
                return
        put_away(self.path, self.startd.now(), self.rotations)
        self._append(text)

    def _opened(self) -> int:
        # Arguments of jobs may hold secrets: other accounts, and so other jobs, do not read them here.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(self.path, flags, 0o600)
        except FileNotFoundError:
            private_files.make_directory(self.path.parent)
            return os.open(self.path, flags, 0o600)


def _ended(run: Run, now: float) -> ClassAd:
    """The ad of the job as this run leaves it."""
    record, outcome, used = run.record, run.record.outcome, run.record.used
    ad = run.job.public()
    found: dict[str, object] = {
        "JobStatus": COMPLETED,
        "EnteredCurrentStatus": int(now),
        "LastRemoteHost": record.slot,
        "RemoteUserCpu": used.user_cpu_s,
        "RemoteSysCpu": used.sys_cpu_s,
        "ImageSize": used.image_size_kib,
        "ResidentSetSize": used.resident_set_kib,
        "MemoryUsage": used.memory_mib,
        "DiskUsage": used.disk_kib,
        "BytesSent": used.bytes_sent,
        "BytesRecvd": used.bytes_received,
        "RemoteWallClockTime": 0.0,
    }
    if record.started_at:
        found["JobCurrentStartDate"] = int(record.started_at)
        found["RemoteWallClockTime"] = round(max(0.0, now - record.started_at), 3)
    if outcome is not None:
        found |= {"ExitBySignal": outcome.exit_signal is not None}
        if outcome.exit_signal is not None:
            found["ExitSignal"] = outcome.exit_signal
        elif outcome.exit_code is not None:
            found["ExitCode"] = outcome.exit_code
        if outcome.reason == "exited":
            found["CompletionDate"] = int(now)
        elif outcome.reason == "hold":
            found |= {"JobStatus": HELD, "HoldReason": outcome.message}
            found |= {"HoldReasonCode": outcome.hold_code, "HoldReasonSubCode": outcome.hold_subcode}
        else:
            why = run.stop_order.why if run.stop_order is not None else ""
            status, reason = _LEFT.get(why, (IDLE, "VacateReason"))
            found |= {"JobStatus": status, reason: outcome.message}
    for name in PRIVATE_OF_JOBS:
        ad.pop(name, None)
    ad.update(found)
    return ad


#: What becomes of a job that was stopped, and the attribute that says why.
_LEFT = {"remove": (REMOVED, "RemoveReason"), "hold": (HELD, "HoldReason")}
