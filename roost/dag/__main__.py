"""The manager of a DAG, as the schedd starts it: `python -m roost.dag FILE`, in the directory that the DAG was
submitted in. FILE: the DAG's first file; its journal says all else. Exit codes: the DAG's; RESTART: to be started
again."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
import traceback
from pathlib import Path
from typing import IO, Final

from engine.dag.run import DagRun
from roost.dag.journal import Journal, Record, read_journal, replayed
from roost.errors import ClientError, UsageError
from shared.config.errors import ConfigError

#: It leaves the DAG to the next manager. One that could not begin ends with 1: the next could not either.
RESTART: Final = 75


def main(words: list[str]) -> int:
    if len(words) != 1 or not os.environ.get("CONDOR_ID"):
        sys.stderr.write("python -m roost.dag FILE: the schedd runs this; run a DAG with `roost submit-dag FILE`\n")
        return 1
    with Path(f"{words[0]}.dagman.out").open("a", errors="surrogateescape") as log:
        try:
            return _manage(Path(words[0]), int(os.environ["CONDOR_ID"].partition(".")[0]), log)
        except (ClientError, UsageError, ConfigError, OSError, ValueError) as error:
            _tell(log, str(error))
            return 1


def _tell(log: IO[str], text: str) -> None:
    log.write(f"{time.strftime('%m/%d/%y %H:%M:%S')} {text}\n")
    log.flush()


def _manage(file: Path, job: int, log: IO[str]) -> int:
    gc.disable()  # nothing of a DAG is garbage while it is read
    journal = Journal(Path(f"{file}.journal"))
    try:
        journal.cut()
        record = read_journal(journal.path)
        if record is None:
            raise ClientError(f"{journal.path} is gone: submit the DAG anew", "usage")
        if record.finished:
            return record.code  # and killed before anybody heard of it
        if record.job not in (0, job):
            raise ClientError(f"{file} is job {record.job}.0 now", "usage")
        schedd = os.environ.get("CONDOR_SCHEDD", "")
        if not record.job:
            journal.note_job(job, schedd)
        found = replayed(record)
        gc.freeze()
        gc.enable()
        try:
            return asyncio.run(_run(journal, found, record, job, schedd, log))
        except (ClientError, OSError) as error:  # a token was renewed, a disk was full: the next may do better
            _tell(log, f"{error}; the DAG goes on when its job runs again")
            return RESTART
        except Exception:  # noqa: BLE001  (whatever is wrong with the manager, the DAG's run is not over)
            _tell(log, f"this is a defect; the DAG goes on when its job runs again\n{traceback.format_exc()}")
            return RESTART
    finally:
        journal.close()


async def _run(journal: Journal, found: DagRun, record: Record, job: int, schedd: str, log: IO[str]) -> int:
    from roost.aio import AsyncClient
    from roost.dag.manager import Manager

    async with AsyncClient() as client:
        manager = Manager(
            journal, record.header, found, client, job=job, schedd=schedd, recovered=bool(record.facts), log=log
        )
        try:
            return await manager.manage()
        finally:
            await manager.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
