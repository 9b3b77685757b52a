"""What is to be started for a job: from its ad to paths, environment and streams; and what launchers tell of it.

Pure.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from services.startd.core.machine.devices import DeviceVariables, device_environment
from services.startd.core.run.failures import Fault
from shared.classad import ClassAd, unparse_old
from shared.job_text import BadJobText, arguments, environment


@dataclass(frozen=True, slots=True)
class Account:
    """The system account that a run's processes have, as `core.isolation` chose it. Hooks and ssh sessions of a
    run use the same."""

    name: str  # for the environment (USER, LOGNAME); may be made up when the uid has no name
    uid: int
    gid: int
    groups: tuple[int, ...] = ()  # supplementary
    home: str = "/"
    dedicated: bool = False  # for jobs only: what it owns may be killed by uid when none of them runs
    shared: bool = False  # jobs of others may have it at the same time


@dataclass(frozen=True, slots=True)
class Choice:
    """Which launcher starts a job, and in which image."""

    launcher: str = "process"
    image: str = ""
    plan: object | None = None  # the launcher's own, for its `prepare` and `start`
    in_container: bool = False  # a container runtime is started in place of the job


@dataclass(frozen=True, slots=True)
class Launch:
    """One job, ready to be started."""

    run: str
    executable: str  # empty: what the image has
    argv: tuple[str, ...]  # with argv[0]; empty when there is no executable
    env: Mapping[str, str]
    cwd: str
    stdin: str  # paths; empty: /dev/null
    stdout: str
    stderr: str
    scratch: Path
    cpus: float
    memory_mib: int
    cores: tuple[int, ...] = ()  # that it is bound to; none: to all
    append: bool = False  # stdout and stderr are added to
    limits: Mapping[str, int] = field(default_factory=dict)  # RLIMIT_*: value
    image: str = ""
    in_container: bool = (
        False  # a container runtime is started in place of the job: it can not live in all of a job's isolation
    )
    in_machine: bool = False  # the monitor of a virtual machine is started, in which the job is
    plan: object | None = None  # as its `Choice` has it
    reads: tuple[str, ...] = ()  # that it needs besides what jobs may read here
    wrapped: bool = True  # USER_JOB_WRAPPER starts it: it is the job
    network: str = ""  # Docker: none, host, or the engine's default
    credentials: str = ""  # Docker: where its credentials lie, if not in its scratch directory
    labels: Mapping[str, str] = field(default_factory=dict)
    slot: str = ""  # slot1_2@host
    lease_s: float | None = None  # it is killed after so long, if it is not let live on; None: it has no lease
    account: Account | None = None  # None: the startd's own
    job_ad: ClassAd = field(default_factory=ClassAd)
    machine_ad: ClassAd = field(default_factory=ClassAd)  # of the slot, as .machine.ad has it


@dataclass(frozen=True, slots=True)
class Started:
    pid: int
    at: float
    updates: Mapping[str, object] = field(default_factory=dict)  # further job attributes


@dataclass(frozen=True, slots=True)
class Finished:
    """How a run ended. All of exit_code, exit_signal None: it was lost, nobody knows."""

    at: float
    started_at: float
    exit_code: int | None = None
    exit_signal: int | None = None
    core_dumped: bool = False
    user_cpu_s: float = 0.0
    sys_cpu_s: float = 0.0
    max_rss_kib: int = 0
    hold_code: int = 0  # the launcher saw that the job must be held
    hold_subcode: int = 0
    hold_message: str = ""
    trouble: str = ""  # why it was lost, or ended by the machine's fault: its exit status says nothing about it
    updates: Mapping[str, object] = field(default_factory=dict)  # further job attributes

    def held(self, fault: Fault, message: str) -> Finished:
        """The same end of a job that is to be held for it."""
        return replace(self, hold_code=fault.code, hold_subcode=fault.subcode, hold_message=message)

    def lost(self, fault: Fault, message: str) -> Finished:
        """The same end, of which the job's exit status says nothing: it is run again."""
        assert fault.value.then == "elsewhere", fault
        return replace(self, exit_code=None, exit_signal=None, trouble=message)


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run's processes use now (cpu: so far)."""

    user_cpu_s: float = 0.0
    sys_cpu_s: float = 0.0
    image_size_kib: int = 0
    resident_set_kib: int = 0
    procs: int = 0
    resident_peak_kib: int = 0  # the most so far, of all of them at a time; 0: not known
    attributes: Mapping[str, object] = field(default_factory=dict)  # further ones of the job: bytes of its network, ...


