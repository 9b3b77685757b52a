"""Topic patterns, against a plain recursive twin and RabbitMQ's own examples."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.bus.topics import matches


def twin(pattern, key):
    if not pattern:
        return not key
    if pattern[0] == "#":
        return twin(pattern[1:], key) or (bool(key) and twin(pattern, key[1:]))
    return bool(key) and pattern[0] in ("*", key[0]) and twin(pattern[1:], key[1:])


@given(st.lists(st.sampled_from(["a", "b", "*", "#"]), max_size=6), st.lists(st.sampled_from(["a", "b"]), max_size=6))
def test_patterns_match_as_their_plain_twin(pattern, key):
    assert matches(".".join(pattern), ".".join(key)) == twin(pattern, key)


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("#", "", True),
        ("#", "a.b.c", True),
        ("*", "a", True),
        ("*", "", False),
        ("*", "a.b", False),
        ("a.*.c", "a.b.c", True),
        ("a.#.c", "a.c", True),
        ("a.#.c", "a.x.y.c", True),
        ("a.#", "a", True),
        ("a.#", "b", False),
        ("update.Machine.#", "update.Machine.startd@node1.example.org", True),
        ("update.Machine.*", "update.Machine.startd@node1.example.org", False),
    ],
)
def test_examples(pattern, key, expected):
    assert matches(pattern, key) is expected


def test_pattern_of_many_hashes_is_not_expensive():
    assert not matches(".".join(["#", "a"] * 100) + ".b", ".".join(["a"] * 300))
