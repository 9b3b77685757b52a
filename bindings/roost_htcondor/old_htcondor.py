"""What the older module htcondor has otherwise than htcondor2: ads of the module classad, and names that have gone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from roost_htcondor import collector, credd, gateway, job_events, negotiator, personal, schedd, startd, submit
from roost_htcondor.class_ad import ExprTree
from roost_htcondor.constants import JobAction, QueryOpt
from roost_htcondor.gateway import HTCondorException, refused
from roost_htcondor.old_class_ad import ClassAd
from roost_htcondor.schedd import SubmitResult

JobEventLog = job_events.JobEventLog


class HTCondorIOError(HTCondorException, OSError):
    """A daemon can not be reached."""


class HTCondorValueError(HTCondorException, ValueError):
    """A value can not be what is wanted of it."""


class HTCondorTypeError(HTCondorException, TypeError):
    """A value of another type is wanted."""


class HTCondorEnumError(HTCondorException):
    """A constant of another kind is wanted."""


class HTCondorInternalError(HTCondorException):
    """Roost's mistake."""


class HTCondorLocateError(HTCondorException):
    """There is no such daemon."""


class HTCondorReplyError(HTCondorException):
    """A daemon said no."""


_SUBMIT = "Schedd.submit queues all jobs of a description, or none"


class Transaction:
    """Jobs that are queued inside of the block. Each description's are there at once; where the block ends with an
    exception, all of them are removed."""

    def __init__(self, schedd: Schedd) -> None:
        self._schedd = schedd
        self._clusters: list[int] = []

    def submit(self, description: submit.Submit, count: int, itemdata: Iterable[Any] | None) -> SubmitResult:
        found = self._schedd.submit(description, count, itemdata=itemdata)
        self._clusters.append(found.cluster())
        return found

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._clusters:
            names = [str(cluster) for cluster in self._clusters]
            self._schedd.act(JobAction.Remove, names, "the transaction failed")


class Submit(submit.Submit):
    """As htcondor2's, and `queue` and `queue_with_itemdata`."""

    _ad = ClassAd

    def queue(self, txn: Transaction, count: int = 0, ad_results: None = None) -> int:
        """Queue the jobs inside of a transaction: the cluster's number. ad_results: refused."""
        if ad_results is not None:
            gateway.refuse("ad_results", "Submit.jobs gives the ads")
        return txn.submit(self, count, None).cluster()

    def queue_with_itemdata(
        self, txn: Transaction, count: int = 1, itemdata: Iterable[Any] | None = None
    ) -> SubmitResult:
        """Queue jobs for each item inside of a transaction."""
        return txn.submit(self, count, itemdata)

    oauth_services = refused("Submit.oauth_services", 'submit["use_oauth_services"] has them')


class Schedd(schedd.Schedd):
    """As htcondor2's, with `xquery` and `transaction`."""

    _ad = ClassAd

    def xquery(
        self,
        constraint: str | ExprTree = "True",
        projection: Sequence[str] = (),
        limit: int = -1,
        opts: Any = QueryOpt.Default,
        name: str | None = None,
    ) -> Iterator[ClassAd]:
        """Jobs in the queue, one after the other. name: refused."""
        if name:
            gateway.refuse("a name of a query", "ask one access point after the other")
        yield from self.query(constraint, projection, None, limit, opts)  # type: ignore[misc]

    def transaction(self, flags: int = 0, continue_txn: bool = False) -> Transaction:
        """A block for Submit.queue. Both arguments are refused."""
        if flags or continue_txn:
            gateway.refuse("transaction with arguments", "every job is queued durably, and blocks are not nested")
        return Transaction(self)

    submitMany = refused("Schedd.submitMany", f"{_SUBMIT}; it takes itemdata")
    edit_multiple = refused("Schedd.edit_multiple", "call edit for each attribute")
    negotiate = refused("Schedd.negotiate", "negotiators and access points speak over the bus")
    insert_jobs = refused("Schedd.insert_jobs", "`roost import-pool` takes in another pool's queue")
    query_users = refused("Schedd.query_users", "Negotiator().getPriorities has the users")
    enable_users = refused("Schedd.enable_users", "an access point keeps no records of users")
    disable_users = enable_users_matching = disable_users_matching = enable_users


class Collector(collector.Collector):
    """As htcondor2's."""

    _ad = ClassAd


class Negotiator(negotiator.Negotiator):
    """As htcondor2's."""

    _ad = ClassAd


class Startd(startd.Startd):
    """As htcondor2's."""

    _ad = ClassAd


class Credd(credd.Credd):
    """As htcondor2's."""

    _ad = ClassAd


class PersonalPool(personal.PersonalPool):
    """As htcondor2's."""

    _schedd = Schedd
    _collector = Collector