#: More than any machine has (bytes).
_MOST_STACK: Final = 2**50
EXECUTABLE = "condor_exec.exe"
#: The directory of its credentials in its scratch directory, the startd's own.
CREDENTIALS = ".condor_creds"
STDOUT, STDERR = "_condor_stdout", "_condor_stderr"
JOB_AD, MACHINE_AD = ".job.ad", ".machine.ad"
#: Where a job's programs find whom to ask by Chirp: address, port and cookie.
CHIRP_CONFIG = ".chirp.config"
#: Files in the scratch directory that never count as output by themselves.
OWN_FILES = frozenset((EXECUTABLE, STDOUT, STDERR, JOB_AD, MACHINE_AD, CHIRP_CONFIG))
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


@dataclass(frozen=True, slots=True)
class JobEnvironment:
    """What the administrator gives jobs that do not set it themselves. threads: variables with the number of cores.
    inherited: the startd's own, for jobs outside of containers. devices: by kind in lower case."""

    variables: Mapping[str, str] = field(default_factory=dict)
    threads: tuple[str, ...] = THREADS
    inherited: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, DeviceVariables] = field(default_factory=dict)


#: Beginnings of variables that are the daemons' own; ROOST_AMQP_URL and its like hold passwords.
_PARALLEL: Final = 11  # its JobUniverse
_OF_DAEMONS = ("_CONDOR_", "ROOST_", "CONDOR_CONFIG")


def inherited_variables(wanted: str, environment: Mapping[str, str]) -> dict[str, str]:
    """JOB_INHERITS_STARTER_ENVIRONMENT: true, false, or names with * for any letters."""
    word = wanted.strip().lower()
    patterns = ["*"] if word == "true" else [] if word in ("false", "") else wanted.replace(",", " ").split()
    return {
        name: value
        for name, value in environment.items()
        if not name.upper().startswith(_OF_DAEMONS) and any(fnmatchcase(name, pattern) for pattern in patterns)
    }


@dataclass(frozen=True, slots=True)
class Place:
    """The slot and the directory of a run."""

    run: str
    slot: str
    scratch: Path
    cpus: float
    memory_mib: int
    transfer: bool
    attempt: int = 0
    labels: Mapping[str, str] | None = None
    machine_ad: ClassAd = field(default_factory=ClassAd)
    environment: JobEnvironment = field(default_factory=JobEnvironment)


