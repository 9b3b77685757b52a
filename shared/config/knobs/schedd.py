"""Knobs of an access point. One line adds another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from shared.classad import Expr
from shared.config.knobs.base import declared, family, knob
from shared.config.knobs.server_tls import ServerTlsSettings


@declared
class ScheddSettings(ServerTlsSettings):
    """What an access point reads of its configuration."""

    SUBSYSTEM: ClassVar[str] = "SCHEDD"

    schedd_attrs: tuple[str, ...] = knob(
        "SCHEDD_ATTRS", meaning="macros whose values are attributes of the schedd's ad"
    )
    submitter_attrs: tuple[str, ...] = knob(
        "SUBMITTER_ATTRS", meaning="macros whose values are attributes of the ads of its submitters"
    )
    significant_attributes: tuple[str, ...] = knob(
        "SIGNIFICANT_ATTRIBUTES", meaning="attributes that define an autocluster"
    )
    alive_interval: int = knob("ALIVE_INTERVAL", "300", unit="s", least=0, meaning="between keep-alives")
    unused_claim_timeout: int = knob(
        "UNUSED_CLAIM_TIMEOUT",
        "600",
        unit="s",
        least=1,
        meaning="how long a parallel job keeps machines that are too few, before it gives them back; up to half as "
        "much again",
    )
    schedd_cron_joblist: tuple[str, ...] = knob(
        "SCHEDD_CRON_JOBLIST", meaning="names of access point cron jobs; restart to change"
    )
    schedd_cron_config_val: str | None = knob("SCHEDD_CRON_CONFIG_VAL", meaning="config_val program")
    schedd_cron_max_job_load: float = knob(
        "SCHEDD_CRON_MAX_JOB_LOAD", "0.1", least=0.01, most=1000, meaning="sum of job loads that may run together"
    )
    schedd_cron_log_non_zero_exit: bool = knob(
        "SCHEDD_CRON_LOG_NON_ZERO_EXIT", "false", meaning="log stdout leftovers and stderr of a job that exits non-zero"
    )
    schedd_cron_executable_by_job: Mapping[str, str] = family("SCHEDD_CRON_<Job>_EXECUTABLE", meaning="program")
    schedd_cron_mode_by_job: Mapping[str, str] = family(
        "SCHEDD_CRON_<Job>_MODE", meaning="Periodic, WaitForExit, OneShot, OnDemand"
    )
    schedd_cron_period_by_job: Mapping[str, str] = family("SCHEDD_CRON_<Job>_PERIOD", meaning="number with s, m or h")
    schedd_cron_prefix_by_job: Mapping[str, str] = family(
        "SCHEDD_CRON_<Job>_PREFIX", meaning="text put before each attribute name"
    )
    schedd_cron_args_by_job: Mapping[str, str] = family("SCHEDD_CRON_<Job>_ARGS", meaning="arguments")
    schedd_cron_env_by_job: Mapping[str, str] = family(
        "SCHEDD_CRON_<Job>_ENV", meaning="environment variables, as A=1;B=2 or in the new form of a submit file"
    )
    schedd_cron_cwd_by_job: Mapping[str, str] = family("SCHEDD_CRON_<Job>_CWD", meaning="working directory")
    schedd_cron_kill_by_job: Mapping[str, bool] = family(
        "SCHEDD_CRON_<Job>_KILL", meaning="kill a still-running instance when the next is due"
    )
    schedd_cron_reconfig_rerun_by_job: Mapping[str, bool] = family(
        "SCHEDD_CRON_<Job>_RECONFIG_RERUN", meaning="run again at reconfig"
    )
    schedd_cron_job_load_by_job: Mapping[str, float] = family(
        "SCHEDD_CRON_<Job>_JOB_LOAD", meaning="load the job is said to make"
    )
    schedd_name: str | None = knob("SCHEDD_NAME", meaning="name of the access point, for more than one on a machine")
    schedd_interval: int = knob(
        "SCHEDD_INTERVAL", "300", unit="s", least=1, meaning="longest wait between two submitter ads"
    )
    schedd_min_interval: int = knob(
        "SCHEDD_MIN_INTERVAL",
        "5",
        unit="s",
        least=0,
        meaning="shortest wait between two submitter ads; where nobody set it, there is none",
    )
    max_jobs_running: int = knob(
        "MAX_JOBS_RUNNING",
        "MIN({$(DETECTED_MEMORY), 10000})",
        least=0,
        meaning="running jobs of the access point at most",
    )
    start_scheduler_universe: Expr | None = knob(
        "START_SCHEDULER_UNIVERSE",
        "TotalSchedulerJobsRunning < 500",
        meaning="whether a job of the scheduler universe may start; MY.TotalSchedulerJobsRunning, TARGET = job",
    )
    start_local_universe: Expr | None = knob(
        "START_LOCAL_UNIVERSE",
        "TotalLocalJobsRunning < 200",
        meaning="whether a job of the local universe may start; MY.TotalLocalJobsRunning, TARGET = job",
    )
    max_running_scheduler_jobs_per_owner: int = knob(
        "MAX_RUNNING_SCHEDULER_JOBS_PER_OWNER",
        "200",
        least=0,
        meaning="running jobs of the scheduler universe of one owner at most",
    )
    max_jobs_per_owner: int = knob(
        "MAX_JOBS_PER_OWNER", "100000", least=0, meaning="jobs in the queue of one owner at most"
    )
    max_jobs_submitted: int = knob(
        "MAX_JOBS_SUBMITTED",
        "2147483647",
        least=0,
        meaning="jobs in the queue of all owners at most when more are submitted; those that a factory makes come in",
    )
    max_jobs_per_submission: int = knob(
        "MAX_JOBS_PER_SUBMISSION", "20000", least=0, meaning="jobs of one submission at most"
    )
    schedd_allow_late_materialize: bool = knob(
        "SCHEDD_ALLOW_LATE_MATERIALIZE",
        "true",
        meaning="whether max_materialize and max_idle count; if not, all jobs of a submission are queued at once",
    )
    roost_schedd_late_jobs_per_owner: int = knob(
        "ROOST_SCHEDD_LATE_JOBS_PER_OWNER",
        "1000000",
        least=0,
        meaning="jobs of one owner at most that wait to be materialized, besides those in the queue",
    )
    periodic_expr_interval: int = knob(
        "PERIODIC_EXPR_INTERVAL",
        "60",
        unit="s",
        least=0,
        meaning="time between two looks at the periodic expressions; 0: never",
    )
    system_periodic_hold: Expr | None = knob("SYSTEM_PERIODIC_HOLD", meaning="true holds any job")
    system_periodic_hold_reason: Expr | None = knob(
        "SYSTEM_PERIODIC_HOLD_REASON", meaning="the HoldReason of a job held so"
    )
    system_periodic_hold_subcode: Expr | None = knob(
        "SYSTEM_PERIODIC_HOLD_SUBCODE", meaning="the HoldReasonSubCode of a job held so"
    )
    system_periodic_release: Expr | None = knob("SYSTEM_PERIODIC_RELEASE", meaning="true releases any held job")
    system_periodic_remove: Expr | None = knob("SYSTEM_PERIODIC_REMOVE", meaning="true removes any job")
    system_periodic_vacate: Expr | None = knob("SYSTEM_PERIODIC_VACATE", meaning="true ends the run of any running job")
    system_periodic_hold_names: tuple[str, ...] = knob(
        "SYSTEM_PERIODIC_HOLD_NAMES",
        meaning="names of further policies that hold jobs, looked at in this order and before the one without a name",
    )
    system_periodic_hold_by_name: Mapping[str, str] = family(
        "SYSTEM_PERIODIC_HOLD_<Name>", meaning="true holds any job, if the name is in the list"
    )
    system_periodic_hold_reason_by_name: Mapping[str, str] = family(
        "SYSTEM_PERIODIC_HOLD_<Name>_REASON", meaning="the HoldReason of a job held so"
    )
    system_periodic_hold_subcode_by_name: Mapping[str, str] = family(
        "SYSTEM_PERIODIC_HOLD_<Name>_SUBCODE", meaning="the HoldReasonSubCode of a job held so"
    )
    system_periodic_release_names: tuple[str, ...] = knob(
        "SYSTEM_PERIODIC_RELEASE_NAMES", meaning="names of further policies that release held jobs"
    )
    system_periodic_release_by_name: Mapping[str, str] = family(
        "SYSTEM_PERIODIC_RELEASE_<Name>", meaning="true releases any held job, if the name is in the list"
    )
    system_periodic_remove_names: tuple[str, ...] = knob(
        "SYSTEM_PERIODIC_REMOVE_NAMES", meaning="names of further policies that remove jobs"
    )
    system_periodic_remove_by_name: Mapping[str, str] = family(
        "SYSTEM_PERIODIC_REMOVE_<Name>", meaning="true removes any job, if the name is in the list"
    )
    system_periodic_vacate_names: tuple[str, ...] = knob(
        "SYSTEM_PERIODIC_VACATE_NAMES", meaning="names of further policies that end runs"
    )
    system_periodic_vacate_by_name: Mapping[str, str] = family(
        "SYSTEM_PERIODIC_VACATE_<Name>", meaning="true ends the run of any running job, if the name is in the list"
    )
    job_queue_log: str = knob("JOB_QUEUE_LOG", "$(SPOOL)/job_queue.log", meaning="file of the job queue")
    history: str | None = knob(
        "HISTORY",
        "$(SPOOL)/history",
        meaning="file of the jobs that have left the queue, besides the database; written where it is set",
    )
    per_job_history_dir: str | None = knob(
        "PER_JOB_HISTORY_DIR",
        meaning="directory with a file history.CLUSTER.PROC for each job that has left the queue, for programs that "
        "read and remove them",
    )
    history_contains_job_environment: bool = knob(
        "HISTORY_CONTAINS_JOB_ENVIRONMENT", "true", meaning="whether the history keeps a job's Environment"
    )
    max_history_log: int = knob(
        "MAX_HISTORY_LOG", "20971520", unit="bytes", least=0, meaning="size at which the history file is put away"
    )
    max_history_rotations: int = knob("MAX_HISTORY_ROTATIONS", "2", least=1, meaning="history files put away at most")
    max_epoch_history_log: int = knob(
        "MAX_EPOCH_HISTORY_LOG",
        "20971520",
        unit="bytes",
        least=0,
        meaning="with MAX_EPOCH_HISTORY_ROTATIONS: how much is kept of runs that are over (`roost history -epochs`), "
        "this size for each of these files of HTCondor's and the current one; 0: all",
    )
    max_epoch_history_rotations: int = knob(
        "MAX_EPOCH_HISTORY_ROTATIONS", "2", least=1, meaning="see MAX_EPOCH_HISTORY_LOG"
    )
    system_job_machine_attrs: tuple[str, ...] = knob(
        "SYSTEM_JOB_MACHINE_ATTRS",
        "Cpus SlotWeight",
        meaning="attributes of the slot that each job's ad keeps, as MachineAttr<Name>0",
    )
    system_job_machine_attrs_history_length: int = knob(
        "SYSTEM_JOB_MACHINE_ATTRS_HISTORY_LENGTH",
        "1",
        unit="runs",
        least=0,
        most=100,
        meaning="of so many runs they are kept",
    )
    smtp_server: str | None = knob(
        "SMTP_SERVER", meaning="host or host:port of the mail server that takes mail about jobs; unset: MAIL"
    )
    mail: str | None = knob(
        "MAIL", meaning="program that sends mail about jobs (-s subject address, text as input); unset: mail, if there"
    )
    mail_from: str | None = knob("MAIL_FROM", meaning="sender of mail about jobs; unset: roost@ and the domain")
    email_domain: str | None = knob(
        "EMAIL_DOMAIN", meaning="domain of job owners in mail about jobs; unset: UID_DOMAIN"
    )
    event_log: str | None = knob("EVENT_LOG", meaning="file of the events of all jobs")
    event_log_max_size: int = knob(
        "EVENT_LOG_MAX_SIZE",
        "-1",
        unit="bytes",
        least=-1,
        meaning="size at which it is put away; 0: never, -1: MAX_EVENT_LOG",
    )
    max_event_log: int = knob(
        "MAX_EVENT_LOG", "1000000", unit="bytes", least=0, meaning="older name of EVENT_LOG_MAX_SIZE; 0: never"
    )
    event_log_max_rotations: int = knob(
        "EVENT_LOG_MAX_ROTATIONS", "1", least=0, meaning="files put away at most: .old, or .1, .2 and so on"
    )
    event_log_format_options: str = knob(
        "EVENT_LOG_FORMAT_OPTIONS",
        "ISO_DATE",
        meaning="its form, words as for DEFAULT_USERLOG_FORMAT_OPTIONS",
    )
    event_log_use_xml: bool = knob("EVENT_LOG_USE_XML", "false", meaning="it is written as XML")
    event_log_job_ad_information_attrs: tuple[str, ...] = knob(
        "EVENT_LOG_JOB_AD_INFORMATION_ATTRS",
        "",
        meaning="attributes of the job that it tells after each event, in one of its own (028)",
    )
    default_userlog_format_options: str = knob(
        "DEFAULT_USERLOG_FORMAT_OPTIONS",
        "ISO_DATE",
        meaning="form of users' logs: ISO_DATE or LEGACY, UTC, SUB_SECOND, XML, JSON; ! before a word takes it back",
    )
    job_start_count: int = knob(
        "JOB_START_COUNT",
        "1",
        least=1,
        meaning="jobs started at once, on slots newly claimed; then JOB_START_DELAY passes",
    )
    job_start_delay: int = knob("JOB_START_DELAY", "0", unit="s", least=0, meaning="wait between two starts of jobs")
    max_next_job_start_delay: int = knob(
        "MAX_NEXT_JOB_START_DELAY",
        "600",
        unit="s",
        least=0,
        meaning="longest next_job_start_delay of a job; a longer one counts as this",
    )
    request_claim_timeout: int = knob(
        "REQUEST_CLAIM_TIMEOUT",
        "1800",
        unit="s",
        least=1,
        meaning="longest wait for a slot that was matched, also while it is emptied of others",
    )
    max_shadow_exceptions: int = knob(
        "MAX_SHADOW_EXCEPTIONS", "2", least=0, meaning="runs of one claim that fail before it is given back"
    )
    gracefully_remove_jobs: bool = knob("GRACEFULLY_REMOVE_JOBS", "true", meaning="jobs removed or held may end gently")
    max_transfer_input_mb: Expr | None = knob(
        "MAX_TRANSFER_INPUT_MB",
        "-1",
        unit="MiB",
        meaning="input of a job at most, which may look at its attributes; -1: no limit",
    )
    max_transfer_output_mb: Expr | None = knob(
        "MAX_TRANSFER_OUTPUT_MB",
        "-1",
        unit="MiB",
        meaning="output of a job at most, which may look at its attributes; -1: no limit",
    )
    sign_s3_urls: bool = knob(
        "SIGN_S3_URLS", "true", meaning="sign s3:// and gs:// URLs of jobs, with the keys that they name"
    )
    checkpoint_destination_mapfile: str = knob(
        "CHECKPOINT_DESTINATION_MAPFILE",
        "$(ETC)/checkpoint-destination-mapfile",
        meaning="file of programs that remove checkpoints: lines `* URL program,argument,...`",
    )
    schedd_checkpoint_cleanup_timeout: int = knob(
        "SCHEDD_CHECKPOINT_CLEANUP_TIMEOUT",
        "600",
        unit="s",
        least=1,
        meaning="for the removal of all checkpoints of a job at its checkpoint_destination; then it is tried again",
    )
    flock_to: tuple[str, ...] = knob(
        "FLOCK_TO", meaning="pools that jobs go to which find no slot in their own, in this order; restart to change"
    )
    min_flock_level: int = knob("MIN_FLOCK_LEVEL", "0", least=0, meaning="so many pools of FLOCK_TO are always asked")
    flock_increment: int = knob(
        "FLOCK_INCREMENT", "1", least=1, meaning="so many pools more are asked whenever there were too few slots"
    )
    flock_by_default: bool = knob(
        "FLOCK_BY_DEFAULT", "true", meaning="jobs flock unless WantFlocking is false; else only where it is true"
    )
    roost_schedd_flock_after: float = knob(
        "ROOST_SCHEDD_FLOCK_AFTER",
        "10",
        unit="s",
        least=0,
        meaning="jobs that wait so long make their submitter's flock to one step of pools more, whether or not a "
        "negotiator said that it has no slot for them",
    )
    roost_schedd_flock_directory: str = knob(
        "ROOST_SCHEDD_FLOCK_DIRECTORY",
        "/etc/condor/flock",
        meaning="directory with one for each pool of FLOCK_TO, where `roost enroll` put the schedd's identity in it; "
        "restart to change",
    )
    roost_schedd_max_spooled_mb: float = knob(
        "ROOST_SCHEDD_MAX_SPOOLED_MB",
        "10240",
        unit="MiB",
        least=-1,
        meaning="input of one spooled submit at most; -1: no limit but the disk",
    )
    max_concurrent_uploads: int = knob(
        "MAX_CONCURRENT_UPLOADS", "100", least=0, meaning="input transfers at once; 0: no limit"
    )
    max_concurrent_downloads: int = knob(
        "MAX_CONCURRENT_DOWNLOADS", "100", least=0, meaning="output transfers at once; 0: no limit"
    )
    job_transform_names: tuple[str, ...] = knob(
        "JOB_TRANSFORM_NAMES", meaning="names of the transforms made of every submitted job, in this order"
    )
    job_transform_by_name: Mapping[str, str] = family(
        "JOB_TRANSFORM_<Name>", meaning="lines of SET, DEFAULT, EVALSET, COPY, RENAME, DELETE and REQUIREMENTS"
    )
    submit_requirement_names: tuple[str, ...] = knob(
        "SUBMIT_REQUIREMENT_NAMES", meaning="names of what every submitted job must meet, in this order"
    )
    submit_requirement_by_name: Mapping[str, str] = family(
        "SUBMIT_REQUIREMENT_<Name>", meaning="a job of which it is not true is refused"
    )
    submit_requirement_reason_by_name: Mapping[str, str] = family(
        "SUBMIT_REQUIREMENT_<Name>_REASON", meaning="expression for the words of the refusal"
    )
    submit_requirement_is_warning_by_name: Mapping[str, bool] = family(
        "SUBMIT_REQUIREMENT_<Name>_IS_WARNING", meaning="tell of it in the log only"
    )
    immutable_job_attrs: tuple[str, ...] = knob(
        "IMMUTABLE_JOB_ATTRS", meaning="attributes that nobody may change in a queued job"
    )
    queue_super_users: tuple[str, ...] = knob(
        "QUEUE_SUPER_USERS", "root, condor", meaning="users who may change the jobs of others"
    )
    sec_credential_directory: str | None = knob(
        "SEC_CREDENTIAL_DIRECTORY", meaning="directory of users' credentials, where that of OAuth tokens has no other"
    )
    sec_credential_directory_oauth: str | None = knob(
        "SEC_CREDENTIAL_DIRECTORY_OAUTH",
        meaning="directory of users' OAuth tokens, a directory for each user with <service>.use; none: in the spool",
    )
    roost_schedd_private_job_attrs: tuple[str, ...] = knob(
        "ROOST_SCHEDD_PRIVATE_JOB_ATTRS",
        "Environment, Env",
        meaning="attributes of a job that only its owner and administrators see; others, and matchmaking, find none",
    )
    roost_schedd_transfer_host: str = knob(
        "ROOST_SCHEDD_TRANSFER_HOST",
        "$(IP_ADDRESS)",
        meaning="host name under which execution points reach the transfer endpoint",
    )
    roost_schedd_transfer_port: int = knob(
        "ROOST_SCHEDD_TRANSFER_PORT", "0", least=0, most=65535, meaning="port of the transfer endpoint; 0: a free one"
    )
