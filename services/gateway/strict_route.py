"""Routes that take no query parameters but their own: one that is mistyped would be left out in silence, and the answer
would be about more than was asked."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from services.gateway.auth.guards import caller_of
from services.gateway.serialization import problem


class StrictRoute(APIRoute):
    """Refuses a request with 400 for a query parameter that it does not know, and names the nearest one it does. Who
    has no valid token is told that, and no more."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if not self.path.startswith("/v1/"):
            return handle  # files of the dashboard
        known = sorted(set(_queries(self.dependant)))

        async def strict(request: Request) -> Response:
            unknown = next((name for name in request.query_params if name not in known), None)
            if unknown is not None and caller_of(request).identity is not None:
                return problem("bad-request", refused(unknown, known), status=400)
            return await handle(request)

        return strict


def _queries(dependant: Dependant) -> Iterator[str]:
    """The names of query parameters that a route and its guards take."""
    yield from (field.alias for field in dependant.query_params)
    for one in dependant.dependencies:
        yield from _queries(one)


def refused(name: str, known: list[str]) -> str:
    """What is said of a query parameter that is not one of these."""
    near = difflib.get_close_matches(name, known, 1)
    if near:
        mend = f"did you mean {near[0]}?"
    else:
        mend = f"it takes {', '.join(known)}" if known else "it takes none"
    return f"there is no query parameter {name[:80]!r} here: {mend}"
