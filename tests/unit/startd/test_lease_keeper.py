"""What a further life of the startd finds of the leases of this one, however soon it is killed."""

from types import SimpleNamespace

import pytest
import structlog

from services.startd.journal import Journal
from services.startd.journal_writer import JournalWriter
from services.startd.lease_keeper import LeaseKeeper
from services.startd.run_table import RunTable
from tests.spec import spec

CLAIM = SimpleNamespace(claim_id="a", lease_s=2400.0)


class Clock:
    now = 1000.0

    def boottime(self):
        return self.now


class Life:
    """Of a startd, as far as leases go: what was not written when the next one begins never is."""

    def __init__(self, path, clock):
        self.journal = Journal(path)
        self.writer = JournalWriter(self.journal, SimpleNamespace(log=structlog.get_logger()))
        self.leases = LeaseKeeper(clock, self.writer, RunTable(), {})

    def grant(self):
        """As the answer to a request for a claim does it, which is written down before it is given."""
        self.leases.grant(CLAIM, first_s=40.0)
        self.writer.write()

    def restore(self):
        self.leases.restore([CLAIM], self.journal.load("leases"))


@pytest.fixture
async def clock():
    return Clock()


@pytest.fixture
async def life(tmp_path, clock):
    path = tmp_path / "journal"
    lives = []

    def begin():
        lives.append(Life(path, clock))
        return lives[-1]

    yield begin
    for one in lives:
        one.writer.close()


@spec("LEA-09", "LEA-02")
@pytest.mark.parametrize("how", ["an answered report", "a keep-alive"])
async def test_whoever_is_killed_when_the_schedd_has_just_shown_that_it_knows_of_a_claim_has_the_whole_lease(
    life, clock, how
):
    first = life()
    first.grant()
    clock.now += 0.1
    if how == "a keep-alive":
        assert first.leases.renew(["a"]) == []
    else:
        first.leases.confirmed("a", clock.now)
    second = life()
    clock.now += 62.0
    second.restore()
    assert second.leases.expired() == {}
    assert second.leases.left_s("a") == 2400.0 - 62.0


@spec("LEA-09")
async def test_a_first_lease_that_ended_while_no_startd_was_there_is_told_as_what_it_was(life, clock):
    life().grant()
    clock.now += 20.0
    life().restore()
    clock.now += 42.0
    third = life()
    third.restore()
    assert third.leases.expired() == {"a": 40.0}


async def test_a_lease_of_before_the_machine_was_started_anew_is_a_whole_one(life, clock):
    first = life()
    first.grant()
    second = life()
    kept = {key: {**record, "boot": "another"} for key, record in first.journal.load("leases").items()}
    second.leases.restore([CLAIM], kept)
    assert second.leases.left_s("a") == 2400.0
    clock.now += 2400.0
    assert second.leases.expired() == {"a": 2400.0}
