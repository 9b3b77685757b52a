"""The collector's ads on a store that outlives it: expiry, lost updates, absent and offline machines (COL-*, ABS-*)."""

import pytest
import structlog

from services.collector.core.acceptance import AbsentPolicy
from services.collector.core.overlay import overlay_of
from services.collector.core.queries import read
from services.collector.daemon import policy
from services.collector.directory import AdIndex, Directory
from shared.classad import ClassAd, parse_expr
from shared.config import load_config
from shared.config.knobs import CollectorSettings
from shared.daemon.ad_table import Outcome
from shared.daemon.clock import SystemClock
from shared.messages.ads import AdDelta, AdHeartbeat, AdInvalidate, AdUpdate
from shared.state.ads import load_ads
from shared.state.embedded import EmbeddedStore
from tests.spec import spec
from tests.unit.collector.pages import answer

ALL = AbsentPolicy(parse_expr("Cpus > 2"), persistent=True)


class Clock(SystemClock):
    time = 1_000_000.0

    def now(self):
        return self.time


class Here:
    """Collectors one after the other, on one store."""

    def __init__(self):
        self.store, self.clock = EmbeddedStore(), Clock()

    def collector(self, policy=ALL, lifetime_s=900.0):
        return Directory(self.store, self.clock, structlog.get_logger(), AdIndex(lifetime_s), policy)

    async def pass_by(self, directory, seconds):
        self.clock.time += seconds
        await directory.drop(directory.expire())
        await directory.forget(self.clock.now())

    async def written(self, directory):
        while directory.writer.waiting:
            await directory.writer.write_some()


@pytest.fixture
async def here():
    made = Here()
    await made.store.start()
    yield made
    await made.store.stop()


def whole(sequence=1, daemon="startd@n1", my_type="Machine", start_time=5, name="slot1@n1", **attributes):
    ad = ClassAd({"Name": name, "Cpus": 4} | attributes).pack()
    return AdUpdate(my_type=my_type, daemon=daemon, start_time=start_time, sequence=sequence, names=[name], ads=[ad])


def beat(sequence, base=1, daemon="startd@n1", my_type="Machine"):
    return AdHeartbeat(my_type=my_type, daemon=daemon, start_time=5, base=base, sequence=sequence)


def delta(sequence, base, **attributes):
    return AdDelta(
        my_type="Machine", daemon="startd@n1", start_time=5, base=base, sequence=sequence, names=["slot1@n1"],
        changes=[ClassAd(attributes).pack()], removed_attrs=[[]],
    )  # fmt: skip


def gone(sequence, daemon="startd@n1", my_type="Machine"):
    return AdInvalidate(my_type=my_type, daemon=daemon, start_time=5, sequence=sequence)


def shown(directory, constraint="", absent=False, now=0.0):
    page = answer(
        read(["Machine"], constraint, [], 0, "", absent), directory.order, directory.absentees, now or 1_000_000.0
    )
    return [ClassAd.unpack(ad) for ad in page.ads]


@spec("COL-02")
async def test_silent_ads_go_after_classad_lifetime_and_those_of_a_longer_one_stay(here):
    """Three of the updates every 300 s may be lost."""
    collector = here.collector(AbsentPolicy())
    collector.apply(whole())
    collector.apply(whole(daemon="startd@n2", name="slot1@n2", ClassAdLifetime=5000))
    await here.pass_by(collector, 899)
    assert len(shown(collector)) == 2
    await here.pass_by(collector, 2)
    assert [ad["Name"] for ad in shown(collector)] == ["slot1@n2"]
    await here.pass_by(collector, 5000)
    assert shown(collector) == []