def describe(job: ClassAd, place: Place, choice: Choice | None = None) -> Launch:
    """What to start. choice: its launcher's; none: as a process. Raises RunFailed."""
    choice = choice or Choice()
    image = choice.image
    command = job.eval_string("Cmd")
    if not command and not image:
        raise Fault.NO_EXECUTABLE.failure("the job has no executable (Cmd)")
    try:
        words = arguments(_text_or_none(job, "Arguments"), _text_or_none(job, "Args"))
        own = environment(
            _text_or_none(job, "Environment"), _text_or_none(job, "Env"), job.eval_string("EnvDelim") or ";"
        )
    except BadJobText as error:
        raise Fault.BAD_TEXT.failure(str(error)) from error
    scratch = str(place.scratch)
    iwd = job.eval_string("Iwd") or scratch
    home = scratch if place.transfer else iwd
    if place.transfer and command and job.eval("TransferExecutable") is not False:
        executable = posixpath.join(scratch, EXECUTABLE)
    else:
        executable = command if image or not command else posixpath.join(home, command)
    if any("\0" in word for word in (executable, home, *words)):
        raise Fault.NO_EXECUTABLE.failure("the job's executable or arguments hold a zero byte")
    stdin, stdout, stderr = _streams(job, place, home)
    core, stack = job.eval("CoreSize"), job.eval("StackSize")
    limits = {"RLIMIT_CORE": core if isinstance(core, int) and core >= 0 else 0}
    if isinstance(stack, int) and not isinstance(stack, bool) and stack > 0:
        limits["RLIMIT_STACK"] = min(stack, _MOST_STACK)
    return Launch(
        run=place.run,
        executable=executable,
        argv=(executable, *words) if executable else tuple(words),
        env=_environment(own, place, iwd=home, outside=not (image or choice.in_container)) | _node_environment(job),
        cwd=home,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        append=not place.transfer and job.eval("AppendFiles") is True,
        scratch=place.scratch,
        cpus=place.cpus,
        memory_mib=place.memory_mib,
        limits=limits,
        image=image,
        in_container=choice.in_container,
        plan=choice.plan,
        network=job.eval_string("DockerNetworkType"),
        labels=dict(place.labels or {}),
        slot=place.slot,
        job_ad=job,
        machine_ad=place.machine_ad,
    )


def _environment(own: Mapping[str, str], place: Place, iwd: str, *, outside: bool) -> dict[str, str]:
    """outside: of containers."""
    scratch = str(place.scratch)
    cores = str(max(1, int(place.cpus)))
    variables = dict(place.environment.inherited) if outside else {}
    variables |= dict.fromkeys(place.environment.threads, cores)
    variables |= {"TMPDIR": scratch, "TEMP": scratch, "TMP": scratch, "BATCH_SYSTEM": "HTCondor"}
    variables |= place.environment.variables
    variables |= own
    # These tell the truth, whatever the job says.
    variables |= {
        "_CONDOR_SCRATCH_DIR": scratch,
        "_CONDOR_SLOT": place.slot.partition("@")[0],
        "_CONDOR_JOB_AD": posixpath.join(scratch, JOB_AD),
        "_CONDOR_MACHINE_AD": posixpath.join(scratch, MACHINE_AD),
        "_CONDOR_JOB_IWD": iwd,
        "_CONDOR_JOB_ATTEMPT": str(place.attempt),
    }
    variables |= device_environment(place.machine_ad, place.environment.devices)
    return variables


def _node_environment(job: ClassAd) -> dict[str, str]:
    """What a node of a parallel job is told: its number, from 0, and how many there are."""
    node, count = job.eval("Node"), job.eval("CurrentHosts")
    if job.eval("JobUniverse") != _PARALLEL or not isinstance(node, int) or not isinstance(count, int):
        return {}
    return {"_CONDOR_PROCNO": str(node), "_CONDOR_NPROCS": str(count)}


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
    """The paths of standard output and standard error of a run; empty: they go nowhere."""
    place = Place(run="", slot="", scratch=scratch, cpus=0.0, memory_mib=0, transfer=transfer)
    home = str(scratch) if transfer else job.eval_string("Iwd") or str(scratch)
    return _streams(job, place, home)[1:]


def streamed(job: ClassAd) -> list[str]:
    """Out and Err, as far as the job wants them to come to its access point while it runs (StreamOut, StreamErr). Where
    both are one file, that is Out."""
    given = {name: job.eval_string(name) for name in ("Out", "Err")}
    wanted = [
        name for name in given if job.eval(f"Stream{name}") is True and given[name] not in ("", "/dev/null", "NUL")
    ]
    return ["Out"] if wanted and given["Out"] == given["Err"] else wanted


def ad_file(ad: ClassAd, old_text: Callable[[ClassAd], str] = unparse_old) -> bytes:
    """What .job.ad or .machine.ad holds: the public attributes, one a line. old_text: writes an ad in old syntax."""
    return old_text(ad.public()).encode("utf-8", "surrogateescape")


def _text_or_none(job: ClassAd, name: str) -> str | None:
    value = job.eval(name)
    return value if isinstance(value, str) else None
