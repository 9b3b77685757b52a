"""Between the active negotiator and the schedds (inbox `schedd.<name>`), and what people ask the negotiator
(inbox `negotiator`, served by the active one only)."""

from __future__ import annotations

from typing import ClassVar

from shared.messages.base import Large, Message, Part, message


@message
class GetRequests(Large):
    """Negotiator asks a schedd for the request lists of some submitters, in job priority order (spec rows NEG-15,
    NEG-29 to NEG-31)."""

    type: ClassVar[str] = "negotiation.get-requests"
    negotiator: str
    epoch: int
    cycle: int
    submitters: list[str]
    shard: str = ""  # NEGOTIATOR_NAME: whose epoch that is
    job_constraint: str = ""  # NEGOTIATOR_JOB_CONSTRAINT
    limit: int = 200  # RESOURCE_REQUEST_LIST_SIZE, for each submitter
    counts: bool = True  # USE_RESOURCE_REQUEST_COUNTS; False: each job is a request of its own
    significant: list[str] = []  # attributes of jobs that slots and policies look at: they split autoclusters
    skip: dict[str, int] = {}  # submitter -> how many requests of its list were already fetched this cycle


class ResourceRequest(Part):
    """`count` consecutive idle jobs of one autocluster, with the ad that stands for all of them."""

    autocluster: int  # AutoClusterId, this schedd's numbering
    count: int
    ad: bytes  # packed representative job ad
    first_job: str  # "cluster.proc" of the first of them


@message
class RequestList(Large):
    type: ClassVar[str] = "negotiation.requests"
    requests: dict[str, list[ResourceRequest]]  # by submitter, in order
    more: list[str] = []  # submitters whose list goes on


class Match(Part):
    """One slot given to one autocluster of one submitter. The claim id is a secret between the startd, the negotiator
    and this schedd."""

    submitter: str
    autocluster: int
    count: int = 1  # jobs of the autocluster that may be carved from this slot on this match: the share decided so
    slot: str  # Name of the slot
    startd: str  # the startd's inbox, e.g. "startd.node1"
    claim_id: str
    slot_ad: bytes  # packed, public; with NegotiatorMatchExpr* where configured
    preempts: list[str] = []  # names of slots that must empty first: the slot itself, or dynamic ones of this slot
    preempt_claims: list[str] = []  # their claim ids, in the same order; secrets too
    concurrency_limits: str = ""  # what each of the jobs takes of which limit, expressions evaluated (LIM-08)


class Rejection(Part):
    """Why a request got nothing (or less than it asked) in this cycle."""

    submitter: str
    autocluster: int
    code: str  # e.g. "no-slots", "requirements", "share", "ceiling", "quota", "concurrency-limit"
    reason: str


@message
class Matches(Large):
    """Negotiator hands its decisions to a schedd (answer: MatchesTaken, or Failure stale-epoch)."""

    type: ClassVar[str] = "negotiation.matches"
    durable: ClassVar[bool] = True
    negotiator: str
    epoch: int
    cycle: int
    shard: str = ""  # NEGOTIATOR_NAME: whose epoch that is
    matches: list[Match]
    rejections: list[Rejection] = []


@message
class MatchesTaken(Large):
    """What the schedd uses of Matches: it asks the startds for so many jobs, the rest can be offered again at once."""

    type: ClassVar[str] = "negotiation.taken"
    durable: ClassVar[bool] = True
    begun: list[int]  # jobs, for each match in its order


class NoticedSlot(Part):
    """A slot of a MatchNotice. Its claim id proves that the negotiator speaks of the slot as it is now."""

    slot: str
    claim_id: str


@message
class MatchNotice(Large):
    """Negotiator tells a startd which of its slots it has matched, where NEGOTIATOR_INFORM_STARTD asks for that: they
    are Matched until they are claimed, or MATCH_TIMEOUT is over (spec rows NEG-39, STM-06). A slot that is claimed
    already, or partitionable, stays as it is."""

    type: ClassVar[str] = "negotiation.match-notice"
    negotiator: str
    epoch: int
    shard: str = ""  # NEGOTIATOR_NAME: whose epoch that is
    slots: list[NoticedSlot]


@message
class Reschedule(Message):
    """Somebody has idle jobs or free slots now: negotiate soon (published on roost.requests to inbox `negotiator`)."""

    type: ClassVar[str] = "negotiation.reschedule"
    by: str


@message
class GetPriorities(Message):
    """Ask the active negotiator for its accounting ads, page by page (`roost userprio`): groups first, then submitters
    by name."""

    type: ClassVar[str] = "accounting.get"
    negotiator: str = ""  # Name of the negotiator that is meant; another one refuses
    after: str = ""  # `next` of the page before
    limit: int = 1000  # ads, at most
    active_since: float = 0.0  # only submitters who used something since then (s since 1970), and groups
    submitters: list[str] = []  # only these, written in full or without their domain; empty: all


@message
class Priorities(Large):
    """One packed accounting ad (MyType Accounting) for each group and submitter."""

    type: ClassVar[str] = "accounting.table"
    ads: list[bytes]
    next: str = ""  # where the next page begins; empty: there is none


class ImportedAccount(Part):
    """What another pool's accountant knows of a submitter or a group."""

    name: str
    priority: float
    factor: float = 0.0  # 0: none was chosen there
    usage: float = 0.0  # slot-seconds
    weighted_usage: float = 0.0
    begin: float = 0.0  # s since 1970
    last: float = 0.0
    floor: float = 0.0
    ceiling: float = -1.0  # -1: none


@message
class ImportAccounts(Large):
    """Take in whole records of another pool's accountant (`roost import accountant`), all or none."""

    type: ClassVar[str] = "accounting.import"
    durable: ClassVar[bool] = True
    accounts: list[ImportedAccount]
    until: float = 0.0  # when they were charged last (s since 1970): priorities decay from there; 0: now
    replacing: bool = False  # also where there is something here already
    dry_run: bool = False  # only say what would become of them
    negotiator: str = ""  # Name of the negotiator that is meant; another one refuses
    by: str = ""


@message
class AccountsImported(Large):
    """Names by what became, or would become, of them."""

    type: ClassVar[str] = "accounting.imported"
    taken: list[str]
    known: list[str] = []  # here is something of them already, which stays
    usual: list[str] = []  # they say nothing that a new submitter would not have
    left: dict[str, str] = {}  # why they can not be kept


@message
class SetPriority(Message):
    """Change one thing about a submitter (`roost userprio -setfactor ...`), or the quota of a group."""

    type: ClassVar[str] = "accounting.set"
    durable: ClassVar[bool] = True
    submitter: str  # empty for reset-all; of a quota the group
    what: str  # factor, priority, accumulated, begin, last, floor, ceiling, reset, reset-all, delete; of a group: quota
    # (weighted slots), dynamic-quota (a part of the parent's), no-quota (the configuration's again)
    value: float | None = None
    duration_s: float = 0.0  # factor, floor, ceiling: the old value comes back then; 0: never
    negotiator: str = ""  # Name of the negotiator that is meant; another one refuses
    by: str = ""
