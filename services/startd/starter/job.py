"""From a job's ad to what is started: decisions on paths, environment, streams and ends, without I/O."""

from __future__ import annotations

import posixpath
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from services.startd.launchers.api import Finished, Launch
from services.startd.launchers.apptainer.plan import Plan
from services.startd.launchers.vm.plan import COMPLAINTS
from services.startd.machine.devices import device_environment
from shared.classad import ClassAd, unparse_old
from shared.job_text import BadJobText, arguments, environment
from shared.messages.claims import JobExit

EXECUTABLE = "condor_exec.exe"
STDOUT, STDERR = "_condor_stdout", "_condor_stderr"
JOB_AD, MACHINE_AD = ".job.ad", ".machine.ad"
#: Files in the scratch directory that never count as output by themselves.
OWN_FILES = frozenset((EXECUTABLE, STDOUT, STDERR, JOB_AD, MACHINE_AD, COMPLAINTS))
#: Variables that tell thread libraries how many cores the job has (manual: "Services for Running Jobs").
THREADS = (
    "CUBACORES",
    "GOMAXPROCS",
    "JULIA_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OMP_THREAD_LIMIT",
    "OPENBLAS_NUM_THREADS",
    "PYTHON_CPU_COUNT",
    "ROOT_MAX_THREADS",
    "TF_LOOP_PARALLEL_ITERATIONS",
    "TF_NUM_THREADS",
)
#: HTCondor's hold codes.
HOLD_ENVIRONMENT, HOLD_OUTPUT, HOLD_INPUT, HOLD_IMAGE = 5, 12, 13, 35


