"""Attributes that HTCondor's slots have and slots here never do, so that a job that asks for one waits in vain."""

from __future__ import annotations

from typing import Final

from engine.analyze.expressions import reads
from engine.analyze.requirements import Requirements
from shared.classad import parse_expr
from shared.classad.columnar import OTHER_SIDE
from shared.classad.expr import fold
from shared.effects import by_name
from shared.effects.machine_attributes import NEVER

_BY_KEY: Final = {fold(name): (name, why) for name, why in by_name(NEVER).items()}


def unadvertised(needs: Requirements) -> dict[str, str]:
    """What the job's Requirements read of NEVER and no slot has, in the order of NEVER, with the reason. One that an
    administrator made up under such a name (STARTD_ATTRS) is there."""
    asked: set[str] = set()
    for each in needs.mine:
        if (expr := each.conjunct.expr) is not None:
            asked |= reads(expr, OTHER_SIDE, needs.job_has).slot & _BY_KEY.keys()
    return {
        name: why
        for key, (name, why) in _BY_KEY.items()
        if key in asked and not needs.slots.matching.mask(parse_expr(f"{name} =!= undefined")).any()
    }
