"""Cycles as a daemon conducts them: what starts them, what they are told and tell, and what another configuration
changes; a schedd and a startd are scripts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from engine.match.model import Preempted
from engine.match.slot_table import Changes, SlotTable
from services.negotiator.daemon import Negotiator
from shared.bus.api import Exchange
from shared.classad import ClassAd, parse_expr
from shared.config import Config, ConfigError, load_config
from shared.daemon.ad_table import AdTable
from shared.messages.ads import AdDelta, AdHeartbeat, AdUpdate
from shared.messages.base import Ack, Envelope, Message
from shared.messages.events import CycleDone, PreemptionLoop
from shared.messages.negotiation import MatchNotice, Reschedule
from tests.spec import spec
from tests.unit.negotiator.test_daemon import Bench
from tests.waiting import eventually


class Stage(Bench):
    """A bench with somebody who hears everything, and a startd that hears of matches."""

    async def start(self) -> None:
        self.notices: list[MatchNotice] = []
        self.events: list[Message] = []
        self.heard = AdTable(900.0)
        self.slowness = 0.0  # of the schedd, in seconds
        self.busy = False  # the schedd
        self._answer, self.schedd._on_request = self.schedd._on_request, self._slowly  # type: ignore[method-assign]
        await super().start()
        await self.client.listen(Exchange.EVENTS, ["negotiation.#"], self._on_event)
        await self.client.listen(Exchange.ADS, ["*.Negotiator.#"], self._on_ads)

    async def _slowly(self, envelope: Envelope) -> Message:
        self.busy = True
        if self.slowness:
            await asyncio.sleep(self.slowness)
        self.busy = False
        return await self._answer(envelope)

    async def _on_event(self, envelope: Envelope) -> None:
        self.events.append(envelope.body)

    async def _on_ads(self, envelope: Envelope) -> None:
        if isinstance(envelope.body, AdUpdate | AdDelta | AdHeartbeat):
            self.heard.apply(envelope.body, self.clock.now())

    async def _resend(self, envelope: Envelope) -> Message:
        if isinstance(envelope.body, MatchNotice):
            self.notices.append(envelope.body)
            return Ack()
        return await super()._resend(envelope)

    async def leader(self, **knobs: object) -> Negotiator:
        daemon = await self.negotiator("cm1", **knobs)
        await self.lead("cm1", 1)
        await eventually(lambda: daemon.ready() == "" and daemon.cycle)
        return daemon

    def ad(self) -> ClassAd:
        """The negotiator's, as it told it last."""
        row = self.heard.row("Negotiator", "negotiator@cm1", "cm1")
        return ClassAd() if row is None else ClassAd.unpack(row.packed())

    def of_type(self, kind: type[Message]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    async def asked_again(self, daemon: Negotiator) -> None:
        """One more cycle, from beginning to end."""
        asked = time.monotonic()
        await self.speakers.call("negotiator", Reschedule(by="gateway"))
        await eventually(lambda: daemon.last_cycle is not None and daemon.last_cycle.start >= asked)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    await made.start()
    yield made
    await made.stop()


def config(**knobs: object) -> Config:
    """As `make_context` has it with these knobs."""
    env = {f"_CONDOR_{name}": str(value) for name, value in ({"UID_DOMAIN": "pool"} | knobs).items()}
    return load_config([], subsystem="NEGOTIATOR", env=env)


# --- what starts them


async def storm(stage: Stage, daemon: Negotiator, updates: int) -> tuple[int, float]:
    """So many ads of slots and submitters and requests for a cycle; how many cycles began, and how long it took."""
    before, began = daemon.cycle, time.monotonic()
    for number in range(updates):
        await stage.offer(cpus=1 + number % 7)
        await stage.want(1 + number % 3)
        await stage.speakers.call("negotiator", Reschedule(by="gateway"))
    return daemon.cycle - before, time.monotonic() - began


@spec("NEG-01")
async def test_a_storm_of_triggers_starts_few_cycles_and_none_is_lost(stage: Stage) -> None:
    """NEGOTIATOR_MIN_INTERVAL holds from start to start, whatever comes."""
    daemon = await stage.leader(NEGOTIATOR_MIN_INTERVAL=1)
    cycles, seconds = await storm(stage, daemon, 1000)
    assert cycles <= seconds + 1
    told = len(stage.schedd.told)
    await stage.want(1)  # the last word of all
    await eventually(lambda: any(said.matches for said in stage.schedd.told[told:]))


@pytest.mark.parametrize(("wanted", "cycles"), [(1, 0), (2, 1)])
async def test_a_slot_becomes_free_for_those_who_wait_only(stage: Stage, wanted: int, cycles: int) -> None:
    """A job that runs is idle in its submitter's ad for a while, since the schedd gathers such changes."""
    daemon = await stage.leader()
    await stage.offer(cpus=1)
    await stage.want(wanted)
    # The schedd does not say what it had a use for, so the slot is offered once more.
    await eventually(lambda: any("unused-matches" in done.trigger for done in stage.of_type(CycleDone)))
    await stage.offer(claimed_by="bob@pool")
    before, freed = daemon.cycle, time.monotonic()
    await stage.offer()
    await eventually(lambda: daemon.last_cycle is not None and daemon.last_cycle.start >= freed)
    assert daemon.cycle - before == cycles


async def test_a_storm_of_triggers_keeps_no_negotiator_of_a_huge_pool_busy(stage: Stage) -> None:
    """Cycles that take long start ROOST_NEGOTIATOR_COALESCE apart; one rest may be made up for later."""
    daemon = await stage.leader(ROOST_NEGOTIATOR_COALESCE=0.25)
    stage.slowness = 0.05
    cycles, seconds = await storm(stage, daemon, 300)
    assert cycles <= seconds / 0.25 + 2


@spec("ACC-22")
async def test_a_cycle_whose_schedds_are_slow_charges_no_second_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment a cycle began is no news once its request lists are there: the accounting records have gone on
    meanwhile."""
    daemon = await stage.leader()
    await stage.offer(claimed_by="alice@pool", cpus=4)
    await eventually(lambda: daemon.table.ads)
    assert await stage.usage() == 0.0
    ask, asked = daemon.schedd_client.fetch_requests, asyncio.Event()

    async def slowly(*args: Any) -> Any:
        stage.clock.at += 10
        daemon._charge()
        asked.set()
        return await ask(*args)

    monkeypatch.setattr(daemon.schedd_client, "fetch_requests", slowly)
    cycle = daemon.last_cycle
    await stage.want(1)
    await asked.wait()
    await eventually(lambda: daemon.last_cycle is not cycle)
    cycles = stage.clock.at - 1_000_000_000.0
    assert await stage.usage() == pytest.approx(4 * cycles)


@spec("NEG-02")
async def test_a_request_within_the_delay_is_postponed_not_lost(stage: Stage) -> None:
    daemon = await stage.leader(NEGOTIATOR_CYCLE_DELAY=1)
    await stage.asked_again(daemon)
    assert daemon.last_cycle is not None
    ended, cycle = daemon.last_cycle.end, daemon.cycle
    await stage.speakers.call("negotiator", Reschedule(by="gateway"))
    await eventually(lambda: daemon.cycle > cycle)
    await eventually(lambda: daemon.last_cycle is not None and daemon.last_cycle.end > ended)
    assert daemon.last_cycle.start >= ended + 1


async def test_a_cycle_that_outlives_its_lease_says_nothing_while_the_books_are_read_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same negotiator leads again before the cycle is over: what it decides stands on accounting records that are
    not read."""
    daemon = await stage.leader()
    await stage.offer()
    await eventually(lambda: daemon.table.claims)
    stage.slowness = 0.2
    await stage.want(1)
    await eventually(lambda: stage.busy)
    daemon.leads_until = 0.0
    load, may_load = daemon.accountant.load, asyncio.Event()

    async def slowly(epoch: int) -> bool:
        await may_load.wait()
        return await load(epoch)

    monkeypatch.setattr(daemon.accountant, "load", slowly)
    last = daemon.last_cycle
    again = asyncio.create_task(stage.lead("cm1", 1))
    try:
        await eventually(lambda: daemon.last_cycle is not last)
        assert daemon.leading()
        assert not stage.schedd.told
    finally:
        may_load.set()
        await again
    await eventually(lambda: any(said.matches for said in stage.schedd.told))


# --- what another configuration changes

GROUPS = {
    "GROUP_NAMES": "physics",
    "GROUP_QUOTA_physics": 5,
    "XSW_LIMIT": 3,
    "NEGOTIATOR_READ_CONFIG_BEFORE_CYCLE": True,
}
OTHERS = GROUPS | {"GROUP_NAMES": "physics, chemistry", "GROUP_QUOTA_physics": 7, "XSW_LIMIT": 9}


def in_force(daemon: Negotiator) -> tuple[float, tuple[str, ...], dict[str, float]]:
    policy = daemon.policy
    return policy.cycle.limits.limits["xsw"], policy.groups.names, dict(policy.groups.quota)


@spec("NEG-40", "CFG-17")
async def test_a_cycle_reads_limits_anew_but_not_the_group_tree(stage: Stage) -> None:
    """The tree is built anew at a reconfiguration. There are no sockets to keep, so their cache has no size."""
    daemon = await stage.leader(**GROUPS)
    daemon.context.reread = lambda: config(**OTHERS)
    await stage.asked_again(daemon)
    assert in_force(daemon) == (9.0, ("physics",), {"physics": 5.0})
    assert daemon.policy.cycle.groups == daemon.policy.groups
    await daemon.reconfigure()  # as SIGHUP has it, the whole
    assert in_force(daemon) == (9.0, ("physics", "chemistry"), {"physics": 7.0})


@spec("NEG-40")
async def test_without_the_knob_nothing_is_read_before_a_cycle(stage: Stage) -> None:
    daemon = await stage.leader(**GROUPS | {"NEGOTIATOR_READ_CONFIG_BEFORE_CYCLE": False})
    daemon.context.reread = lambda: config(**OTHERS)
    await stage.asked_again(daemon)
    assert in_force(daemon)[0] == 3.0


@spec("NEG-40")
async def test_a_configuration_that_says_the_same_changes_nothing(stage: Stage) -> None:
    daemon = await stage.leader(**GROUPS)
    daemon.context.reread = lambda: config(**GROUPS)
    before = daemon.policy
    await stage.asked_again(daemon)
    assert daemon.policy is before


@spec("NEG-40")
@pytest.mark.parametrize("broken", [{"NEGOTIATOR_INTERVAL": "soon"}, None])
async def test_a_configuration_that_can_not_be_read_leaves_the_old_one_in_force(
    stage: Stage, broken: dict[str, str] | None
) -> None:
    daemon = await stage.leader(**GROUPS)

    def reread() -> Config:
        if broken is None:
            raise ConfigError("no such file")
        return config(**GROUPS | {"XSW_LIMIT": 9} | broken)

    daemon.context.reread = reread
    await stage.offer()
    await stage.want(1)
    await eventually(lambda: any(said.matches for said in stage.schedd.told))
    assert (in_force(daemon)[0], daemon.policy.settings.negotiator_interval) == (3.0, 60)
    assert daemon.context.config.get("XSW_LIMIT") == "3"


async def test_a_new_configuration_starts_a_cycle(stage: Stage) -> None:
    """What it permits should not wait for the next minute."""
    daemon = await stage.leader(NEGOTIATOR_SUBMITTER_CONSTRAINT="false")
    await stage.offer()
    await stage.want(1)
    await stage.asked_again(daemon)
    assert not stage.schedd.asked
    daemon.context.config = config()
    await daemon.reconfigure()
    await eventually(lambda: any(said.matches for said in stage.schedd.told))
    await eventually(lambda: any("reconfigured" in event.trigger for event in stage.of_type(CycleDone)))


@spec("NEG-04")
async def test_slots_are_taken_again_under_another_constraint(stage: Stage) -> None:
    daemon = await stage.leader(NEGOTIATOR_SLOT_CONSTRAINT="Cpus > 4")
    await stage.offer(cpus=4)
    await stage.want(1)
    await stage.asked_again(daemon)
    assert not daemon.table.ads
    daemon.context.config = config()
    await daemon.reconfigure()
    await eventually(lambda: any(said.matches for said in stage.schedd.told))
    daemon.context.config = config(NEGOTIATOR_SLOT_CONSTRAINT="Cpus > 4")
    await daemon.reconfigure()
    assert not daemon.table.ads


@spec("NEG-36")
async def test_the_old_name_of_a_knob_works_with_a_warning(stage: Stage) -> None:
    with capture_logs() as logs:
        daemon = await stage.leader(GROUP_DYNAMIC_MACH_CONSTRAINT="Cpus > 4")
    assert any("rename it" in entry.get("problem", "") for entry in logs if entry["log_level"] == "warning")
    await stage.offer(cpus=4)
    await eventually(lambda: daemon.table.ads)
    assert daemon.table.total_weight(daemon.policy.cycle) == 0.0
    await stage.offer(cpus=5)
    await eventually(lambda: daemon.table.total_weight(daemon.policy.cycle) == 5.0)


# --- what it tells


@spec("NEG-39")
async def test_the_startd_hears_of_matches_only_where_the_knob_says_so(stage: Stage) -> None:
    await stage.leader()
    await stage.offer()
    await stage.want(1)
    await eventually(lambda: any(said.matches for said in stage.schedd.told))
    assert not stage.notices


@spec("NEG-39")
async def test_the_startd_hears_which_slot_is_matched_by_its_claim_id(stage: Stage) -> None:
    await stage.leader(NEGOTIATOR_INFORM_STARTD=True)
    await stage.offer()
    await stage.want(1)
    await eventually(lambda: stage.notices)
    (notice,) = stage.notices
    assert (notice.negotiator, notice.epoch) == ("cm1", 1)
    assert [(one.slot, one.claim_id) for one in notice.slots] == [("slot1@ep", "<ep>#1#1#secret")]
    await eventually(lambda: any(said.matches for said in stage.schedd.told))


@spec("NEG-39")
async def test_a_startd_that_does_not_answer_keeps_no_match_back(stage: Stage) -> None:
    await stage.leader(NEGOTIATOR_INFORM_STARTD=True)
    await stage.offer()
    await stage.startd.bus.stop()
    await stage.want(1)
    await eventually(lambda: any(said.matches for said in stage.schedd.told))


def durations(ad: ClassAd) -> list[str]:
    return sorted(name for name in ad if name.startswith("LastNegotiationCycleDuration"))


@spec("NEG-40", "NEG-41")
@pytest.mark.parametrize(("length", "shown"), [(0, 0), (2, 2), (3, 3)])
async def test_the_ad_tells_of_the_last_cycles_right_after_each(stage: Stage, length: int, shown: int) -> None:
    daemon = await stage.leader(
        NEGOTIATION_CYCLE_STATS_LENGTH=length, NEGOTIATOR_UPDATE_AFTER_CYCLE=True, NEGOTIATOR_UPDATE_INTERVAL=300
    )
    for _ in range(4):
        await stage.asked_again(daemon)
    await eventually(lambda: stage.ad().eval("Cycles") == daemon.cycle, timeout_s=4)  # by the clock it is every 5 s
    assert durations(stage.ad()) == [f"LastNegotiationCycleDuration{n}" for n in range(shown)]


@spec("NEG-41")
async def test_the_statistics_say_what_the_cycle_did(stage: Stage) -> None:
    daemon = await stage.leader(NEGOTIATOR_UPDATE_AFTER_CYCLE=True)
    await stage.offer()
    await stage.want(1)
    await eventually(lambda: any(said.matches for said in stage.schedd.told))
    await eventually(lambda: any(cycle.matches for cycle in daemon.statistics))
    cycle = next(cycle for cycle in daemon.statistics if cycle.matches)
    assert (cycle.matches, cycle.active_submitters, cycle.schedulers, cycle.total_slots) == (1, 1, 1, 1)
    assert (cycle.idle_jobs, cycle.jobs_considered, cycle.candidate_slots) == (1, 1, 1)


@spec("NEG-41")
async def test_only_whose_schedd_is_silent_failed(stage: Stage) -> None:
    daemon = await stage.leader(NEGOTIATOR_TIMEOUT=1)
    await stage.want(1)
    stage.schedd.idle = 0  # it answers, with nothing: NEGOTIATOR_JOB_CONSTRAINT may leave nothing
    await stage.asked_again(daemon)
    assert daemon.statistics[0].idle_jobs == 1
    assert daemon.statistics[0].submitters_failed == []
    stage.schedd.refuse_below = 2
    await stage.asked_again(daemon)
    assert daemon.statistics[0].submitters_failed == ["alice@pool"]


async def test_the_slot_table_is_brought_up_to_date_in_a_thread(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that come cost a copy of all columns, which would hold the loop of a large pool's negotiator."""
    threads: list[bool] = []
    carry_out = SlotTable.carry_out

    def noted(self: SlotTable, changes: Changes) -> None:
        threads.append(threading.current_thread() is threading.main_thread())
        carry_out(self, changes)

    monkeypatch.setattr(SlotTable, "carry_out", noted)
    daemon = await stage.leader()
    await stage.offer(cpus=4)
    await stage.want(1)
    await stage.asked_again(daemon)
    assert threads
    assert not any(threads)


async def test_a_machine_of_which_no_ad_can_be_read_is_logged_once_a_minute(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = await stage.leader()
    with capture_logs() as lines:
        for name in ("a", "b", "c"):
            daemon._unreadable("Machine", "startd@odd", name, ValueError("odd"))
        monkeypatch.setattr("services.negotiator.daemon.UNREADABLE_S", 0.0)
        daemon._unreadable("Machine", "startd@odd", "a", ValueError("odd"))
    assert [(line["ad"], line["before"]) for line in lines if line["event"] == "ad_unreadable"] == [("a", 0), ("a", 2)]


async def test_a_slot_that_goes_to_and_fro_is_told_of(stage: Stage) -> None:
    daemon = await stage.leader()
    now = stage.clock.now()
    daemon.cycle_runner.preempted += [
        Preempted("slot1@ep", "bob@pool", "alice@pool", now - 20),
        Preempted("slot1@ep", "alice@pool", "bob@pool", now - 10),
    ]
    ad = ClassAd({"Name": "slot1@ep", "MyType": "Machine", "MyAddress": "startd.ep", "Cpus": 1, "SlotWeight": 1})
    ad.update({"State": "Claimed", "Activity": "Busy", "RemoteUser": "bob@pool", "CurrentRank": 0.0, "Rank": 1.0})
    ad["Requirements"] = parse_expr("true")
    await stage.slots.publish({"slot1@ep": ad}, {"slot1@ep": "<ep>#1#1#secret"})
    await eventually(lambda: daemon.table.claims)
    await stage.want(1)
    await eventually(lambda: stage.of_type(PreemptionLoop))
    (loop,) = stage.of_type(PreemptionLoop)
    assert (loop.slot, loop.users, loop.times, loop.window_s) == ("slot1@ep", ["alice@pool", "bob@pool"], 3, 3600.0)
    told = next(match for said in stage.schedd.told for match in said.matches)
    assert (told.preempts, told.preempt_claims) == (["slot1@ep"], ["<ep>#1#1#secret"])


async def test_preemptions_of_long_ago_are_forgotten(stage: Stage) -> None:
    daemon = await stage.leader()
    now = stage.clock.now()
    daemon.cycle_runner.preempted += [Preempted("s", "a", "b", now - 3601), Preempted("s", "b", "a", now - 3599)]
    await stage.asked_again(daemon)
    assert [one.at for one in daemon.cycle_runner.preempted] == [now - 3599]
