"""Knobs of the negotiator and its accountant. One line adds another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from shared.classad import Expr
from shared.config.knobs.base import declared, family, knob
from shared.config.knobs.common import CommonSettings


@declared
class NegotiatorSettings(CommonSettings):
    """What the negotiator and its accountant reads of its configuration."""

    SUBSYSTEM: ClassVar[str] = "NEGOTIATOR"

    negotiator_attrs: tuple[str, ...] = knob(
        "NEGOTIATOR_ATTRS", meaning="macros whose values are attributes of the negotiator's ad"
    )
    negotiator: str = knob(
        "NEGOTIATOR",
        "$(SBIN)/condor_negotiator",
        meaning="path of the negotiator program; also its name in DAEMON_LIST",
    )
    negotiator_interval: int = knob(
        "NEGOTIATOR_INTERVAL", "60", unit="s", least=0, meaning="longest wait between the STARTS of two cycles"
    )
    negotiator_min_interval: int = knob(
        "NEGOTIATOR_MIN_INTERVAL", "5", unit="s", least=0, meaning="shortest wait between the STARTS of two cycles"
    )
    negotiator_cycle_delay: int = knob(
        "NEGOTIATOR_CYCLE_DELAY", "20", unit="s", least=0, meaning="minimum gap, counted from the END of the last cycle"
    )
    negotiator_update_interval: int = knob(
        "NEGOTIATOR_UPDATE_INTERVAL", "300", unit="s", least=0, meaning="between negotiator ad updates to the collector"
    )
    negotiator_timeout: int = knob(
        "NEGOTIATOR_TIMEOUT",
        "30",
        unit="s",
        least=0,
        meaning="network timeout towards access points and execution points",
    )
    negotiation_cycle_stats_length: int = knob(
        "NEGOTIATION_CYCLE_STATS_LENGTH",
        "3",
        least=0,
        most=100,
        meaning="number of recent cycles published (suffix 0 = newest), 0 turns publication off",
    )
    negotiator_num_threads: int = knob(
        "NEGOTIATOR_NUM_THREADS", "1", least=1, meaning="worker threads used to match one job against slots"
    )
    priority_halflife: float = knob(
        "PRIORITY_HALFLIFE", "86400", unit="s", least=0.001, meaning="half-life of the real user priority"
    )
    default_prio_factor: float = knob(
        "DEFAULT_PRIO_FACTOR", "1000", least=1, meaning="factor given to a new local submitter"
    )
    nice_user_prio_factor: float = knob("NICE_USER_PRIO_FACTOR", "1e10", meaning="factor of nice-user submitters")
    nice_user_accounting_group_name: str = knob(
        "NICE_USER_ACCOUNTING_GROUP_NAME", "nice-user", meaning="accounting group name that submit uses for nice jobs"
    )
    remote_prio_factor: float = knob(
        "REMOTE_PRIO_FACTOR", "1e7", meaning="factor of submitters outside ACCOUNTANT_LOCAL_DOMAIN"
    )
    accountant_database_file: str = knob(
        "ACCOUNTANT_DATABASE_FILE", "$(SPOOL)/Accountantnew.log", meaning="path of the accounting log"
    )
    accountant_local_domain: str | None = knob("ACCOUNTANT_LOCAL_DOMAIN", meaning="domain that makes a submitter local")
    max_accountant_database_size: int = knob(
        "MAX_ACCOUNTANT_DATABASE_SIZE",
        "1000000",
        unit="bytes",
        least=0,
        meaning="compact the accounting log above this; the limit grows if the compacted file is more than half of it",
    )
    negotiator_discount_suspended_resources: bool = knob(
        "NEGOTIATOR_DISCOUNT_SUSPENDED_RESOURCES",
        "false",
        meaning="when true a suspended slot is not charged to its user",
    )
    negotiator_socket_cache_size: int = knob(
        "NEGOTIATOR_SOCKET_CACHE_SIZE",
        "500",
        meaning="connections kept open to access points; lowering it needs a restart",
    )
    negotiator_inform_startd: bool = knob(
        "NEGOTIATOR_INFORM_STARTD",
        "false",
        meaning="tell the EP of a match (UDP); while false the EP never enters Matched",
    )
    negotiator_pre_job_rank: Expr = knob(
        "NEGOTIATOR_PRE_JOB_RANK",
        "(10000000 * My.Rank) + (1000000 * (RemoteOwner =?= UNDEFINED)) - (100000 * Cpus) - Memory",
        meaning="first sort key of the match list; MY = slot, TARGET = job; explicit undefined disables it",
    )
    negotiator_post_job_rank: Expr = knob(
        "NEGOTIATOR_POST_JOB_RANK",
        "(RemoteOwner =?= UNDEFINED)"
        " * (ifthenElse(isUndefined(KFlops), 1000, Kflops) - SlotID - 1.0e10*(Offline=?=True))",
        meaning="third sort key, after the job's own Rank",
    )
    preemption_requirements: Expr = knob(
        "PREEMPTION_REQUIREMENTS",
        "False",
        meaning="must be true for a user-priority preemption; never gates startd-RANK preemption",
    )
    preemption_requirements_stable: bool = knob(
        "PREEMPTION_REQUIREMENTS_STABLE",
        "true",
        meaning="false says that attributes used in PREEMPTION_REQUIREMENTS change inside a cycle (no cached answer)",
    )
    preemption_rank: Expr = knob(
        "PREEMPTION_RANK",
        "(RemoteUserPrio * 1000000) - ifThenElse(isUndefined(TotalJobRuntime), 0, TotalJobRuntime)",
        meaning="last sort key, used only among preempting matches",
    )
    preemption_rank_stable: bool = knob("PREEMPTION_RANK_STABLE", "true", meaning="same, for PREEMPTION_RANK")
    negotiator_slot_constraint: Expr | None = knob(
        "NEGOTIATOR_SLOT_CONSTRAINT", meaning="which slot ads are fetched; the shard key when several negotiators run"
    )
    negotiator_submitter_constraint: Expr | None = knob(
        "NEGOTIATOR_SUBMITTER_CONSTRAINT", meaning="which submitter ads are fetched"
    )
    negotiator_job_constraint: Expr | None = knob(
        "NEGOTIATOR_JOB_CONSTRAINT", meaning="read by the negotiator, evaluated by the access point when it offers jobs"
    )
    negotiator_trim_shutdown_threshold: Expr = knob(
        "NEGOTIATOR_TRIM_SHUTDOWN_THRESHOLD",
        "0",
        unit="s",
        meaning="when > 0 slots whose DaemonShutdown becomes true that far ahead are not matched",
    )
    negotiator_slot_poolsize_constraint: Expr | None = knob(
        "NEGOTIATOR_SLOT_POOLSIZE_CONSTRAINT", meaning="which slot ads count as pool size, with or without groups"
    )
    group_dynamic_mach_constraint: Expr | None = knob(
        "GROUP_DYNAMIC_MACH_CONSTRAINT",
        meaning="old name of NEGOTIATOR_SLOT_POOLSIZE_CONSTRAINT; still works, logs a warning",
    )
    negotiator_debug: str = knob(
        "NEGOTIATOR_DEBUG", "D_MATCH", meaning="logging level of the negotiator (<SUBSYS>_DEBUG)"
    )
    negotiator_max_time_per_submitter: int = knob(
        "NEGOTIATOR_MAX_TIME_PER_SUBMITTER", "60", unit="s", least=0, meaning="for one submitter in one cycle"
    )
    negotiator_max_time_per_schedd: int = knob(
        "NEGOTIATOR_MAX_TIME_PER_SCHEDD", "120", unit="s", least=0, meaning="for one access point in one cycle"
    )
    negotiator_max_time_per_cycle: int = knob(
        "NEGOTIATOR_MAX_TIME_PER_CYCLE", "1200", unit="s", least=0, meaning="for all submitters in one cycle"
    )
    negotiator_max_time_per_piespin: int = knob(
        "NEGOTIATOR_MAX_TIME_PER_PIESPIN", "120", unit="s", least=0, meaning="for one submitter in one pie spin"
    )
    negotiate_all_jobs_in_cluster: bool = knob(
        "NEGOTIATE_ALL_JOBS_IN_CLUSTER", "false", meaning="do not skip the rest of a cluster after one rejected job"
    )
    negotiator_depth_first: bool = knob(
        "NEGOTIATOR_DEPTH_FIRST", "false", meaning="with partitionable slots, fill one machine before the next"
    )
    use_resource_request_counts: bool = knob(
        "USE_RESOURCE_REQUEST_COUNTS",
        "true",
        meaning="access point asks for X matches for X consecutive jobs of one autocluster",
    )
    negotiator_resource_request_list_size: int = knob(
        "NEGOTIATOR_RESOURCE_REQUEST_LIST_SIZE",
        "200",
        least=1,
        meaning="requests fetched per round trip; forced to 1 when USE_RESOURCE_REQUEST_COUNTS is false",
    )
    negotiator_match_exprs: tuple[str, ...] = knob(
        "NEGOTIATOR_MATCH_EXPRS", meaning="macro names copied into matched job ads under the prefix NegotiatorMatchExpr"
    )
    negotiator_matchlist_caching: bool = knob(
        "NEGOTIATOR_MATCHLIST_CACHING",
        "true",
        meaning="reuse the sorted match list for the next job of the same autocluster",
    )
    negotiator_consider_preemption: bool = knob(
        "NEGOTIATOR_CONSIDER_PREEMPTION", "true", meaning="false drops claimed and preempting slots before matching"
    )
    negotiator_consider_early_preemption: bool = knob(
        "NEGOTIATOR_CONSIDER_EARLY_PREEMPTION",
        "false",
        meaning="true also offers slots whose job still has retirement time",
    )
    allow_pslot_preemption: bool = knob(
        "ALLOW_PSLOT_PREEMPTION", "false", meaning="match a partitionable slot by preempting some of its dynamic slots"
    )
    startd_ad_reeval_expr: Expr | None = knob(
        "STARTD_AD_REEVAL_EXPR", meaning="per slot ad: does the collector's copy replace the one stashed last cycle"
    )
    negotiator_update_after_cycle: bool = knob(
        "NEGOTIATOR_UPDATE_AFTER_CYCLE", "false", meaning="publish the negotiator ad right after each cycle"
    )
    negotiator_read_config_before_cycle: bool = knob(
        "NEGOTIATOR_READ_CONFIG_BEFORE_CYCLE",
        "false",
        meaning="re-read config before each cycle (updates e.g. limits; does not rebuild the group tree)",
    )
    # Texts: of all the macros whose names end so, only those that a job asks for are limits, and must be numbers.
    limit_by_name: Mapping[str, str] = family("<NAME>_LIMIT", meaning="capacity of the concurrency limit <NAME>")
    concurrency_limit_default: float = knob(
        "CONCURRENCY_LIMIT_DEFAULT", "2308032", meaning="capacity of every limit with no own or set value"
    )
    concurrency_limit_default_by_name: Mapping[str, float] = family(
        "CONCURRENCY_LIMIT_DEFAULT_<NAME>",
        meaning="capacity of limits named <NAME>.something with no own <NAME>.x_LIMIT",
    )
    group_names: tuple[str, ...] = knob(
        "GROUP_NAMES",
        meaning="recognised group names, case-insensitive, dots make subgroups, must not equal a user name",
    )
    group_quota_by_groupname: Mapping[str, float] = family(
        "GROUP_QUOTA_<groupname>",
        least=0,
        meaning="static quota in slot weight units (machines); beats the dynamic one",
    )
    group_quota_dynamic_by_groupname: Mapping[str, float] = family(
        "GROUP_QUOTA_DYNAMIC_<groupname>",
        least=0,
        most=1,
        meaning="quota as a fraction of the parent's quota (of the pool for top groups)",
    )
    group_prio_factor_by_groupname: Mapping[str, float] = family(
        "GROUP_PRIO_FACTOR_<groupname>", least=1, meaning="first-use priority factor of a group's members"
    )
    group_autoregroup: bool = knob(
        "GROUP_AUTOREGROUP", "false", meaning="members negotiate a second time under <none>; still billed to the group"
    )
    group_autoregroup_by_groupname: Mapping[str, bool] = family(
        "GROUP_AUTOREGROUP_<groupname>", meaning="per-group version"
    )
    group_accept_surplus: bool = knob(
        "GROUP_ACCEPT_SURPLUS", "false", meaning="may all groups use the unused quota of others"
    )
    group_accept_surplus_by_groupname: Mapping[str, bool] = family(
        "GROUP_ACCEPT_SURPLUS_<groupname>",
        meaning="per-group version; false makes the node a hard cap for its children's sum",
    )
    group_quota_round_robin_rate: float = knob(
        "GROUP_QUOTA_ROUND_ROBIN_RATE",
        "1.0e100",
        least=1,
        most=1e100,
        meaning="slot weight handed to one submitter/group per round-robin step (slots if weights are off)",
    )
    group_quota_max_allocation_rounds: int = knob(
        "GROUP_QUOTA_MAX_ALLOCATION_ROUNDS",
        "3",
        least=1,
        meaning="how often per cycle quotas are computed and offered (>= 1)",
    )
    negotiator_use_slot_weights: bool = knob(
        "NEGOTIATOR_USE_SLOT_WEIGHTS", "true", meaning="charge SlotWeight; false counts each slot as 1"
    )
    force_negotiator_slot_weight: bool = knob(
        "FORCE_NEGOTIATOR_SLOT_WEIGHT",
        "false",
        meaning="ignore the slot's SlotWeight, use the negotiator's SLOT_WEIGHT expression",
    )
    negotiator_use_weighted_demand: bool = knob(
        "NEGOTIATOR_USE_WEIGHTED_DEMAND",
        "true",
        meaning="use WeightedIdleJobs (cores asked for) rather than IdleJobs as group demand",
    )
    group_sort_expr: Expr = knob(
        "GROUP_SORT_EXPR",
        'ifThenElse(AccountingGroup=?="<none>",3.4e+38,ifThenElse(GroupQuota>0,GroupResourcesInUse/GroupQuota,3.3e+38))',
        meaning="order of groups; smallest first; default is starvation order with <none> last",
    )
    negotiator_allow_quota_oversubscription: bool = knob(
        "NEGOTIATOR_ALLOW_QUOTA_OVERSUBSCRIPTION",
        "true",
        meaning="true leaves static child quotas unscaled when their sum exceeds the parent's",
    )
    negotiator_strict_enforce_quota: bool = knob(
        "NEGOTIATOR_STRICT_ENFORCE_QUOTA",
        "true",
        meaning="no group may take more than what any group above it that refuses surplus has left",
    )
    slot_weight: Expr = knob(
        "SLOT_WEIGHT",
        "Cpus",
        meaning="cost of a slot; only Cpus, Memory, Disk valid in it with consumption policies; same on all machines",
    )
    roost_negotiator_coalesce: float = knob(
        "ROOST_NEGOTIATOR_COALESCE",
        "0.2",
        unit="s",
        least=0,
        meaning="events that ask for a cycle are gathered for this long",
    )
