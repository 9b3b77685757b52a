"""From knobs to what the startd's parts take: one frozen model, read once."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.slots.amounts import CPUS, DISK, MEMORY
from engine.slots.carving import Carving
from services.startd.core.backfill_client import BadBackfill, backfill_client
from services.startd.core.isolation import IsolationSettings, read_isolation_settings
from services.startd.core.machine import power_states
from services.startd.core.machine.affinity import CpuAffinity, listed_cores
from services.startd.core.machine.detected import Detected
from services.startd.core.machine.devices import DeviceVariables, read_device_variables
from services.startd.core.machine.resources import resource_names
from services.startd.core.machine.slot_plan import execute_directories
from services.startd.core.machine.slot_types import MAX_TYPES
from services.startd.core.run.chirp import ChirpSettings
from services.startd.core.run.job_hooks import HookConfig, read_hook_config
from services.startd.core.run.job_launch import JobEnvironment, inherited_variables
from services.startd.core.slots.policy import Policy, never
from services.startd.exec.registry import read_launcher_settings
from shared.classad import Expr, ParseError, parse_expr, unparse
from shared.classad.ad import PRIVATE_OF_JOBS
from shared.classad.expr import fold
from shared.config import Config
from shared.config.errors import config_error
from shared.config.knobs import StartdSettings
from shared.errors import ConfigurationError
from shared.job_text import BadJobText, environment, quoted


class BadSetting(ConfigurationError):
    """Knobs of the startd that do not fit each other: names them and the mend."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Seconds unless the name says otherwise."""

    update_interval: float
    statistics_window: float  # STATISTICS_WINDOW_SECONDS
    polling_interval: float
    match_timeout: float
    killing_timeout: float
    alives_missed: int
    initial_job_update: float
    noclaim_shutdown: int  # STARTD_NOCLAIM_SHUTDOWN
    affinity: CpuAffinity  # ASSIGN_CPU_AFFINITY, ENFORCE_CPU_AFFINITY, SLOT<N>_CPU_AFFINITY
    environment: JobEnvironment  # STARTER_JOB_ENVIRONMENT, STARTER_NUM_THREADS_ENV_VARS
    job_update: float
    orphan: float  # how long jobs live on without any startd
    native_spawner: bool  # ROOST_NATIVE_SPAWNER
    filesystem_domain: str
    uid_domain: str
    isolation: IsolationSettings
    launchers: Mapping[str, Any]  # of each launcher, by its name
    visits: Expr  # whether owners may look into running jobs
    most_visits: int
    policies: Mapping[int, Policy]  # by slot type; 0 for all that are not there
    carving: Carving
    hooks: HookConfig
    attributes: Mapping[str, Expr]  # STARTD_ATTRS
    execute: Mapping[int, str]  # EXECUTE, by slot id; of those that are not there, the one of 0
    type_attributes: Mapping[int, Mapping[str, Expr]]  # SLOT_TYPE_<N>_STARTD_ATTRS and _attr, by slot type
    slot_attributes: Mapping[int, Mapping[str, Expr]]  # SLOT<N>_STARTD_ATTRS and SLOT<N>_attr, by slot id
    draining_start: str  # DEFAULT_DRAINING_START_EXPR: START of graceful drains that name none; empty: never
    drain_aligned: bool  # ROOST_DRAIN_ALIGNED
    latches: Mapping[str, Expr]  # STARTD_LATCH_EXPRS: of which the slots tell since when they are what they are
    slots_at_console: int
    slots_at_keyboard: int
    idle_boost: float  # KeyboardIdle of other slots when the startd starts
    console_devices: tuple[str, ...]
    credentials_on_disk: bool  # ROOST_CREDENTIALS_ON_DISK
    credentials_dir: str  # ROOST_CREDENTIALS_DIR; empty: none
    credentials_interval: float  # CRED_CHECK_INTERVAL, seconds
    chirp: ChirpSettings
    plugins: tuple[str, ...] | None  # FILETRANSFER_PLUGINS; None: nothing goes by URL
    plugin_lifetime_s: int  # MAX_FILE_TRANSFER_PLUGIN_LIFETIME
    reuse_directory: str  # DATA_REUSE_DIRECTORY; empty: in SPOOL
    reuse_bytes: int  # DATA_REUSE_BYTES; 0: nothing is kept
    job_attributes: tuple[str, ...]  # STARTD_JOB_ATTRS
    sibling_attributes: tuple[str, ...]  # STARTD_SLOT_ATTRS
    power: power_states.HibernationSettings  # HIBERNATE and what goes with it

    def policy(self, type_id: int) -> Policy:
        return self.policies.get(type_id) or self.policies[0]


