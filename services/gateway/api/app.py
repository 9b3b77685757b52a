"""The gateway's HTTP API: all families of doors behind one gate, and the one shape of what goes wrong. Every door names
the operation it needs a level for (see authorization.NEEDS)."""

from __future__ import annotations

import asyncio

import aiohttp
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from services.gateway.api.analysis import analysis_doors
from services.gateway.api.config import config_doors
from services.gateway.api.dead_letters import dead_letter_doors
from services.gateway.api.description import description_doors
from services.gateway.api.doors import MAX_BODY, MAX_JSON, Doors
from services.gateway.api.events import event_doors
from services.gateway.api.files import file_doors
from services.gateway.api.gate import Gate
from services.gateway.api.general import general_doors
from services.gateway.api.hads import had_doors
from services.gateway.api.jobs import job_doors
from services.gateway.api.journal import journal_doors
from services.gateway.api.limits import BodyLimit
from services.gateway.api.openapi import describe_api
from services.gateway.api.orders import Post, order_doors
from services.gateway.api.overview import overview_doors
from services.gateway.api.past import past_doors
from services.gateway.api.priorities import priority_doors
from services.gateway.api.tokens import token_doors
from services.gateway.api.visits import visit_doors
from services.gateway.api.web import web_doors
from services.gateway.api.wire import explain, problem, told
from services.gateway.rates import Budget, Limiter
from services.gateway.survey import Survey
from shared.errors import RoostError
from shared.messages.base import describe
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


def build(doors: Doors) -> FastAPI:
    """The application over these doors."""
    app = FastAPI(
        title="Roost",
        version=VERSION,
        description="One door to the pool: ads, jobs, priorities, events. Send `Authorization: Bearer TOKEN`.",
        docs_url=None,
        redoc_url=None,
    )
    app.state.turn = asyncio.Lock()  # of who writes a piece of a long answer
    _told_in_one_way(app)
    settings = doors.settings
    bodies = settings.roost_gateway_bodies_mib << 20
    app.add_middleware(BodyLimit, small=MAX_JSON, large=MAX_BODY, budget=Budget(bodies // 4, bodies))
    app.add_middleware(
        Gate,
        tokens=doors.tokens,
        audit=doors.audit,
        clock=doors.clock,
        rates=Limiter(settings.roost_gateway_rate, settings.roost_gateway_burst),
        anonymous=Limiter(settings.roost_gateway_anonymous_rate, settings.roost_gateway_burst),
        counts=doors.counts,
        guards=doors.guards,
    )
    may = doors.guards.may
    general_doors(app, doors, may)
    job_doors(app, doors, may)
    description_doors(app, doors, may)
    analysis_doors(app, doors.bus, doors.pool, may)
    had_doors(app, doors.bus, doors.pool, may)
    file_doors(app, doors, may)
    visit_doors(app, doors.bus, doors.pool, may)
    event_doors(app, doors, may)
    journal_doors(app, doors.bus, may)
    past_doors(app, doors.bus, may)
    priority_doors(app, doors, may)
    dead_letter_doors(app, doors, may)
    token_doors(app, doors, may)
    order_doors(app, Post(doors.bus, doors.pool, doors.own), may)
    survey = Survey(doors.bus, doors.pool, doors.clock)
    doors.events.watchers.append(survey.on_event)
    overview_doors(app, survey, may)
    web_doors(app)
    config_doors(app, doors, may)
    describe_api(app)
    return app


def _told_in_one_way(app: FastAPI) -> None:
    @app.exception_handler(RoostError)
    async def on_roost_error(_: Request, error: RoostError) -> JSONResponse:
        return explain(error)

    @app.exception_handler(HTTPException)
    async def on_http_error(_: Request, error: HTTPException) -> JSONResponse:
        code = _CODES.get(error.status_code, "error")
        retryable = error.status_code in (429, 502, 503)
        answer = problem(code, str(error.detail), retryable, status=error.status_code)
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(RequestValidationError)
    async def on_bad_input(_: Request, error: RequestValidationError) -> JSONResponse:
        text = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        return problem("bad-request", told(text), status=400)

    @app.exception_handler(ValidationError)
    async def on_bad_message(_: Request, error: ValidationError) -> JSONResponse:
        return problem("bad-request", told(describe(error)), status=400)

    @app.exception_handler(UnicodeEncodeError)
    async def on_half_characters(_: Request, error: UnicodeEncodeError) -> JSONResponse:
        return problem("bad-request", f"a text has half a character at position {error.start}", status=400)

    @app.exception_handler(aiohttp.ClientError)
    @app.exception_handler(TimeoutError)
    async def on_no_files(_: Request, error: Exception) -> JSONResponse:
        reason = f"the schedd's file service does not answer: {error or type(error).__name__}"
        return problem("unavailable", reason, True, 503)
