"""The published description of the bus, made from the models: `python -m shared.messages.asyncapi`.

It prints the AsyncAPI 3 document, with --markdown the catalogue for people. With --write it brings docs/asyncapi.json,
docs/events.md and docs/schemas.json up to date, and refuses changes that need a new version of a message.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from shared.messages import catalogue
from shared.messages.base import ENVELOPE_VERSION, Message
from shared.messages.compatibility import breaks
from shared.messages.flows import ANY_REQUEST, PUBLISHED, REQUESTS, Published, Request, sent_by
from shared.messages.history import WHEN, changes_of

CONTENT_TYPE: Final = "application/msgpack"
KINDS: Final[Mapping[str, str]] = {
    "roost.ads": "topic",
    "roost.private": "topic",
    "roost.events": "topic",
    "roost.requests": "topic",
}
ABOUT: Final[Mapping[str, str]] = {
    "roost.ads": "Ads of all daemons: whole, as deltas, as heartbeats. Nothing secret. Long ones are Zstandard frames.",
    "roost.private": "Claim ids of slots, which only central managers may read.",
    "roost.events": "Facts for whoever wants them. The routing key is the type of the event.",
    "roost.requests": "Requests and one-way messages to the inbox of one daemon. Answers come by direct reply-to.",
}


class _Schemas(GenerateJsonSchema):
    """JSON Schema of what travels: msgpack carries bytes as they are."""

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        return {"type": "string", "contentEncoding": "binary"}


def newest() -> dict[str, type[Message]]:
    """The newest version of every message type, by type."""
    found: dict[str, type[Message]] = {}
    for (name, _), kind in sorted(catalogue().items()):
        found[name] = kind
    return found


def schema_of(kind: type[Message]) -> dict[str, Any]:
    """JSON Schema of a message body, complete in itself, without texts."""
    schema = kind.model_json_schema(schema_generator=_Schemas, mode="serialization")
    bare: dict[str, Any] = _without_texts(schema)
    return bare


def _without_texts(value: Any) -> Any:
    """Titles and descriptions are not part of the contract. What is under `properties` and `$defs` are
    names."""
    if isinstance(value, dict):
        return {
            key: (
                {name: _without_texts(part) for name, part in item.items()}
                if key in ("properties", "$defs")
                else _without_texts(item)
            )
            for key, item in value.items()
            if key not in ("title", "description")
        }
    if isinstance(value, list):
        return [_without_texts(item) for item in value]
    return value


def schemas() -> dict[str, Any]:
    """Every version of every message, as "type/version": what is committed and compared."""
    return {
        f"{name}/{version}": {"durable": kind.durable, "schema": schema_of(kind)}
        for (name, version), kind in sorted(catalogue().items())
    }


def document() -> dict[str, Any]:
    """The AsyncAPI 3.0 document."""
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for entry in PUBLISHED:
        name = _identifier(f"{entry.exchange}.{entry.key}" + (f".{sent_by(entry.by)}" if entry.key == "{type}" else ""))
        channels[name] = _channel(entry.exchange, entry.key, entry.types, entry.about)
        operations[f"publish.{name}"] = {
            "action": "send",
            "channel": {"$ref": f"#/channels/{name}"},
            "summary": f"Published by {sent_by(entry.by)}.",
            "messages": _references(name, entry.types),
        }
    for inbox, requests in _by_inbox().items():
        name = _identifier(f"roost.requests.{inbox}")
        types = tuple(request.type for request in requests)
        channels[name] = _channel("roost.requests", inbox, types, f"Inbox {inbox}.")
        for request in requests:
            operations[f"request.{request.type}"] = _request_operation(name, request)
    answers = tuple(sorted({*ANY_REQUEST, *(a for request in REQUESTS.values() for a in request.answers)}))
    channels["answers"] = {
        "address": None,
        "description": "Answers to calls: direct reply-to, to the address in the request's reply_to.",
        "messages": {_identifier(t): {"$ref": f"#/components/messages/{t}"} for t in answers},
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Roost",
            "version": str(ENVELOPE_VERSION),
            "description": "Everything the daemons of a pool tell each other over RabbitMQ. Bodies are msgpack. "
            "Delivery is at least once and may be out of order. Within a version fields are only added; unknown "
            "fields are ignored, unknown types and versions go to the dead letters.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {name: _message(name, kind) for name, kind in newest().items()},
            "schemas": {"Envelope": _envelope(), **_bodies()},
        },
    }


def _channel(exchange: str, key: str, types: Iterable[str], about: str) -> dict[str, Any]:
    parameters = {name: {"description": _PARAMETERS[name]} for name in re.findall(r"\{(\w+)\}", key)}
    return {
        "address": key,
        "description": about,
        "messages": {_identifier(t): {"$ref": f"#/components/messages/{t}"} for t in types},
        **({"parameters": parameters} if parameters else {}),
        "bindings": {
            "amqp": {
                "is": "routingKey",
                "exchange": {"name": exchange, "type": KINDS[exchange], "durable": True, "autoDelete": False},
                "bindingVersion": "0.3.0",
            }
        },
    }


_PARAMETERS: Final[Mapping[str, str]] = {
    "my_type": "MyType of the ads, e.g. Machine.",
    "daemon": "Who owns the ads, e.g. startd@node1.",
    "type": "The type of the event, e.g. job.started.",
    "subsystem": "The kind of daemon, in lower case.",
    "name": "The name of the daemon, e.g. its host.",
}


def _request_operation(channel: str, request: Request) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "action": "send",
        "channel": {"$ref": f"#/channels/{channel}"},
        "summary": f"Sent by {sent_by(request.by)}.",
        "messages": _references(channel, (request.type,)),
    }
    if request.answers:
        operation["reply"] = {
            "address": {"location": "$message.header#/reply_to"},
            "channel": {"$ref": "#/channels/answers"},
            "messages": _references("answers", (*request.answers, *ANY_REQUEST)),
        }
    return operation


def _references(channel: str, types: Iterable[str]) -> list[dict[str, str]]:
    return [{"$ref": f"#/channels/{channel}/messages/{_identifier(t)}"} for t in types]


def _message(name: str, kind: type[Message]) -> dict[str, Any]:
    return {
        "name": name,
        "title": kind.__name__,
        "summary": _about(kind),
        "contentType": CONTENT_TYPE,
        "payload": {
            "allOf": [
                {"$ref": "#/components/schemas/Envelope"},
                {
                    "properties": {
                        "type": {"const": name},
                        "tv": {"const": kind.version},
                        "body": {"$ref": f"#/components/schemas/{kind.__name__}"},
                    }
                },
            ]
        },
        "bindings": {"amqp": {"contentEncoding": CONTENT_TYPE, "messageType": name, "bindingVersion": "0.3.0"}},
        "x-durable": kind.durable,
        **({"examples": [{"payload": _enveloped(name, kind)}]} if name in examples() else {}),
    }


def _enveloped(name: str, kind: type[Message]) -> dict[str, Any]:
    """The recorded example of an event in its envelope."""
    body = dict(examples()[name])
    head = {key: body.pop(key) for key in ("id", "sender", "type")}
    return {"v": ENVELOPE_VERSION, "tv": kind.version, **head, "body": body}


@functools.cache
def examples() -> dict[str, dict[str, Any]]:
    """An event of each type as consumers get it over HTTP, recorded (tests/unit/messages/recorder.py)."""
    text = (Path(__file__).parent / "examples.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


def _bodies() -> dict[str, Any]:
    """All bodies with the parts they share, each once."""
    found: dict[str, Any] = {}
    for kind in newest().values():
        schema = schema_of(kind)
        for name, part in {**schema.pop("$defs", {}), kind.__name__: schema}.items():
            relinked = json.loads(json.dumps(part).replace("#/$defs/", "#/components/schemas/"))
            if found.setdefault(name, relinked) != relinked:
                raise TypeError(f"two different parts of messages are both called {name}: rename one")
    return dict(sorted(found.items()))


def _envelope() -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["v", "type", "tv", "id", "body"],
        "properties": {
            "v": {"const": ENVELOPE_VERSION, "description": "version of the envelope"},
            "type": {"type": "string", "description": "type of the message"},
            "tv": {"type": "integer", "description": "version of that type"},
            "id": {"type": "string", "description": "unique, ordered by time: a uuid of version 7 in hex"},
            "ts": {"type": "number", "description": "seconds since 1970, the sender's clock"},
            "sender": {"type": "string", "description": "<subsystem>.<name>, the sender's inbox"},
            "epoch": {"type": ["integer", "null"], "description": "of the active negotiator, where it matters"},
            "trace": {"type": ["string", "null"], "description": "W3C traceparent"},
            "body": {"type": "object"},
        },
    }


def _by_inbox() -> dict[str, list[Request]]:
    found: dict[str, list[Request]] = {}
    for request in REQUESTS.values():
        found.setdefault(request.inbox, []).append(request)
    return dict(sorted(found.items()))


def _identifier(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")


def _about(kind: type[Message]) -> str:
    """The docstring on one line; empty for a model that has none of its own."""
    return " ".join(inspect.cleandoc(kind.__doc__ or "").split())


# For people


def markdown() -> str:
    """docs/events.md."""
    lines = [
        "# What travels on the bus",
        "",
        "Made from the models in `shared/messages` by `python -m shared.messages.asyncapi --markdown`; the same as an",
        "AsyncAPI 3 document is `docs/asyncapi.json`. Every message travels in one envelope (`v`, `type`, `tv`, `id`,",
        "`ts`, `sender`, `epoch`, `trace`, `body`), packed with msgpack. Delivery is at least once and may be out of",
        "order. *Durable* messages are persistent and confirmed; the others are repaired by the next one.",
        "",
        "[Events](#events) are for everybody: [consumers.md](consumers.md) tells how to follow them. All else is",
        "between the daemons of a pool. Within a version fields are only added; readers pass over what they do not",
        "know.",
    ]
    kinds = newest()
    lines += _event_lines(kinds)
    for exchange in KINDS:
        if exchange == "roost.events":
            continue
        lines += ["", f"## {exchange}", "", ABOUT[exchange]]
        if exchange == "roost.requests":
            lines += _request_lines(kinds)
            continue
        for entry in PUBLISHED:
            if entry.exchange == exchange:
                lines += ["", f"### `{entry.key}` from {sent_by(entry.by)}", "", entry.about]
                for name in entry.types:
                    lines += _kind_lines(name, kinds[name])
    answers = sorted({*ANY_REQUEST, *(a for request in REQUESTS.values() for a in request.answers)})
    lines += ["", "## Answers", "", "Any request may be answered with `failure` instead."]
    for name in answers:
        lines += _kind_lines(name, kinds[name])
    return "\n".join(lines) + "\n"


def _event_lines(kinds: Mapping[str, type[Message]]) -> Iterator[str]:
    """The part that consumers read: a table of all events, then each with its fields and an example."""
    groups = [entry for entry in PUBLISHED if entry.exchange == "roost.events"]
    yield from ("", "## Events", "", ABOUT["roost.events"], "", "| event | from | when |", "| --- | --- | --- |")
    for entry in groups:
        for name in entry.types:
            yield f"| [`{name}`](#{name.replace('.', '')}) | {sent_by(entry.by)} | {when(name, kinds[name])} |"
    yield from _event_groups(groups, kinds)


def _event_groups(groups: Iterable[Published], kinds: Mapping[str, type[Message]]) -> Iterator[str]:
    for entry in groups:
        yield from ("", f"### {entry.about.rstrip('.')}, from {sent_by(entry.by)}")
        for name in entry.types:
            kind = kinds[name]
            yield from ("", f"#### {name}", "", when(name, kind))
            about = _about(kind)
            if about and about != when(name, kind):
                yield from ("", about)
            yield from ("", *_field_lines(kind))
            if name in examples():
                yield from ("", "```json", json.dumps(examples()[name], indent=1, ensure_ascii=False), "```")
            history = [f"{change.release}: {change.what}" for change in changes_of(name)]
            yield from ("", f"Version {kind.version}. {' '.join(history)}".rstrip())


def when(name: str, kind: type[Message]) -> str:
    """When an event is sent, in a sentence."""
    return WHEN.get(name) or _about(kind)


def _request_lines(kinds: Mapping[str, type[Message]]) -> Iterator[str]:
    for inbox, requests in _by_inbox().items():
        yield from ("", f"### Inbox `{inbox}`")
        for request in requests:
            yield from _kind_lines(request.type, kinds[request.type])
            answers = " or ".join(f"`{answer}`" for answer in request.answers)
            yield from ("", f"From {sent_by(request.by)}. " + (f"Answer: {answers}." if answers else "No answer."))


def _kind_lines(name: str, kind: type[Message]) -> list[str]:
    mark = " (durable)" if kind.durable else ""
    version = f", version {kind.version}" if kind.version > 1 else ""
    lines = ["", f"#### `{name}`{version}{mark}", ""]
    if _about(kind):
        lines += [_about(kind), ""]
    return [*lines, *_field_lines(kind)]


def _field_lines(kind: type[Message]) -> list[str]:
    fields = kind.model_fields
    if not fields:
        return ["No fields."]
    lines = ["| field | type | default |", "| --- | --- | --- |"]
    for field, info in fields.items():
        default = "required" if info.is_required() else f"`{info.get_default(call_default_factory=True)!r}`"
        lines.append(f"| `{field}` | {_type_text(info.annotation)} | {default} |")
    return lines


def _type_text(annotation: Any) -> str:
    text = annotation.__name__ if isinstance(annotation, type) and not hasattr(annotation, "__args__") else ""
    text = text or re.sub(r"\b(?:shared\.messages\.\w+|typing)\.", "", str(annotation))
    return text.replace("|", "or")


def files() -> dict[str, str]:
    """What is committed in docs/, by file name."""
    return {
        "asyncapi.json": dumped(document()),
        "events.md": markdown(),
        "schemas.json": dumped(schemas()),
    }


def write(folder: Path, *, even_if_breaking: bool = False) -> None:
    """Bring the files up to date. Raises ValueError, and writes nothing, where a message changed in a way
    that older daemons would not understand and its version did not."""
    committed = folder / "schemas.json"
    if committed.exists() and not even_if_breaking:
        problems = breaks(json.loads(committed.read_text(encoding="utf-8")), schemas())
        if problems:
            raise ValueError(
                "these changes need a new `version` of the message, beside the old one:\n  "
                + "\n  ".join(problems)
                + "\nOnly what was never released may change in place: --even-if-breaking."
            )
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m shared.messages.asyncapi", description="The published description of the bus."
    )
    parser.add_argument("--markdown", action="store_true", help="the catalogue for people")
    parser.add_argument("--write", action="store_true", help="bring the files in docs/ up to date")
    parser.add_argument("--even-if-breaking", action="store_true", help="also when messages changed in place")
    parser.add_argument("--folder", type=Path, default=Path("docs"), help="where to write (default: docs)")
    options = parser.parse_args(arguments)
    if options.write:
        try:
            write(options.folder, even_if_breaking=options.even_if_breaking)
        except (OSError, ValueError) as error:
            sys.exit(f"asyncapi: {error}")
    else:
        sys.stdout.write(markdown() if options.markdown else dumped(document()))


def dumped(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    main()
