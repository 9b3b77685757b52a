"""Negotiator: priorities of users."""

from __future__ import annotations

from roost_htcondor.class_ad import ClassAd
from roost_htcondor.gateway import Remote, refuse
from shared.classad import unparse


class Negotiator(Remote):
    """The accountant of a pool. Users are whole names, name@domain. Raises HTCondorException."""

    def getPriorities(self, rollup: bool = False) -> list[ClassAd]:
        """An accounting ad of each user and group. rollup: refused."""
        if rollup:
            refuse("rollup", "the ads of groups have what their users used")
        with self._gateway() as client:
            return [self._ad._of(ad) for ad in client.priorities(self._name)]

    def getResourceUsage(self, user: str) -> list[ClassAd]:
        """The slots that a user has: Name and StartTime of each."""
        name = unparse(user)
        constraint = f"AccountingGroup =?= {name} || (AccountingGroup =?= undefined && RemoteUser =?= {name})"
        projection = ("Name", "EnteredCurrentState", "PartitionableSlot")
        with self._gateway() as client:
            slots = list(client.ads("Machine", constraint=constraint, projection=projection))
        return [
            self._ad({"Name": ad.eval_string("Name"), "StartTime": ad.eval("EnteredCurrentState")})
            for ad in slots
            if ad.eval("PartitionableSlot") is not True
        ]

    def setPriority(self, user: str, priority: float) -> None:
        """Set the real priority."""
        self._set(user, "priority", priority)

    def setFactor(self, user: str, factor: float) -> None:
        """Set the priority factor."""
        self._set(user, "factor", factor)

    def setCeiling(self, user: str, ceiling: float) -> None:
        """Set how many weighted slots a user has at most; a negative number: no bound."""
        self._set(user, "ceiling", ceiling)

    def setUsage(self, user: str, usage: float) -> None:
        """Set the accumulated usage, weighted seconds."""
        self._set(user, "accumulated", usage)

    def setBeginUsage(self, user: str, when: int) -> None:
        """Set since when a user has used something (seconds since 1970)."""
        self._set(user, "begin", when)

    def setLastUsage(self, user: str, when: int) -> None:
        """Set when a user used something last (seconds since 1970)."""
        self._set(user, "last", when)

    def resetUsage(self, user: str) -> None:
        """Set the accumulated usage to zero."""
        self._set(user, "reset", None)

    def resetAllUsage(self) -> None:
        """Set the accumulated usage of everybody to zero."""
        self._set("", "reset-all", None)

    def deleteUser(self, user: str) -> None:
        """Forget a user."""
        self._set(user, "delete", None)

    def _set(self, user: str, what: str, value: float | None) -> None:
        if user and "@" not in user:
            raise ValueError(f"{user} is no whole name of a user: name@domain")
        with self._gateway() as client:
            client.set_priority(user, what, None if value is None else float(value), negotiator=self._name)
