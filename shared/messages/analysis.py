"""What people ask the active negotiator about jobs that do not run (inbox `negotiator`); reports are made by
engine.analyze."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from shared.messages.base import Large, Part, message
from shared.messages.wire import MOST_OF_ANSWERS

#: In one question; who asks about more asks again.
MOST_JOBS = 50


class JobInQuestion(Part):
    """A job and the schedd that has it. `also`: so many further jobs are like it."""

    ad: bytes  # packed
    schedd: str = ""  # inbox; "": not known
    also: int = 0


@message
class Analyze(Large):
    """Why do these jobs not run; or, without jobs, what would this slot take of what waits?"""

    type: ClassVar[str] = "negotiation.analyze"
    jobs: list[JobInQuestion] = Field(default=[], max_length=MOST_JOBS)
    machine: str = Field(default="", max_length=1000)  # only this slot, or the slots of this machine
    negotiator: str = ""  # which one, where there are several


@message
class Analysis(Large):
    """A report for each job asked about, in order, or for each slot: JobReport and SlotReport of engine.analyze as
    maps."""

    type: ClassVar[str] = "negotiation.analysis"
    most_entries: ClassVar[int] = MOST_OF_ANSWERS
    most_values: ClassVar[int] = MOST_OF_ANSWERS
    jobs: list[dict[str, Any]] = []
    slots: list[dict[str, Any]] = []
