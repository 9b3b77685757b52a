"""Jobs of the scheduler and local universes: programs that the schedd runs itself, beside the queue (managers of DAGs,
above all). Who may have some, which may start, and what their end means. The two differ in their limits only. No I/O.

Such a job is a process of the schedd's account. So only that account's user may have one: everybody else would get its
rights. It takes no slot, no negotiator hears of it, and nothing is charged.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.queue.jobs import Job, Shadow
from shared.classad import ClassAd, Expr, evaluate, is_true
from shared.classad.budget import policies
from shared.job_text import BadJobText, arguments, environment
from shared.messages.claims import JobExit
from shared.users import local_name

#: Between the signal that asks a job to leave and SIGKILL, seconds, unless it says KillSigTimeout. None follows a
#: signal that the job names itself for its removal or hold: it has work to do then, as managers of DAGs have.
KILL_AFTER_S: Final = 20.0
_LONGEST_S: Final = 86400.0
#: What every such job finds in its environment, unless it says otherwise.
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Limits:
    """start, start_local: START_SCHEDULER_UNIVERSE and START_LOCAL_UNIVERSE, over the schedd's ad (MY) and the job's
    (TARGET); per_owner: MAX_RUNNING_SCHEDULER_JOBS_PER_OWNER."""

    start: Expr | None = None
    per_owner: int = 200
    start_local: Expr | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """How many jobs run, by universe; of_owner: of the scheduler universe and one owner."""

    scheduler: int = 0
    local: int = 0
    of_owner: int = 0


@dataclass(frozen=True, slots=True)
class Launch:
    """A program to be started. stdin, stdout, stderr: absolute paths."""

    words: list[str]
    directory: Path
    environment: dict[str, str]
    stdin: Path
    stdout: Path
    stderr: Path


def refusal(user: str, account: str, uid_domain: str, *, spool: bool) -> str:
    """Why a user may not submit such a job; empty: he may. account: of the schedd's process."""
    if local_name(user, uid_domain) != account:
        return (
            "jobs of the scheduler and local universes (managers of DAGs are some) run as the schedd's account, "
            f"{account}, and {user} is another user: submit to a schedd that runs as you do, as a personal pool's does "
            "(roost up)"
        )
    if spool:
        return "jobs of the scheduler and local universes use their files where they lie: submit without spooling"
    return ""


def may_start(job: Job, ad: ClassAd, running: Running, limits: Limits, now: float) -> bool:
    """Whether an idle job may start. ad: the whole one."""
    local = job.cluster.here == "local"
    if not local and running.of_owner >= limits.per_owner:
        return False
    start = limits.start_local if local else limits.start
    if start is None:
        return True
    mine = ClassAd({"TotalSchedulerJobsRunning": running.scheduler, "TotalLocalJobsRunning": running.local})
    with policies("START_LOCAL_UNIVERSE" if local else "START_SCHEDULER_UNIVERSE").open():
        return is_true(evaluate(start, mine, ad, now))


def launch(job: Job, account: str, home: str, schedd: str) -> Launch:
    """What is to be run for a job. Raises BadJobText."""
    text = job.ad.eval
    new, old = text("Arguments"), text("Args")
    words = arguments(new if isinstance(new, str) else None, old if isinstance(old, str) else None)
    more, less = text("Environment"), text("Env")
    variables = environment(more if isinstance(more, str) else None, less if isinstance(less, str) else None)
    directory = Path(job.text("Iwd") or "/")
    program = job.text("Cmd")
    if not program or any("\0" in word for word in (program, str(directory), *words)):
        raise BadJobText("Cmd, Iwd and the arguments: want a program, and no zero bytes")
    base = {"PATH": _PATH, "HOME": home, "USER": account, "LOGNAME": account}
    return Launch(
        words=[str(directory / program), *words],
        directory=directory,
        environment={**base, **variables, "CONDOR_ID": str(job.id), "CONDOR_SCHEDD": schedd},
        stdin=directory / (job.text("In") or "/dev/null"),
        stdout=directory / (job.text("Out") or "/dev/null"),
        stderr=directory / (job.text("Err") or "/dev/null"),
    )


def kill_after_s(ad: ClassAd, why: str) -> float | None:
    """How long a job that is to leave has before it is killed, seconds; None: for as long as it takes."""
    own = ad.eval("KillSigTimeout")
    if isinstance(own, int | float) and not isinstance(own, bool):
        return min(max(0.0, float(own)), _LONGEST_S)
    return None if {"remove": "RemoveKillSig", "hold": "HoldKillSig"}.get(why, "KillSig") in ad else KILL_AFTER_S


def exit_of(code: int | None, run: Shadow) -> JobExit:
    """How a run ended. code: -N for signal N; None: nobody knows."""
    if run.stop == "vacate":
        return JobExit(reason="evicted", message="its run was vacated")
    if code is None:
        return JobExit(reason="evicted", message="its process is gone, and left no exit status")
    if code < 0:
        return JobExit(reason="exited", exit_signal=min(-code, signal.NSIG))
    return JobExit(reason="exited", exit_code=code)


def on_start(job: Job, now: float) -> None:
    """Note in its ad that a job runs."""
    ad, stamp = job.ad, int(now)
    if not isinstance(ad.eval("JobStartDate"), int):
        ad["JobStartDate"] = stamp
    if (last := ad.find("jobcurrentstartdate")) is not None:
        ad["JobLastStartDate"] = last
    ad.update({"JobCurrentStartDate": stamp, "JobCurrentStartExecutingDate": stamp, "ShadowBday": stamp})
    job.count("NumJobStarts")
    job.count("JobRunCount")


def on_end(job: Job, run: Shadow, now: float) -> None:
    """Add a run that is over to its totals."""
    job.shadow = None
    job.ad["RemoteWallClockTime"] = float(job.number("RemoteWallClockTime")) + max(0.0, now - run.started)
    job.drop("ShadowBday")
