"""The caller of the request that is being answered: the token, the identity, the address, and what the audit log shall
tell of the request."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import HTTPConnection

from services.gateway.core.authorization import Identity
from shared.messages.base import Person

#: Longest text, and most items of a list, that are kept of what was asked.
MOST_TEXT: Final = 500
MOST_ITEMS: Final = 20


@dataclass(slots=True)
class Caller:
    """One request. `why`: the reason why there is no identity."""

    request_id: str
    address: str
    identity: Identity | None = None
    why: str = ""
    operation: str = ""
    what: dict[str, Any] = field(default_factory=dict)
    code: str = ""  # of the refusal, with its text
    message: str = ""
    status: int = 0
    #: To be called once the answer is out.
    leaving: list[Callable[[], None]] = field(default_factory=list)
    #: Gives back its place among the requests under way.
    place: Callable[[], None] | None = None
    #: Of a question: what makes its answer. None: it is no question, or answered.
    work: asyncio.Task[Any] | None = None
    gone: bool = False  # it hung up before its answer

    def hang_up(self) -> None:
        """The connection is gone: what makes the answer to a question is cancelled. What changes something goes on, as
        nobody could tell how much of it was done."""
        if self.work is not None and not self.gone:
            self.gone = True
            self.work.cancel("its caller has gone")

    def give_place(self) -> None:
        """It is not among the requests under way any more."""
        place, self.place = self.place, None
        if place is not None:
            place()

    def left(self) -> None:
        """The answer is out, or will not come."""
        self.give_place()
        while self.leaving:
            self.leaving.pop()()

    @property
    def key(self) -> str:
        """Whose requests are counted together: those of a token, else of an address."""
        return f"token {self.identity.token}" if self.identity is not None else f"address {self.address}"


#: Methods of requests that change nothing.
QUESTIONS: Final = ("GET", "HEAD")

#: The request that the running task answers.
CALLER: Final[ContextVar[Caller | None]] = ContextVar("roost_gateway_caller", default=None)


def person() -> Person | None:
    """Whom a request to a daemon is for: the caller of the request that is being answered."""
    caller = CALLER.get()
    if caller is None or caller.identity is None:
        return None
    identity = caller.identity
    return Person(identity.user, identity.level_for(caller.operation or "jobs.act").name, identity.scopes)


def note(**what: Any) -> None:
    """Tell the audit log what is asked for, in words of the request; long texts and lists are cut. Nothing secret."""
    caller = CALLER.get()
    if caller is not None:
        caller.what.update({name: short(value) for name, value in what.items() if value not in ("", None, [], {}, ())})


def refused(code: str, message: str) -> None:
    """Tell the audit log what was answered in place of the deed."""
    caller = CALLER.get()
    if caller is not None:
        caller.code, caller.message = code, short(message)


def short(value: Any) -> Any:
    """A bounded form of what a user sent."""
    if isinstance(value, str):
        text = value if len(value) <= MOST_TEXT else value[:MOST_TEXT] + "..."
        return text.encode(errors="replace").decode()
    if isinstance(value, dict):
        cut = {str(short(str(k))): short(v) for k, v in list(value.items())[:MOST_ITEMS]}
        return cut if len(value) <= MOST_ITEMS else {**cut, "...": f"{len(value) - MOST_ITEMS} more"}
    if isinstance(value, list | tuple | set | frozenset):
        items = [short(one) for one in list(value)[:MOST_ITEMS]]
        return items if len(value) <= MOST_ITEMS else [*items, f"and {len(value) - MOST_ITEMS} more"]
    return value


#: How a browser, which can set no header, sends a token with a WebSocket: as a subprotocol of this beginning, the token
#: in base64url without padding.
PROTOCOL: Final = "roost.bearer."


def bearer(connection: HTTPConnection) -> str:
    """The token of a request, or empty. In headers only: what stands in an address ends in logs."""
    given = connection.headers.getlist("authorization")
    if len(given) > 1:
        return ""  # a proxy may have looked at the other one
    scheme, _, token = given[0].partition(" ") if given else ("", "", "")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    if connection.scope["type"] == "websocket":
        for protocol in connection.scope.get("subprotocols", ()):
            if protocol.startswith(PROTOCOL):
                text = protocol.removeprefix(PROTOCOL)
                try:
                    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
                except (ValueError, binascii.Error):
                    return ""
    return ""
