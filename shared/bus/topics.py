"""Which topic patterns match a routing key, by AMQP's rules: words are separated by dots, `*` stands for
exactly one word, `#` for any number of words, also none."""

from __future__ import annotations

from collections.abc import Sequence


def matches(pattern: str, key: str) -> bool:
    """Whether a message published with `key` goes to a queue bound with `pattern`."""
    return _match(_words(pattern), _words(key))


def _words(text: str) -> list[str]:
    return text.split(".") if text else []


def _match(pattern: Sequence[str], key: Sequence[str]) -> bool:
    # reachable[j]: the pattern words read so far can match the first j words of the key. Linear in both,
    # whatever the number of '#', so that no pattern can be made expensive.
    reachable = [True] + [False] * len(key)
    for word in pattern:
        if word == "#":
            seen = False
            for position, state in enumerate(reachable):
                seen = seen or state
                reachable[position] = seen
        else:
            for position in range(len(key), 0, -1):
                reachable[position] = reachable[position - 1] and word in ("*", key[position - 1])
            reachable[0] = False
    return reachable[-1]
