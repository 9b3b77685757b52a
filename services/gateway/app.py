"""The gateway's HTTP API as one FastAPI application: middleware, routes, the one shape of errors, and the OpenAPI
document, which tells the operation and the level that each route needs (see authorization.NEEDS)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Final

import aiohttp
from fastapi import FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from services.gateway.auth.guards import operation_of
from services.gateway.core.failed_logins import FailedLogins
from services.gateway.core.limits import ByteBudget, RateLimiter
from services.gateway.middleware import BodyLimitMiddleware, RequestMiddleware
from services.gateway.routes import (
    administration,
    analysis,
    credentials,
    dashboard,
    events,
    files,
    health,
    identities,
    jobs,
    journal,
    pool,
    priorities,
    ssh_to_job,
    static_files,
    submit_description,
    tokens,
)
from services.gateway.routes.context import MAX_BODY, MAX_JSON, RouteContext
from services.gateway.serialization import JsonAnswer, explain, problem, told
from services.gateway.strict_route import StrictRoute
from shared.errors import RoostError
from shared.messages.base import describe
from shared.operations import NEEDS
from shared.tls import explained
from shared.version import VERSION

_CODES = {
    400: "bad-request",
    401: "unauthenticated",
    403: "denied",
    404: "not-found",
    405: "not-allowed",
    409: "conflict",
    413: "too-large",
    416: "bad-range",
    429: "too-many",
    502: "unavailable",
    503: "unavailable",
}


#: Each has add_routes(app, context). Of two paths that fit a request the first one wins.
_ROUTES: Final = (
    pool,
    jobs,
    submit_description,
    analysis,
    files,
    credentials,
    ssh_to_job,
    events,
    journal,
    priorities,
    tokens,
    identities,
    administration,
    health,
    dashboard,
)


class CurrentApp:
    """The application that requests get from now on; those under way keep the one that they came to."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def build(context: RouteContext) -> FastAPI:
    """The application, with all routes."""
    app = FastAPI(
        title="Roost",
        version=VERSION,
        description="One door to the pool: ads, jobs, priorities, events. Send `Authorization: Bearer TOKEN`.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # describe_api has it
        default_response_class=JsonAnswer,
    )
    app.router.route_class = StrictRoute
    app.state.turn = asyncio.Lock()  # of who writes a piece of a long answer
    _add_error_handlers(app)
    settings = context.settings
    bodies = settings.roost_gateway_bodies_mib << 20
    app.add_middleware(BodyLimitMiddleware, small=MAX_JSON, large=MAX_BODY, budget=ByteBudget(bodies // 4, bodies))
    app.add_middleware(
        RequestMiddleware,
        logins=context.logins,
        audit=context.audit,
        clock=context.clock,
        rates=RateLimiter(settings.roost_gateway_rate, settings.roost_gateway_burst),
        anonymous=RateLimiter(settings.roost_gateway_anonymous_rate, settings.roost_gateway_burst),
        counts=context.counts,
        guards=context.guards,
        failures=FailedLogins(settings.roost_gateway_failed_login_rate, settings.roost_gateway_failed_logins),
        hsts_s=settings.roost_gateway_hsts,
    )
    for module in _ROUTES:
        module.add_routes(app, context)
    static_files.add_routes(app)
    describe_api(app)
    return app


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(RoostError)
    async def on_roost_error(_: Request, error: RoostError) -> JsonAnswer:
        return explain(error)

    @app.exception_handler(HTTPException)
    async def on_http_error(_: Request, error: HTTPException) -> JsonAnswer:
        code = _CODES.get(error.status_code, "error")
        retryable = error.status_code in (429, 502, 503)
        answer = problem(code, str(error.detail), retryable, status=error.status_code)
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(RequestValidationError)
    async def on_bad_input(_: Request, error: RequestValidationError) -> JsonAnswer:
        text = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        return problem("bad-request", told(text), status=400)

    @app.exception_handler(ValidationError)
    async def on_bad_message(_: Request, error: ValidationError) -> JsonAnswer:
        return problem("bad-request", told(describe(error)), status=400)

    @app.exception_handler(UnicodeEncodeError)
    async def on_half_characters(_: Request, error: UnicodeEncodeError) -> JsonAnswer:
        return problem("bad-request", f"a text has half a character at position {error.start}", status=400)

    @app.exception_handler(aiohttp.ClientError)
    @app.exception_handler(TimeoutError)
    async def on_no_files(_: Request, error: Exception) -> JsonAnswer:
        why = explained(error) or error or type(error).__name__
        reason = f"the schedd's file service does not answer: {why}"
        return problem("unavailable", reason, True, 503)


_ERRORS: Final = {
    "400": "What was asked can not be done: the message names the place and the mend",
    "401": "No valid token",
    "403": "The token does not open this door, or the job is another's",
    "404": "There is no such thing",
    "413": "Too large",
    "429": "Too often, or too many at once; Retry-After tells when to ask again",
    "502": "A daemon answered what it should not",
    "503": "A daemon is away; the message tells which, Retry-After when to ask again",
}
_ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "retryable"],
            "properties": {
                "code": {"type": "string", "examples": ["bad-request"]},
                "message": {"type": "string", "examples": ["constraint: expected an operand at column 3"]},
                "retryable": {"type": "boolean", "description": "the same request may succeed later"},
            },
        }
    },
}


def describe_api(app: FastAPI) -> None:
    """Have `app` describe itself with levels, errors and the way to send a token, at /openapi.json. What it says is
    made in a thread when it is asked for first (0.2 s)."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    setattr(app, "openapi", document)  # noqa: B010  as FastAPI's own manual has it
    written: list[bytes] = []
    turn = asyncio.Lock()

    def write() -> bytes:
        return json.dumps(document(), ensure_ascii=False, separators=(",", ":")).encode()

    @app.get("/openapi.json", include_in_schema=False)
    async def described() -> Response:
        async with turn:
            if not written:
                written.append(await asyncio.to_thread(write))
        return Response(written[0], media_type="application/json")


def guarded(app: FastAPI) -> Iterator[tuple[APIRoute, str]]:
    """Every route of the API, with the operation that it needs a level for; empty: it needs none."""
    for route in app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            yield route, next(_operations(route.dependant), "")


def _operations(dependant: Dependant) -> Iterator[str]:
    for one in dependant.dependencies:
        if found := operation_of(one.call):
            yield found
        yield from _operations(one)


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):  # ours are told in another shape
        schemas.pop(unused, None)
    schemas["Error"] = _ERROR
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "A token of `roost token create`"}
    }
    problems = {
        status: {
            "description": text,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            **({"headers": {"Retry-After": {"schema": {"type": "integer"}}}} if status in ("429", "503") else {}),
        }
        for status, text in _ERRORS.items()
    }
    for route, operation in guarded(app):
        for method in route.methods or ():
            described = document["paths"][route.path_format][method.lower()]
            described["responses"].pop("422", None)
            described["responses"] = {**described["responses"], **problems}
            if operation:
                described["security"] = [{"token": []}]
                described["x-roost-operation"] = operation
                described["x-roost-level"] = NEEDS[operation].name
    return document