def read(config: Config, detected: Detected) -> Settings:
    """Raises ConfigError."""
    knobs = StartdSettings.from_config(config)
    start = knobs.default_draining_start_expr
    return Settings(
        update_interval=max(1, knobs.update_interval),
        statistics_window=knobs.statistics_window_seconds,
        polling_interval=max(1, knobs.polling_interval),
        match_timeout=max(1, knobs.match_timeout),
        killing_timeout=max(1, knobs.killing_timeout),
        alives_missed=max(1, knobs.max_claim_alives_missed),
        initial_job_update=max(1, knobs.starter_initial_update_interval),
        noclaim_shutdown=knobs.startd_noclaim_shutdown,
        affinity=_affinity(config, knobs, detected),
        environment=_environment(config, knobs),
        job_update=max(1, knobs.starter_update_interval),
        orphan=knobs.roost_startd_orphan_timeout,
        native_spawner=knobs.roost_native_spawner,
        filesystem_domain=knobs.filesystem_domain or detected.hostname,
        uid_domain=knobs.uid_domain or detected.hostname,
        isolation=read_isolation_settings(
            knobs,
            uid_domain=knobs.uid_domain or detected.hostname,
            machine_memory_mib=(
                knobs.memory if knobs.memory is not None else detected.memory_mib - knobs.reserved_memory
            ),
        ),
        launchers=read_launcher_settings(knobs),
        visits=knobs.roost_visits,
        most_visits=knobs.roost_max_visits,
        policies={n: _policy(knobs, config, n) for n in (0, *used_types(config))},
        carving=Carving(
            {
                CPUS: knobs.modify_request_expr_requestcpus,
                MEMORY: knobs.modify_request_expr_requestmemory,
                DISK: knobs.modify_request_expr_requestdisk,
            },
            knobs.must_modify_request_exprs,
        ),
        hooks=read_hook_config(knobs),
        attributes=_attributes(config, _published(config, knobs), ""),
        execute=execute_directories(config),
        type_attributes=_type_attributes(config, knobs),
        slot_attributes=_slot_attributes(config, knobs),
        drain_aligned=knobs.roost_drain_aligned,
        draining_start="" if start is None or never(start) else unparse(start),
        latches=_attributes(config, knobs.startd_latch_exprs, ""),
        slots_at_console=knobs.slots_connected_to_console,
        slots_at_keyboard=knobs.slots_connected_to_keyboard,
        idle_boost=knobs.disconnected_keyboard_idle_boost,
        console_devices=knobs.console_devices,
        credentials_on_disk=knobs.roost_credentials_on_disk,
        credentials_dir=knobs.roost_credentials_dir,
        credentials_interval=knobs.cred_check_interval,
        chirp=ChirpSettings(
            enabled=knobs.enable_chirp,
            files=knobs.enable_chirp_io,
            updates=knobs.enable_chirp_updates,
            delayed=knobs.enable_chirp_delayed,
            prefixes=knobs.chirp_delayed_update_prefix,
            most_delayed=knobs.chirp_delayed_update_max_attrs,
        ),
        plugins=knobs.filetransfer_plugins if knobs.enable_url_transfers else None,
        plugin_lifetime_s=max(1, knobs.max_file_transfer_plugin_lifetime),
        reuse_directory=knobs.data_reuse_directory,
        reuse_bytes=knobs.data_reuse_bytes,
        job_attributes=tuple(name for name in knobs.startd_job_attrs if fold(name) not in PRIVATE_OF_JOBS),
        sibling_attributes=knobs.startd_slot_attrs,
        power=power_states.HibernationSettings(
            interval_s=knobs.hibernate_check_interval,
            hibernate=knobs.hibernate,
            unhibernate=knobs.unhibernate,
            method=knobs.linux_hibernation_method or "",
            plugin=(knobs.hibernation_plugin, *(knobs.hibernation_plugin_args or "").split())
            if knobs.hibernation_plugin
            else (),
            override_wol=knobs.hibernation_override_wol,
        ),
    )


def used_types(config: Config) -> list[int]:
    """Numbers of the slot types that are used."""
    return [n for n in range(1, MAX_TYPES + 1) if config.get(f"NUM_SLOTS_TYPE_{n}")]


