"""Which of many names stand in the source."""

import re
from functools import cache

_WORD = re.compile("[A-Za-z0-9_]+")


@cache
def _words(text: str, any_case: bool) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower() if any_case else text))


def stands(name: str, text: str, *, any_case: bool = False) -> bool:
    """Whether a name stands in a text as a word of its own. Texts are megabytes, and asked for hundreds of names: a
    text is read once for all of them."""
    if _WORD.fullmatch(name):
        return (name.lower() if any_case else name) in _words(text, any_case)
    pattern = rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])"
    return re.search(pattern, text, re.I if any_case else 0) is not None
