"""Knobs of the defrag daemon. One line adds another."""

from __future__ import annotations

from typing import ClassVar

from shared.classad import Expr
from shared.config.knobs.base import declared, knob
from shared.config.knobs.common import CommonSettings


@declared
class DefragSettings(CommonSettings):
    """What defrag reads of its configuration."""

    SUBSYSTEM: ClassVar[str] = "DEFRAG"

    defrag_attrs: tuple[str, ...] = knob(
        "DEFRAG_ATTRS", meaning="macros whose values are attributes of the ad of defrag"
    )
    defrag_name: str | None = knob(
        "DEFRAG_NAME",
        meaning="where a pool has several policies: name of this one. Of the daemons of one name one acts, the others "
        "stand by",
    )
    defrag_interval: int = knob(
        "DEFRAG_INTERVAL", "600", unit="s", least=1, meaning="seconds between policy evaluations"
    )
    defrag_update_interval: int = knob(
        "DEFRAG_UPDATE_INTERVAL", "300", unit="s", least=1, meaning="longest time between two ads of defrag"
    )
    defrag_draining_machines_per_hour: float = knob(
        "DEFRAG_DRAINING_MACHINES_PER_HOUR",
        "0",
        unit="1/h",
        least=0,
        most=1000000,
        meaning="machines per hour to start draining, fractions too; 0 = none",
    )
    defrag_max_whole_machines: int = knob(
        "DEFRAG_MAX_WHOLE_MACHINES",
        "-1",
        least=-1,
        meaning="no new draining at this many whole machines; -1 = no limit",
    )
    defrag_max_concurrent_draining: int = knob(
        "DEFRAG_MAX_CONCURRENT_DRAINING",
        "-1",
        least=-1,
        meaning="no new draining at this many draining machines; -1 = no limit",
    )
    defrag_requirements: Expr | None = knob(
        "DEFRAG_REQUIREMENTS",
        meaning="machines that may be drained: true of one of their partitionable slots; unset: all",
    )
    defrag_whole_machine_expr: Expr = knob(
        "DEFRAG_WHOLE_MACHINE_EXPR",
        "Cpus == TotalSlotCpus",
        meaning="machines that are whole: true of one of their partitionable slots",
    )
    defrag_cancel_requirements: Expr | None = knob(
        "DEFRAG_CANCEL_REQUIREMENTS",
        "$(DEFRAG_WHOLE_MACHINE_EXPR)",
        meaning="machines whose draining by defrag ends early, as enough of them is free; empty: none",
    )
    defrag_rank: Expr = knob(
        "DEFRAG_RANK",
        "-ExpectedMachineGracefulDrainingBadput",
        meaning="which machines are drained first: those of which this is highest",
    )
    defrag_draining_schedule: str = knob(
        "DEFRAG_DRAINING_SCHEDULE",
        "graceful",
        choices=("graceful", "quick", "fast"),
        meaning="graceful: jobs keep their retirement time; quick: only their time to vacate; fast: neither",
    )
    defrag_draining_start_expr: Expr = knob(
        "DEFRAG_DRAINING_START_EXPR", "FALSE", meaning="START used on a gracefully draining machine"
    )
    roost_defrag_lease: float = knob(
        "ROOST_DEFRAG_LEASE",
        "30",
        unit="s",
        least=1,
        meaning="another defrag of the same name takes over after this time without one that acts",
    )
