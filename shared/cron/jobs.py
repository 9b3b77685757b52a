"""What the knobs say of cron jobs: STARTD_CRON_*, SCHEDD_CRON_* and BENCHMARKS_*.

A job that can not be made sense of is left out and told; the others run (as HTCondor does: one bad script must not
keep a machine out of the pool).
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from shared.classad import Expr
from shared.config.knobs import ScheddSettings, StartdSettings
from shared.job_text import BadJobText, arguments, environment, join_v2, quoted

#: The load of a job that does not tell.
CRON_LOAD: Final = 0.01
BENCHMARK_LOAD: Final = 1.0

_PERIOD: Final = re.compile(r"(\d{1,9})\s*([smhSMH]?)")
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3600}
_PREFIX: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_METRIC: Final = re.compile(r"(SUM|PEAK):([A-Za-z_][A-Za-z0-9_]*)", re.IGNORECASE)


class Mode(enum.Enum):
    """CRN-06."""

    PERIODIC = "Periodic"  # PERIOD from start to start
    WAIT_FOR_EXIT = "WaitForExit"  # PERIOD from its end to its next start
    ONE_SHOT = "OneShot"  # once, when the daemon starts
    ON_DEMAND = "OnDemand"  # when somebody asks


@dataclass(frozen=True, slots=True)
class CronJob:
    """One job, ready to be run. Times in seconds; `load` as JOB_LOAD has it."""

    name: str
    executable: str
    mode: Mode = Mode.PERIODIC
    period_s: float = 0.0
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    prefix: str = ""
    kill: bool = False
    reconfig_rerun: bool = False
    slots: frozenset[int] = frozenset()  # empty: all
    load: float = CRON_LOAD
    condition: Expr | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)  # name -> SUM or PEAK; it monitors a custom resource


@dataclass(frozen=True, slots=True)
class Crontab:
    """All jobs of one kind, and what to tell of those that are left out."""

    jobs: tuple[CronJob, ...]
    max_load: float
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The knobs of one kind of job as they are written, by job in lower case."""

    base: str  # STARTD_CRON
    names: tuple[str, ...]
    max_load: float
    load: float = CRON_LOAD
    mode: str = ""  # for all of them
    executable: Mapping[str, str]
    modes: Mapping[str, str] = field(default_factory=dict)
    period: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Mapping[str, str] = field(default_factory=dict)
    prefix: Mapping[str, str] = field(default_factory=dict)
    kill: Mapping[str, bool] = field(default_factory=dict)
    reconfig_rerun: Mapping[str, bool] = field(default_factory=dict)
    slots: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    job_load: Mapping[str, float] = field(default_factory=dict)
    condition: Mapping[str, Expr] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)


class BadJob(ValueError):
    """A knob of a job: its name, its text and the mend."""


def startd_cron(settings: StartdSettings) -> Crontab:
    return crontab(
        Texts(
            base="STARTD_CRON",
            names=settings.startd_cron_joblist,
            max_load=settings.startd_cron_max_job_load,
            executable=settings.startd_cron_executable_by_job,
            modes=settings.startd_cron_mode_by_job,
            period=settings.startd_cron_period_by_job,
            args=settings.startd_cron_args_by_job,
            env=settings.startd_cron_env_by_job,
            cwd=settings.startd_cron_cwd_by_job,
            prefix=settings.startd_cron_prefix_by_job,
            kill=settings.startd_cron_kill_by_job,
            reconfig_rerun=settings.startd_cron_reconfig_rerun_by_job,
            slots=settings.startd_cron_slots_by_job,
            job_load=settings.startd_cron_job_load_by_job,
            condition=settings.startd_cron_condition_by_job,
            metrics=settings.startd_cron_metrics_by_job,
        )
    )


def schedd_cron(settings: ScheddSettings) -> Crontab:
    return crontab(
        Texts(
            base="SCHEDD_CRON",
            names=settings.schedd_cron_joblist,
            max_load=settings.schedd_cron_max_job_load,
            executable=settings.schedd_cron_executable_by_job,
            modes=settings.schedd_cron_mode_by_job,
            period=settings.schedd_cron_period_by_job,
            args=settings.schedd_cron_args_by_job,
            env=settings.schedd_cron_env_by_job,
            cwd=settings.schedd_cron_cwd_by_job,
            prefix=settings.schedd_cron_prefix_by_job,
            kill=settings.schedd_cron_kill_by_job,
            reconfig_rerun=settings.schedd_cron_reconfig_rerun_by_job,
            job_load=settings.schedd_cron_job_load_by_job,
        )
    )


def benchmarks(settings: StartdSettings, builtin: Mapping[str, tuple[str, ...]]) -> Crontab:
    """The benchmarks, all of them OnDemand (CRN-12). builtin: the command of those that need no EXECUTABLE, by name in
    lower case; they also stand in for HTCondor's own programs (`$(LIBEXEC)/condor_mips`)."""
    executables = dict(settings.benchmarks_executable_by_job)
    words = dict(settings.benchmarks_args_by_job)
    for name in map(str.lower, settings.benchmarks_joblist):
        named = executables.get(name, "").rpartition("/")[2]
        command = builtin.get(named.removeprefix("condor_") if named.startswith("condor_") else name)
        if command is not None and (not named or named.startswith("condor_")):
            executables[name] = command[0]
            words[name] = '"' + join_v2(list(command[1:])).replace('"', '""') + '"'
    return crontab(
        Texts(
            base="BENCHMARKS",
            names=settings.benchmarks_joblist,
            max_load=settings.benchmarks_max_job_load,
            load=BENCHMARK_LOAD,
            mode=Mode.ON_DEMAND.value,
            executable=executables,
            args=words,
            job_load=settings.benchmarks_job_load_by_job,
        )
    )


