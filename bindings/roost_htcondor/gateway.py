"""The way to the pool's gateway, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from roost.client import Client
from roost_htcondor.ad_values import ClassAdParseError
from roost_htcondor.class_ad import ClassAd, ExprTree
from shared.classad import ParseError, parse_expr, unparse
from shared.errors import RoostError

#: Of ads that `Collector.locate` gives: the gateway of a pool that the program has named.
POOL = "RoostGateway"
#: Tokens of pools that this program has started, by the addresses of their gateways.
TOKENS: dict[str, str] = {}


class HTCondorException(Exception):
    """The pool said no, can not be reached, or does not have what was asked for."""


class SecurityContext:
    """A token to ask with, in place of the environment's."""

    preferred_token: str | None = None

    def __init__(self, token: str | None = None) -> None:
        self.preferred_token = token


class Remote:
    """A daemon that is asked over the gateway. location: its ad from `Collector.locate`; None: the pool's own."""

    #: Of what class the ads are that it gives.
    _ad: type[ClassAd] = ClassAd

    def __init__(self, location: ClassAd | None = None) -> None:
        if location is not None and not isinstance(location, ClassAd):
            raise TypeError("a location is None or a ClassAd, such as Collector().locate gives")
        self._name = "" if location is None else str(location.get("Name", ""))
        self._pool: str | None = None if location is None else location.get(POOL)
        if location is not None and not self._name:
            raise HTCondorException("the location has no Name: take an ad of Collector().locate or locateAll")

    def _gateway(self) -> Any:
        return gateway(self._pool)


@contextmanager
def gateway(pool: str | None = None, security: SecurityContext | None = None) -> Iterator[Client]:
    """A connection. Whatever goes wrong in Roost is a HTCondorException."""
    token = security.preferred_token if security is not None else TOKENS.get(pool or "")
    try:
        with Client(pool, token) as client:
            yield client
    except (RoostError, TimeoutError, OSError) as error:
        raise HTCondorException(str(error)) from error


#: MyType of a daemon's ad -> its subsystem.
_SUBSYSTEMS = {
    "Scheduler": "SCHEDD",
    "Machine": "STARTD",
    "StartD": "STARTD",
    "Negotiator": "NEGOTIATOR",
    "Collector": "COLLECTOR",
    "HAD": "HAD",
    "Defrag": "DEFRAG",
}


def subsystems_of(location: ClassAd) -> list[str]:
    """Of which kind the daemon of an ad is. Raises HTCondorException: an order must not go to others of its name."""
    kind = str(location.get("MyType", ""))
    if kind not in _SUBSYSTEMS:
        raise HTCondorException(f"the location is of no kind of daemon that takes orders (MyType {kind!r})")
    return [_SUBSYSTEMS[kind]]


def constraint_of(constraint: object) -> str:
    """A constraint as the gateway takes it. Raises ClassAdException for a text that is no expression."""
    if constraint is None or constraint == "":
        return ""
    if isinstance(constraint, ExprTree):
        return unparse(constraint._expr, "old")
    if not isinstance(constraint, str):
        raise TypeError(f"a constraint is a str or an ExprTree, not {constraint!r}")
    try:
        parse_expr(constraint, "old")
    except ParseError as error:
        raise ClassAdParseError(f"The constraint is no expression: {error}") from None
    return constraint


def refuse(what: str, instead: str) -> NoReturn:
    """Raise what a program is told that asks for what Roost does not have."""
    raise HTCondorException(f"{what} is not in Roost: {instead}")


def refused(what: str, instead: str) -> Callable[..., NoReturn]:
    """A method that is refused, whatever it is given."""

    def method(*_: Any, **__: Any) -> NoReturn:
        refuse(what, instead)

    method.__doc__ = f"Refused: {instead}."
    method.__name__ = what.rpartition(".")[2]
    return method
