"""`roost submit-dag`: run a DAG, or go on with one whose manager was killed."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from engine.dag.run import DagRun, Limits
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.errors import UsageError

if TYPE_CHECKING:
    from roost.dag.journal import Header, Journal

OPTIONS: tuple[Option, ...] = (
    value("maxjobs", help="at most so many nodes in the queue at a time (0: no limit)", metavar="NUMBER"),
    value(
        "maxidle", help="submit nothing while so many jobs of the DAG are idle (0: no limit; 1000)", metavar="NUMBER"
    ),
    value("maxpre", help="at most so many PRE scripts at a time (0: no limit; 20)", metavar="NUMBER"),
    value("maxpost", help="at most so many POST scripts at a time (0: no limit; 20)", metavar="NUMBER"),
    flag("AlwaysRunPost", help="run POST scripts of nodes whose PRE script failed, too"),
    flag("DontAlwaysRunPost", help="do not (so it is by default)"),
    flag("force", "f", help="begin anew: use no rescue file, and forget a DAG that did not come to its end"),
    value("dorescuefrom", help="go on from rescue file NUMBER; later ones are renamed", metavar="NUMBER"),
    value("autorescue", help="1: go on from the last rescue file (so it is by default); 0: do not", metavar="0|1"),
    value("load_save", help="go on from this save point file", metavar="FILE"),
    value("batch-name", help="name of the DAG's line in the queue", metavar="NAME"),
    flag("no_submit", help="read the DAG and tell what is wrong with it; run nothing"),
    flag("foreground", help="manage the DAG in this process, to its end; its exit code is the DAG's"),
    flag("verbose", "v", help="tell how many nodes there are"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        text = (
            "Run a DAG of jobs. A process of yours manages it on this machine, until the DAG ends; what it does is in\n"
            "FILE.dagman.out. Killed, it goes on where it was when the same command is given again."
        )
        say(usage(command, "FILE [FILE...]", text, OPTIONS))
        return 0
    if not parsed.arguments:
        raise UsageError("which DAG? roost submit-dag FILE")
    file = Path(parsed.arguments[0])
    if parsed.has("foreground"):
        return _manage(file, parsed)
    from roost.dag.journal import read_dag

    dag = read_dag(parsed.arguments)
    for problem in dag.warnings:
        sys.stderr.write(f"WARNING: {problem}\n")
    if dag.config:
        sys.stderr.write(f"WARNING: CONFIG {dag.config} has no effect: give the options of this command\n")
    if parsed.has("verbose") or parsed.has("no_submit"):
        say(f"{file}: {dag.counted} nodes")
    return 0 if parsed.has("no_submit") else _detach(file, argv)


def _detach(file: Path, argv: list[str]) -> int:
    """Start the manager as a process of its own, and tell the number of its line in the queue."""
    read, write = os.pipe()
    out = Path(f"{file}.dagman.out")
    with out.open("ab") as log:
        started = out.stat().st_size
        process = subprocess.Popen(
            [sys.executable, "-m", "roost", "submit-dag", "-foreground", *argv],
            stdin=subprocess.DEVNULL, stdout=write, stderr=log, start_new_session=True,
        )  # fmt: skip
    os.close(write)
    with open(read, "rb") as told:
        line = told.readline().decode().strip()
    if not line:
        code = process.wait()
        with out.open(errors="replace") as log:
            log.seek(started)
            said = log.read().strip().rpartition("roost: ")[2]
        raise UsageError(said or f"the manager of the DAG ended at once, with {code}; see {out}")
    say(f"Submitting job(s).\n1 job(s) submitted to cluster {line}.")
    if sys.stderr.isatty():
        sys.stderr.write(f"Follow it with `roost dag status {file}`; what it does is in {out}.\n")
    return 0


def _manage(file: Path, parsed: Parsed) -> int:
    from roost.dag.journal import Journal, digest, read_dag, read_journal, replayed

    gc.disable()  # nothing of a DAG is garbage while it is read
    journal = Journal(Path(f"{file}.journal"))
    try:
        journal.cut()
        record = read_journal(journal.path)
        here = (parsed.arguments, str(Path.cwd()))
        there = (record.header.files, record.header.directory) if record is not None else here
        if record is None or record.finished or parsed.has("force") or (not record.job and here != there):
            header = _header(parsed)
            dag = read_dag(parsed.arguments, header.rescue)
            header.nodes = digest(dag)
            found = DagRun(dag, Limits(**header.limits))
            journal.begin(header)
            job, schedd, recovered = 0, "", False
        else:
            header, found = record.header, replayed(record)
            job, schedd, recovered = record.job, record.schedd, bool(record.facts)
            if here != there:
                names = " ".join(header.files)
                raise UsageError(f"the DAG that ran here goes on as {names} from {header.directory}; or give -force")
        gc.freeze()
        gc.enable()
        return asyncio.run(_run(journal, header, found, parsed, job, schedd, recovered=recovered))
    finally:
        journal.close()


async def _run(
    journal: Journal, header: Header, found: DagRun, parsed: Parsed, job: int, schedd: str, *, recovered: bool
) -> int:
    from roost.aio import AsyncClient
    from roost.dag.manager import Manager

    async with AsyncClient(parsed.one("pool") or None) as client:
        manager = Manager(
            journal, header, found, client, batch=parsed.one("batch-name"), told_job=_told, job=job, schedd=schedd,
            recovered=recovered,
        )  # fmt: skip
        try:
            return await manager.manage()
        finally:
            await manager.close()


def _told(job: int) -> None:
    """To whoever started this process and waits for the number."""
    sys.stdout.write(f"{job}\n")
    sys.stdout.flush()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _header(parsed: Parsed) -> Header:
    from roost.dag.journal import Header, new_name

    rescue, number = _rescue(Path(parsed.arguments[0]), parsed)
    limits = Limits(
        max_jobs=parsed.integer("maxjobs", 0),
        max_idle=parsed.integer("maxidle", 1000),
        max_pre=parsed.integer("maxpre", 20),
        max_post=parsed.integer("maxpost", 20),
        always_post=parsed.has("AlwaysRunPost"),
    )
    return Header(new_name(), str(Path.cwd()), time.time(), list(parsed.arguments), rescue, number, "", asdict(limits))


def _rescue(file: Path, parsed: Parsed) -> tuple[str, int]:
    """The rescue or save point file that a DAG begins with, and its number."""
    from roost.dag.rescue_files import rescue_numbers, rescue_path, save_point_path

    numbers = rescue_numbers(file)
    if parsed.has("load_save"):
        return str(save_point_path(file, parsed.one("load_save"))), 0
    if parsed.has("dorescuefrom"):
        number = parsed.integer("dorescuefrom", 0)
        if number not in numbers:
            raise UsageError(f"there is no {rescue_path(file, number)}")
        later = [one for one in numbers if one > number]
    elif parsed.has("force"):
        number, later = 0, numbers
    else:
        number, later = (numbers[-1] if numbers and parsed.integer("autorescue", 1) else 0), []
    for one in later:
        path = rescue_path(file, one)
        path.replace(f"{path}.old")
    return (str(rescue_path(file, number)) if number else ""), number
