"""Attributes that exist during a cycle only (spec rows NEG-43, NEG-44): SubmitterUserPrio and its kin in the job's ad,
RemoteUserPrio and its kin in the slot's. They are made only where some expression names them.

Those that end in ResourcesInUse change as slots are handed out; the others hold for the whole cycle.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from engine.fairshare.group_tree import ROOT
from engine.match.model import CycleConfig, Request, Slots
from shared.classad.columnar import Frame, Table
from shared.classad.columnar.column import ABSENT, INT, REAL, STRING, Column
from shared.classad.expr import Expr

#: What changes within a cycle.
CHANGING: Final = frozenset(
    (
        "submitteruserresourcesinuse",
        "remoteuserresourcesinuse",
        "submittergroupresourcesinuse",
        "remotegroupresourcesinuse",
    )
)
_SLOT: Final = re.compile(r"slot(\d{1,6})_remoteuserprio")
_NAMES: Final = CHANGING | {
    "submitteruserprio",
    "remoteuserprio",
    "submittergroup",
    "remotegroup",
    "submittergroupquota",
    "remotegroupquota",
    "submitternegotiatinggroup",
    "submitterautoregroup",
}


def mentioned(frame: Frame, others: Iterable[str]) -> frozenset[str]:
    """The ephemeral attributes, folded, that any expression names: of slots as far as their expressions were ever read,
    and of all others (`names_of`)."""
    names = set(others)
    for expr in frame.codes.exprs:
        names |= frame.names(expr)
    return frozenset(name for name in names if name in _NAMES or _SLOT.fullmatch(name))


def names_of(table: Table | Frame, config: CycleConfig, requests: Iterable[Request]) -> list[str]:
    """All names, folded, in the knobs, and in the jobs' Requirements and Rank and what these lead to in the jobs."""
    names: set[str] = set()
    for expr in (config.pre_job_rank, config.post_job_rank, config.preemption_requirements, config.preemption_rank):
        if expr is not None:
            names |= table.names(expr)
    for request in requests:
        todo = ["requirements", "rank", "concurrencylimits"]
        seen = set(todo)
        while todo:
            cell = request.ad.find(todo.pop())
            if isinstance(cell, Expr):
                fresh = table.names(cell) - seen
                seen |= fresh
                todo.extend(fresh)
        names |= seen
    return sorted(names)


@dataclass(frozen=True, slots=True)
class UserState:
    """What a cycle knows of one user: effective priority, use (weight and slots), group with its quota and use. In a
    pool without groups the group is empty; in one with groups, who is in none of them is in `<none>`, as in the
    reference, which has no quota and use to tell."""

    eup: float
    slots: int
    group: str
    group_quota: float
    group_in_use: float


StateOf = Callable[[str], UserState]


def of_job(names: frozenset[str], state: UserState, negotiating: str, regrouped: bool) -> dict[str, object]:
    """What is set in a job's ad."""
    values: dict[str, object] = {
        "SubmitterUserPrio": state.eup,
        "SubmitterUserResourcesInUse": state.slots,
        "SubmitterNegotiatingGroup": negotiating,
        "SubmitterAutoregroup": regrouped,
    }
    if state.group:
        values["SubmitterGroup"] = state.group
    if state.group not in ("", ROOT):
        values |= {
            "SubmitterGroupQuota": state.group_quota,
            "SubmitterGroupResourcesInUse": state.group_in_use,
        }
    return {name: value for name, value in values.items() if name.lower() in names}


def of_slots(
    names: frozenset[str], frame: Frame, users: list[str], user: NDArray[np.int32], state_of: StateOf
) -> dict[str, Column]:
    """Columns for slots. user: (n,) index into `users` of who has the slot, -1: nobody."""
    if not any(name.startswith(("remote", "slot")) for name in names):
        return {}
    known = [state_of(name) for name in users]
    there = user >= 0
    columns: dict[str, Column] = {}

    def number(key: str, values: list[float], tag: int, where: NDArray[np.bool_]) -> None:
        if key in names:
            picked = np.array([*values, np.nan])[np.where(where, user, -1)]
            columns[key] = _column(picked, tag)

    number("remoteuserprio", [one.eup for one in known], REAL, there)
    number("remoteuserresourcesinuse", [float(one.slots) for one in known], INT, there)
    grouped = np.array([*(one.group not in ("", ROOT) for one in known), False])[user] & there
    number("remotegroupquota", [one.group_quota for one in known], REAL, grouped)
    number("remotegroupresourcesinuse", [one.group_in_use for one in known], REAL, grouped)
    if "remotegroup" in names:
        named = np.array([*(bool(one.group) for one in known), False])[user] & there
        codes = np.array([*(frame.codes.text(one.group) for one in known), -1], np.int32)[np.where(named, user, -1)]
        folded = np.array([frame.codes.folded[code] if code >= 0 else -1 for code in codes], np.int32)
        tag = np.where(named, np.uint8(STRING), np.uint8(ABSENT))
        columns["remotegroup"] = Column(tag, np.full(len(user), np.nan), codes, folded, None, 0)
        columns["remotegroup"].count()
    for name in names:
        found = _SLOT.fullmatch(name)
        if found:
            columns[name] = _of_sibling(frame, int(found[1]), user, [one.eup for one in known])
    return columns


def _of_sibling(frame: Frame, number: int, user: NDArray[np.int32], eup: list[float]) -> Column:
    """RemoteUserPrio of the slot of that number on the same machine; of several (dynamic ones) that have somebody, the
    last by name."""
    frame.want(("machine", "slotid"))
    machine, slot = frame.columns["machine"], frame.columns["slotid"]
    values = np.array([*eup, np.nan])[user]
    rows = np.flatnonzero((slot.number == number) & (user >= 0))
    rows = rows[np.argsort(frame.table.companions[Slots.PLACE][rows])]  # the last one written stays
    by_machine = np.full(len(frame.codes.texts) + 1, np.nan)
    by_machine[machine.folded[rows]] = values[rows]
    return _column(by_machine[machine.folded], REAL)


def _column(values: NDArray[np.float64], tag: int) -> Column:
    tags = np.where(np.isnan(values), np.uint8(ABSENT), np.uint8(tag))
    none = np.full(len(values), -1, np.int32)
    column = Column(tags, values, none, none.copy(), None, 0)
    column.count()
    return column


def refresh(columns: Mapping[str, Column], users: list[str], user: NDArray[np.int32], state_of: StateOf) -> bool:
    """Bring the columns that change up to date; whether there are any."""
    changing = [name for name in columns if name in CHANGING]
    if not changing:
        return False
    known = [state_of(name) for name in users]
    for name in changing:
        now = [float(one.slots) if "user" in name else one.group_in_use for one in known]
        values = np.array([*now, np.nan])[user]
        columns[name].number[:] = np.where(columns[name].tag == ABSENT, np.nan, values)
    return True
