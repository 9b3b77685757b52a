"""What `roost submit` reads of the configuration: the administrator's defaults, and what he adds to every job."""

from __future__ import annotations

from typing import ClassVar

from shared.classad import Expr
from shared.config.knobs.base import declared, knob
from shared.config.knobs.common import CommonSettings


@declared
class SubmitSettings(CommonSettings):
    """Knobs of a submit. They are the submitter's machine's, not the schedd's."""

    SUBSYSTEM: ClassVar[str] = "SUBMIT"

    default_universe: str | None = knob("DEFAULT_UNIVERSE", meaning="universe of a job that names none; unset: vanilla")
    job_default_requestcpus: Expr = knob("JOB_DEFAULT_REQUESTCPUS", "1", meaning="RequestCpus when not given")
    job_default_requestmemory: Expr = knob(
        "JOB_DEFAULT_REQUESTMEMORY",
        "ifthenelse(MemoryUsage =!= UNDEFINED,MemoryUsage,(ImageSize+1023)/1024)",
        meaning="RequestMemory (MiB) when not given",
    )
    job_default_requestdisk: Expr = knob(
        "JOB_DEFAULT_REQUESTDISK", "DiskUsage", meaning="RequestDisk (KiB) when not given"
    )
    job_default_requestgpus: Expr | None = knob(
        "JOB_DEFAULT_REQUESTGPUS", meaning="RequestGPUs when not given; unset: none"
    )
    job_default_lease_duration: Expr | None = knob(
        "JOB_DEFAULT_LEASE_DURATION", "2400", unit="s", meaning="JobLeaseDuration when not given"
    )
    job_default_notification: str | None = knob(
        "JOB_DEFAULT_NOTIFICATION",
        choices=("never", "always", "complete", "error"),
        meaning="notification when not given; unset: never",
    )
    default_job_max_retries: int = knob(
        "DEFAULT_JOB_MAX_RETRIES",
        "2",
        least=0,
        meaning="max_retries when only retry_until or success_exit_code is given",
    )
    submit_default_should_transfer_files: str | None = knob(
        "SUBMIT_DEFAULT_SHOULD_TRANSFER_FILES",
        choices=("YES", "NO", "IF_NEEDED", "AUTO", "TRUE", "FALSE", "ALWAYS", "NEVER"),
        meaning="should_transfer_files when not given; unset: IF_NEEDED",
    )
    submit_attrs: tuple[str, ...] = knob(
        "SUBMIT_ATTRS", meaning="attributes that every job gets, each with the value of the macro of its name"
    )
    submit_exprs: tuple[str, ...] = knob("SUBMIT_EXPRS", meaning="older name of SUBMIT_ATTRS; both count")
    system_submit_attrs: tuple[str, ...] = knob("SYSTEM_SUBMIT_ATTRS", meaning="as SUBMIT_ATTRS, for packages to set")
    append_requirements: Expr | None = knob(
        "APPEND_REQUIREMENTS", meaning="term that is added to the Requirements of every job"
    )
    append_req_vanilla: Expr | None = knob(
        "APPEND_REQ_VANILLA", meaning="in place of APPEND_REQUIREMENTS for vanilla jobs"
    )
    default_rank: Expr | None = knob("DEFAULT_RANK", meaning="Rank of a job that has none")
    default_rank_vanilla: Expr | None = knob("DEFAULT_RANK_VANILLA", meaning="in its place for vanilla jobs")
    append_rank: Expr | None = knob("APPEND_RANK", meaning="what is added to the Rank of every job")
    append_rank_vanilla: Expr | None = knob("APPEND_RANK_VANILLA", meaning="in its place for vanilla jobs")
    submit_allow_getenv: bool = knob(
        "SUBMIT_ALLOW_GETENV", "true", meaning="whether getenv = true is allowed; names of variables always are"
    )
    submit_request_missing_units: str | None = knob(
        "SUBMIT_REQUEST_MISSING_UNITS",
        choices=("warn", "error"),
        meaning="what comes of request_memory or request_disk without a unit; unset: nothing",
    )
    submit_container_never_xfer_absolute_cmd: bool = knob(
        "SUBMIT_CONTAINER_NEVER_XFER_ABSOLUTE_CMD",
        "true",
        meaning="an executable with an absolute path is one of the container's image; false: it travels",
    )
    interactive_submit_file: str | None = knob(
        "INTERACTIVE_SUBMIT_FILE", meaning="submit file of an interactive job for which none is named"
    )
    submit_factory_jobs_by_default: bool = knob(
        "SUBMIT_FACTORY_JOBS_BY_DEFAULT", "false", meaning="whether `roost submit` acts as with -factory"
    )

    # What `roost submit-dag` reads, and the DAG's own CONFIG file may say otherwise.
    dagman_max_jobs_submitted: int = knob(
        "DAGMAN_MAX_JOBS_SUBMITTED", "0", least=0, meaning="nodes of a DAG in the queue at a time; 0: no limit"
    )
    dagman_max_jobs_idle: int = knob(
        "DAGMAN_MAX_JOBS_IDLE", "1000", least=0, meaning="idle jobs of a DAG that submits stop at; 0: no limit"
    )
    dagman_max_pre_scripts: int = knob(
        "DAGMAN_MAX_PRE_SCRIPTS", "20", least=0, meaning="PRE scripts of a DAG at a time; 0: no limit"
    )
    dagman_max_post_scripts: int = knob(
        "DAGMAN_MAX_POST_SCRIPTS", "20", least=0, meaning="POST scripts of a DAG at a time; 0: no limit"
    )
    dagman_always_run_post: bool = knob(
        "DAGMAN_ALWAYS_RUN_POST", "false", meaning="run POST scripts of nodes whose PRE script failed"
    )
    dagman_suppress_notification: bool = knob(
        "DAGMAN_SUPPRESS_NOTIFICATION", "true", meaning="nodes send no mail, whatever their descriptions say"
    )
    dagman_retry_node_first: bool = knob(
        "DAGMAN_RETRY_NODE_FIRST", "false", meaning="submit nodes that are tried again before others of their priority"
    )
    dagman_submit_depth_first: bool = knob(
        "DAGMAN_SUBMIT_DEPTH_FIRST", "false", meaning="submit the nodes first that became ready last"
    )
    dagman_auto_rescue: bool = knob("DAGMAN_AUTO_RESCUE", "true", meaning="go on from the last rescue file")
    dagman_max_rescue_num: int = knob(
        "DAGMAN_MAX_RESCUE_NUM", "100", least=0, most=999, meaning="rescue files of a DAG; the last is written again"
    )
    dagman_reset_retries_upon_rescue: bool = knob(
        "DAGMAN_RESET_RETRIES_UPON_RESCUE", "true", meaning="count retries anew after a rescue"
    )
    dagman_hold_claim_time: int = knob(
        "DAGMAN_HOLD_CLAIM_TIME",
        "20",
        unit="s",
        least=0,
        meaning="keep_claim_idle of nodes that have children: the next begins there without negotiation; 0: none",
    )
    dagman_default_node_log: str | None = knob(
        "DAGMAN_DEFAULT_NODE_LOG",
        "@(DAG_DIR)/@(DAG_FILE).nodes.log",
        meaning="log of all nodes of a DAG; @(DAG_DIR), @(DAG_FILE), @(OWNER), @(CLUSTER)",
    )
    dagman_default_append_vars: bool = knob(
        "DAGMAN_DEFAULT_APPEND_VARS", "false", meaning="VARS without PREPEND or APPEND are read after the description"
    )
    dagman_pending_report_interval: int = knob(
        "DAGMAN_PENDING_REPORT_INTERVAL",
        "600",
        unit="s",
        least=0,
        meaning="the manager's log tells of pending nodes when nothing happened for so long; 0: never",
    )
    dagman_on_exit_remove: Expr = knob(
        "DAGMAN_ON_EXIT_REMOVE",
        "ExitSignal =?= 11 || (ExitCode =!= UNDEFINED && ExitCode >= 0 && ExitCode <= 2)",
        meaning="whether a manager that ended is done; if not, it is started again",
    )
    dagman_manager_job_append_getenv: tuple[str, ...] = knob(
        "DAGMAN_MANAGER_JOB_APPEND_GETENV", meaning="variables that managers get of the submitter's environment, too"
    )
    dagman_config_file: str | None = knob("DAGMAN_CONFIG_FILE", meaning="file with knobs of DAGs, as a DAG's CONFIG is")
