"""What the pool is told of a slot that goes from job to job of a claim."""

import pytest

from engine.slots.amounts import Amounts
from engine.slots.carving import SlotKind
from services.startd.core.slots.model import Claim, Slot
from services.startd.core.slots.transitions import Activity, Condition, State
from services.startd.publisher import LATER_S, between_jobs
from shared.messages.base import Message
from shared.messages.claims import JobReportAck
from shared.messages.events import SlotChanged
from tests.startd_pool import Pool
from tests.waiting import eventually

BUSY, IDLE = Condition(State.CLAIMED, Activity.BUSY), Condition(State.CLAIMED, Activity.IDLE)
NOW = 1_000_000.0


def slot(condition: Condition, since: float, **fields: object) -> Slot:
    nothing = Amounts({})
    made = Slot("slot1@ep", 1, 0, SlotKind.STATIC, 1, nothing, nothing, condition, since, since)
    made.claim = Claim("claim", "slot1@ep", "ap", "u@p", "request", 60, 20, b"", NOW - 60, 1)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("made", "told", "between"),
    [
        pytest.param(slot(IDLE, NOW - 0.01), BUSY, True, id="just ended"),
        pytest.param(slot(IDLE, NOW - 2 * LATER_S), BUSY, False, id="a while ago"),
        pytest.param(slot(IDLE, NOW + 10), BUSY, False, id="the clock was set back"),
        pytest.param(slot(BUSY, NOW - 0.01), BUSY, False, id="has the next"),
        pytest.param(slot(IDLE, NOW - 0.01), IDLE, False, id="was told so"),
        pytest.param(slot(IDLE, NOW - 0.01), None, False, id="nothing was told"),
        pytest.param(slot(IDLE, NOW - 0.01, waiting="another"), BUSY, False, id="somebody waits for it"),
        pytest.param(slot(Condition(State.UNCLAIMED, Activity.IDLE), NOW, claim=None), BUSY, False, id="free"),
    ],
)
def test_a_slot_between_two_jobs(made: Slot, told: Condition | None, between: bool) -> None:
    assert between_jobs(made, told, NOW) is between


async def test_a_claimed_slot_that_stays_without_a_job_is_told_of(tmp_path) -> None:  # type: ignore[no-untyped-def]
    events: list[Message] = []
    async with Pool(tmp_path) as pool:
        pool.startd.shared.publisher.event = lambda *told: events.extend(told)
        pool.schedd.next_job = lambda report: JobReportAck()  # nothing yet
        await pool.run()
        await eventually(
            lambda: [(e.state, e.activity) for e in events if isinstance(e, SlotChanged)][-1:] == [("Claimed", "Idle")]
        )
