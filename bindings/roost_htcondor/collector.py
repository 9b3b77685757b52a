"""Collector: the ads of a pool."""

from __future__ import annotations

from collections.abc import Sequence

from roost_htcondor.class_ad import ClassAd, ExprTree
from roost_htcondor.constants import MY_TYPES, AdType, DaemonType
from roost_htcondor.gateway import POOL, HTCondorException, SecurityContext, constraint_of, gateway, refuse
from shared.classad import unparse

_OF_DAEMONS = {
    DaemonType.Any: AdType.Any,
    DaemonType.Master: AdType.Master,
    DaemonType.Schedd: AdType.Schedd,
    DaemonType.Startd: AdType.Startd,
    DaemonType.Collector: AdType.Collector,
    DaemonType.Negotiator: AdType.Negotiator,
    DaemonType.Credd: AdType.Credd,
    DaemonType.HAD: AdType.HAD,
    DaemonType.Generic: AdType.Generic,
}
_LOCATION = ("MyType", "Name", "Machine", "MyAddress", "AddressV1", "CondorVersion", "CondorPlatform")


class Collector:
    """The pool's ads, over its gateway. pool: the gateway's address, host[:port] or URL; None: what ROOST_URL names, or
    the pool of this machine."""

    _ad: type[ClassAd] = ClassAd

    def __init__(
        self,
        pool: str | ClassAd | Sequence[str] | None = None,
        security: SecurityContext | None = None,
    ) -> None:
        if isinstance(pool, ClassAd):
            pool = pool.get(POOL)
        elif pool is not None and not isinstance(pool, str):
            pool = ",".join(pool)
        self._pool: str | None = pool or None
        self._security = security

    def query(
        self,
        ad_type: AdType = AdType.Any,
        constraint: str | ExprTree | None = None,
        projection: Sequence[str] | None = None,
        statistics: str | None = None,
    ) -> list[ClassAd]:
        """Ads of a kind. projection: only these attributes of each. Raises HTCondorException."""
        if statistics:
            refuse("statistics of a query", "ads have what STATISTICS_TO_PUBLISH of their daemon names")
        kind = AdType(ad_type)
        if kind is not AdType.Any and kind not in MY_TYPES:
            refuse(f"AdType.{kind.name}", "query AdType.Any, with a constraint on MyType")
        types = () if kind is AdType.Any else (MY_TYPES[kind],)
        with gateway(self._pool, self._security) as client:
            found = client.ads(*types, constraint=constraint_of(constraint), projection=tuple(projection or ()))
            return [self._ad._of(ad) for ad in found]

    def directQuery(
        self,
        daemon_type: DaemonType,
        name: str | None = None,
        projection: Sequence[str] | None = None,
        statistics: str | None = None,
    ) -> ClassAd:
        """The whole ad of a daemon. Roost's daemons are asked over the collector, which has what they said last."""
        found = self.query(self._kind(daemon_type), _named(name), projection, statistics)
        if not found:
            raise HTCondorException(f"no {DaemonType(daemon_type).name}{f' of the name {name}' if name else ''}")
        return found[0]

    def locate(self, daemon_type: DaemonType, name: str | None = None) -> ClassAd:
        """Where a daemon is: what Schedd, Negotiator, Startd and others take. Without a name it is the first; of access
        points the one that the gateway submits to."""
        if name is None and DaemonType(daemon_type) is DaemonType.Schedd:
            with gateway(self._pool, self._security) as client:
                name = str(client.schedd()["name"])
        return self._with_pool(self.directQuery(daemon_type, name, _LOCATION))

    def locateAll(self, daemon_type: DaemonType) -> list[ClassAd]:
        """Where all daemons of a kind are."""
        return [self._with_pool(ad) for ad in self.query(self._kind(daemon_type), projection=_LOCATION)]

    def advertise(self, ad_list: Sequence[ClassAd], command: str = "UPDATE_AD_GENERIC", use_tcp: bool = True) -> None:
        """Refused: the gateway takes no ads."""
        refuse(
            "Collector.advertise",
            "daemons advertise over the bus. Attributes of slots come from STARTD_CRON_JOBLIST, or at run time from "
            "`roost update-machine-ad`",
        )

    def _kind(self, daemon_type: DaemonType) -> AdType:
        kind = _OF_DAEMONS.get(DaemonType(daemon_type))
        if kind is None:
            refuse(f"DaemonType.{DaemonType(daemon_type).name}", "there is no such daemon")
        return kind

    def _with_pool(self, ad: ClassAd) -> ClassAd:
        if self._pool is not None:
            ad[POOL] = self._pool
        return ad


def _named(name: str | None) -> str:
    return "" if name is None else f"Name =?= {unparse(name)} || Machine =?= {unparse(name)}"
