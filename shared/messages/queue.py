"""What the gateway asks a schedd (inbox `schedd.<name>`). The gateway has authenticated `user`; the schedd takes the
owner from there and never from the ad."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from shared.compression import LARGEST
from shared.messages.base import Large, Message, message
from shared.messages.events import JobRange


@message
class SubmitJobs(Large):
    """One cluster: attributes common to all procs in `cluster_ad`, what differs in one small ad a proc. Committed
    before it is answered. `submit_id` makes a repeated submit (after a lost answer) the same submit."""

    type: ClassVar[str] = "queue.submit"
    most_bytes: ClassVar[int] = LARGEST
    durable: ClassVar[bool] = True
    user: str  # "alice@pool": authenticated
    submit_id: str
    cluster_ad: bytes
    procs: list[bytes]  # packed; ProcId is given by position (after earlier parts of the same submit)
    spool: bool = False  # input files come over HTTP: jobs wait on hold (code 16) until they are there
    more: bool = False  # further parts with the same submit_id follow; nothing is visible before the last
    part: int | None = None  # 0, 1, 2, ...: tells a part that is sent again from the next one


@message
class Submitted(Message):
    type: ClassVar[str] = "queue.submitted"
    cluster: int
    first_proc: int
    count: int
    upload_url: str = ""  # where to put the input sandboxes when spooling
    upload_token: str = ""


@message
class ImportJobs(Large):
    """Jobs of one cluster of another access point's queue (`roost import queue`), all or none, with what happened to
    them there. Jobs that came before, by `origin` and number, do not come again."""

    type: ClassVar[str] = "queue.import"
    most_bytes: ClassVar[int] = LARGEST
    durable: ClassVar[bool] = True
    user: str  # "alice@pool": whose jobs they are
    origin: str  # names the cluster for good: access point, number and time
    cluster: int  # its number there, which it keeps where that is free
    cluster_ad: bytes
    numbers: list[int]  # ProcId of each of `procs`, growing
    procs: list[bytes]  # packed; JobStatus 5 is on hold, anything else idle
    spool: bool = False  # as in SubmitJobs
    dry_run: bool = False  # only say what would become of them


@message
class JobsImported(Large):
    type: ClassVar[str] = "queue.imported"
    cluster: int  # its number here; 0: in a dry run, the next one
    known: list[int] = []  # jobs that had come before
    direct: bool = False  # whether jobs of this user use their files where they lie


@message
class QueryJobs(Message):
    """Job ads in (cluster, proc) order, page by page. newest: the other way round, as in the history always."""

    type: ClassVar[str] = "queue.query"
    constraint: str = ""
    projection: list[str] = []
    ids: list[str] = []  # "12" or "12.3"; empty: all
    limit: int = 0
    after: str = ""
    history: bool = False  # jobs that left the queue, newest first
    epochs: bool = False  # instead of jobs the runs that are over, of jobs in the queue too, newest first
    newest: bool = False
    columns: bool = False  # with a projection the page may be in columns, see JobPage
    factories: bool = False  # instead of jobs the clusters that come into the queue some at a time, without ProcId
    user: str = ""  # who asks: sees all of own jobs, and of others' nothing private; empty: nobody in particular
    admin: bool = False  # sees all of everybody's jobs
    #: In columns and in place of each job: one line for those of a cluster that have the same of these attributes, with
    #: what the first of them has, and how many they are (ALIKE). `after` is the number of a cluster then. Of HoldReason
    #: texts that differ in numbers and paths only are the same.
    by: list[str] = []
    reasons: bool = False  # also `reasons` of the page, which is of ads then


#: Jobs that a line stands for, see QueryJobs.by.
ALIKE: Final = "RoostAlike"


@message
class JobPage(Large):
    """columns: in place of `ads` pages of so many rows in all as shared.classad.column_page has them, one behind the
    other, where that was asked for."""

    type: ClassVar[str] = "queue.page"
    ads: list[bytes]
    next: str = ""
    totals: dict[str, int] = {}  # by JobStatus name, over the whole queue
    scheduler_totals: dict[str, int] = {}  # of them those of the scheduler universe; none: there are none, or it is old
    columns: bytes = b""
    rows: int = 0
    #: Why idle jobs of this page wait that do not say, by AutoClusterId: of jobs that are alike the first was told.
    reasons: dict[str, str] = {}


@message
class ActOnJobs(Message):
    """remove, hold, release, vacate, suspend, continue, or edit jobs chosen by id or constraint.

    after, limit: only jobs that come after this one, and at most so many (0: all). Who acts on many asks part by part:
    one answer about 100,000 jobs would keep everybody waiting.
    """

    type: ClassVar[str] = "queue.act"
    durable: ClassVar[bool] = True
    user: str
    admin: bool = False  # may act on everybody's jobs
    action: Literal["remove", "remove-force", "hold", "release", "vacate", "vacate-fast", "suspend", "continue", "edit"]
    ids: list[str] = []
    constraint: str = ""
    reason: str = ""
    edits: bytes = b""  # packed ad, for "edit"
    after: str = ""
    limit: int = 0
    ranges: bool = False  # the answer may tell of many jobs by ranges


@message
class Acted(Large):
    """What became of each job asked for: done, not-found, denied, already, or wrong-state. next: ask for what comes
    after this job; empty: that was all. ranges: where they were asked for, (cluster, first proc, last proc) of jobs
    that are not in `results`, by what became of them."""

    type: ClassVar[str] = "queue.acted"
    results: dict[str, str]
    next: str = ""
    ranges: dict[str, list[JobRange]] = {}


@message
class FetchFiles(Message):
    """Where to get the output of a spooled job (`roost transfer-data`), or, with `log`, the log of any job; with
    `credentials`, where the user's credentials are kept: job_id is empty then."""

    type: ClassVar[str] = "queue.fetch-files"
    user: str
    admin: bool = False
    job_id: str
    log: bool = False
    credentials: bool = False


@message
class FileAccess(Message):
    type: ClassVar[str] = "queue.file-access"
    url: str
    token: str


@message
class DescribeSchedd(Message):
    """Asks a schedd what a client must know before submitting."""

    type: ClassVar[str] = "queue.describe"


@message
class ScheddDescription(Message):
    type: ClassVar[str] = "queue.description"
    name: str
    host_id: str  # equal to the client's own: both see the same file system (boot id and root inode)
    uid: int  # files are read and written directly only for this user; everybody else spools
    release: str  # Roost version
    mail_problem: str = ""  # why no mail about jobs can be sent (notification); empty: it can
