"""What else than its own events a job's story is made of: who was without a broker, and what was lost then."""

import pytest

from services.journal.core.rows import rows_of
from services.journal.queries import JournalQueries
from services.journal.store import Store, url_of
from shared.messages.base import Envelope
from shared.messages.events import (
    DaemonReconnected,
    JobKind,
    JobsSorted,
    JobsSubmitted,
    LeaderChanged,
    Reason,
    ReasonsChanged,
)
from shared.messages.journal import AskJob

BEGIN = 1_700_000_000.0


class Frozen:
    def now(self) -> float:
        return BEGIN + 100


SUBMITTED = JobsSubmitted(at=BEGIN, schedd="ap", owner="ada", submitter="ada@p", cluster=1, first_proc=0, count=1)
SORTED = JobsSorted(at=BEGIN, schedd="ap", kinds=[JobKind(autocluster=7, submitter="ada@p", jobs=[[1, 0, 0]])])
BUSY = ReasonsChanged(
    at=BEGIN + 10,
    negotiator="cm",
    epoch=1,
    cycle=1,
    reasons=[
        Reason(schedd="ap", submitter="ada@p", autocluster=7, code="no-match", text="", left=1, counts={"claimed": 1})
    ],
)


def leader(at: float, negotiator: str, state: str = "leader", shard: str = "") -> LeaderChanged:
    return LeaderChanged(
        at=BEGIN + at, had=negotiator, negotiator=negotiator, epoch=1, state=state, shard=shard, reason=""
    )


def back(daemon: str, since: float, at: float, **lost: float) -> DaemonReconnected:
    return DaemonReconnected(at=BEGIN + at, daemon=daemon, since=BEGIN + since, **lost)


@pytest.fixture
async def waited(tmp_path):
    """Seconds of each cause in the 100 s since the job was submitted, with these events besides."""
    store = Store(url_of(None, tmp_path))

    async def asked(*events):
        await store.open()
        await store.write([rows_of(Envelope(event)) for event in (SUBMITTED, SORTED, BUSY, *events)])
        return (await JournalQueries(store, Frozen()).job(AskJob(job_id="1.0")))["waited"]

    yield asked
    await store.close()


async def test_while_its_schedd_has_no_broker_a_job_waits_for_that(waited):
    found = await waited(leader(-50, "cm"), back("schedd@ap", 40, 60), back("schedd@other", 70, 90))
    assert found == {"busy": 70.0, "no-broker": 20.0, "negotiation": 10.0}


async def test_while_the_negotiator_that_leads_has_no_broker_everybody_waits(waited):
    found = await waited(
        leader(-50, "cm"),
        back("negotiator@cm2", 20, 30),  # it does not lead
        back("negotiator@cm", 40, 45),
        leader(50, "cm", "passive"),
        leader(50, "cm2"),
        back("negotiator@cm", 60, 65),
        back("negotiator@cm2", 70, 71),
    )
    assert found == {"busy": 84.0, "negotiation": 10.0, "no-broker": 6.0}


async def test_one_of_several_leaders_that_is_cut_off_does_not_explain_all(waited):
    found = await waited(leader(-50, "cm"), leader(-40, "cm2", shard="gpus"), back("negotiator@cm", 40, 45))
    assert "no-broker" not in found


async def test_of_the_time_whose_facts_are_lost_nothing_is_known(waited):
    found = await waited(back("schedd@ap", 40, 60, lost=7, lost_from=BEGIN + 45, lost_to=BEGIN + 50))
    assert found == {"busy": 70.0, "no-broker": 15.0, "negotiation": 10.0, "unknown": 5.0}
