"""Slots in use that a job may have all the same (spec rows PRE-01 to PRE-09, NEG-19)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.negotiator.board import MY, Board, Bools, Floats
from services.negotiator.pool import CycleConfig
from shared.classad import ClassAd, parse_expr
from shared.classad.columnar import Frame
from shared.classad.columnar.column import ABSENT, INT, OTHER, REAL, STRING
from shared.classad.expr import AttrRef, Binary, Expr, Literal, Parens

#: Who has a slot: first whoever already waits to preempt it (PRE-06), then its user.
USER_NAMES: Final = ("PreemptingAccountingGroup", "PreemptingUser", "AccountingGroup", "RemoteUser")
#: Who is charged for it.
CHARGED_NAMES: Final = USER_NAMES[2:]

#: Levels of the reason in the order of the match list, higher is better (NEG-21).
FREE, BY_RANK, BY_PRIORITY = 2.0, 1.0, 0.0

_IDLE: Final = parse_expr('MY.Activity == "Idle"')
_RETIRING: Final = parse_expr("MY.RetirementTimeRemaining > 0")
_DYNAMIC: Final = parse_expr("MY.DynamicSlot =?= true")
_CURRENT_RANK: Final = AttrRef("CurrentRank", MY)
_BOOLEAN_OPS: Final = frozenset(("&&", "||", "==", "!=", "<", "<=", ">", ">=", "=?=", "=!="))


@dataclass(frozen=True, slots=True)
class Users:
    """Who has which slot: `user` is (n,) int32, an index into `names`; -1: nobody."""

    names: list[str]
    user: NDArray[np.int32]


def users_of(frame: Frame, attributes: Sequence[str] = USER_NAMES) -> Users:
    """Of every slot, claimed or not; the first of these attributes that is a text says so."""
    frame.want(name.lower() for name in attributes)
    codes = np.full(len(frame), -1, np.int64)
    for name in reversed(attributes):
        column = frame.columns[name.lower()]
        codes = np.where(column.tag == STRING, column.code, codes)
        for row in np.flatnonzero(column.tag == OTHER).tolist():
            value = frame.ad(row).eval(name)
            if isinstance(value, str):
                codes[row] = frame.codes.text(value)
    distinct, user = np.unique(codes, return_inverse=True)
    names = [frame.codes.texts[code] if code >= 0 else "" for code in distinct.tolist()]
    return Users(names, np.where(np.array([not name for name in names], np.bool_)[user], -1, user).astype(np.int32))


def is_boolean_true(expr: Expr) -> Expr:
    """A condition that only TRUE satisfies, no number (PRE-03)."""
    inner = expr
    while isinstance(inner, Parens):
        inner = inner.inner
    if isinstance(inner, Binary) and inner.op in _BOOLEAN_OPS:
        return expr
    return Binary("=?=", Parens(expr), Literal(True))


@dataclass(slots=True)
class Preemption:
    """The claimed slots of a cycle. eup: (n,) of who has the slot. spared: by a word for the reasons, claimed slots
    that are not looked at; parts: dynamic slots that may be preempted for their machine (emptying.py). choosy: whether
    the RANK of a slot that somebody uses may prefer some job to his."""

    board: Board
    config: CycleConfig
    users: Users
    eup: Floats
    current_rank: Floats
    requirements: Expr | None
    spared: list[tuple[str, Bools]]
    parts: Bools
    choosy: bool

    @classmethod
    def of(cls, board: Board, config: CycleConfig, users: Users, eups: list[float]) -> Preemption:
        """Takes what is spared out of `board.held`."""
        matching = board.matching
        current_rank = matching.values(_CURRENT_RANK)
        choosy = bool(np.any(board.held & ~_is_content(board, current_rank)))
        spared = [("idle", matching.mask(_IDLE) & board.claimed)]  # NEG-19
        if not config.consider_early_preemption:
            spared.append(("retirement", matching.mask(_RETIRING) & board.claimed))  # PRE-08
        spared.append(("nobody", board.claimed & (users.user < 0)))
        parts = np.zeros(board.size, np.bool_)
        if config.allow_pslot_preemption:
            dynamic = matching.mask(_DYNAMIC) & board.claimed
            parts = board.held & ~matching.mask(_RETIRING)  # PRE-14
            for _, rows in spared:
                parts &= ~rows
            spared.append(("part-of-machine", dynamic))  # PRE-15
        for _, rows in spared:
            board.held &= ~rows
        requirements = config.preemption_requirements
        if isinstance(requirements, Literal) and requirements.value is not True:
            requirements = None
        return cls(
            board=board,
            config=config,
            users=users,
            eup=np.array([*eups, np.inf])[users.user],
            current_rank=current_rank,
            requirements=None if requirements is None else is_boolean_true(requirements),
            spared=spared,
            parts=parts,
            choosy=choosy,
        )

    def is_idle(self) -> bool:
        """Whether no job at all can be offered a slot: preemption by priority is off, and the RANK of every held slot
        is a plain number that its job satisfies already."""
        if self.requirements is not None:
            return False
        return not self.choosy or bool(np.all(~self.board.held | _is_content(self.board, self.current_rank)))

    def offers(self, job: ClassAd, submitter: str, eup: float, suits: Bools) -> tuple[Bools, Bools]:
        """(n,) bool each: slots that the job may have as their RANK prefers it (PRE-01), and by priority (PRE-02).
        suits: where job and slot match."""
        return self.preferred(job, submitter, eup, suits & self.board.held)

    def preferred(self, job: ClassAd, submitter: str, eup: float, held: Bools) -> tuple[Bools, Bools]:
        """The same of these rows, whether they match or not."""
        if not held.any():
            return held, held
        rank = self.board.matching.row_rank(job)
        by_rank = held & (rank > self.current_rank)
        if self.requirements is None:
            return by_rank, np.zeros(len(held), np.bool_)
        by_priority = held & (rank == self.current_rank) & (self.eup > eup)  # not below, and not above either
        if submitter in self.users.names:
            by_priority &= self.users.user != self.users.names.index(submitter)
        if by_priority.any():
            by_priority &= self.board.matching.mask(self.requirements, job)
        return by_rank, by_priority


def _is_content(board: Board, current_rank: Floats) -> Bools:
    """(n,) bool: where RANK is a plain number that the slot's job satisfies already, so that it prefers no other."""
    board.frame.want(("rank",))
    rank = board.frame.columns["rank"]
    number = np.isin(rank.tag, (INT, REAL))
    content: Bools = (number | (rank.tag == ABSENT)) & (np.where(number, rank.number, 0.0) <= current_rank)
    return content
