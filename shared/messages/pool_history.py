"""Questions about the pool's history, which collectors with KEEP_POOL_HISTORY keep (docs/pool-history.md). Those of a
pool share the inbox `poolhistory`; each answers in its own as well. Times are seconds since 1970."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from shared.messages.base import Large, Message, message
from shared.messages.wire import MOST_OF_ANSWERS

INBOX: Final = "poolhistory"


@message
class AskPoolHistory(Message):
    """How something stood. `name`: of one slot, machine, platform, submitter or user; "": which names there are."""

    type: ClassVar[str] = "poolhistory.ask"
    kind: Literal["resources", "machines", "platforms", "submitters", "users"]
    name: str = Field(default="", max_length=1000)
    start: float = Field(ge=0, le=1e11, allow_inf_nan=False)
    end: float = Field(ge=0, le=1e11, allow_inf_nan=False)


@message
class PastOfPool(Large):
    """What is known of it, oldest first."""

    type: ClassVar[str] = "poolhistory.answer"
    most_entries: ClassVar[int] = MOST_OF_ANSWERS
    most_values: ClassVar[int] = MOST_OF_ANSWERS
    compressed: ClassVar[bool] = True
    columns: list[str] = []  # what stands in a point behind its time
    every: float = 0.0  # seconds between two points, about
    points: list[list[Any]] = []
    names: list[str] = []
