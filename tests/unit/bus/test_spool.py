"""Events on the disk of a daemon that has no broker."""

import pytest

from shared.bus import spool
from shared.bus.outbox import PendingEvent
from shared.bus.spool import EventSpool, spool_file


def event(number: int) -> PendingEvent:
    return PendingEvent("job.ended", b"\x00packed %d" % number, f"id-{number}", "job.ended", 1000.25 + number)


def told(events: list[PendingEvent]) -> list[tuple[object, ...]]:
    return [(one.key, one.data, one.id, one.type, one.said) for one in events]


@pytest.fixture
def path(tmp_path):
    return spool_file(tmp_path, "startd.slot1/node1")


def killed(path, *events: PendingEvent) -> None:
    """A life that put these on the spool, one by one, and did not come to close it."""
    one = EventSpool(path)
    for each in events:
        one.add([each])


def test_next_life_finds_all_once_and_in_order(path):
    killed(path, event(2), event(1), event(2), event(3))
    again = EventSpool(path)
    assert told(again.take()) == told([event(2), event(1), event(3)])
    assert again.used
    again.add([event(4)])  # killed again before there was a broker
    assert [one.id for one in EventSpool(path).take()] == ["id-2", "id-1", "id-3", "id-4"]


def test_nothing_is_made_where_nothing_waits(path):
    one = EventSpool(path)
    assert one.take() == []
    one.clear()
    one.close()
    assert not path.exists()


def test_cleared_spool_is_empty_and_takes_more(path):
    one = EventSpool(path)
    one.add([event(1)])
    one.clear()
    assert not one.used
    assert EventSpool(path).take() == []
    one.add([event(2)])
    one.close()
    assert [each.id for each in EventSpool(path).take()] == ["id-2"]


def test_fact_that_was_cut_short_is_left_out(path):
    killed(path, event(1), event(2))
    path.write_bytes(path.read_bytes()[:-3])
    again = EventSpool(path)
    assert [one.id for one in again.take()] == ["id-1"]
    again.add([event(3)])
    assert [one.id for one in EventSpool(path).take()] == ["id-1", "id-3"]


def test_file_of_somebody_else_is_set_aside(path):
    path.write_bytes(b"what is this?\n" * 10)
    again = EventSpool(path)
    assert again.take() == []
    again.add([event(1)])
    assert [one.id for one in EventSpool(path).take()] == ["id-1"]
    assert path.with_suffix(".damaged-1").exists()


def test_disk_that_takes_nothing_keeps_nobody_from_speaking(tmp_path):
    one = EventSpool(spool_file(tmp_path / "nowhere", "schedd.ap"))
    one.add([event(1)])
    assert "nowhere" in one.trouble
    one.clear()
    one.close()


def test_it_does_not_grow_without_bound(path, monkeypatch):
    monkeypatch.setattr(spool, "MOST", 1000)
    killed(path, *map(event, range(100)))
    assert path.stat().st_size < 1200
    assert [one.id for one in EventSpool(path).take()][:2] == ["id-0", "id-1"]
