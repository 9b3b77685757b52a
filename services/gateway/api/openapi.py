"""The description of the API, made whole: who may open each door, how, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from services.gateway.api.guard import operation_of
from services.gateway.authorization import NEEDS

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
    """Have `app` describe itself with levels, errors and the way to send a token."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    setattr(app, "openapi", document)  # noqa: B010  as FastAPI's own manual has it


def guarded(app: FastAPI) -> Iterator[tuple[APIRoute, str]]:
    """Every door of the API, with the operation that it asks a level for; empty: it asks for none."""
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
            door = document["paths"][route.path_format][method.lower()]
            door["responses"].pop("422", None)
            door["responses"] = {**door["responses"], **problems}
            if operation:
                door["security"] = [{"token": []}]
                door["x-roost-operation"] = operation
                door["x-roost-level"] = NEEDS[operation].name
    return document
