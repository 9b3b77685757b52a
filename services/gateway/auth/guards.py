"""Guards of routes: they check the caller against the operations in authorization.NEEDS, and limit how many requests a
caller has under way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import HTTPException
from starlette.requests import HTTPConnection

from services.gateway.admission import AdmissionQueue
from services.gateway.auth.caller import Caller
from services.gateway.core.authorization import Identity, refusal
from services.gateway.core.limits import ConcurrencyLimit, RateLimiter
from shared.daemon.clock import Clock
from shared.operations import NEEDS, Level


def caller_of(connection: HTTPConnection) -> Caller:
    """What RequestMiddleware found out about a request."""
    found: Caller = connection.scope["roost.caller"]
    return found


class Guards:
    """Makes guards. at_once: requests under way by token; streams: answers without an end by user; heavy: answers that
    read much, by user; submits: how often."""

    def __init__(
        self,
        at_once: ConcurrencyLimit,
        streams: ConcurrencyLimit,
        heavy: AdmissionQueue,
        submits: RateLimiter,
        clock: Clock,
    ) -> None:
        self._at_once = at_once
        self._streams = streams
        self._heavy = heavy
        self._submits = submits
        self._clock = clock

    def may(
        self, operation: str, *, endless: bool = False, heavy: bool = False
    ) -> Callable[[HTTPConnection], Awaitable[Identity]]:
        """The guard of a route: `Depends(guards.may("jobs.act"))` lets in who may do that, and gives the identity.

        endless: the answer has no end of its own, so it counts among the caller's streams and not among the requests
        under way. heavy: it may read all that the pool has, so few of these are answered at once, and the others wait
        in line. Raises KeyError, while the gateway is built, for an operation that has no level."""
        refusal(None, operation)

        async def check(connection: HTTPConnection) -> Identity:
            caller = caller_of(connection)
            self.let_in(caller, operation, endless=endless)
            assert caller.identity is not None
            if heavy:
                user = caller.identity.user
                if full := await self._heavy.enter(user):
                    raise too_many_requests(f"too many long answers at once: {full}", 1.0)
                caller.leaving.append(lambda: self._heavy.leave(user))
            return caller.identity

        setattr(check, "operation", operation)  # noqa: B010  for the description of the API
        return check

    def anybody(self, operation: str) -> Callable[[HTTPConnection], Awaitable[Caller]]:
        """The guard of a route that is for whoever comes, as something else is looked at than a token."""
        assert NEEDS[operation] == Level.NONE

        async def check(connection: HTTPConnection) -> Caller:
            caller = caller_of(connection)
            caller.operation = operation
            return caller

        setattr(check, "operation", operation)  # noqa: B010  for the description of the API
        return check

    def begin(self, caller: Caller) -> str:
        """A request has come, of which nothing but its head is read: it has a place among those under way, until
        `caller.left`. Else why not. Who is not known has none: nothing more is read of such a request."""
        if caller.identity is None:
            return ""
        key = caller.key
        full = self._at_once.enter(key)
        if not full:
            caller.place = lambda: self._at_once.leave(key)
        return f"too many answers at once: {full}" if full else ""

    def let_in(self, caller: Caller, operation: str, *, endless: bool = False) -> None:
        """Raises HTTPException 401, 403, 429."""
        caller.operation = operation
        identity = caller.identity
        if identity is None:
            raise unauthenticated(caller)
        if refused := refusal(identity, operation):
            raise HTTPException(403, refused)
        if operation == "jobs.submit" and (wait := self._submits.take(caller.key, self._clock.monotonic())):
            raise too_many_requests("too many submits with this token", wait)
        if endless:
            user = identity.user
            if full := self._streams.enter(user):
                raise too_many_requests(f"too many streams at once: {full}", 1.0)
            caller.leaving.append(lambda: self._streams.leave(user))
            caller.give_place()


def unauthenticated(caller: Caller) -> HTTPException:
    """401, with what is wrong with the token that was sent."""
    return HTTPException(401, caller.why or refusal(None, "pool"), {"WWW-Authenticate": "Bearer"})


def too_many_requests(why: str, wait: float) -> HTTPException:
    """429, with how long to wait."""
    return HTTPException(429, f"{why}; ask again in {max(1, round(wait + 0.5))} s", retry_after(wait))


def retry_after(wait: float) -> dict[str, str]:
    """Whole seconds, as the header has them."""
    return {"Retry-After": str(max(1, int(wait) + (wait > int(wait))))}


def operation_of(call: Any) -> str:
    """The operation that a dependency of a route checks; empty: it is no guard."""
    found = getattr(call, "operation", "")
    return found if isinstance(found, str) else ""
