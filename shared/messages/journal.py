"""What people ask the journal about the past (inbox `journal`). Times are seconds since 1970; 0 where an interval is
open on that side. Every answer is a JournalAnswer, whose `data` docs/journal.md describes question by question."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from shared.messages.base import Large, Message, message
from shared.messages.wire import MOST_OF_ANSWERS

#: The inbox of the journals of a pool; they share the questions.
INBOX: Final = "journal"
#: Rows in one answer, at most.
MOST_ROWS: Final = 1000
#: Points of a series, at most.
MOST_POINTS: Final = 2000
#: Seconds since 1970, of some thousand years before and after.
Moment = Annotated[float, Field(ge=-1e11, le=1e11, allow_inf_nan=False)]


@message
class JournalAnswer(Large):
    """What the journal knows, as JSON has it."""

    type: ClassVar[str] = "journal.answer"
    most_entries: ClassVar[int] = MOST_OF_ANSWERS
    most_values: ClassVar[int] = MOST_OF_ANSWERS
    data: dict[str, Any]


@message
class AskJob(Message):
    """What happened to a job, and what it waited for. `at`: at that moment only."""

    type: ClassVar[str] = "journal.job"
    job_id: str = Field(max_length=100)  # "cluster.proc", or a cluster with one job
    schedd: str = Field(default="", max_length=1000)  # name; "": whichever has a job of that id
    at: Moment = 0.0
    start: Moment = 0.0
    end: Moment = 0.0


@message
class AskUser(Message):
    """Why a submitter's share of the pool is what it is."""

    type: ClassVar[str] = "journal.user"
    submitter: str = Field(max_length=1000)
    start: Moment = 0.0
    end: Moment = 0.0
    points: int = Field(default=200, ge=2, le=MOST_POINTS)


@message
class AskCycles(Message):
    """Cycles, newest first; those before `before`."""

    type: ClassVar[str] = "journal.cycles"
    before: Moment = 0.0
    limit: int = Field(default=50, ge=1, le=MOST_ROWS)


@message
class AskCycle(Message):
    """One cycle, with what it matched and why others waited."""

    type: ClassVar[str] = "journal.cycle"
    negotiator: str = Field(max_length=1000)
    epoch: int
    cycle: int


@message
class AskSeries(Message):
    """Numbers of the pool over time, no more than `points` of them."""

    type: ClassVar[str] = "journal.series"
    name: Literal["slots", "cpus", "jobs", "waits", "shares", "utilisation"]
    start: Moment = 0.0
    end: Moment = 0.0
    points: int = Field(default=200, ge=2, le=MOST_POINTS)


@message
class AskLeaders(Message):
    """Who led, and when it changed, newest first."""

    type: ClassVar[str] = "journal.leaders"
    limit: int = Field(default=50, ge=1, le=MOST_ROWS)


@message
class AskEvents(Message):
    """Recorded events in the order in which they happened, page by page."""

    type: ClassVar[str] = "journal.events"
    types: str = Field(default="", max_length=200)  # a type, or what it begins with: "job.*"; "": any
    job_id: str = Field(default="", max_length=100)
    start: Moment = 0.0
    end: Moment = 0.0
    after: str = Field(default="", max_length=100)  # `next` of the page before
    limit: int = Field(default=100, ge=1, le=MOST_ROWS)


@message
class AskInterval(Message):
    """All that a replay of an interval needs, part by part: see roost/replay. `after`: `next` of the part before."""

    type: ClassVar[str] = "journal.interval"
    start: Moment
    end: Moment
    negotiator: str = Field(default="", max_length=1000)  # its shard (NEGOTIATOR_NAME), where there are several
    after: str = Field(default="", max_length=100)
