"""How long tests wait (tests/waiting.py)."""

import os

import pytest

from tests import waiting


@pytest.fixture
def load(monkeypatch):
    """load(x): so many want to run for each processor."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    return lambda each: monkeypatch.setattr(os, "getloadavg", lambda: (2.0 * each, 0.0, 0.0))


@pytest.mark.parametrize(("each", "times"), [(0.0, 1), (4.0, 1), (6.0, 1.5), (12.0, 3), (100.0, 4)])
def test_a_wait_is_stretched_where_others_have_the_machine(load, monkeypatch, each, times):
    load(each)
    monkeypatch.setattr(waiting.time, "monotonic", lambda: 1000.0)
    assert waiting.stretch() == times
    assert waiting.too_long(1000.0 - 10.1 * times, 10.0)
    assert not waiting.too_long(1000.0 - 9.9 * times, 10.0)


async def test_what_never_comes_is_named(load):
    load(0.0)
    with pytest.raises(TimeoutError, match="the end did not come true within 0 s"):
        waiting.wait_until(lambda: False, 0.01, "the end")
    with pytest.raises(TimeoutError, match="the end did not come true within 0 s"):
        await waiting.eventually(lambda: False, 0.01, "the end")
