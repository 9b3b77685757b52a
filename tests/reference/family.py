"""What a family of comparisons is made of."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

#: What can go to another process as JSON.
Case = dict[str, Any]
#: Question -> answer.
Facts = dict[str, Any]
#: The answer of a side that refuses the case as a whole.
REFUSED = "refused"


class Asked(Protocol):
    """Who is asked for the reference's answers."""

    def ask(self, case: Case) -> Facts | None:
        """Its answers; None where it gives none. What it went by, such as the time, it may write down in the case."""


@dataclass(frozen=True)
class Family:
    """make: a case, from dice. ours: our answers; the reference's are in `asked`, under the same name. known: why an
    answer may differ, or "" where it may not: (case, question, ours, the reference's). cause: differences of one cause
    have one text; the question, unless a family knows better. paired: what of both sides' answers is compared.
    reference: who is asked, where that is not HTCondor's library (`asked`). recorded: cases with the reference's
    answers of once, for where it can not be asked, or for a family whose cases nobody makes up."""

    name: str
    make: Callable[[random.Random], Case] | None
    ours: Callable[[Case], Facts]
    known: Callable[[Case, str, Any, Any], str] = lambda case, question, ours, theirs: ""
    cause: Callable[[str, Any, Any], str] = lambda question, ours, theirs: question
    paired: Callable[[Facts, Facts], tuple[Facts, Facts]] = lambda ours, theirs: (ours, theirs)
    recorded: Callable[[], Iterable[tuple[Case, Facts]]] | None = None
    reference: Callable[[], AbstractContextManager[Asked]] | None = None


@dataclass(frozen=True)
class Difference:
    case: Case
    question: str
    ours: Any
    theirs: Any


@dataclass
class Tally:
    """What comparing gave. questions: those that neither side left out; agreed: answered alike."""

    cases: int = 0
    agreed_cases: int = 0
    questions: int = 0
    agreed: int = 0
    unanswered: int = 0  # cases at which the reference ended or did not come back
    known: dict[str, int] = field(default_factory=dict)
    differences: dict[str, list[Difference]] = field(default_factory=dict)

    def take(self, family: Family, case: Case, ours: Facts, theirs: Facts) -> None:
        """Compare the answers to one case."""
        whole = True
        if (REFUSED in ours) != (REFUSED in theirs):  # one question: every other would be without an answer
            ours, theirs = {REFUSED: ours.get(REFUSED)}, {REFUSED: theirs.get(REFUSED)}
        elif REFUSED in ours:  # with a text of its own
            ours, theirs = {REFUSED: True}, {REFUSED: True}
        else:
            ours, theirs = family.paired(ours, theirs)
        for question in [*theirs, *(name for name in ours if name not in theirs)]:
            mine, other = ours.get(question), theirs.get(question)
            if mine != other and (why := family.known(case, question, mine, other)):
                self.known[why] = self.known.get(why, 0) + 1
                continue
            self.questions += 1
            if mine == other:
                self.agreed += 1
                continue
            whole = False
            found = self.differences.setdefault(family.cause(question, mine, other), [])
            found.append(Difference(case, question, mine, other))
        self.cases += 1
        self.agreed_cases += whole

    def counts(self) -> Mapping[str, float]:
        """As they are published."""
        return {
            "cases": self.cases,
            "agreed_cases": self.agreed_cases,
            "questions": self.questions,
            "agreed": self.agreed,
            "percent": round(100 * self.agreed / self.questions, 3) if self.questions else 0.0,
            "unanswered": self.unanswered,
        }
