"""Example answers in the description of the API."""

from __future__ import annotations

from typing import Any, Final

Responses = dict[int | str, dict[str, Any]]


def example(value: Any, description: str = "Successful Response") -> Responses:
    """What a door answers, as JSON."""
    return {200: {"description": description, "content": {"application/json": {"example": value}}}}


_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}

AD_STREAM: Final[Responses] = {
    200: {
        "description": "A JSON array of ads, streamed; or pages of packed ads",
        "content": {
            "application/json": {
                "schema": {"type": "array", "items": {"type": "object", "additionalProperties": True}},
                "example": [{"MyType": "Machine", "Name": "slot1@node1", "State": "Unclaimed", "Cpus": 8}],
            },
            "application/x-msgpack": _BINARY,
        },
    }
}
BUNDLE: Final[Responses] = {
    200: {"description": "A bundle of files (tar)", "content": {"application/x-tar": _BINARY}},
}
FRAMES: Final[Responses] = {
    200: {"description": "Frames: a letter, a length, bytes", "content": {"application/octet-stream": _BINARY}},
}
FILE: Final[Responses] = {
    200: {"description": "The file's bytes", "content": {"application/octet-stream": _BINARY}},
    206: {"description": "The part of it that Range asked for", "content": {"application/octet-stream": _BINARY}},
    416: {"description": "It has no such part"},
}
EVENT_STREAM: Final[Responses] = {
    200: {
        "description": "Server-sent events, without end",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'id: 019a...\nevent: job.started\ndata: {"type": "job.started", "at": 1763820000.5}\n\n',
            }
        },
    }
}
ACTED: Final = example({"12.0": "done", "12.1": "denied"}, "What became of each job")
ORDERED: Final = example(
    [{"subsystem": "STARTD", "name": "node1", "done": True, "said": "it restarts"}], "What each daemon answered"
)
DONE: Final = example({"status": "done"})
