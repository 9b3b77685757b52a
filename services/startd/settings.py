"""From knobs to what the startd's parts take: one frozen model, read once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from services.startd.book.amounts import CPUS, DISK, MEMORY
from services.startd.book.partition import Carving
from services.startd.book.policy import Policy
from services.startd.launchers.apptainer.plan import Rules, read_rules
from services.startd.machine.detection import Detected
from services.startd.machine.shares import MAX_TYPES
from shared.classad import Expr, ParseError, evaluate, is_true, parse_expr
from shared.config import Config
from shared.config.knobs import StartdSettings
from shared.errors import PermanentError


class BadSetting(PermanentError):
    """Knobs of the startd that do not fit each other: names them and the mend."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Seconds unless the name says otherwise."""

    update_interval: float
    polling_interval: float
    match_timeout: float
    killing_timeout: float
    alives_missed: int
    initial_job_update: float
    job_update: float
    orphan: float  # how long jobs live on without any startd
    filesystem_domain: str
    uid_domain: str
    job_nice: int
    docker: bool
    docker_drop_capabilities: bool
    docker_probe: float
    docker_pull_timeout: float
    docker_host_execute: str  # EXECUTE as the Docker engine's host sees it; empty: the same path
    docker_user: str  # uid:gid of jobs in containers; empty: the startd's own, or nobody's when that is root
    containers: Rules  # Apptainer's
    policies: Mapping[int, Policy]  # by slot type; 0 for all that are not there
    carving: Carving
    attributes: Mapping[str, Expr]  # STARTD_ATTRS
    slot_attributes: Mapping[int, Mapping[str, Expr]]  # SLOT<N>_STARTD_ATTRS and SLOT<N>_attr, by slot id
    job_attributes: tuple[str, ...]  # STARTD_JOB_ATTRS
    sibling_attributes: tuple[str, ...]  # STARTD_SLOT_ATTRS

    def policy(self, type_id: int) -> Policy:
        return self.policies.get(type_id) or self.policies[0]


def read(config: Config, detected: Detected) -> Settings:
    """Raises ConfigError."""
    knobs = StartdSettings.from_config(config)
    return Settings(
        update_interval=max(1, knobs.update_interval),
        polling_interval=max(1, knobs.polling_interval),
        match_timeout=max(1, knobs.match_timeout),
        killing_timeout=max(1, knobs.killing_timeout),
        alives_missed=max(1, knobs.max_claim_alives_missed),
        initial_job_update=max(1, knobs.starter_initial_update_interval),
        job_update=max(1, knobs.starter_update_interval),
        orphan=knobs.roost_startd_orphan_timeout,
        filesystem_domain=knobs.filesystem_domain or detected.hostname,
        uid_domain=knobs.uid_domain or detected.hostname,
        job_nice=_whole(knobs.job_renice_increment),
        docker=knobs.roost_docker,
        docker_drop_capabilities=is_true(evaluate(knobs.docker_drop_all_capabilities)),
        docker_probe=knobs.roost_docker_probe_interval,
        docker_pull_timeout=knobs.roost_docker_pull_timeout,
        docker_host_execute=knobs.roost_execute_on_host or "",
        docker_user=knobs.roost_docker_user or "",
        containers=read_rules(knobs),
        policies={n: _policy(knobs, config, n) for n in (0, *used_types(config))},
        carving=Carving(
            {
                CPUS: knobs.modify_request_expr_requestcpus,
                MEMORY: knobs.modify_request_expr_requestmemory,
                DISK: knobs.modify_request_expr_requestdisk,
            },
            knobs.must_modify_request_exprs,
        ),
        attributes=_attributes(config, knobs.startd_attrs, ""),
        slot_attributes=_slot_attributes(config, knobs),
        job_attributes=knobs.startd_job_attrs,
        sibling_attributes=knobs.startd_slot_attrs,
    )


def used_types(config: Config) -> list[int]:
    """Numbers of the slot types that are used."""
    return [n for n in range(1, MAX_TYPES + 1) if config.get(f"NUM_SLOTS_TYPE_{n}")]