#: Fields of a policy by the names of their knobs: those that may have a form for vanilla jobs (STM-45), and others.
_VANILLA_FORMS = {
    "want_suspend": "WANT_SUSPEND",
    "suspend": "SUSPEND",
    "continue_": "CONTINUE",
    "preempt": "PREEMPT",
    "kill": "KILL",
    "want_vacate": "WANT_VACATE",
}
_FORMS = {
    "start": "START",
    "rank": "RANK",
    "is_owner": "IS_OWNER",
    "slot_weight": "SLOT_WEIGHT",
    "claim_worklife": "CLAIM_WORKLIFE",
    "max_job_retirement_time": "MAXJOBRETIREMENTTIME",
    "machine_max_vacate_time": "MachineMaxVacateTime",
    "run_benchmarks": "RUNBENCHMARKS",
    "start_backfill": "START_BACKFILL",
    "evict_backfill": "EVICT_BACKFILL",
    "want_hold": "WANT_HOLD",
    "want_hold_reason": "WANT_HOLD_REASON",
    "want_hold_subcode": "WANT_HOLD_SUBCODE",
}
_NEVER = parse_expr("false")


def _policy(knobs: StartdSettings, config: Config, type_id: int) -> Policy:
    """The expressions of one slot type: SLOT_TYPE_<N>_<name> wins over the plain <name>. Raises BadSetting."""
    plain: dict[str, Any] = {
        "start": knobs.start,
        "rank": knobs.rank,
        "is_owner": knobs.is_owner,
        "slot_weight": knobs.slot_weight,
        "claim_worklife": knobs.claim_worklife,
        "max_job_retirement_time": knobs.maxjobretirementtime,
        "machine_max_vacate_time": knobs.machinemaxvacatetime,
        "want_suspend": knobs.want_suspend,
        "suspend": knobs.suspend,
        "continue_": knobs.continue_,
        "preempt": knobs.preempt,
        "kill": knobs.kill,
        "want_vacate": knobs.want_vacate,
        "run_benchmarks": knobs.runbenchmarks,
        "start_backfill": knobs.start_backfill,
        "evict_backfill": knobs.evict_backfill,
        "want_hold": knobs.want_hold or _NEVER,
        "want_hold_reason": knobs.want_hold_reason or _NEVER,
        "want_hold_subcode": knobs.want_hold_subcode or _NEVER,
    }
    for field, name in (_VANILLA_FORMS | _FORMS).items():
        plain[field] = _of_type(config, type_id, name) or plain[field]
    if not _can_fill(knobs):
        plain["start_backfill"] = _NEVER
    vanilla = dict(plain)
    for field, name in _VANILLA_FORMS.items():
        own = _of_type(config, type_id, f"{name}_VANILLA") or _expr(config, f"{name}_VANILLA")
        vanilla[field] = own or plain[field]
    # An expression may name others, as HTCondor's own Desktop policy does: then they are attributes of the slot.
    words = " ".join(unparse(vanilla[field]) + " " + unparse(plain[field]) for field in (*_VANILLA_FORMS, "start"))
    named = {word.upper() for word in re.findall(r"\w+", words)}
    shown = {name: plain[field] for field, name in _VANILLA_FORMS.items() if name in named}
    consumption = _consumption(knobs, config, type_id)
    policy = Policy(**plain, consumption=consumption, shown=shown)
    return policy if vanilla == plain else replace(policy, vanilla=Policy(**vanilla, consumption=consumption))


def _can_fill(knobs: StartdSettings) -> bool:
    """Backfill is switched on, and its client is described: what is wrong with it is told by who starts it."""
    try:
        return backfill_client(knobs, root=False) is not None
    except BadBackfill:
        return False


def _of_type(config: Config, type_id: int, name: str) -> Expr | None:
    return _expr(config, f"SLOT_TYPE_{type_id}_{name}") if type_id else None


def _expr(config: Config, name: str) -> Expr | None:
    text = config.get(name)
    if not text:
        return None
    try:
        return parse_expr(text, "old")
    except ParseError as error:
        raise BadSetting(f"{name} = {text}: no ClassAd expression: {error}") from error


