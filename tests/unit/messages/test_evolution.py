"""Daemons of two releases understand each other: what any release said is read by this one, and what this one says is
read by those before and after it, as long as shared.messages.compatibility finds nothing."""

import copy
import json

import msgpack
import pytest
from pydantic import BaseModel

from roost.events import UnknownEvent, event_of
from shared.messages import Envelope, asyncapi, catalogue
from shared.messages.compatibility import breaks
from shared.messages.events import Event
from tests.unit.messages.recorder import EXAMPLES, made_up, recorded

RECORDED = {(one.type, one.version): one for one in recorded()}
KEYS = sorted(RECORDED)
SCHEMAS = asyncapi.schemas()
MEND = "run `python -m tests.unit.messages.recorder` and commit what it adds"


def test_every_message_has_been_recorded():
    assert set(catalogue()) - set(RECORDED) == set(), MEND


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key[0]}/{key[1]}")
def test_what_was_recorded_is_read_today(key):
    raw = msgpack.unpackb(RECORDED[key].data, strict_map_key=False)
    envelope = Envelope.unpack(RECORDED[key].data)
    assert (envelope.body.type, envelope.body.version) == key
    assert (envelope.id, envelope.sender) == (raw["id"], raw["sender"])
    # Nothing that was said is lost or changed: fields are only added.
    again = msgpack.unpackb(envelope.pack(), strict_map_key=False)["body"]
    assert_within(raw["body"], again, key[0])


def assert_within(old, new, at):
    if isinstance(old, dict):
        for name, value in old.items():
            assert name in new, f"{at}.{name} is gone"
            assert_within(value, new[name], f"{at}.{name}")
    elif isinstance(old, list):
        assert len(old) == len(new), at
        for one, other in zip(old, new, strict=True):
            assert_within(one, other, f"{at}[]")
    else:
        assert old == new, at


def with_news(value, model):
    """The same with fields that no release knows yet, wherever a part of a message is."""
    if isinstance(value, dict) and model is not None:
        parts = {name: model.model_fields[name].annotation for name in model.model_fields}
        return {
            **{name: with_news(one, part_of(parts.get(name))) for name, one in value.items()},
            "field_of_a_later_release": {"deep": [1, "x", None]},
        }
    if isinstance(value, list):
        return [with_news(one, model) for one in value]
    if isinstance(value, dict):
        return value
    return value


def part_of(annotation):
    """The model in `X`, `X | None`, `list[X]`; None for what is no model, or a map."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if getattr(annotation, "__origin__", None) is dict:
        return None
    return next((found for one in getattr(annotation, "__args__", ()) if (found := part_of(one))), None)


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key[0]}/{key[1]}")
def test_what_a_later_release_adds_is_passed_over(key):
    for data in (RECORDED[key].data, made_up(catalogue()[key]).pack()):
        raw = msgpack.unpackb(data, strict_map_key=False)
        later = {**raw, "new": 1, "body": with_news(raw["body"], catalogue()[key])}
        assert "field_of_a_later_release" in later["body"]
        assert Envelope.unpack(msgpack.packb(later)) == Envelope.unpack(data)


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key[0]}/{key[1]}")
def test_what_an_earlier_release_did_not_say_has_its_default(key):
    kind = catalogue()[key]
    raw = msgpack.unpackb(made_up(kind).pack(), strict_map_key=False)
    optional = [name for name, info in kind.model_fields.items() if not info.is_required()]
    earlier = {**raw, "body": {name: one for name, one in raw["body"].items() if name not in optional}}
    body = Envelope.unpack(msgpack.packb(earlier)).body
    for name in optional:
        assert getattr(body, name) == kind.model_fields[name].get_default(call_default_factory=True)


@pytest.mark.parametrize("key", [k for k in KEYS if issubclass(catalogue()[k], Event)], ids=lambda key: key[0])
def test_events_come_through_json_too(key):
    """As the gateway tells them, and consumers read them."""
    for data in (RECORDED[key].data, made_up(catalogue()[key]).pack()):
        event = Envelope.unpack(data).body
        text = json.dumps({"type": key[0], "new": [1], **event.model_dump(mode="json")}).encode()
        assert event_of(key[0], {}, text=text) == event


def test_an_event_of_a_later_version_is_told_as_it_is():
    assert event_of("job.ended", {"at": 1.0}, 2) == UnknownEvent("job.ended", 2, {"at": 1.0})


# What is found


def properties_of(schema):
    """Every map of properties in a schema, with the path to it."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            yield schema
        for name, part in schema.items():
            if name != "$defs":
                yield from properties_of(part)


@pytest.mark.parametrize("key", [k for k in KEYS if catalogue()[k].model_fields], ids=lambda key: f"{key[0]}/{key[1]}")
def test_a_field_that_is_removed_renamed_or_of_another_type_is_found_with_its_mend(key):
    name = f"{key[0]}/{key[1]}"
    old = {name: SCHEMAS[name]}
    (field, *_) = old[name]["schema"]["properties"]

    def changed(change):
        new = copy.deepcopy(old)
        change(new[name]["schema"])
        return breaks(old, new)

    def rename(schema):
        schema["properties"] = {
            ("renamed" if one == field else one): part for one, part in schema["properties"].items()
        }
        schema["required"] = ["renamed" if one == field else one for one in schema.get("required", [])]

    def retype(schema):
        schema["properties"][field] = {"type": "null"}

    def remove(schema):
        del schema["properties"][field]
        schema["required"] = [one for one in schema.get("required", []) if one != field]

    removed, renamed, retyped = changed(remove), changed(rename), changed(retype)
    assert removed == [f"{name}.{field}: is gone, but older readers need it; keep it, or make a new version"]
    assert any(f"{name}.{field}: is gone" in line and "send both names" in line for line in renamed)
    assert any(line.startswith(f"{name}.{field}") and "make a new version" in line for line in retyped)
    assert changed(lambda schema: schema["properties"].update(one_more={"type": "string", "default": ""})) == []


def test_examples_are_those_that_were_recorded():
    examples = json.loads(EXAMPLES.read_text())
    events = {name: kind for (name, _), kind in catalogue().items() if issubclass(kind, Event)}
    assert set(examples) == set(events), MEND
    for name, example in examples.items():
        body = {key: value for key, value in example.items() if key not in ("id", "sender", "type")}
        assert json.loads(events[name].model_validate_json(json.dumps(body)).model_dump_json()).items() >= body.items()
