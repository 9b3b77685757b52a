"""The declared knobs, and one typed, frozen settings model for each daemon.

    from shared.config.knobs import NegotiatorSettings
    settings = NegotiatorSettings.from_config(config)    # ConfigError names every value that is not usable

To add a knob, write one line in the settings class of its daemon (`common.py` for all of them).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from shared.config.knobs import base
from shared.config.knobs.adstash import AdstashSettings
from shared.config.knobs.base import Knob, Settings, family, knob, knobs_of
from shared.config.knobs.collector import CollectorSettings
from shared.config.knobs.common import CommonSettings
from shared.config.knobs.defrag import DefragSettings
from shared.config.knobs.gateway import GatewaySettings
from shared.config.knobs.had import HadSettings
from shared.config.knobs.journal import JournalSettings
from shared.config.knobs.master import MasterSettings
from shared.config.knobs.monitor import MonitorSettings
from shared.config.knobs.negotiator import NegotiatorSettings
from shared.config.knobs.others import OTHERS
from shared.config.knobs.registrar import RegistrarSettings
from shared.config.knobs.rooster import RoosterSettings
from shared.config.knobs.schedd import ScheddSettings
from shared.config.knobs.startd import StartdSettings
from shared.config.knobs.submit import SubmitSettings

__all__ = [
    "DEFAULTS",
    "KNOBS",
    "AdstashSettings",
    "CollectorSettings",
    "CommonSettings",
    "DefragSettings",
    "GatewaySettings",
    "HadSettings",
    "JournalSettings",
    "Knob",
    "MasterSettings",
    "MonitorSettings",
    "NegotiatorSettings",
    "RegistrarSettings",
    "RoosterSettings",
    "ScheddSettings",
    "Settings",
    "StartdSettings",
    "SubmitSettings",
    "family",
    "knob",
    "settings_of",
]

SETTINGS: tuple[type[CommonSettings], ...] = (
    CollectorSettings,
    NegotiatorSettings,
    RoosterSettings,
    ScheddSettings,
    StartdSettings,
    HadSettings,
    GatewaySettings,
    JournalSettings,
    DefragSettings,
    MonitorSettings,
    AdstashSettings,
    RegistrarSettings,
    MasterSettings,
    SubmitSettings,
)


def settings_of(subsystem: str) -> type[CommonSettings]:
    """The settings of a daemon; of anybody else those of all."""
    return next((one for one in SETTINGS if subsystem.upper() == one.SUBSYSTEM), CommonSettings)


def _register() -> dict[str, Knob]:
    """Every declared knob by its name in lower case; one that several daemons read names them all."""
    registry = {declared.name.lower(): declared for declared in OTHERS}
    common = {declared.name.lower(): dataclasses.replace(declared, daemons=()) for declared in knobs_of(CommonSettings)}
    registry |= common
    for settings in SETTINGS:
        for declared in knobs_of(settings):
            key = declared.name.lower()
            before = registry.get(key)
            if key in common:
                continue  # of every daemon
            if before is None:
                registry[key] = declared
            else:
                if before.default != declared.default:
                    raise AssertionError(f"{declared.name} is declared with two defaults")
                registry[key] = dataclasses.replace(before, daemons=before.daemons + declared.daemons)
    return dict(sorted(registry.items()))


KNOBS: Mapping[str, Knob] = MappingProxyType(_register())
"""Every declared knob and family by its name in lower case."""

DEFAULTS: Mapping[str, str] = MappingProxyType(
    {key: declared.default for key, declared in KNOBS.items() if declared.default is not None}
)
"""The default texts by name in lower case."""

base.KNOWN.update(KNOBS)
