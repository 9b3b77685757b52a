"""`roost submit -interactive` (TLS-14): a job that holds a slot, and a shell beside it. The session waits until the
job runs, says why it waits, opens the shell, and cleans up.

The job waits a while for the shell, and then until the shell has ended: it looks at the shell's process, which is in
its own PID namespace or container, so it ends too when the user's terminal, the gateway or the visit went away.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

from roost.cli.ssh_to_job import attach
from roost.client import Client
from roost.errors import ClientError, UsageError
from roost.submit.description import DescribedCluster
from shared.classad import ClassAd
from shared.errors import RoostError

#: Has the shell's process id, in the job's scratch directory.
_MARK: Final = ".roost_interactive"
#: Seconds that the job waits for a shell, as HTCondor's does.
HOLD_SLOT_S: Final = 180
#: Landlock lets the job see the shell but not signal it, so no kill -0. No quotes (an empty IFS
#: keeps names with blanks whole), no $( of the submit language.
_JOB: Final = (
    f"IFS=; m=${{_CONDOR_SCRATCH_DIR:-.}}/{_MARK}; i=; "
    f"while test ! -s $m; do test ${{#i}} -lt {HOLD_SLOT_S} || exit 0; i=x$i; sleep 1; done; "
    "read p < $m; while test -d /proc/$p; do sleep 1; done; rm -f $m"
)
#: The shell: the image may have bash, and it has sh. exec keeps the process id.
_SHELL: Final = (
    f'm="${{_CONDOR_SCRATCH_DIR:-.}}/{_MARK}"; echo $$ > "$m.new" && mv "$m.new" "$m" || exit 1; '
    "command -v bash > /dev/null && exec bash -i; exec sh -i"
)
#: Without a terminal: commands come from standard input.
_SHELL_OF_PIPE: Final = _SHELL.replace("bash -i", "bash").replace("sh -i", "sh")
#: A whole submit file, where neither a file nor INTERACTIVE_SUBMIT_FILE is given.
INTERACTIVE_DESCRIPTION: Final = "universe = vanilla\nqueue\n"
#: Lines that count as written before the queue statement, whatever the file says.
INTERACTIVE_COMMANDS: Final = (
    "executable = /bin/sh",
    "transfer_executable = false",
    f"arguments = \"-c '{_JOB}'\"",
    "description = interactive job",
    "MY.InteractiveJob = true",
    "hold = false",
)


def shell(*, terminal: bool) -> list[str]:
    """What a visit to the job runs."""
    return ["/bin/sh", "-c", _SHELL if terminal else _SHELL_OF_PIPE]


def check_interactive(clusters: list[DescribedCluster]) -> None:
    """Raises UsageError unless the file makes one job."""
    jobs = sum(len(cluster.procs) for cluster in clusters)
    if jobs != 1:
        raise UsageError(f"-interactive is for one job, and the file queues {jobs}: end it with `queue`")


#: Between looks at the job, seconds: the first, and the longest.
_FIRST_S: Final = 0.2
_LONGEST_S: Final = 2.0
#: When it has waited so long the reason is asked for, and again after as long.
_REASON_AFTER_S: Final = 5.0
_REASON_EVERY_S: Final = 30.0
#: Refusals that pass, if the job still runs or waits.
_NOT_YET: Final = ("conflict", "busy", "not-found")
#: A container that is just being made, an image that is pulled.
_STARTING_S: Final = 1200.0


class Gone(BaseException):
    """The terminal went away, or somebody ended us."""

    def __init__(self, number: int) -> None:
        self.number = number


def session(client: Client, job_id: str, schedd: str, idle_s: float | None, *, terminal: bool) -> int:
    """Wait for the job, open a shell beside it: the shell's exit code. The job never outlives this for long: it ends
    with the shell, and is removed when anything else ends this."""
    with _signals():
        try:
            where = wait_until_runs(client, job_id, schedd, _say)
            _say(f"Welcome to {where}!")
            with _idle(idle_s) as active:
                return _visit(client, job_id, schedd, active, terminal=terminal)
        except Gone as gone:
            _remove(client, job_id, schedd)
            return 128 + gone.number
        except BaseException:
            _remove(client, job_id, schedd)
            raise


def wait_until_runs(
    client: Client,
    job_id: str,
    schedd: str,
    tell: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Where the job runs, once it does; tells meanwhile why it does not. Raises ClientError when it never will."""
    tell("Waiting for job to start...")
    began = clock()
    ask_at, pause, told = began + _REASON_AFTER_S, _FIRST_S, ""
    while True:
        needs = ("JobStatus", "RemoteHost", "HoldReason", "RemoveReason")
        ad = next(iter(client.jobs(job_id, projection=needs, schedd=schedd)), None)
        where = state(ad, job_id)
        if where:
            return where
        now = clock()
        if now >= ask_at:
            ask_at = now + _REASON_EVERY_S
            reason = _reason(client, job_id, schedd)
            if reason and reason != told:
                told = reason
                tell(f"Job {job_id} waits: {reason}")
        sleep(pause)
        pause = min(_LONGEST_S, pause * 1.3)