@spec("COL-07")
async def test_submitter_ads_of_one_name_belong_to_their_schedds(here):
    collector = here.collector()
    for schedd in ("ap1", "ap2"):
        collector.apply(
            whole(
                my_type="Submitter",
                daemon=f"schedd@{schedd}",
                name="alice@p",
                ScheddName=schedd,
                IdleJobs=3,
                RunningJobs=1,
                WeightedIdleJobs=6.0,
                ScheddIpAddr=f"schedd.{schedd}",
            )
        )
    page = answer(read(["Submitter"], "", [], 0, "", False), collector.order, {}, 0.0)
    ads = [ClassAd.unpack(ad) for ad in page.ads]
    assert [(ad["ScheddName"], ad["IdleJobs"], ad["WeightedIdleJobs"]) for ad in ads] == [
        ("ap1", 3, 6.0), ("ap2", 3, 6.0),
    ]  # fmt: skip
    collector.apply(gone(2, "schedd@ap1", "Submitter"))
    page = answer(read(["Submitter"], "", [], 0, "", False), collector.order, {}, 0.0)
    assert [ClassAd.unpack(ad)["ScheddName"] for ad in page.ads] == ["ap2"]


@spec("COL-08")
async def test_sequence_numbers_tell_what_was_lost_and_what_is_older(here):
    collector = here.collector()
    collector.apply(whole(1))
    assert collector.apply(whole(5, State="Claimed")).outcome is Outcome.APPLIED
    assert collector.apply(whole(3, State="Owner")).outcome is Outcome.OLDER  # overtaken on its way
    assert collector.apply(whole(5, State="Owner")).outcome is Outcome.OLDER  # twice
    (ad,) = shown(collector)
    assert (ad["State"], ad["UpdateSequenceNumber"], ad["UpdatesLost"], ad["UpdatesTotal"]) == ("Claimed", 5, 3, 5)
    assert collector.apply(whole(1, start_time=9, State="Idle")).outcome is Outcome.APPLIED  # a new life
    (group,) = collector.table.groups("Machine")
    assert overlay_of(group)["UpdatesLost"] == 3


@spec("ABS-01", "ABS-02", "ABS-03", "ABS-04", "ABS-08", "W-78")
async def test_expired_machine_is_absent_until_it_is_heard_of_or_forgotten(here):
    collector = here.collector()
    collector.apply(whole())
    collector.apply(whole(daemon="startd@n2", name="slot1@n2", Cpus=1))  # ABSENT_REQUIREMENTS is not true for it
    await here.pass_by(collector, 901)
    assert shown(collector) == []
    (ad,) = shown(collector, absent=True)
    assert (ad["Name"], ad["Absent"]) == ("slot1@n1", True)
    assert [one["Name"] for one in shown(collector, "Absent =?= true")] == ["slot1@n1"]
    assert list(collector.table.rows("Machine")) == []  # whoever matches sees living ads only
    collector.apply(whole(7, State="Owner"))
    assert shown(collector, "Absent =?= true") == []
    await here.pass_by(collector, 901)
    assert len(shown(collector, absent=True)) == 1
    await here.pass_by(collector, ALL.keep_s - 1)
    assert len(shown(collector, absent=True)) == 1
    await here.pass_by(collector, 2)
    assert shown(collector, absent=True) == []  # gone, not marked again
    again = here.collector()
    await again.load()
    assert again.absentees == {}


@spec("ABS-06", "COL-04")
async def test_invalidated_machine_is_absent_only_where_that_is_wanted(here):
    for invalidated_too, expected in ((False, 0), (True, 1)):
        collector = here.collector(AbsentPolicy(parse_expr("true"), invalidated_too=invalidated_too, persistent=True))
        collector.apply(whole())
        collector.apply(gone(2))
        assert shown(collector) == []
        assert len(shown(collector, absent=True)) == expected


