"""skip_if_dataflow: a job whose declared output is there, and newer than all that it is made of, need not run (SUB-13).

As HTCondor sees it: made of the input files, the executable and standard input; times are whole seconds. The
executable, standard input and every file of transfer_output_files must be there; input files that are not do not
count. Pure.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from engine.queue.job_table import JobTable
from engine.queue.jobs import Job
from services.schedd.core import job_end
from services.schedd.core.job_changes import JobEffect, LogEvent
from shared import job_log
from shared.classad import ClassAd
from shared.transfer.sandbox import NOWHERE, input_names, split_list


@dataclass(frozen=True, slots=True)
class DataflowFiles:
    """Paths, all absolute. needed: executable and standard input. inputs: those that count if they are there."""

    needed: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @classmethod
    def of(cls, ad: ClassAd) -> DataflowFiles:
        iwd = ad.eval_string("Iwd") or "/"

        def paths(*names: str) -> Iterator[str]:
            return (posixpath.join(iwd, name) for name in names if name and name != NOWHERE and "://" not in name)

        return cls(
            tuple(paths(ad.eval_string("Cmd"), ad.eval_string("In"))),
            tuple(paths(*input_names(ad))),
            tuple(paths(*split_list(ad.eval_string("TransferOutput")))),
        )

    def are_done(self, changed: Callable[[str], float | None]) -> bool:
        """Whether the outputs need not be made again. changed(path): when it was, seconds since 1970; None: it is not
        there."""
        needed = [changed(path) for path in self.needed]
        outputs = [changed(path) for path in self.outputs]
        sources = [time for path in self.inputs if (time := changed(path)) is not None]
        if not needed or not outputs or None in needed or None in outputs:
            return False
        sources += [time for time in needed if time is not None]
        return min(int(time) for time in outputs if time is not None) > max(map(int, sources))


def skip(schedd: str, table: JobTable, job: Job, now: float) -> tuple[JobEffect, ...]:
    """The job is done, as if it had run and succeeded."""
    job.ad["DataflowJobSkipped"] = True
    told = LogEvent(job, lambda: job_log.dataflow_skipped(job.id, now))
    return (told, *job_end.skip(schedd, table, job, 0, None, now))
