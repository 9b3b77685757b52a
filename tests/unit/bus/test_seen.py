"""What was obeyed is remembered, over lives and on a disk that is full."""

import stat

import pytest
import structlog

from shared.bus import seen as module
from shared.bus.seen import PLACES, Seen, seen_file

NOW = 1_800_000_000.0


@pytest.fixture
def path(tmp_path):
    return seen_file(tmp_path / "spool" / "schedd.ap.facts")


def test_the_next_life_knows_what_this_one_saw(path):
    first = Seen(path)
    assert not first.has("a", NOW)
    first.add("a", NOW + 75)
    first.add("b", NOW + 10)
    assert first.has("a", NOW)
    second = Seen(path)
    assert second.has("a", NOW + 20)
    assert not second.has("b", NOW + 20)  # its end has come
    assert not second.has("c", NOW + 20)
    assert not Seen(path).has("a", NOW + 76)
    assert path.name == "schedd.ap.seen"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_lives_go_on_where_the_last_one_stopped(path, monkeypatch):
    monkeypatch.setattr(module, "PLACES", 8)
    for life in range(5):
        seen = Seen(path)
        for number in range(3):
            assert not seen.has(f"{life}.{number}", NOW)
            seen.add(f"{life}.{number}", NOW + 75)
    last = Seen(path)
    known = [life for life in range(5) for number in range(3) if last.has(f"{life}.{number}", NOW)]
    assert known == [2, 2, 3, 3, 3, 4, 4, 4]
    assert path.stat().st_size == 8 * 32  # it has its length from the start, and keeps it


def test_a_file_of_another_kind_is_no_memory_and_no_trouble(path):
    path.parent.mkdir()
    path.write_bytes(b"\0" * 100)
    seen = Seen(path)
    assert not seen.has("a", NOW)
    seen.add("a", NOW + 75)
    assert Seen(path).has("a", NOW)


def test_where_nothing_can_be_written_this_life_remembers_and_tells_it_once(path):
    path.mkdir(parents=True)
    with structlog.testing.capture_logs() as logs:
        seen = Seen(path)
        for name in "abc":
            assert not seen.has(name, NOW)
            seen.add(name, NOW + 75)
        assert seen.has("a", NOW)
    assert [one["event"] for one in logs] == ["statements_not_kept"]


def test_without_a_file_a_life_remembers_its_own(path):
    seen = Seen()
    seen.add("a", NOW + 75)
    assert seen.has("a", NOW)
    assert not seen.has("a", NOW + 76)
    assert len(seen) == 0


def test_there_is_room_for_the_busiest_minute():
    assert PLACES / 75 > 400  # what one token may ask in a second, by default, is 400
