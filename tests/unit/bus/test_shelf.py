"""Facts on the disk of a daemon that has no broker."""

import pytest

from shared.bus import shelf
from shared.bus.outbox import Fact
from shared.bus.shelf import Shelf, place


def fact(number: int) -> Fact:
    return Fact("job.ended", b"\x00packed %d" % number, f"id-{number}", "job.ended", 1000.25 + number)


def told(facts: list[Fact]) -> list[tuple[object, ...]]:
    return [(one.key, one.data, one.id, one.type, one.said) for one in facts]


@pytest.fixture
def path(tmp_path):
    return place(tmp_path, "startd.slot1/node1")


def killed(path, *facts: Fact) -> None:
    """A life that put these on the shelf, one by one, and did not come to close it."""
    one = Shelf(path)
    for each in facts:
        one.add([each])


def test_next_life_finds_all_once_and_in_order(path):
    killed(path, fact(2), fact(1), fact(2), fact(3))
    again = Shelf(path)
    assert told(again.take()) == told([fact(2), fact(1), fact(3)])
    assert again.used
    again.add([fact(4)])  # killed again before there was a broker
    assert [one.id for one in Shelf(path).take()] == ["id-2", "id-1", "id-3", "id-4"]


def test_nothing_is_made_where_nothing_waits(path):
    one = Shelf(path)
    assert one.take() == []
    one.clear()
    one.close()
    assert not path.exists()


def test_cleared_shelf_is_empty_and_takes_more(path):
    one = Shelf(path)
    one.add([fact(1)])
    one.clear()
    assert not one.used
    assert Shelf(path).take() == []
    one.add([fact(2)])
    one.close()
    assert [each.id for each in Shelf(path).take()] == ["id-2"]


def test_fact_that_was_cut_short_is_left_out(path):
    killed(path, fact(1), fact(2))
    path.write_bytes(path.read_bytes()[:-3])
    again = Shelf(path)
    assert [one.id for one in again.take()] == ["id-1"]
    again.add([fact(3)])
    assert [one.id for one in Shelf(path).take()] == ["id-1", "id-3"]


def test_file_of_somebody_else_is_set_aside(path):
    path.write_bytes(b"what is this?\n" * 10)
    again = Shelf(path)
    assert again.take() == []
    again.add([fact(1)])
    assert [one.id for one in Shelf(path).take()] == ["id-1"]
    assert path.with_suffix(".damaged-1").exists()


def test_disk_that_takes_nothing_keeps_nobody_from_speaking(tmp_path):
    one = Shelf(place(tmp_path / "nowhere", "schedd.ap"))
    one.add([fact(1)])
    assert "nowhere" in one.trouble
    one.clear()
    one.close()


def test_it_does_not_grow_without_bound(path, monkeypatch):
    monkeypatch.setattr(shelf, "MOST", 1000)
    killed(path, *map(fact, range(100)))
    assert path.stat().st_size < 1200
    assert [one.id for one in Shelf(path).take()][:2] == ["id-0", "id-1"]
