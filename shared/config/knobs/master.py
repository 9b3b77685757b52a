"""Knobs of the master. One line adds another."""

from __future__ import annotations

from typing import ClassVar

from shared.config.knobs.base import declared, knob
from shared.config.knobs.common import CommonSettings


@declared
class MasterSettings(CommonSettings):
    """What the master reads of its configuration."""

    SUBSYSTEM: ClassVar[str] = "MASTER"

    daemon_list: tuple[str, ...] = knob(
        "DAEMON_LIST",
        "MASTER",
        meaning="daemons that the master runs; `roost up` starts what it names besides those that every pool has",
    )
    not_responding_timeout: int = knob(
        "NOT_RESPONDING_TIMEOUT",
        "60",
        unit="s",
        least=0,
        meaning="a daemon of the master's whose loop has not turned for so long is killed and started again; 0: never",
    )
