"""The policy by which cycles decide, read from the knobs: for the negotiator, what-if questions and replays. Pure.

NEGOTIATOR_MATCH_EXPRS is what a negotiator tells of itself in every match (spec row NEG-32). The administrator names
macros; their values come as NegotiatorMatchExpr<name> into the slot's ad that goes to the schedd, and from there into
the ad of the matched job, where the policies of execution points see them. They are part of the slot's ad during the
cycle too, so that the same policy, which names them without scope, decides alike here and there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgpack

from engine.fairshare.group_tree import GroupConfig, GroupTree
from engine.fairshare.priorities import Factors
from engine.match.concurrency_limits import NO_LIMIT, LimitConfig
from engine.match.model import CycleConfig
from engine.match.significant_attributes import SignificantAttributes, policies
from shared.classad import ClassAd, Expr, ParseError, evaluate, parse_expr
from shared.classad.expr import Literal
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
    tree: GroupTree
    factors: Factors
    match_exprs: MatchExprs
    significant: SignificantAttributes
    problems: tuple[str, ...]


def read_policy(config: Config, monotonic: Callable[[], float], groups: GroupConfig | None = None) -> Policy:
    """`monotonic`: for the time limits of cycles. `groups`: the tree stays as it was, whatever the configuration says
    now (NEGOTIATOR_READ_CONFIG_BEFORE_CYCLE, NEG-40). Raises ConfigError."""
    settings = NegotiatorSettings.from_config(config)
    groups = group_config(settings) if groups is None else groups
    cycle = cycle_config(settings, groups, monotonic)
    tree = GroupTree.of(groups)
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
        match_exprs=told,
        significant=SignificantAttributes(policies(cycle), settings.negotiator_job_constraint),
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


PREFIX: Final = "NegotiatorMatchExpr"


@dataclass(frozen=True, slots=True)
class MatchExprs:
    """The attributes by name, and what the administrator should hear of."""

    exprs: Mapping[str, Expr] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    def into(self, packed: bytes) -> bytes:
        """A packed slot ad with these attributes besides its own. Some 1 us: the ad is not read. Raises ValueError for
        what is no packed ad."""
        if not self.exprs:
            return packed
        count, start = _header(packed)
        more = ClassAd(self.exprs).pack()
        added, begin = _header(more)
        return _map_header(count + added) + packed[start:] + more[begin:]


def match_exprs(names: Iterable[str], value_of: Callable[[str], str | None]) -> MatchExprs:
    """`names`: NEGOTIATOR_MATCH_EXPRS. `value_of`: the text of a macro, None if it is not defined: such a name is left
    out. A name that begins with the prefix gets no second one. A text that is no expression is a string."""
    exprs: dict[str, Expr] = {}
    problems = []
    for name in names:
        text = value_of(name)
        if text is None or not text.strip():
            problems.append(f"NEGOTIATOR_MATCH_EXPRS names {name}, but there is no such macro; define it")
            continue
        attribute = name if name.lower().startswith(PREFIX.lower()) else PREFIX + name
        if not attribute.replace("_", "a").isalnum() or not attribute.isascii():
            problems.append(f"NEGOTIATOR_MATCH_EXPRS names {name}, which can not be part of an attribute's name")
            continue
        try:
            exprs[attribute] = parse_expr(text.strip(), "old")
        except ParseError:
            exprs[attribute] = Literal(text.strip())
    return MatchExprs(exprs, tuple(problems))


def _header(packed: bytes) -> tuple[int, int]:
    """How many entries a msgpack map has, and where they begin."""
    first = packed[0] if packed else 0
    if first & 0xF0 == 0x80:
        return first & 0x0F, 1
    length = {0xDE: 2, 0xDF: 4}.get(first)
    if length is None or len(packed) < 1 + length:
        raise ValueError("no packed ad: it does not begin as a map")
    return int.from_bytes(packed[1 : 1 + length], "big"), 1 + length


def _map_header(count: int) -> bytes:
    header: bytes = msgpack.Packer(autoreset=True).pack_map_header(count)
    return header
