"""The file transfer plug-ins of this machine, as its component found them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.startd.core.run.plugins import Plugin


@dataclass(slots=True)
class PluginTable:
    """by_scheme: empty until they were asked, and where nothing goes by URL."""

    by_scheme: Mapping[str, Plugin] = field(default_factory=dict)
