"""What is told and kept of a message that is too large to be written whole."""

from __future__ import annotations

from typing import Any, Final

from shared.messages.base import Message

#: Characters of a text that stay.
SHORT_TEXT: Final = 1000
#: Where the names of the fields stand that were cut.
CUT: Final = "cut"


def cut(body: Message) -> dict[str, Any]:
    """The fields, of the types that they have: long texts end after SHORT_TEXT characters, lists and maps are empty.
    The names of these are in CUT."""
    whole = {name: getattr(body, name) for name in type(body).model_fields}
    short = {name: _short(value) for name, value in whole.items()}
    return {**short, CUT: [name for name in whole if short[name] != whole[name]]}


def _short(value: object) -> object:
    if isinstance(value, str):
        return value[:SHORT_TEXT]
    if isinstance(value, list | tuple):
        return []
    if isinstance(value, dict):
        return {}
    return value if isinstance(value, int | float) else None
