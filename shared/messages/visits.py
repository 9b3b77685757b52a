"""Visits to running jobs: a program in the job's surroundings (`roost exec`), or a look at its files (`roost tail`).

The gateway asks the job's schedd, which knows whose job it is and passes the wish on to the startd that runs it; the
startd answers with the name of the visit, a secret. From then on the gateway and the startd talk alone, at the inbox
`startd.<name>/visits`. Every request may be repeated: output is kept until the next question confirms it, input that
came already is passed over, by its place in the stream.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from shared.messages.base import Message, Part, message

#: Of output in one answer, and of input in one request, bytes.
MAX_CHUNK = 256 * 1024
#: Words of a command, and bytes of all of them.
MAX_WORDS, MAX_COMMAND = 10_000, 128 * 1024
#: The longest time that a question for output waits for some, seconds.
MAX_WAIT_S = 15.0

Side = Annotated[int, Field(ge=0, le=65535)]


class Wish(Part):
    """What a visitor wants."""

    kind: Literal["run", "tail"]
    # run:
    command: list[str] = Field(default=[], max_length=MAX_WORDS)  # empty: a shell
    tty: bool = False
    rows: Side = 0  # of the terminal, from the first moment; 0: not known
    columns: Side = 0
    term: str = Field(default="", max_length=100)  # TERM
    # tail:
    file: str = Field(default="", max_length=4096)  # in the scratch directory; empty: the stream
    stream: Literal["stdout", "stderr"] = "stdout"
    follow: bool = False  # until the job ends
    max_bytes: int = Field(default=1024, ge=-1, le=2**53)  # of what is there already; -1: all


@message
class VisitJob(Message):
    """Asks a schedd to let a user visit a running job."""

    type: ClassVar[str] = "visit.job"
    user: str
    admin: bool = False
    job_id: str
    wish: Wish


@message
class StartVisit(Message):
    """Tells the startd whom to let in. The schedd has seen whose job it is."""

    type: ClassVar[str] = "visit.start"
    claim_id: str
    job_id: str
    attempt: int
    user: str
    wish: Wish


@message
class VisitStarted(Message):
    """Answer to both. Whoever names the visit may talk to it, if it is the same user."""

    type: ClassVar[str] = "visit.started"
    startd: str
    visit: str


@message
class ReadVisit(Message):
    """What has it printed? Confirms all output up to `after`. Answered when there is some, at its end, or after
    `wait_s`. A visit that nobody asks for a minute is ended."""

    type: ClassVar[str] = "visit.read"
    visit: str
    user: str
    after: int = Field(default=0, ge=0)  # bytes of output
    wait_s: float = Field(default=MAX_WAIT_S, ge=0.0, le=MAX_WAIT_S)


class Printed(Part):
    kind: Literal["out", "err"]
    data: bytes


@message
class VisitOutput(Message):
    type: ClassVar[str] = "visit.output"
    start: int = 0  # place of the first byte
    parts: list[Printed] = []
    ended: bool = False  # after these parts nothing comes
    exit_code: int | None = None
    exit_signal: int | None = None
    reason: str = ""  # why it ended, where not by itself


@message
class WriteVisit(Message):
    """Input for the visitor's program; `start` is the place of the first byte. Answered when room was found, or not."""

    type: ClassVar[str] = "visit.write"
    visit: str
    user: str
    start: int = Field(ge=0)
    data: bytes = Field(default=b"", max_length=MAX_CHUNK)
    eof: bool = False  # nothing comes after it


@message
class VisitInput(Message):
    type: ClassVar[str] = "visit.input"
    taken: int  # bytes in all; less than was sent: send the rest again
    ended: bool = False  # nobody reads on


@message
class SteerVisit(Message):
    """The window has another size; a signal for the program; or the visitor leaves."""

    type: ClassVar[str] = "visit.steer"
    visit: str
    user: str
    rows: Side = 0
    columns: Side = 0
    signal: int = Field(default=0, ge=0, le=64)
    leave: bool = False