@spec("ABS-07", "ABS-05")
async def test_sleeping_machine_is_kept_with_what_is_true_of_it(here):
    """Also across a restart."""
    collector = here.collector(AbsentPolicy(persistent=True, offline_s=10_000.0))
    collector.apply(whole(Offline=True, State="Claimed", Activity="Busy", LoadAvg=3.5, TotalLoadAvg=4.0))
    collector.apply(whole(daemon="startd@n2", name="slot1@n2", Offline=False))
    await here.written(collector)
    await here.pass_by(collector, 5000)
    again = here.collector(AbsentPolicy(persistent=True, offline_s=10_000.0))
    await again.load()
    again._spared_until = 0.0
    for one in (collector, again):
        (ad,) = shown(one)
        assert (ad["Name"], ad["State"], ad["Activity"], ad["LoadAvg"]) == ("slot1@n1", "Unclaimed", "Idle", 0.0)
        assert (ad["TotalLoadAvg"], ad["Offline"]) == (0.0, True)
    await here.pass_by(again, 5001)
    assert shown(again) == []


@spec("ABS-07")
async def test_machine_that_wakes_is_asked_for_all_its_ads(here):
    """What it changes does not stand on what is kept."""
    collector = here.collector(AbsentPolicy(persistent=True))
    collector.apply(whole(1, Offline=True, State="Owner"))
    assert collector.apply(beat(2)).outcome is Outcome.ALIVE
    assert collector.apply(delta(3, 1, Offline=False)).ask
    assert collector.apply(delta(4, 3, Memory=5)).ask
    collector.apply(whole(5, Offline=False, State="Owner"))
    (ad,) = shown(collector)
    assert (ad["State"], "ClassAdLifetime" in ad) == ("Owner", False)
    assert collector.apply(delta(6, 5, Memory=5)).outcome is Outcome.APPLIED
    assert collector.apply(delta(7, 6, Offline=True)).ask  # and so it is when it goes to sleep by a change


@spec("ABS-07")
@pytest.mark.parametrize("said", ["undefined", "error", "1", '"true"', "Nothing"])
async def test_offline_is_true_or_it_is_not(here, said):
    collector = here.collector(AbsentPolicy(persistent=True))
    collector.apply(whole(Offline=parse_expr(said), State="Claimed"))
    assert shown(collector)[0]["State"] == "Claimed"


def settings(**config):
    overrides = {f"_CONDOR_{knob}": str(value) for knob, value in config.items()}
    return CollectorSettings.from_config(load_config([], subsystem="COLLECTOR", env=overrides))


@spec("ABS-09", "ABS-04", "ABS-07")
async def test_without_the_persistent_log_nothing_is_absent_or_offline(here):
    """ABS-09; ABS-04 and ABS-07 for the defaults."""
    off = policy(settings(ABSENT_REQUIREMENTS="true"))
    assert (off.requirements, off.persistent) == (None, False)
    collector = here.collector(off)
    collector.apply(whole(Offline=True, State="Claimed"))
    assert shown(collector)[0]["State"] == "Claimed"
    await here.pass_by(collector, 901)
    assert shown(collector, absent=True) == []
    on = policy(settings(ABSENT_REQUIREMENTS="true", COLLECTOR_PERSISTENT_AD_LOG="/x"))
    assert on.requirements is not None
    assert (on.keep_s, on.offline_s, on.invalidated_too) == (2592000.0, 2147483647.0, False)


@spec("COL-01", "COL-03")
async def test_everything_is_there_after_a_restart(here):
    """COL-01: the reference forgets; COL-03: an ad stands where its Name and daemon say."""
    collector = here.collector()
    collector.apply(whole(1))
    collector.apply(delta(2, 1, State="Claimed"))
    collector.apply(whole(1, daemon="schedd@ap", my_type="Scheduler", name="ap"))
    await here.written(collector)
    again = here.collector()
    assert await again.load() == 2
    (ad,) = shown(again)
    assert (ad["State"], ad["UpdateSequenceNumber"]) == ("Claimed", 2)
    assert again.apply(delta(3, 2, State="Idle")).outcome is Outcome.APPLIED
    assert sum(len(group.ads) for group in await load_ads(here.store)) == 2