def state(ad: ClassAd | None, job_id: str) -> str:
    """Where a job runs; "" while it waits. Raises ClientError if it never will run."""
    status = ad.eval("JobStatus") if ad is not None else None
    if ad is None or status in (3, 4):
        why = ad.eval("RemoveReason") if ad is not None else None
        raise ClientError(f"job {job_id} has left the queue" + (f": {why}" if isinstance(why, str) else ""), "ended")
    if status == 5:
        raise ClientError(f"job {job_id} was put on hold: {ad.eval('HoldReason')}", "held")
    host = ad.eval("RemoteHost")
    return (host if isinstance(host, str) else "the job") if status in (2, 6) else ""


def _reason(client: Client, job_id: str, schedd: str) -> str:
    """In a sentence, why a job does not run; "" if nobody can tell now."""
    try:
        jobs = client.analysis(job_id, schedd=schedd, limit=1)["jobs"]
    except (RoostError, KeyError):
        return ""
    return str(jobs[0]["verdict"]) if jobs else ""


def _visit(client: Client, job_id: str, schedd: str, active: Callable[[], None], *, terminal: bool) -> int:
    """A job whose program is not there yet takes no visits; its execution point may not even have heard of it, as a job
    is running for its schedd from the moment its slot was asked for."""
    end = time.monotonic() + _STARTING_S
    pause = _FIRST_S
    while True:
        try:
            return attach(client, job_id, shell(terminal=terminal), schedd, with_tty=terminal, active=active)
        except ClientError as error:
            if error.code not in _NOT_YET or time.monotonic() > end:
                raise
            state(next(iter(client.jobs(job_id, projection=("JobStatus", "HoldReason"), schedd=schedd)), None), job_id)
        time.sleep(pause)
        pause = min(_LONGEST_S, pause * 1.3)


def _remove(client: Client, job_id: str, schedd: str) -> None:
    client.close()  # a signal may have come in the middle of a request: what answers it must not answer this
    try:
        client.act("remove", [job_id], reason="its interactive session ended", schedd=schedd)
    except RoostError as error:
        sys.stderr.write(f"roost: could not remove {job_id}: {error}; it ends by itself when nobody comes\n")


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """A terminal that goes, and whoever ends us, must not leave the job behind."""

    def gone(number: int, frame: FrameType | None) -> None:
        raise Gone(number)

    before = {number: signal.signal(number, gone) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _idle(limit_s: float | None) -> Iterator[Callable[[], None]]:
    """Ends the session when nothing was typed or shown for so long. Gives what is called whenever something is."""
    if limit_s is None:
        yield lambda: None
        return
    _say(f"You will be logged out after {limit_s:g} seconds of inactivity.")
    last = time.monotonic()
    over = threading.Event()

    def active() -> None:
        nonlocal last
        last = time.monotonic()

    def watch() -> None:
        while not over.wait(max(0.05, last + limit_s - time.monotonic())):
            if time.monotonic() >= last + limit_s:
                sys.stderr.write("\r\nroost: nothing was typed for too long: logged out\r\n")
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGHUP)
                return

    threading.Thread(target=watch, name="idle", daemon=True).start()
    try:
        yield active
    finally:
        over.set()


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
