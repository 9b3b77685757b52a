"""Whether messages may be told apart only by their version: within a version fields are added, with a
default, and nothing else changes, so that daemons of two releases understand each other. Every line names the mend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

NEW_VERSION = "make a new version"


def breaks(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What makes readers or writers of the old schemas fail with the new ones, one line each.

    old, new: what shared.messages.asyncapi.schemas() gives, by "type/version".
    """
    found: list[str] = []
    for key, entry in old.items():
        if key not in new:
            name, _, version = key.rpartition("/")
            found.append(f"{name}: version {version} is gone, but others may still send it; keep it beside the new one")
        else:
            before, after = entry["schema"], new[key]["schema"]
            found += [f"{key}{line}" for line in _differences(before, after, before, after, "", frozenset())]
    return found


def _differences(
    old: Schema, new: Schema, old_root: Schema, new_root: Schema, at: str, seen: frozenset[tuple[str, str]]
) -> Iterator[str]:
    if "$ref" in old and "$ref" in new:
        pair = (old["$ref"], new["$ref"])
        if pair in seen:  # a part that contains itself
            return
        seen |= {pair}
    old, new = _resolved(old, old_root), _resolved(new, new_root)
    if "anyOf" in old or "anyOf" in new:
        yield from _choice_differences(old, new, old_root, new_root, at, seen)
        return
    for word in ("type", "contentEncoding", "const"):
        if old.get(word) != new.get(word):
            yield f"{at}: {word} was {old.get(word)!r}, is {new.get(word)!r}; add a field beside it, or {NEW_VERSION}"
            return
    gone = [value for value in old.get("enum", ()) if value not in new.get("enum", ())]
    more = [value for value in new.get("enum", ()) if value not in old.get("enum", ())]
    if gone or more:
        yield f"{at}: values were {old.get('enum')}, are {new.get('enum')}; {NEW_VERSION}"
    for part in ("items", "additionalProperties"):
        before, after = old.get(part), new.get(part)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from _differences(before, after, old_root, new_root, f"{at}[]", seen)
        elif before != after:
            yield f"{at}: {part} was {before!r}, is {after!r}; {NEW_VERSION}"
    before, after = old.get("properties", {}), new.get("properties", {})
    for name, schema in before.items():
        if name not in after:
            likely = [other for other in after if other not in before and after[other] == schema]
            mend = f"if it is {likely[0]} now, send both names, or {NEW_VERSION}" if likely else ""
            yield f"{at}.{name}: is gone, but older readers need it; {mend or f'keep it, or {NEW_VERSION}'}"
            continue
        yield from _differences(schema, after[name], old_root, new_root, f"{at}.{name}", seen)
    for name in new.get("required", ()):
        if name not in old.get("required", ()):
            state = "is now" if name in before else "is new and"
            yield f"{at}.{name}: {state} required, but older senders leave it out; give it a default, or {NEW_VERSION}"


def _choice_differences(
    old: Schema, new: Schema, old_root: Schema, new_root: Schema, at: str, seen: frozenset[tuple[str, str]]
) -> Iterator[str]:
    before, after = old.get("anyOf", [old]), new.get("anyOf", [new])
    if len(before) != len(after):
        yield f"{at}: had {len(before)} kinds of values, has {len(after)}; {NEW_VERSION}"
        return
    for one, other in zip(before, after, strict=True):
        yield from _differences(one, other, old_root, new_root, at, seen)


def _resolved(schema: Schema, root: Schema) -> Schema:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    found: Schema = root["$defs"][reference.rpartition("/")[2]]
    return found