def crontab(texts: Texts) -> Crontab:
    """The jobs of these knobs, in the order of their list; a name that is there twice is one job."""
    jobs: dict[str, CronJob] = {}
    problems = []
    for name in texts.names:
        if name.lower() in jobs:
            continue
        try:
            jobs[name.lower()] = _job(texts, name)
        except BadJob as problem:
            problems.append(f"{texts.base}_JOBLIST names {name}, which is left out: {problem}")
    return Crontab(tuple(jobs.values()), texts.max_load, tuple(problems))


def period(text: str) -> float:
    """Seconds of a PERIOD: a whole number, with s, m or h behind it (CRN-07). Raises ValueError."""
    match = _PERIOD.fullmatch(text.strip())
    if match is None:
        raise ValueError("give a whole number with s, m or h behind it, as in 10m")
    return float(int(match[1]) * _SECONDS[match[2].lower()])


def _job(texts: Texts, name: str) -> CronJob:
    """Raises BadJob."""
    key = name.lower()

    def knob(what: str) -> str:
        return f"{texts.base}_{name}_{what}"

    executable = texts.executable.get(key, "").strip()
    if not executable:
        raise BadJob(f"{knob('EXECUTABLE')} is not defined: give the path of its program")
    if not executable.startswith("/"):
        raise BadJob(f"{knob('EXECUTABLE')} = {executable}: give the full path, from / on")
    prefix = texts.prefix.get(key, "").strip()
    if prefix and not _PREFIX.fullmatch(prefix):
        raise BadJob(f"{knob('PREFIX')} = {prefix}: give letters, digits and underscores, no digit first")
    mode = _mode(texts.mode or texts.modes.get(key, Mode.PERIODIC.value), knob("MODE"))
    load = texts.job_load.get(key, texts.load)
    if not math.isfinite(load) or load < 0:
        raise BadJob(f"{knob('JOB_LOAD')} = {load:g}: give a number, 0 or more")
    if load > texts.max_load + SLACK:
        raise BadJob(
            f"{knob('JOB_LOAD')} = {load:g} is more than {texts.base}_MAX_JOB_LOAD = {texts.max_load:g}, so it would "
            "never run: lower the one or raise the other"
        )
    return CronJob(
        name=name,
        executable=executable,
        mode=mode,
        period_s=_period_of(texts, key, mode, knob("PERIOD")),
        args=_arguments(texts.args.get(key, ""), knob("ARGS")),
        env=_environment(texts.env.get(key, ""), knob("ENV")),
        cwd=texts.cwd.get(key, "").strip(),
        prefix=prefix,
        kill=texts.kill.get(key, False),
        reconfig_rerun=texts.reconfig_rerun.get(key, False),
        slots=_slots(texts.slots.get(key, ()), knob("SLOTS")),
        load=load,
        condition=texts.condition.get(key),
        metrics=_metrics(texts.metrics.get(key, ""), knob("METRICS")),
    )


#: What rounding may add to a sum of loads.
SLACK: Final = 1e-6


def _mode(text: str, knob: str) -> Mode:
    for mode in Mode:
        if mode.value.lower() == text.strip().lower():
            return mode
    raise BadJob(f"{knob} = {text}: give one of {', '.join(mode.value for mode in Mode)}")


def _period_of(texts: Texts, key: str, mode: Mode, knob: str) -> float:
    if mode in (Mode.ONE_SHOT, Mode.ON_DEMAND):
        return 0.0  # written or not
    text = texts.period.get(key, "").strip()
    if not text:
        raise BadJob(f"{knob} is not defined: {mode.value} jobs need one, as 5m")
    try:
        seconds = period(text)
    except ValueError as mend:
        raise BadJob(f"{knob} = {text}: {mend}") from None
    if mode is Mode.PERIODIC and not seconds:
        raise BadJob(f"{knob} = {text}: a Periodic job needs at least 1s")
    return seconds


def _arguments(text: str, knob: str) -> tuple[str, ...]:
    """Words with blanks between them, or the new form of a submit file in double quotes."""
    try:
        return tuple(arguments(quoted(text), text))
    except BadJobText as error:
        raise BadJob(f"{knob} = {text}: {error}") from None


def _environment(text: str, knob: str) -> dict[str, str]:
    try:
        return environment(quoted(text), text)
    except BadJobText as error:
        raise BadJob(f"{knob} = {text}: {error}") from None


def _slots(words: tuple[str, ...], knob: str) -> frozenset[int]:
    if not all(word.isdecimal() and len(word) < 10 for word in words):
        raise BadJob(f"{knob} = {' '.join(words)}: give numbers of slots, as 1,3")
    return frozenset(map(int, words))


def _metrics(text: str, knob: str) -> dict[str, str]:
    found = {}
    for word in re.split(r"[\s,]+", text.strip()):
        if not word:
            continue
        match = _METRIC.fullmatch(word)
        if match is None:
            raise BadJob(f"{knob} = {text}: give SUM:Attribute or PEAK:Attribute, commas between them")
        found[match[2]] = match[1].upper()
    return found
