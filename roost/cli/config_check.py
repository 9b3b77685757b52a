"""`roost config-val -check`: everything that is wrong, or does nothing, in the configuration that all daemons of this
machine would read. Asks nobody: what is looked at are the files and this machine."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from roost.personal_config import tool_config
from shared.config import Config, ConfigError
from shared.config.effects import is_told_by_value
from shared.config.errors import NoEffect, Problem, Source
from shared.config.knobs import SETTINGS, GatewaySettings, ScheddSettings, StartdSettings, settings_of
from shared.errors import RoostError
from shared.server_tls import ServerTls


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to tell. daemons: the subsystems that it is about. error: whether they would refuse to start."""

    daemons: tuple[str, ...]
    problem: Problem
    error: bool

    def __str__(self) -> str:
        who = "all daemons" if len(self.daemons) == len(SETTINGS) else ", ".join(self.daemons)
        return f"{'ERROR' if self.error else 'WARNING'}: {self.problem} [{who}]"

    def as_json(self) -> dict[str, object]:
        """The finding as plain data."""
        source = self.problem.source
        return {
            "severity": "error" if self.error else "warning",
            "daemons": list(self.daemons),
            "message": self.problem.message,
            "mend": self.problem.mend,
            "file": source.name if source is not None else None,
            "line": (source.line or None) if source is not None else None,
        }


def check(subsystems: Sequence[str], local_name: str | None = None) -> tuple[list[Finding], list[str]]:
    """What daemons of these kinds (none: of all) have to hear, errors first, and the files that were read. Raises
    ConfigError where the files themselves can not be read."""
    found: dict[tuple[bool, Problem], list[str]] = {}
    files: dict[str, None] = {}
    for subsystem in subsystems or [settings.SUBSYSTEM for settings in SETTINGS]:
        config = tool_config(subsystem, local_name=local_name)
        files.update(dict.fromkeys(config.files))
        for error, problem in [*_errors(config), *((False, problem) for problem in config.warnings)]:
            found.setdefault((error, problem), []).append(subsystem)
    # What the gateway has to say of a knob of people's logins says more than that other daemons do not go by it.
    explained = {problem.source for (_, problem), daemons in found.items() if daemons == [GatewaySettings.SUBSYSTEM]}
    findings = [
        Finding(tuple(daemons), problem, error)
        for (error, problem), daemons in found.items()
        if not (isinstance(problem, NoEffect) and is_told_by_value(problem.knob) and problem.source in explained)
    ]
    return sorted(findings, key=lambda one: not one.error), list(files)


def _errors(config: Config) -> Iterator[tuple[bool, Problem]]:
    """What keeps the daemon of this configuration from starting, and what it would tell besides when it starts."""
    try:
        settings_of(config.subsystem).from_config(config)
        whole = _WHOLE.get(config.subsystem)
        for told in [*(whole(config) if whole is not None else ()), *_user_maps(config)]:
            yield False, Problem(told, _place(config, told))
    except ConfigError as error:
        yield from ((True, problem) for problem in error.problems)
    except (RoostError, ValueError) as error:
        yield True, Problem(str(error), _place(config, str(error)))


def _place(config: Config, told: str) -> Source | None:
    """Where the first knob stands that a text names and somebody wrote; a list that names what is wrong comes last."""
    names = [name for name in _WORD.findall(told) if config.is_written(name)]
    return config.origin(min(names, key=lambda name: name.upper().endswith("_JOBLIST"))) if names else None


_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


# What a daemon makes of its settings when it starts: knobs that are usable by themselves and not together.


def _user_maps(config: Config) -> list[str]:
    from shared.daemon.user_maps import read

    return list(read(config, config.subsystem)[1].values())


def _master(config: Config) -> list[str]:
    from services.master.core.daemon_words import read

    return list(read(config).warnings)


def _startd(config: Config) -> list[str]:
    from services.startd import settings
    from services.startd.components.benchmarks import BUILT_IN
    from services.startd.core.machine.resources import programs
    from services.startd.core.machine.slot_plan import plan_slots
    from services.startd.core.machine.slot_types import Partition
    from services.startd.machine.detection import RealMachine
    from services.startd.run.hook_runner import objection
    from shared.cron.jobs import benchmarks, startd_cron

    def disk_of(execute: str) -> Partition:
        there = _existing(Path(execute))
        return Partition(str(there.stat().st_dev), shutil.disk_usage(there).free // 1024)

    detected = RealMachine().detect()
    read, knobs = settings.read(config, detected), StartdSettings.from_config(config)
    left_out = [*startd_cron(knobs).problems, *benchmarks(knobs, BUILT_IN).problems]
    left_out += [
        f"FILETRANSFER_PLUGINS names {path}, which is left out: {why}"
        for path in knobs.filetransfer_plugins
        if (why := objection(path))
    ]
    shown = {
        name.lower()
        for attributes in (read.attributes, *read.type_attributes.values(), *read.slot_attributes.values())
        for name in attributes
    }
    left_out += [
        f"STARTD_ATTRS names {name}, which is not set: no ad of a slot has it"
        for name in knobs.startd_attrs
        if name.lower() not in shown
    ]
    if inventory := programs(config):
        not_divided = f"slots were not divided: only the startd runs {', '.join(inventory.values())}, at its start"
        return [*left_out, not_divided]
    plan_slots(config, detected, disk_of)
    return left_out


def _schedd(config: Config) -> list[str]:
    from services.schedd.settings import Settings
    from shared.cron.jobs import schedd_cron

    Settings.from_config(config)
    return list(schedd_cron(ScheddSettings.from_config(config)).problems)


def _gateway(config: Config) -> list[str]:
    from services.gateway.auth.login_settings import read_login_rules

    settings = GatewaySettings.from_config(config)
    with_tls = settings.roost_own_authority or ServerTls.of(settings) is not None
    return list(read_login_rules(settings, config, f"root@{settings.uid_domain}", with_tls=with_tls).told)


def _existing(path: Path) -> Path:
    """The directory, or the nearest one above it that is there."""
    return next(one for one in (path, *path.absolute().parents) if one.exists())


_WHOLE: dict[str, Callable[[Config], list[str]]] = {
    "MASTER": _master,
    "STARTD": _startd,
    "SCHEDD": _schedd,
    "GATEWAY": _gateway,
}