def _policy(knobs: StartdSettings, config: Config, type_id: int) -> Policy:
    """The expressions of one slot type: SLOT_TYPE_<N>_START, _RANK, _SLOT_WEIGHT and _CONSUMPTION_* win over the plain
    ones. Raises BadSetting."""

    def of(name: str, plain: Expr) -> Expr:
        own = config.get(f"SLOT_TYPE_{type_id}_{name}") if type_id else None
        return parse_expr(own, "old") if own else plain

    return Policy(
        start=of("START", knobs.start),
        rank=of("RANK", knobs.rank),
        is_owner=of("IS_OWNER", knobs.is_owner),
        slot_weight=of("SLOT_WEIGHT", knobs.slot_weight),
        claim_worklife=knobs.claim_worklife,
        machine_max_vacate_time=knobs.machinemaxvacatetime,
        max_job_retirement_time=knobs.maxjobretirementtime,
        want_suspend=knobs.want_suspend,
        preempt=knobs.preempt,
        want_vacate=knobs.want_vacate,
        kill=knobs.kill,
        consumption=_consumption(knobs, config, type_id),
    )


def _consumption(knobs: StartdSettings, config: Config, type_id: int) -> dict[str, Expr]:
    """What a job consumes of each resource of a slot of this type (CON-01, CON-02, CON-05): SLOT_TYPE_<N>_CONSUMPTION_*
    wins over CONSUMPTION_*. Of a custom resource without either a job consumes what it requests. Empty: no policy.
    Raises BadSetting."""
    if not knobs.slot_type_consumption_policy_by_n.get(str(type_id), knobs.consumption_policy):
        return {}
    plain = {CPUS: knobs.consumption_cpus, MEMORY: knobs.consumption_memory, DISK: knobs.consumption_disk}
    for name in knobs.machine_resource_names or knobs.machine_resource_by_name:
        known = knobs.consumption_by_resource.get(name.lower())
        plain[name] = known if known is not None else parse_expr(f"TARGET.Request{name} ?: 0")
    found = {}
    for resource, expr in plain.items():
        name = f"SLOT_TYPE_{type_id}_CONSUMPTION_{resource}".upper()
        own = config.get(f"SLOT_TYPE_{type_id}_CONSUMPTION_{resource}") if type_id else None
        try:
            found[resource] = parse_expr(own, "old") if own else expr
        except ParseError as error:
            raise BadSetting(f"{name} = {own}: no ClassAd expression: {error}") from error
    return found


def _whole(expr: Expr) -> int:
    value = evaluate(expr)
    return int(value) if isinstance(value, int | float) else 0


def _attributes(config: Config, names: Iterable[str], prefix: str) -> dict[str, Expr]:
    """Macros to be published, by name. Raises BadSetting."""
    found = {}
    for name in names:
        text = (config.get(prefix + name) if prefix else None) or config.get(name)
        if text:
            try:
                found[name] = parse_expr(text, "old")
            except ParseError as error:
                raise BadSetting(f"{prefix}{name} = {text}: no ClassAd expression: {error}") from error
    return found


def _slot_attributes(config: Config, knobs: StartdSettings) -> dict[int, dict[str, Expr]]:
    """For the slots that have any: SLOT<N>_<attr> of STARTD_ATTRS, and their own SLOT<N>_STARTD_ATTRS (SLT-25)."""
    own_names = {int(n): names for n, names in knobs.slot_startd_attrs_by_n.items() if n.isdigit()}
    mentioned = (re.match(r"slot(\d+)_", name) for name in config.names())
    slots = own_names.keys() | {int(found.group(1)) for found in mentioned if found}
    result = {}
    for slot_id in slots:
        prefix = f"SLOT{slot_id}_"
        shared = [name for name in knobs.startd_attrs if config.get(prefix + name)]
        if attributes := _attributes(config, (*shared, *own_names.get(slot_id, ())), prefix):
            result[slot_id] = attributes
    return result
