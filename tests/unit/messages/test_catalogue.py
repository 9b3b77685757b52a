"""The published catalogue is complete, fresh and compatible with what was published before."""

import json
from pathlib import Path
from typing import ClassVar, Literal

import pytest
from pydantic import BaseModel

from shared.messages import asyncapi, catalogue
from shared.messages.base import Message
from shared.messages.compatibility import breaks
from shared.messages.flows import ANY_REQUEST, PUBLISHED, REQUESTS
from shared.messages.history import CHANGES, WHEN

DOCS = Path(__file__).parents[3] / "docs"
MEND = "run `python -m shared.messages.asyncapi --write` and look at what it changes"


@pytest.mark.parametrize("name", ["asyncapi.json", "events.md", "schemas.json"])
def test_published_description_is_fresh(name):
    assert (DOCS / name).read_text(encoding="utf-8") == asyncapi.files()[name], MEND


def test_no_message_changed_without_a_new_version():
    committed = json.loads((DOCS / "schemas.json").read_text(encoding="utf-8"))
    assert breaks(committed, asyncapi.schemas()) == []


def test_every_message_has_its_place_in_the_flows():
    told = {name for entry in PUBLISHED for name in entry.types}
    told |= set(REQUESTS) | {answer for request in REQUESTS.values() for answer in request.answers}
    assert told | set(ANY_REQUEST) == {name for name, _ in catalogue()}


def test_document_refers_to_nothing_that_is_not_there():
    document = asyncapi.document()

    def references(value):
        if isinstance(value, dict):
            if "$ref" in value:
                yield value["$ref"]
            for item in value.values():
                yield from references(item)
        elif isinstance(value, list):
            for item in value:
                yield from references(item)

    found = set(references(document))
    assert len(found) > 100
    for reference in found:
        target = document
        for step in reference.removeprefix("#/").split("/"):
            assert step in target, reference
            target = target[step]


def test_document_has_what_asyncapi_3_requires():
    document = asyncapi.document()
    assert document["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= set(document["info"])
    for operation in document["operations"].values():
        assert operation["action"] in ("send", "receive")
        channel = operation["channel"]["$ref"].removeprefix("#/channels/")
        for message in operation["messages"]:
            assert message["$ref"].startswith(f"#/channels/{channel}/messages/")


def test_every_event_says_when_it_is_sent_and_has_an_example():
    """What people who follow events read: docs/events.md."""
    events = [name for entry in PUBLISHED if entry.exchange == "roost.events" for name in entry.types]
    kinds = asyncapi.newest()
    assert [name for name in events if not asyncapi.when(name, kinds[name])] == []
    assert [name for name in events if name not in asyncapi.examples()] == []
    assert set(WHEN) <= set(events)
    assert {name for change in CHANGES for name in change.types.split()} <= set(events)


# What counts as a break


class Part(BaseModel):
    size: int
    inner: "Part | None" = None


def snapshot(**fields):
    """The schemas of one message with these fields: name=(type, default) or name=type."""
    annotations = {name: kind[0] if isinstance(kind, tuple) else kind for name, kind in fields.items()}
    defaults = {name: kind[1] for name, kind in fields.items() if isinstance(kind, tuple)}
    namespace = {"__annotations__": {**annotations, "type": ClassVar[str]}, "type": "x", **defaults}
    model = type("X", (Message,), {**namespace, "__module__": __name__})
    return {"x/1": {"durable": False, "schema": asyncapi.schema_of(model)}}


BASE = {"name": str, "count": (int, 1), "how": (Literal["a", "b"], "a"), "parts": (list[Part], []), "data": bytes}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({}, ""),
        ({"extra": (str, "")}, ""),
        ({"count": (int, 7)}, ""),
        ({"name": (str, "")}, ""),
        ({"extra": str}, ".extra: is new and required"),
        ({"count": int}, ".count: is now required"),
        ({"count": (str, "")}, ".count: type was 'integer', is 'string'"),
        ({"count": (int | None, None)}, ".count: had 1 kinds of values, has 2"),
        ({"data": str}, ".data: contentEncoding was 'binary'"),
        ({"how": (Literal["a"], "a")}, ".how"),
        ({"how": (Literal["a", "b", "c"], "a")}, ".how: values were ['a', 'b'], are ['a', 'b', 'c']"),
        ({"parts": (list[str], [])}, ".parts[]: type was 'object', is 'string'"),
        ({"parts": (dict[str, Part], {})}, ".parts: type was 'array', is 'object'"),
    ],
)
def test_break_is_told_from_addition(change, complaint):
    found = breaks(snapshot(**BASE), snapshot(**{**BASE, **change}))
    assert [line for line in found if complaint in line] == found
    assert bool(found) == bool(complaint)


def test_removed_field_and_removed_message_are_breaks():
    without = {name: kind for name, kind in BASE.items() if name != "count"}
    assert breaks(snapshot(**BASE), snapshot(**without)) == [
        "x/1.count: is gone, but older readers need it; keep it, or make a new version"
    ]
    assert breaks(snapshot(**BASE), {}) == [
        "x: version 1 is gone, but others may still send it; keep it beside the new one"
    ]
    assert breaks({}, snapshot(**BASE)) == []


def test_change_inside_a_shared_part_is_seen():
    old, new = snapshot(**BASE), snapshot(**BASE)
    new = json.loads(json.dumps(new))
    new["x/1"]["schema"]["$defs"]["Part"]["properties"]["size"]["type"] = "string"
    assert breaks(old, new) == [
        "x/1.parts[].size: type was 'integer', is 'string'; add a field beside it, or make a new version"
    ]


def test_write_refuses_a_break_and_leaves_the_files(tmp_path):
    asyncapi.write(tmp_path)
    committed = json.loads((tmp_path / "schemas.json").read_text())
    committed["ack/1"]["schema"]["properties"]["word"] = {"type": "string"}
    (tmp_path / "schemas.json").write_text(json.dumps(committed))
    (tmp_path / "events.md").write_text("old")
    with pytest.raises(ValueError, match=r"ack/1\.word: is gone"):
        asyncapi.write(tmp_path)
    assert (tmp_path / "events.md").read_text() == "old"
    asyncapi.write(tmp_path, even_if_breaking=True)
    assert (tmp_path / "events.md").read_text() == asyncapi.markdown()
