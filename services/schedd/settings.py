"""What a schedd is told by its configuration, from knobs to one frozen value."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from services.schedd.core.flocking import Flocking
from services.schedd.core.machine_attributes import MachineAttributes
from services.schedd.core.policies import SystemPolicy, SystemRule
from services.schedd.core.rights import Rights
from services.schedd.core.rules import Rules, read_rules
from services.schedd.core.scheduler_universe import Limits
from shared.classad import ClassAd, Expr, ParseError, evaluate, parse_expr
from shared.classad.expr import fold
from shared.config import Config, ConfigError, Problem
from shared.config.evaluate import parse_whole
from shared.config.knobs import ScheddSettings
from shared.config.knobs.base import to_list
from shared.config.pool_names import pool_names
from shared.files import beside
from shared.job_log import TEXT, Form, parse_form
from shared.users import whole


@dataclass(frozen=True, slots=True)
class EventLog:
    """The log of the events of all jobs (EVENT_LOG). path: absolute; empty: none is written. max_bytes: then it is put
    away; 0: never. rotations: how many files are kept."""

    path: str = ""
    max_bytes: int = 1_000_000
    rotations: int = 1
    form: Form = TEXT  # EVENT_LOG_FORMAT_OPTIONS, EVENT_LOG_USE_XML
    also: tuple[str, ...] = ()  # EVENT_LOG_JOB_AD_INFORMATION_ATTRS

    def older(self) -> list[Path]:
        """The files it is rotated to, the newest first: `.old`, or `.1`, `.2` and so on, as HTCondor names them."""
        if self.rotations == 1:
            return [beside(Path(self.path), ".old")]
        return [beside(Path(self.path), f".{number}") for number in range(1, self.rotations + 1)]

    def must_rotate(self, size: int) -> bool:
        """Whether it is so large that it is rotated."""
        return 0 < self.max_bytes <= size

    def moves(self) -> list[tuple[Path, Path]]:
        """Which file becomes which when it is rotated, in this order."""
        names = [Path(self.path), *self.older()]
        return list(pairwise(names))[::-1]


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """The jobs that left the queue, in a file besides (HISTORY). path: absolute; empty: none is written."""

    path: str = ""
    max_bytes: int = 20_971_520
    rotations: int = 2

    def must_rotate(self, size: int) -> bool:
        """Whether it is so large that it is rotated."""
        return 0 < self.max_bytes <= size


@dataclass(frozen=True, slots=True)
class Settings:
    """What a schedd is told by its configuration. Durations in seconds."""

    alive_interval_s: int = 300  # ALIVE_INTERVAL
    max_alives_missed: int = 6  # MAX_CLAIM_ALIVES_MISSED
    periodic_interval_s: float = 60  # PERIODIC_EXPR_INTERVAL; 0: never
    update_interval_s: float = 300  # SCHEDD_INTERVAL
    max_jobs_per_submission: int = 20_000  # MAX_JOBS_PER_SUBMISSION
    max_jobs_submitted: int = 2**31 - 1  # MAX_JOBS_SUBMITTED
    max_jobs_per_owner: int = 100_000  # MAX_JOBS_PER_OWNER
    max_late_jobs: int = 1_000_000  # ROOST_SCHEDD_LATE_JOBS_PER_OWNER
    late_materialization: bool = True  # SCHEDD_ALLOW_LATE_MATERIALIZE
    max_jobs_running: int = 10_000  # MAX_JOBS_RUNNING
    request_counts: bool = True  # USE_RESOURCE_REQUEST_COUNTS
    significant: tuple[str, ...] = ()  # SIGNIFICANT_ATTRIBUTES
    flocking: Flocking = field(default_factory=Flocking)
    nice_group: str = "nice-user"  # NICE_USER_ACCOUNTING_GROUP_NAME
    history_max_bytes: int = 60 * 1024 * 1024  # MAX_HISTORY_LOG * (MAX_HISTORY_ROTATIONS + 1)
    epoch_max_bytes: int = 60 * 1024 * 1024  # MAX_EPOCH_HISTORY_LOG * (MAX_EPOCH_HISTORY_ROTATIONS + 1)
    history: HistoryFile = field(default_factory=HistoryFile)  # HISTORY, where an administrator wrote it
    not_in_history: frozenset[str] = frozenset()  # HISTORY_CONTAINS_JOB_ENVIRONMENT: attributes, folded
    per_job_history: str = ""  # PER_JOB_HISTORY_DIR; empty: none are written
    #: SYSTEM_JOB_MACHINE_ATTRS, SYSTEM_JOB_MACHINE_ATTRS_HISTORY_LENGTH
    machine_attributes: MachineAttributes = field(default_factory=MachineAttributes)
    smtp_server: str = ""  # SMTP_SERVER, host or host:port
    mail: str = ""  # MAIL, a program
    mail_from: str = ""  # MAIL_FROM
    mail_domain: str = ""  # EMAIL_DOMAIN, else UID_DOMAIN
    event_log: EventLog = field(default_factory=EventLog)  # EVENT_LOG, EVENT_LOG_MAX_SIZE, EVENT_LOG_MAX_ROTATIONS
    user_log_form: Form = TEXT  # DEFAULT_USERLOG_FORMAT_OPTIONS
    statistics_window_s: float = 1200.0  # STATISTICS_WINDOW_SECONDS
    min_interval_s: float = 0.0  # SCHEDD_MIN_INTERVAL, where an administrator wrote it
    job_start_count: int = 1  # JOB_START_COUNT
    job_start_delay_s: float = 0.0  # JOB_START_DELAY
    max_next_job_start_delay_s: float = 600.0  # MAX_NEXT_JOB_START_DELAY
    request_claim_timeout_s: float = 1800.0  # REQUEST_CLAIM_TIMEOUT
    unused_claim_timeout_s: float = 600.0  # UNUSED_CLAIM_TIMEOUT
    max_shadow_exceptions: int = 2  # MAX_SHADOW_EXCEPTIONS
    #: START_SCHEDULER_UNIVERSE, MAX_RUNNING_SCHEDULER_JOBS_PER_OWNER, START_LOCAL_UNIVERSE
    scheduler_universe: Limits = field(default_factory=Limits)
    max_uploads: int = 100  # MAX_CONCURRENT_UPLOADS; 0: no limit
    max_downloads: int = 100  # MAX_CONCURRENT_DOWNLOADS; 0: no limit
    max_transfer_input_mb: Expr | None = None  # MAX_TRANSFER_INPUT_MB, of a job; negative: no limit
    max_transfer_output_mb: Expr | None = None  # MAX_TRANSFER_OUTPUT_MB, of a job; negative: no limit
    sign_s3_urls: bool = True  # SIGN_S3_URLS
    checkpoint_destinations: str = ""  # CHECKPOINT_DESTINATION_MAPFILE
    checkpoint_cleanup_timeout_s: float = 600.0  # SCHEDD_CHECKPOINT_CLEANUP_TIMEOUT
    libexec: str = ""  # LIBEXEC
    #: Of jobs that speak Chirp: whether they may use files here, read their ads, and change them.
    chirp_files: bool = True  # ENABLE_CHIRP and ENABLE_CHIRP_IO
    chirp_reads: bool = True  # ENABLE_CHIRP
    chirp_updates: bool = True  # ENABLE_CHIRP and ENABLE_CHIRP_UPDATES
    max_spooled_mb: float = -1  # ROOST_SCHEDD_MAX_SPOOLED_MB; negative: no limit
    transfer_host: str = "127.0.0.1"  # ROOST_SCHEDD_TRANSFER_HOST
    transfer_port: int = 0  # ROOST_SCHEDD_TRANSFER_PORT; 0: any, kept over restarts
    uid_domain: str = ""  # UID_DOMAIN
    #: ROOST_SCHEDD_FILE_USERS, name@domain: whose files this account reads and writes directly.
    file_users: tuple[str, ...] = ()
    credentials: str = ""  # SEC_CREDENTIAL_DIRECTORY_OAUTH; empty: in the spool
    rights: Rights = field(default_factory=Rights)  # QUEUE_SUPER_USERS, ROOST_SCHEDD_PRIVATE_JOB_ATTRS
    graceful: bool = True  # GRACEFULLY_REMOVE_JOBS
    system: SystemPolicy = field(default_factory=SystemPolicy)
    rules: Rules = field(default_factory=Rules)  # JOB_TRANSFORM_*, SUBMIT_REQUIREMENT_*, IMMUTABLE_JOB_ATTRS

    @classmethod
    def from_config(cls, config: Config) -> Settings:
        """Raises ConfigError naming every knob that is wrong."""
        knobs = ScheddSettings.from_config(config)
        return cls(
            alive_interval_s=max(1, knobs.alive_interval),
            unused_claim_timeout_s=knobs.unused_claim_timeout,
            max_alives_missed=int(_number(config, "MAX_CLAIM_ALIVES_MISSED", 6)),
            periodic_interval_s=knobs.periodic_expr_interval,
            update_interval_s=knobs.schedd_interval,
            max_jobs_per_submission=knobs.max_jobs_per_submission,
            max_jobs_submitted=knobs.max_jobs_submitted,
            max_jobs_per_owner=knobs.max_jobs_per_owner,
            max_late_jobs=knobs.roost_schedd_late_jobs_per_owner,
            late_materialization=knobs.schedd_allow_late_materialize,
            max_jobs_running=knobs.max_jobs_running,
            request_counts=(config.get("USE_RESOURCE_REQUEST_COUNTS") or "true").strip().lower() not in ("false", "f"),
            significant=knobs.significant_attributes,
            flocking=_flocking(config, knobs),
            nice_group=config.get("NICE_USER_ACCOUNTING_GROUP_NAME") or "nice-user",
            history_max_bytes=knobs.max_history_log * (knobs.max_history_rotations + 1),
            epoch_max_bytes=knobs.max_epoch_history_log * (knobs.max_epoch_history_rotations + 1),
            history=_history(config, knobs),
            not_in_history=frozenset() if knobs.history_contains_job_environment else frozenset(("environment", "env")),
            per_job_history=_absolute(config, "PER_JOB_HISTORY_DIR", knobs.per_job_history_dir).rstrip("/"),
            machine_attributes=MachineAttributes(
                knobs.system_job_machine_attrs, knobs.system_job_machine_attrs_history_length
            ),
            smtp_server=_server(config, knobs.smtp_server or ""),
            mail=_absolute(config, "MAIL", knobs.mail),
            mail_from=_sender(config, knobs.mail_from or ""),
            mail_domain=knobs.email_domain or knobs.uid_domain,
            event_log=_event_log(config, knobs),
            user_log_form=_form(config, "DEFAULT_USERLOG_FORMAT_OPTIONS", knobs.default_userlog_format_options),
            statistics_window_s=knobs.statistics_window_seconds,
            min_interval_s=knobs.schedd_min_interval if config.is_written("SCHEDD_MIN_INTERVAL") else 0.0,
            job_start_count=knobs.job_start_count,
            job_start_delay_s=knobs.job_start_delay,
            max_next_job_start_delay_s=knobs.max_next_job_start_delay,
            request_claim_timeout_s=knobs.request_claim_timeout,
            max_shadow_exceptions=knobs.max_shadow_exceptions,
            scheduler_universe=Limits(
                knobs.start_scheduler_universe, knobs.max_running_scheduler_jobs_per_owner, knobs.start_local_universe
            ),
            max_uploads=knobs.max_concurrent_uploads,
            max_downloads=knobs.max_concurrent_downloads,
            max_transfer_input_mb=knobs.max_transfer_input_mb,
            max_transfer_output_mb=knobs.max_transfer_output_mb,
            sign_s3_urls=knobs.sign_s3_urls,
            checkpoint_destinations=knobs.checkpoint_destination_mapfile,
            checkpoint_cleanup_timeout_s=knobs.schedd_checkpoint_cleanup_timeout,
            libexec=config.get("LIBEXEC") or "",
            chirp_files=knobs.enable_chirp and knobs.enable_chirp_io,
            chirp_reads=knobs.enable_chirp,
            chirp_updates=knobs.enable_chirp and knobs.enable_chirp_updates,
            max_spooled_mb=knobs.roost_schedd_max_spooled_mb,
            transfer_host=knobs.roost_schedd_transfer_host,
            transfer_port=knobs.roost_schedd_transfer_port,
            uid_domain=knobs.uid_domain,
            file_users=_users(to_list(config.get("ROOST_SCHEDD_FILE_USERS") or ""), knobs.uid_domain),
            credentials=_absolute(
                config,
                "SEC_CREDENTIAL_DIRECTORY_OAUTH",
                knobs.sec_credential_directory_oauth or knobs.sec_credential_directory,
            ),
            rights=Rights(
                _users(knobs.queue_super_users, knobs.uid_domain),
                frozenset(map(fold, knobs.roost_schedd_private_job_attrs)),
            ),
            graceful=knobs.gracefully_remove_jobs,
            rules=read_rules(config),
            system=_system_policy(config, knobs),
        )


def _system_policy(config: Config, knobs: ScheddSettings) -> SystemPolicy:
    """Those that have names come first, in the order of their list. Raises ConfigError."""
    found: dict[str, tuple[SystemRule, ...]] = {}
    problems: list[Problem] = []

    def expression(knob: str, text: str | None) -> Expr | None:
        try:
            return parse_whole(text) if text and text.strip() else None
        except ParseError as error:
            problems.append(Problem(f"{knob}: {error}", config.origin(knob), "give a ClassAd expression"))
            return None

    reason, subcode = knobs.system_periodic_hold_reason, knobs.system_periodic_hold_subcode
    for kind, names, last in (
        ("HOLD", knobs.system_periodic_hold_names, knobs.system_periodic_hold),
        ("RELEASE", knobs.system_periodic_release_names, knobs.system_periodic_release),
        ("REMOVE", knobs.system_periodic_remove_names, knobs.system_periodic_remove),
        ("VACATE", knobs.system_periodic_vacate_names, knobs.system_periodic_vacate),
    ):
        rules = []
        for name in names:
            knob = f"SYSTEM_PERIODIC_{kind}_{name}"
            text = config.get(f"SYSTEM_PERIODIC_{kind}_{name}")
            if not text:
                mend = "define it, or take its name out of the list"
                problems.append(Problem(f"{knob} is not defined", config.origin(f"SYSTEM_PERIODIC_{kind}_NAMES"), mend))
            elif (expr := expression(knob, text)) is not None:
                why = expression(f"{knob}_REASON", config.get(f"SYSTEM_PERIODIC_{kind}_{name}_REASON"))
                number = expression(f"{knob}_SUBCODE", config.get(f"SYSTEM_PERIODIC_{kind}_{name}_SUBCODE"))
                rules.append(SystemRule(knob, expr, why, number))
        if last is not None:
            own = (reason, subcode) if kind == "HOLD" else (None, None)
            rules.append(SystemRule(f"SYSTEM_PERIODIC_{kind}", last, *own))
        found[kind.lower()] = tuple(rules)
    if problems:
        raise ConfigError(problems)
    return SystemPolicy(**found)


def _users(names: Iterable[str], uid_domain: str) -> tuple[str, ...]:
    """Users of a list. A bare name is the one of UID_DOMAIN, and of no other domain."""
    return tuple(whole(name, uid_domain) for name in names)


def _flocking(config: Config, knobs: ScheddSettings) -> Flocking:
    return Flocking(
        pools=pool_names(config, "FLOCK_TO", knobs.flock_to),
        least=knobs.min_flock_level,
        step=knobs.flock_increment,
        after_s=knobs.roost_schedd_flock_after,
        by_default=knobs.flock_by_default,
        directory=_absolute(config, "ROOST_SCHEDD_FLOCK_DIRECTORY", knobs.roost_schedd_flock_directory),
    )


def _history(config: Config, knobs: ScheddSettings) -> HistoryFile:
    path = _absolute(config, "HISTORY", knobs.history) if config.is_written("HISTORY") else ""
    return HistoryFile(path, knobs.max_history_log, knobs.max_history_rotations)


def _absolute(config: Config, knob: str, path: str | None) -> str:
    if path and not path.startswith("/"):
        place = config.origin(knob)
        raise ConfigError([Problem(f"{knob} = {path} is no absolute path", place, "begin it with a slash")])
    return path or ""


def _server(config: Config, text: str) -> str:
    if text and re.fullmatch(r"[A-Za-z0-9._-]+(:[0-9]{1,5})?", text) is None:
        place = config.origin("SMTP_SERVER")
        raise ConfigError([Problem(f"SMTP_SERVER = {text} is no server", place, "write host or host:port")])
    return text


def _sender(config: Config, text: str) -> str:
    if text and re.fullmatch(r"[^\s@<>,;]+@[^\s@<>,;]+", text) is None:
        place = config.origin("MAIL_FROM")
        raise ConfigError([Problem(f"MAIL_FROM = {text} is no mail address", place, "write name@domain")])
    return text


def _event_log(config: Config, knobs: ScheddSettings) -> EventLog:
    path = _absolute(config, "EVENT_LOG", knobs.event_log)
    size = knobs.event_log_max_size if knobs.event_log_max_size >= 0 else knobs.max_event_log
    form = _form(config, "EVENT_LOG_FORMAT_OPTIONS", knobs.event_log_format_options)
    if knobs.event_log_use_xml:
        form = replace(form, kind="xml")
    return EventLog(path, size, knobs.event_log_max_rotations, form, tuple(knobs.event_log_job_ad_information_attrs))


def _form(config: Config, knob: str, text: str) -> Form:
    try:
        return parse_form(text)
    except ValueError as error:
        raise ConfigError([Problem(f"{knob}: {error}", config.origin(knob), "mend the word")]) from error


def _number(config: Config, name: str, default: float) -> float:
    """A knob of the execution point that the schedd goes by too."""
    text = config.get(name)
    if not text:
        return default
    value = evaluate(_expr(name, text), ClassAd())
    return value if isinstance(value, int | float) else default


def _expr(name: str, text: str) -> Expr:
    try:
        return parse_expr(text)
    except ParseError as error:
        raise ConfigError([Problem(f"{name}: {error}", None, "give a ClassAd expression")]) from error