class BadJob(Exception):
    """The job's ad can not be carried out: hold it, with this code."""

    def __init__(self, message: str, code: int = HOLD_ENVIRONMENT, subcode: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.subcode = subcode


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run happens."""

    run: str
    slot: str
    scratch: Path
    cpus: float
    memory_mib: int
    transfer: bool
    labels: Mapping[str, str] | None = None
    machine_ad: ClassAd = field(default_factory=ClassAd)


def describe(job: ClassAd, place: Place, image: str = "", container: Plan | None = None) -> Launch:
    """What to start, in which image (`choice.choose`). Raises BadJob."""
    command = job.eval_string("Cmd")
    if not command and not image:
        raise BadJob("the job has no executable (Cmd)", 6)
    try:
        words = arguments(_text_or_none(job, "Arguments"), _text_or_none(job, "Args"))
        own = environment(
            _text_or_none(job, "Environment"), _text_or_none(job, "Env"), job.eval_string("EnvDelim") or ";"
        )
    except BadJobText as error:
        raise BadJob(str(error)) from error
    scratch = str(place.scratch)
    iwd = job.eval_string("Iwd") or scratch
    home = scratch if place.transfer else iwd
    if place.transfer and command and job.eval("TransferExecutable") is not False:
        executable = posixpath.join(scratch, EXECUTABLE)
    else:
        executable = command if image or not command else posixpath.join(home, command)
    if any("\0" in word for word in (executable, home, *words)):
        raise BadJob("the job's executable or arguments hold a zero byte", 6)
    stdin, stdout, stderr = _streams(job, place, home)
    core = job.eval("CoreSize")
    return Launch(
        run=place.run,
        executable=executable,
        argv=(executable, *words) if executable else tuple(words),
        env=_environment(own, place, iwd=home),
        cwd=home,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        append=not place.transfer and job.eval("AppendFiles") is True,
        scratch=place.scratch,
        cpus=place.cpus,
        memory_mib=place.memory_mib,
        limits={"RLIMIT_CORE": core if isinstance(core, int) and core >= 0 else 0},
        image=image,
        container=container,
        network=job.eval_string("DockerNetworkType"),
        labels=dict(place.labels or {}),
        slot=place.slot,
        job_ad=job,
        machine_ad=place.machine_ad,
    )


def _environment(own: Mapping[str, str], place: Place, iwd: str) -> dict[str, str]:
    scratch = str(place.scratch)
    cores = str(max(1, int(place.cpus)))
    variables = dict.fromkeys(THREADS, cores)
    variables |= {"TMPDIR": scratch, "TEMP": scratch, "TMP": scratch, "BATCH_SYSTEM": "HTCondor"}
    variables |= own
    # These tell the truth, whatever the job says.
    variables |= {
        "_CONDOR_SCRATCH_DIR": scratch,
        "_CONDOR_SLOT": place.slot.partition("@")[0],
        "_CONDOR_JOB_AD": posixpath.join(scratch, JOB_AD),
        "_CONDOR_MACHINE_AD": posixpath.join(scratch, MACHINE_AD),
        "_CONDOR_JOB_IWD": iwd,
    }
    variables |= device_environment(place.machine_ad)
    return variables


def _streams(job: ClassAd, place: Place, home: str) -> tuple[str, str, str]:
    given = {name: job.eval_string(name) for name in ("In", "Out", "Err")}
    for name, path in given.items():
        if path in ("/dev/null", "NUL"):
            given[name] = ""
    if not place.transfer:
        stdin, stdout, stderr = (posixpath.join(home, path) if path else "" for path in given.values())
        return stdin, stdout, stderr
    scratch = str(place.scratch)
    stdin = posixpath.join(scratch, posixpath.basename(given["In"])) if given["In"] else ""
    stdout = posixpath.join(scratch, STDOUT) if given["Out"] else ""
    if given["Err"] and given["Err"] == given["Out"]:
        return stdin, stdout, stdout
    return stdin, stdout, posixpath.join(scratch, STDERR) if given["Err"] else ""


def output_paths(job: ClassAd, scratch: Path, *, transfer: bool) -> tuple[str, str]:
    """Where standard output and standard error of a run go; empty: nowhere."""
    place = Place(run="", slot="", scratch=scratch, cpus=0.0, memory_mib=0, transfer=transfer)
    home = str(scratch) if transfer else job.eval_string("Iwd") or str(scratch)
    return _streams(job, place, home)[1:]


def ad_file(ad: ClassAd) -> str:
    """The text of .job.ad or .machine.ad: the public attributes, one a line."""
    return unparse_old(ad.public())


# ---------------------------------------------------------------- output


@dataclass(frozen=True, slots=True)
class Output:
    """What to send back: the listed paths, or (None) whatever is new or changed."""

    listed: tuple[str, ...] | None
    flatten: bool = True  # listed paths arrive under their last name


def output_of(job: ClassAd, exit_code: int | None, *, ended_by_itself: bool, asked: bool) -> Output | None:
    """Which output a run sends (manual: when_to_transfer_output); None: nothing at all."""
    when = job.eval_string("WhenToTransferOutput").upper()
    if not ended_by_itself and when != "ON_EXIT_OR_EVICT" and not asked:
        return None
    wanted = job.eval("SuccessExitCode")
    success = exit_code == (wanted if isinstance(wanted, int) else 0)
    if when == "ON_SUCCESS" and ended_by_itself and not success:
        return Output(())
    if job.eval("VMPARAM_No_Output_VM") is True:
        return Output(())
    listed = job.eval("TransferOutput")
    if not isinstance(listed, str):
        listed = job.eval("TransferOutputFiles")
    flatten = job.eval("PreserveRelativePaths") is not True
    if isinstance(listed, str):
        return Output(tuple(name for name in (part.strip() for part in listed.split(",")) if name), flatten)
    return Output(None, flatten)


# ---------------------------------------------------------------- ends


Stop = Literal["killed", "evicted"]


def exit_of(end: Finished, stopped: Stop | None, why: str) -> JobExit:
    """How a run ended, for the schedd. A job that was told to stop was stopped, whatever its exit status."""
    if end.hold_code and stopped is None:
        return JobExit(
            reason="hold",
            exit_code=end.exit_code,
            message=end.hold_message,
            hold_code=end.hold_code,
            hold_subcode=end.hold_subcode,
        )
    if stopped is not None:
        return JobExit(
            reason=stopped,
            exit_code=end.exit_code,
            exit_signal=end.exit_signal,
            message=why,
            core_dumped=end.core_dumped,
        )
    if end.exit_code is None and end.exit_signal is None:
        return JobExit(reason="evicted", message=end.trouble or "the job was lost")
    return JobExit(reason="exited", exit_code=end.exit_code, exit_signal=end.exit_signal, core_dumped=end.core_dumped)


def kill_signal(job: ClassAd, why: str) -> int:
    """The signal that asks a job to leave: RemoveKillSig, HoldKillSig or KillSig; SIGTERM unless given."""
    first = {"remove": "RemoveKillSig", "hold": "HoldKillSig"}.get(why, "KillSig")
    for name in (first, "KillSig"):
        value = job.eval(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 65:
            return value
        if isinstance(value, str):
            full = value.upper() if value.upper().startswith("SIG") else f"SIG{value.upper()}"
            if full in signal.Signals.__members__:
                return signal.Signals[full].value
    return signal.SIGTERM.value


def _text_or_none(job: ClassAd, name: str) -> str | None:
    value = job.eval(name)
    return value if isinstance(value, str) else None