def _consumption(knobs: StartdSettings, config: Config, type_id: int) -> dict[str, Expr]:
    """What a job consumes of each resource of a slot of this type (CON-01, CON-02, CON-05): SLOT_TYPE_<N>_CONSUMPTION_*
    wins over CONSUMPTION_*. Of a custom resource without either a job consumes what it requests. Empty: no policy.
    Raises BadSetting."""
    if not knobs.slot_type_consumption_policy_by_n.get(str(type_id), knobs.consumption_policy):
        return {}
    plain = {CPUS: knobs.consumption_cpus, MEMORY: knobs.consumption_memory, DISK: knobs.consumption_disk}
    for name in resource_names(config):
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


def _attributes(config: Config, names: Iterable[str], prefix: str) -> dict[str, Expr]:
    """Macros to be published, by name. One that is no expression is left out, as in HTCondor; the cross checks of the
    configuration tell of it."""
    found = {}
    for name in names:
        text = (config.get(prefix + name) if prefix else None) or config.get(name)
        if text:
            with contextlib.suppress(ParseError):
                found[name] = parse_expr(text, "old")
    return found


def _slot_attributes(config: Config, knobs: StartdSettings) -> dict[int, dict[str, Expr]]:
    """For the slots that have any: SLOT<N>_<attr> of what is published, and their own SLOT<N>_STARTD_ATTRS (SLT-25)."""
    own_names = {int(n): names for n, names in knobs.slot_startd_attrs_by_n.items() if n.isdigit()}
    mentioned = (re.match(r"slot(\d+)_", name) for name in config.names())
    slots = own_names.keys() | {int(found.group(1)) for found in mentioned if found}
    published = (*_published(config, knobs), *(name for n in used_types(config) for name in _type_names(config, n)))
    result = {}
    for slot_id in slots:
        prefix = f"SLOT{slot_id}_"
        shared = [name for name in published if config.get(prefix + name)]
        if attributes := _attributes(config, (*shared, *own_names.get(slot_id, ())), prefix):
            result[slot_id] = attributes
    return result


def _type_attributes(config: Config, knobs: StartdSettings) -> dict[int, dict[str, Expr]]:
    """By slot type: SLOT_TYPE_<N>_<attr> of what is published, or of its own SLOT_TYPE_<N>_STARTD_ATTRS alone where it
    has that list: other attributes are the machine's then, as in HTCondor."""
    result = {}
    for n in used_types(config):
        prefix = f"SLOT_TYPE_{n}_"
        shared = [name for name in _published(config, knobs) if config.get(prefix + name)]
        if attributes := _attributes(config, _type_names(config, n) or shared, prefix):
            result[n] = attributes
    return result


def _published(config: Config, knobs: StartdSettings) -> tuple[str, ...]:
    """What all slots show: STARTD_ATTRS, and what its name was before."""
    return (*knobs.startd_attrs, *(config.get("STARTD_EXPRS") or "").replace(",", " ").split())


def _type_names(config: Config, n: int) -> list[str]:
    return (config.get(f"SLOT_TYPE_{n}_STARTD_ATTRS") or "").replace(",", " ").split()


def _affinity(config: Config, knobs: StartdSettings, detected: Detected) -> CpuAffinity:
    """Raises ConfigError."""
    by_slot = {}
    for n, text in knobs.slot_cpu_affinity_by_n.items():
        name = f"SLOT{n.upper()}_CPU_AFFINITY"
        try:
            cores = detected.core_ids if text.strip() == "*" else listed_cores(text, detected.core_ids)
        except ValueError as error:
            raise config_error(f"{name} = {text} is not usable", config.origin(name), str(error)) from error
        if n.isdigit():
            by_slot[int(n)] = cores
    return CpuAffinity(knobs.assign_cpu_affinity, knobs.enforce_cpu_affinity, by_slot)


def _environment(config: Config, knobs: StartdSettings) -> JobEnvironment:
    """Raises BadSetting."""
    text = (knobs.starter_job_environment or "").strip()
    try:
        variables = environment(quoted(text), text)
    except BadJobText as error:
        raise BadSetting(f"STARTER_JOB_ENVIRONMENT: {error}") from error
    inherited = inherited_variables(knobs.job_inherits_starter_environment, config.table.environment)
    devices = {}
    for name, wanted in knobs.environment_for_assigned_by_name.items():
        try:
            named = read_device_variables(wanted)
        except ValueError as error:
            knob = f"ENVIRONMENT_FOR_Assigned{name}"
            raise config_error(f"{knob} = {wanted} is not usable", config.origin(knob), str(error)) from error
        devices[name] = DeviceVariables(named, knobs.environment_value_for_unassigned_by_name.get(name))
    return JobEnvironment(variables, knobs.starter_num_threads_env_vars, inherited, devices)
