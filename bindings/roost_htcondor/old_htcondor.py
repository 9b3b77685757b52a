"""What the older module htcondor has otherwise than htcondor2: ads of the module classad, and names that have gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from roost_htcondor import collector, credd, gateway, job_events, negotiator, schedd, startd, submit
from roost_htcondor.class_ad import ExprTree
from roost_htcondor.constants import QueryOpt
from roost_htcondor.gateway import HTCondorException, refused
from roost_htcondor.old_class_ad import ClassAd

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


_TRANSACTION = "Schedd.submit queues all jobs of a description, or none"


class Submit(submit.Submit):
    """As htcondor2's."""

    _ad = ClassAd
    queue = refused("Submit.queue", _TRANSACTION)
    queue_with_itemdata = refused("Submit.queue_with_itemdata", f"{_TRANSACTION}; it takes itemdata")
    oauth_services = refused("Submit.oauth_services", 'submit["use_oauth_services"] has them')


class Schedd(schedd.Schedd):
    """As htcondor2's, and `xquery`."""

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

    transaction = refused("Schedd.transaction", _TRANSACTION)
    submitMany = refused("Schedd.submitMany", f"{_TRANSACTION}; it takes itemdata")
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
