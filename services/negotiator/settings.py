"""From knobs to what the pure parts take."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from services.negotiator.group_tree import GroupConfig, Tree
from services.negotiator.limits import NO_LIMIT, LimitConfig
from services.negotiator.match_exprs import MatchExprs, match_exprs
from services.negotiator.pool import CycleConfig
from services.negotiator.priorities import Factors
from services.negotiator.requests import Lists
from services.negotiator.significant import Significant, policies
from services.negotiator.timing import Timing
from shared.classad import evaluate, parse_expr
from shared.config import Config
from shared.config.evaluate import number
from shared.config.knobs import KNOBS, CommonSettings, NegotiatorSettings
from shared.config.knobs.base import knobs_of

_DEFAULT_SORT = str(parse_expr(KNOBS["group_sort_expr"].default or ""))


@dataclass(frozen=True, slots=True)
class Policy:
    """All that the configuration says to a negotiator. `problems`: what the administrator should hear of."""

    settings: NegotiatorSettings
    cycle: CycleConfig
    groups: GroupConfig
    tree: Tree
    factors: Factors
    lists: Lists
    timing: Timing
    match_exprs: MatchExprs
    significant: Significant
    problems: tuple[str, ...]


def read_policy(config: Config, monotonic: Callable[[], float], groups: GroupConfig | None = None) -> Policy:
    """`monotonic`: for the time limits of cycles. `groups`: the tree stays as it was, whatever the configuration says
    now (NEGOTIATOR_READ_CONFIG_BEFORE_CYCLE, NEG-40). Raises ConfigError."""
    settings = NegotiatorSettings.from_config(config)
    groups = group_config(settings) if groups is None else groups
    cycle = cycle_config(settings, groups, monotonic)
    tree = Tree.of(groups)
    told = match_exprs_of(settings, config)
    problems = [*tree.problems, *told.problems]
    if settings.group_dynamic_mach_constraint is not None:
        problems.append(
            "GROUP_DYNAMIC_MACH_CONSTRAINT is the old name of NEGOTIATOR_SLOT_POOLSIZE_CONSTRAINT; rename it"
        )
    return Policy(
        settings=settings,
        cycle=cycle,
        groups=groups,
        tree=tree,
        factors=factors(settings),
        lists=lists(settings, config),
        timing=timing(settings, config),
        match_exprs=told,
        significant=Significant(policies(cycle), settings.negotiator_job_constraint),
        problems=tuple(problems),
    )


def cycle_config(
    settings: NegotiatorSettings, groups: GroupConfig | None = None, monotonic: Callable[[], float] | None = None
) -> CycleConfig:
    trim = evaluate(settings.negotiator_trim_shutdown_threshold)
    return CycleConfig(
        preemption_requirements=settings.preemption_requirements,
        preemption_rank=settings.preemption_rank,
        preemption_requirements_stable=settings.preemption_requirements_stable,
        preemption_rank_stable=settings.preemption_rank_stable,
        force_slot_weight=settings.force_negotiator_slot_weight,
        slot_weight=settings.slot_weight,
        consider_preemption=settings.negotiator_consider_preemption,
        consider_early_preemption=settings.negotiator_consider_early_preemption,
        allow_pslot_preemption=settings.allow_pslot_preemption,
        trim_shutdown_s=float(trim) if isinstance(trim, int | float) else 0.0,
        depth_first=settings.negotiator_depth_first,
        matchlist_caching=settings.negotiator_matchlist_caching,
        all_jobs_in_cluster=settings.negotiate_all_jobs_in_cluster,
        max_time_per_submitter_s=float(settings.negotiator_max_time_per_submitter),
        max_time_per_schedd_s=float(settings.negotiator_max_time_per_schedd),
        max_time_per_cycle_s=float(settings.negotiator_max_time_per_cycle),
        max_time_per_piespin_s=float(settings.negotiator_max_time_per_piespin),
        monotonic=monotonic,
        groups=groups,
        limits=limit_config(settings),
        pre_job_rank=settings.negotiator_pre_job_rank,
        post_job_rank=settings.negotiator_post_job_rank,
        slot_constraint=settings.negotiator_slot_constraint,
        poolsize_constraint=settings.negotiator_slot_poolsize_constraint or settings.group_dynamic_mach_constraint,
        use_slot_weights=settings.negotiator_use_slot_weights,
        discount_suspended=settings.negotiator_discount_suspended_resources,
    )


def groups_of(config: Config) -> GroupConfig:
    """The tree that a configuration says. Raises ConfigError."""
    return group_config(NegotiatorSettings.from_config(config))


def group_config(settings: NegotiatorSettings) -> GroupConfig:
    """What the knobs say about accounting groups. `Tree.of` tells what of it can not be used."""
    return GroupConfig(
        names=settings.group_names,
        quota=settings.group_quota_by_groupname,
        dynamic_quota=settings.group_quota_dynamic_by_groupname,
        accept_surplus=settings.group_accept_surplus,
        accept_surplus_by=settings.group_accept_surplus_by_groupname,
        autoregroup=settings.group_autoregroup,
        autoregroup_by=settings.group_autoregroup_by_groupname,
        allow_oversubscription=settings.negotiator_allow_quota_oversubscription,
        strict_enforce=settings.negotiator_strict_enforce_quota,
        # The default is known without being evaluated, which takes most of the time in a pool of a thousand groups.
        sort_expr=None if str(settings.group_sort_expr) == _DEFAULT_SORT else settings.group_sort_expr,
        weighted_demand=settings.negotiator_use_weighted_demand,
        weighted_slots=settings.negotiator_use_slot_weights,
        consider_preemption=settings.negotiator_consider_preemption,
        max_allocation_rounds=settings.group_quota_max_allocation_rounds,
        round_robin_rate=settings.group_quota_round_robin_rate,
    )


def factors(settings: NegotiatorSettings) -> Factors:
    groups = [(name.lower(), factor) for name, factor in settings.group_prio_factor_by_groupname.items()]
    return Factors(
        default=settings.default_prio_factor,
        nice=settings.nice_user_prio_factor,
        remote=settings.remote_prio_factor,
        nice_group=settings.nice_user_accounting_group_name,
        local_domain=settings.accountant_local_domain or "",
        groups=tuple(groups),
    )


def lists(settings: NegotiatorSettings, config: Config) -> Lists:
    return Lists(
        job_constraint=config.get("NEGOTIATOR_JOB_CONSTRAINT") or "",
        # One by one where jobs are asked for one by one, as the manual has it (NEG-29).
        limit=settings.negotiator_resource_request_list_size if settings.use_resource_request_counts else 1,
        counts=settings.use_resource_request_counts,
        timeout_s=float(settings.negotiator_timeout),
    )


def limit_config(settings: NegotiatorSettings) -> LimitConfig:
    """Concurrency limits (LIM-01, LIM-04, LIM-05). Each is a number, or an expression that is one."""
    capacities = {name: number(text) for name, text in settings.limit_by_name.items()}
    default = settings.concurrency_limit_default
    return LimitConfig(
        limits={name: float(capacity) for name, capacity in capacities.items() if capacity is not None},
        defaults=dict(settings.concurrency_limit_default_by_name),
        default=None if default == NO_LIMIT else default,
        unreadable={name: settings.limit_by_name[name] for name, capacity in capacities.items() if capacity is None},
    )


def match_exprs_of(settings: NegotiatorSettings, config: Config) -> MatchExprs:
    """NEGOTIATOR_MATCH_EXPRS with the values of the macros that it names (NEG-32)."""
    return match_exprs(settings.negotiator_match_exprs, config.get)


def timing(settings: NegotiatorSettings, config: Config) -> Timing:
    """MIN_INTERVAL and CYCLE_DELAY hold an event-driven pool back, so they count only where somebody set them."""
    return Timing(
        interval=float(settings.negotiator_interval),
        min_interval=float(settings.negotiator_min_interval) if config.is_written("NEGOTIATOR_MIN_INTERVAL") else 0.0,
        cycle_delay=float(settings.negotiator_cycle_delay) if config.is_written("NEGOTIATOR_CYCLE_DELAY") else 0.0,
        coalesce=settings.roost_negotiator_coalesce,
    )


def told_knobs(config: Config) -> dict[str, str]:
    """The knobs by which cycles decide, as far as somebody has set them, with their values expanded: for the journal,
    which replays cycles by them. Paths, addresses and whatever else every daemon reads are nobody's business."""
    common = {knob.name.lower() for knob in knobs_of(CommonSettings)} - {"negotiator_name"}
    own = {knob.name.lower(): knob for knob in knobs_of(NegotiatorSettings) if knob.name.lower() not in common}
    families = [re.compile(re.sub(r"<[^>]*>", ".+", name)) for name, knob in own.items() if knob.is_family]
    exprs = {name.lower() for name in (config.get("NEGOTIATOR_MATCH_EXPRS") or "").replace(",", " ").split()}
    found = {}
    for name in config.names():
        if name in own or name in exprs or any(family.fullmatch(name) for family in families):
            value = config.get(name)
            if value is not None and name not in common:
                found[name.upper()] = value
    return found
