"""Whose a metric is: its machine, address and cluster (spec rows MON-10 to MON-12)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from services.monitor.definitions import MACHINE
from shared.classad import ClassAd, Expr, ParseError, evaluate, parse_expr
from shared.classad.expr import AttrRef, fold, walk

#: What is read of an ad to know whose it is (folded).
ATTRIBUTES: Final = ("name", "machine", "myaddress")
#: HTCondor's addresses: <10.0.0.5:9618?addrs=...>, <[fd00::1]:9618>.
_SINFUL: Final = re.compile(r"<(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)):[0-9]+")


@dataclass(frozen=True, slots=True)
class Default:
    """GANGLIAD_DEFAULT_MACHINE and its like: an expression that is evaluated in the ad, or just the text."""

    text: str = ""
    expr: Expr | None = None

    @staticmethod
    def of(text: str | None) -> Default:
        try:
            return Default(text or "", parse_expr(text) if text else None)
        except ParseError:
            return Default(text or "")

    def reads(self) -> frozenset[str]:
        """The attributes (folded) that it names."""
        if self.expr is None:
            return frozenset()
        return frozenset(node.key for node in walk(self.expr) if isinstance(node, AttrRef))

    def of_ad(self, ad: ClassAd) -> str:
        """ "" where there is no default. A text that has no value as an expression is itself: `my-pool`."""
        if self.expr is None:
            return self.text
        value = evaluate(self.expr, ad)
        return value if isinstance(value, str) else self.text


@dataclass(slots=True)
class Owners:
    """See the module. collector: the host of the collector, which sums belong to; its address may be ""."""

    collector: str
    collector_ip: str = ""
    default_machine: Default = field(default_factory=Default)
    default_ip: Default = field(default_factory=Default)
    default_cluster: Default = field(default_factory=Default)

    def reads(self) -> frozenset[str]:
        """The attributes (folded) that are read of every ad."""
        defaults = (self.default_machine, self.default_ip, self.default_cluster)
        return frozenset(ATTRIBUTES).union(*(one.reads() for one in defaults))

    def of_collector(self) -> tuple[str, str]:
        return self.collector, self.collector_ip

    def of_ad(self, my_type: str, ad: ClassAd) -> tuple[str, str]:
        """(machine, address) of a metric of this ad that names none."""
        machine = self.default_machine.of_ad(ad) or machine_of(my_type, ad)
        return machine, self.ip_of(machine, ad)

    def ip_of(self, machine: str, ad: ClassAd) -> str:
        """The address that goes with a machine: the machine itself where it is one daemon of several, since one address
        is one host to Ganglia; "" where the ad tells none."""
        if default := self.default_ip.of_ad(ad):
            return default
        return machine if "@" in machine else ip_in(ad.eval_string("MyAddress"))

    def cluster(self, ad: ClassAd) -> str:
        return self.default_cluster.of_ad(ad)


def machine_of(my_type: str, ad: ClassAd) -> str:
    """The ad's Machine; the daemon's name where that is name@host, as several of its kind may be there. Slots have
    names of that form always: what counts is the name of their startd, behind the first @."""
    name = ad.eval_string("Name")
    if fold(my_type) in (MACHINE, "slot"):
        name = name.partition("@")[2]
    if "@" in name:
        return name
    return ad.eval_string("Machine") or name


def ip_in(address: str) -> str:
    """The address in an ad's MyAddress, as HTCondor writes it; "" where there is none, as in `schedd.node1`."""
    found = _SINFUL.match(address)
    return (found[1] or found[2]) if found else ""
