"""Which sleeping machines jobs wait for (ABS-07, PWR-06), and how long the negotiator knows of them."""

from __future__ import annotations

import structlog

from engine.match.offline_match import AGAIN_S, WakeCalls
from services.collector.core.acceptance import AbsentPolicy
from services.collector.directory import AdIndex, Directory
from shared.bus.api import Exchange
from shared.bus.memory import MemoryBus
from shared.classad import ClassAd, parse_expr
from shared.messages.ads import AdUpdate
from shared.messages.base import Envelope
from shared.messages.events import OfflineMatched
from tests.spec import spec
from tests.unit.negotiator.test_daemon import Bench, bench
from tests.unit.negotiator.test_worked_examples import POST, decide, jobs, machine, names, slot
from tests.waiting import eventually

__all__ = ["bench"]

ASLEEP = {"Offline": "true"}


@spec("PWR-06")
def test_jobs_without_a_slot_are_matched_with_machines_that_sleep() -> None:
    """As many as they need, the best first; nothing is handed out there."""
    offered = [slot("on@m"), slot("a@m", Cpus="1", **ASLEEP), slot("b@m", KFlops="9", **ASLEEP), slot("c@m", **ASLEEP)]
    result = decide(offered, [jobs("u", 3)], post_job_rank="ifThenElse(isUndefined(KFlops), 0, KFlops)")
    assert names(result) == ["on"]
    assert result.offline == ("b@m", "a@m")


def test_who_has_a_slot_wakes_nobody() -> None:
    """Also where the sort of the reference would put a sleeping slot first."""
    result = decide([slot("on@m"), slot("off@m", KFlops="9", **ASLEEP)], [jobs("u", 1)], post_job_rank="KFlops ?: 0")
    assert (names(result), result.offline) == (["on"], ())
    assert decide([slot("off@m", **ASLEEP)], [], post_job_rank=POST).offline == ()


def test_only_what_suits_is_woken() -> None:
    offered = [
        slot("small@m", Memory="10", **ASLEEP),
        slot("shut@m", Requirements="false", **ASLEEP),
        slot("awake@m", Offline="false", Requirements="false"),
    ]
    assert decide(offered, [jobs("u", 2, Requirements="TARGET.Memory > 100")]).offline == ()
    assert decide(offered, [jobs("u", 1)]).offline == ("small@m",)


def test_jobs_are_packed_into_as_few_machines_as_hold_them() -> None:
    offered = [machine("slot1@x", 4, **ASLEEP), machine("slot1@y", 4, **ASLEEP)]
    asks = [jobs("u", 2, 1), jobs("u", 1, 2, RequestCpus="2"), jobs("v", 1, 3, RequestCpus="3")]
    assert decide(offered, asks[:2]).offline == ("slot1@x",)
    assert decide(offered, asks).offline == ("slot1@x", "slot1@y")
    assert decide(offered, [jobs("u", 1, RequestCpus="8")]).offline == ()


def test_who_may_have_no_more_wakes_nobody() -> None:
    """Whoever is at the ceiling, or whose limits are used up, would not get the machine either."""
    offered = [slot("on@m"), slot("off@m", **ASLEEP)]
    limits = {"limits": {"x": 1.0}}
    asks = [jobs("u", 2, ConcurrencyLimits='"X"')]
    result = decide(offered, asks, limits=limits)
    assert [one.code for one in result.rejections] == ["limit"]
    assert result.offline == ()


def test_the_same_slots_are_told_again_after_a_while() -> None:
    calls = WakeCalls()
    assert calls.due(["a", "b"], 100.0) == ["a", "b"]
    assert calls.due(["a", "b", "c"], 100.0 + AGAIN_S - 1) == ["c"]
    assert calls.due(["a", "b", "c"], 100.0 + AGAIN_S) == ["a", "b"]
    assert calls.due(["a"], 50.0) == ["a"]  # the clock was set back
    assert calls.due([], 51.0) == []
    assert calls.due(["a"], 52.0) == ["a"]  # it was awake meanwhile


def _sleeper() -> ClassAd:
    ad = ClassAd({"Name": "slot1@ep", "MyType": "Machine", "MyAddress": "startd.ep", "Cpus": 1, "Offline": True})
    ad["Requirements"] = parse_expr("true")
    return ad


@spec("PWR-07")
async def test_a_sleeping_machine_is_known_for_as_long_as_the_collector_keeps_it(bench: Bench) -> None:
    """It is silent for longer than CLASSAD_LIFETIME. What the cycle comes to is told as an event."""
    told: list[OfflineMatched] = []

    async def hear(envelope: Envelope) -> None:
        if isinstance(envelope.body, OfflineMatched):
            told.append(envelope.body)

    listener = MemoryBus(bench.hub, sender="collector.cm")
    await listener.start()
    await listener.listen(Exchange.EVENTS, [OfflineMatched.type], hear)
    keeping = AbsentPolicy(persistent=True, offline_s=5000.0)
    collector = Directory(bench.store, bench.clock, structlog.get_logger(), AdIndex(900.0), keeping)
    daemon = await bench.negotiator("cm1", CLASSAD_LIFETIME=900, NEGOTIATOR_CYCLE_DELAY=0, NEGOTIATOR_INTERVAL=1)
    await bench.lead("cm1", 1)
    await bench.slots.publish({"slot1@ep": _sleeper()})
    update = AdUpdate(
        my_type="Machine",
        daemon="startd@ep",
        start_time=bench.slots.start_time,
        sequence=bench.slots.sequence,
        names=["slot1@ep"],
        ads=[_sleeper().pack()],
    )
    collector.apply(update)
    await collector.writer.write_some()
    await bench.want(1)
    await eventually(lambda: told)
    assert (told[0].slots, told[0].negotiator) == (["slot1@ep"], "cm1")
    assert not bench.schedd.told or not bench.schedd.told[-1].matches

    bench.clock.at += 2000
    await bench.want(2)
    await eventually(lambda: len(told) > 1)  # still there, and told anew after AGAIN_S
    assert "slot1@ep" in daemon.table.ads
    bench.clock.at += 4000
    collector.expire()
    await collector.drop(collector.expire())
    await bench.want(3)
    await eventually(lambda: "slot1@ep" not in daemon.table.ads)
    await listener.stop()
