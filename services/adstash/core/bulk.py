"""The _bulk API of Elasticsearch and OpenSearch: writes its requests, and reads its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from services.adstash.core.documents import Document

#: HTTP says so for a moment only: too much at once, no leader, a proxy without its server.
TRANSIENT: Final = (408, 429, 500, 502, 503, 504)
#: Bytes of one request: servers take 100 MB by default, and proxies before them less.
MOST_BYTES: Final = 5_000_000


class BadAnswer(ValueError):
    """What came is no answer of a _bulk API."""


@dataclass(slots=True)
class Outcome:
    """What became of documents. refused: with the reason, for good; again: to be sent once more."""

    created: int = 0
    there: int = 0  # they had been exported before
    refused: list[tuple[Document, str]] = field(default_factory=list)
    again: list[Document] = field(default_factory=list)
    reason: str = ""  # why some are to be sent again


def bodies(index: str, documents: Sequence[Document]) -> Iterator[tuple[bytes, list[Document]]]:
    """Requests: each a line that says what to do, and one that is the document. A document that is there stays as it is
    ("create"), so a record that is sent twice is there once."""
    lines: list[bytes] = []
    chosen: list[Document] = []
    size = 0
    for one in documents:
        what = json.dumps({"create": {"_index": index, "_id": one.id}}).encode()
        text = json.dumps(one.fields, allow_nan=False).encode()
        if chosen and size + len(what) + len(text) > MOST_BYTES:
            yield b"".join(lines), chosen
            lines, chosen, size = [], [], 0
        lines += [what, b"\n", text, b"\n"]
        chosen.append(one)
        size += len(what) + len(text)
    if chosen:
        yield b"".join(lines), chosen


def read(answer: Any, sent: Sequence[Document]) -> Outcome:
    """Of each document that was sent what became of it. Raises BadAnswer."""
    items = answer.get("items") if isinstance(answer, dict) else None
    if not isinstance(items, list) or len(items) != len(sent):
        raise BadAnswer(f"want an answer of _bulk with {len(sent)} items, and got {str(answer)[:200]}")
    found = Outcome()
    for one, item in zip(sent, items, strict=True):
        told = item.get("create") if isinstance(item, dict) else None
        status = told.get("status") if isinstance(told, dict) else None
        if not isinstance(status, int) or not isinstance(told, dict):
            raise BadAnswer(f"an item of _bulk has no status: {str(item)[:200]}")
        if status < 300:
            found.created += 1
        elif status == 409:
            found.there += 1
        elif status in TRANSIENT:
            found.again.append(one)
            found.reason = reason_of(told)
        else:
            found.refused.append((one, reason_of(told)))
    return found


def reason_of(told: Any) -> str:
    """The reason in an item or an answer, for a person."""
    error = told.get("error") if isinstance(told, dict) else None
    if isinstance(error, dict):
        cause = error.get("caused_by")
        below = f": {cause.get('reason')}" if isinstance(cause, dict) and cause.get("reason") else ""
        return f"{error.get('type')}: {error.get('reason')}{below}"[:500]
    return str(error or told)[:500]
