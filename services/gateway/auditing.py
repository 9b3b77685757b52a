"""What the audit log tells of a request, if anything. Pure."""

from __future__ import annotations

from typing import Final

from services.gateway.caller import Caller
from services.gateway.rates import Limiter
from shared.messages.events import GatewayAudit

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS", "WEBSOCKET"})
#: Records a second, for good and at once, of what one address or token is refused: more are counted, not told.
REFUSALS_RATE, REFUSALS_SECONDS = 1.0, 20.0
_VISITS: Final = "/v1/visits/"


class Auditor:
    """Decides what is recorded: every request of somebody known that would change something, and refusals, as far as
    they do not flood the log."""

    def __init__(self, gateway: str) -> None:
        self._gateway = gateway
        self._refusals = Limiter(REFUSALS_RATE, REFUSALS_SECONDS)
        self._untold = 0

    def record(self, caller: Caller, method: str, path: str, now: float, took_s: float) -> GatewayAudit | None:
        """now: seconds since 1970. None: nothing is to be told."""
        refused = caller.status in (401, 403, 429)
        changing = method not in SAFE and caller.identity is not None and caller.status != 429
        if changing and path.startswith(_VISITS) and not refused:
            return None  # keystrokes: the visit's beginning is on record
        if not changing:
            if not refused:
                return None
            if self._refusals.take(caller.key, now):
                self._untold += 1
                return None
        untold, self._untold = self._untold, 0
        who = caller.identity
        if path.startswith(_VISITS):
            path = _VISITS + "..."  # the name of a visit is its key
        return GatewayAudit(
            at=now,
            gateway=self._gateway,
            request_id=caller.request_id,
            user=who.user if who is not None else "",
            token=who.token if who is not None else "",
            level=who.level.name if who is not None else "NONE",
            address=caller.address,
            method=method,
            path=path[:500].encode(errors="replace").decode(),
            operation=caller.operation,
            what=caller.what,
            status=caller.status,
            outcome=_outcome(caller.status),
            code=caller.code,
            message=caller.message,
            took_s=round(took_s, 6),
            untold=untold,
        )


def _outcome(status: int) -> str:
    if status == 0:
        return "broke off"
    if status < 400:
        return "done"
    return "refused" if status < 500 else "failed"
