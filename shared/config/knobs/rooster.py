"""Knobs of the rooster. One line adds another."""

from __future__ import annotations

from typing import ClassVar

from shared.classad import Expr
from shared.config.knobs.base import declared, knob
from shared.config.knobs.common import CommonSettings


@declared
class RoosterSettings(CommonSettings):
    """What the rooster reads of its configuration."""

    SUBSYSTEM: ClassVar[str] = "ROOSTER"

    rooster_interval: int = knob(
        "ROOSTER_INTERVAL", "300", unit="s", least=1, meaning="between looks for machines to wake"
    )
    rooster_unhibernate: Expr = knob(
        "ROOSTER_UNHIBERNATE", "Offline && Unhibernate", meaning="machines that are woken: true of one of their slots"
    )
    rooster_unhibernate_rank: Expr | None = knob(
        "ROOSTER_UNHIBERNATE_RANK", meaning="machines of a higher value are woken first, say Mips * Cpus"
    )
    rooster_max_unhibernate: int = knob(
        "ROOSTER_MAX_UNHIBERNATE", "0", least=0, meaning="most machines woken in one interval; 0 = no limit"
    )
    rooster_wakeup_cmd: str | None = knob(
        "ROOSTER_WAKEUP_CMD",
        meaning="program, with arguments as in a submit file, that wakes the machine whose ad is on its standard "
        "input; unset, or condor_power where there is no such program: a magic packet is sent",
    )
