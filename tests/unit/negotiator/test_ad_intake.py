"""Which ads the negotiator deals with: constraints on slots and submitters, and ads that are kept back."""

from __future__ import annotations

from collections.abc import Iterable

import msgpack
import pytest

from engine.match.slot_table import SlotTable
from engine.policy import Policy, read_policy
from services.negotiator.ad_intake import AdIntake, IntakeResult
from shared.classad import ClassAd, parse_expr
from shared.config import load_config
from shared.cooperative import at_once
from shared.daemon.ad_rows import difference, pack
from shared.daemon.ad_table import AdTable, Outcome
from shared.messages.ads import AdDelta, AdUpdate
from tests.spec import spec

NOW = 1_000_000_000.0
EP, AP = "startd@ep", "schedd@ap"


def total(steps: Iterable[IntakeResult]) -> IntakeResult:
    """What all steps came to."""
    whole = IntakeResult()
    for one in steps:
        whole.add(one)
    return whole


class Clock:
    at = NOW

    def now(self) -> float:
        return self.at


def policy(**knobs: str) -> Policy:
    env = {f"_CONDOR_{name}": value for name, value in knobs.items()}
    return read_policy(load_config([], subsystem="NEGOTIATOR", env=env), lambda: 0.0)


class Desk:
    """An intake with what it stands on. `refused`: ads that could not be read."""

    def __init__(self, **knobs: str) -> None:
        self.policy = policy(**knobs)
        self.ads, self.clock, self.refused = AdTable(900.0), Clock(), []
        self.table = SlotTable(self.policy.cycle)
        self.ad_intake = AdIntake(
            self.policy, self.ads, self.table, self.clock, lambda *what: self.refused.append(what)
        )
        self._sequence = 0

    def say(self, my_type: str, daemon: str, ads: dict[str, bytes]) -> None:
        """A daemon tells all its ads of a type."""
        self._sequence += 1
        update = AdUpdate(
            my_type=my_type,
            daemon=daemon,
            start_time=1,
            sequence=self._sequence,
            names=list(ads),
            ads=list(ads.values()),
        )
        change = self.ads.apply(update, self.clock.now())
        if my_type == "Machine":
            total(self.ad_intake.steps(daemon, change.updated, change.removed))

    def says(self, my_type: str, daemon: str, *ads: ClassAd) -> None:
        self.say(my_type, daemon, {str(ad["Name"]): ad.pack() for ad in ads})

    def wants_slots(self, before: ClassAd, now: ClassAd) -> bool:
        """Whether the change from one submitter ad to the next starts a cycle."""
        self.says("Submitter", AP, now)
        return at_once(self.ad_intake.wants_slots(AP, {str(now["Name"]): difference(before.pack(), now.pack())}))

    def slot(self, name: str = "s@ep", daemon: str = EP, **attributes: object) -> None:
        self.says("Machine", daemon, ClassAd({"Name": name, "Cpus": 1, **attributes}))

    def submitter(self, name: str, schedd: str = "schedd.ap", idle: int = 1, **attributes: object) -> None:
        ad = ClassAd({"Name": name, "ScheddIpAddr": schedd, "IdleJobs": idle, **attributes})
        self.says("Submitter", schedd, ad)


@spec("NEG-04")
def test_slots_outside_the_constraint_are_neither_offered_nor_charged_nor_counted() -> None:
    desk = Desk(NEGOTIATOR_SLOT_CONSTRAINT="Cpus > 4")
    desk.slot("small@a", "startd@a", Cpus=4, SlotWeight=4, RemoteUser="alice@p", State="Claimed")
    desk.slot("odd@b", "startd@b", Cpus="many")
    desk.slot("large@c", "startd@c", Cpus=8, SlotWeight=8)
    assert list(desk.table.ads) == ["large@c"]
    assert desk.table.in_use(desk.policy.cycle) == {}
    assert desk.table.total_weight(desk.policy.cycle) == 8.0


@spec("NEG-04")
def test_a_slot_that_comes_back_within_the_constraint_has_its_claim_id_still() -> None:
    desk = Desk(NEGOTIATOR_SLOT_CONSTRAINT="Site =!= 1")
    desk.table.claims["s@ep"] = "secret"
    for site, there in ((0, True), (1, False), (0, True)):
        desk.slot(Site=site)
        assert ("s@ep" in desk.table.ads) is there
        assert desk.table.claims == {"s@ep": "secret"}


def apply_constraint(desk: Desk) -> None:
    for _ in desk.ad_intake.apply_constraint():
        pass


@spec("NEG-04")
@pytest.mark.parametrize("constraint", [f"time() >= {NOW + 10:.0f}", "Old", "Cpus == 1 && CurrentAge >= 10"])
def test_a_constraint_that_looks_at_the_clock_is_asked_before_each_cycle(constraint: str) -> None:
    """Also when the clock is in the slot's own ad."""
    desk = Desk(NEGOTIATOR_SLOT_CONSTRAINT=constraint)
    age = f"time() - {NOW:.0f}"
    desk.table.claims["s@ep"] = "secret"
    desk.slot(CurrentAge=parse_expr(age), Old=parse_expr(f"({age}) >= 10"), SlotWeight=2, RemoteUser="a@p")
    for later, there in ((9.0, False), (11.0, True), (9.0, False), (12.0, True)):
        desk.clock.at = NOW + later
        apply_constraint(desk)
        assert (list(desk.table.ads) == ["s@ep"]) is there
        assert desk.table.total_weight(desk.policy.cycle) == (2.0 if there else 0.0)
        assert desk.table.claims == {"s@ep": "secret"}
    desk.says("Machine", EP)  # the startd has no slots any more
    apply_constraint(desk)
    assert not desk.table.ads


@spec("NEG-04")
def test_a_constraint_on_plain_values_is_asked_about_new_ads_alone() -> None:
    desk = Desk(NEGOTIATOR_SLOT_CONSTRAINT="Cpus > 4 && Site =!= 1")
    desk.slot("small@a", "startd@a", Cpus=4)
    desk.slot("large@c", "startd@c", Cpus=8)
    assert list(desk.ad_intake.apply_constraint()) == []


def changed(desk: Desk, base: int, changes: dict[str, object], *removed: str) -> None:
    """The startd tells what changed in the ad of its slot."""
    delta = AdDelta(
        my_type="Machine",
        daemon=EP,
        start_time=1,
        base=base,
        sequence=base + 1,
        names=["s@ep"],
        changes=[pack(changes)],
        removed_attrs=[list(removed)],
    )
    change = desk.ads.apply(delta, desk.clock.now())
    assert change.outcome is Outcome.APPLIED
    total(desk.ad_intake.steps(EP, change.updated, change.removed))


def as_told(desk: Desk) -> bool:
    """Whether the slot table has what the startd said."""
    row = desk.ads.row("Machine", EP, "s@ep")
    assert row is not None
    desk.table.flush()
    columns, codes = desk.table.table.columns, desk.table.table.codes
    told = ClassAd.unpack(row.packed())
    return desk.table.ads["s@ep"] == told and all(
        columns[key].cell(0, codes) == told.find(key) for key in ("loadavg", "state", "cpus", "start")
    )


def test_what_a_startd_says_has_changed_is_taken_in() -> None:
    desk = Desk()
    desk.slot(LoadAvg=0.5, State="Unclaimed", Start=parse_expr("true"), Hat="red")
    assert as_told(desk)
    changed(desk, 1, {"LoadAvg": 0.7})
    changed(desk, 2, {"LoadAvg": 0.8, "KeyboardIdle": 3}, "Hat")
    assert as_told(desk)
    changed(desk, 3, {"State": "Claimed", "RemoteUser": "eve@p"})
    assert desk.table.in_use(desk.policy.cycle) == {"eve@p": (1.0, 1)}
    assert as_told(desk)
    changed(desk, 4, {"Teapot": 0.1})
    changed(desk, 5, {"teapot": 0.1}, "Teapot")  # in another spelling
    changed(desk, 6, {"Teapot": 0.2})  # there are two of them now
    assert desk.ads.row("Machine", EP, "s@ep").attributes()["teapot"] == 0.1
    assert as_told(desk)


def test_what_changed_in_an_ad_that_could_not_be_read_is_not_taken_for_all_of_it() -> None:
    desk = Desk()
    desk.slot(LoadAvg=0.5, State="Unclaimed", Start=parse_expr("true"))
    bad = msgpack.ExtType(1, b"1 +")
    changed(desk, 1, {"Start": bad, "State": "Claimed", "RemoteUser": "eve@p"})
    assert len(desk.refused) == 1
    changed(desk, 2, {"LoadAvg": 0.6})
    assert len(desk.refused) == 2
    assert desk.table.ads["s@ep"]["LoadAvg"] == 0.5
    changed(desk, 3, {"Start": True})
    changed(desk, 4, {"LoadAvg": 0.7})
    assert len(desk.refused) == 2
    assert as_told(desk)


@spec("NEG-06")
def test_submitters_outside_the_constraint_are_ignored_wholly() -> None:
    desk = Desk(NEGOTIATOR_SUBMITTER_CONSTRAINT='regexp("@p$", Name) && RunningJobs < 5')
    desk.submitter("a@p", "schedd.a", RunningJobs=4)
    desk.submitter("b@p", "schedd.b", RunningJobs=5)
    desk.submitter("c@elsewhere", "schedd.c", RunningJobs=0)
    desk.submitter("d@p", "schedd.d")  # undefined is not true
    assert [submitter.name for submitter in desk.ad_intake.submitters()] == ["a@p"]


@spec("NEG-06")
def test_all_submitters_that_can_be_talked_to_count_without_a_constraint() -> None:
    desk = Desk()
    desk.submitter("a@p", "schedd.a")
    desk.submitter("b@p", "")
    assert [submitter.name for submitter in desk.ad_intake.submitters()] == ["a@p"]


def used(desk: Desk) -> object:
    return desk.table.ads["s@ep"].eval("N")


def kept_back(**knobs: str) -> Desk:
    desk = Desk(STARTD_AD_REEVAL_EXPR=f"time() >= {int(NOW) + 5}", **knobs)
    desk.slot(N=1)
    desk.slot(N=2)
    assert used(desk) == 1
    return desk


@spec("NEG-38")
def test_an_ad_that_is_kept_back_is_used_when_its_time_has_come() -> None:
    desk = kept_back()
    assert total(desk.ad_intake.apply_kept_back()).slots == 1  # asked about, and kept back again
    assert used(desk) == 1
    desk.clock.at += 5
    total(desk.ad_intake.apply_kept_back())
    assert used(desk) == 2


@spec("NEG-38", "NEG-40")
def test_what_is_kept_back_outlives_another_policy() -> None:
    desk = kept_back()
    desk.ad_intake.configure(policy(STARTD_AD_REEVAL_EXPR=f"time() >= {int(NOW) + 5}", XSW_LIMIT="3"))
    desk.clock.at += 5
    total(desk.ad_intake.apply_kept_back())
    assert used(desk) == 2


@spec("NEG-38")
@pytest.mark.parametrize("knobs", [{}, {"STARTD_AD_REEVAL_EXPR": "TARGET.N > MY.N"}])
def test_another_expression_decides_anew(knobs: dict[str, str]) -> None:
    desk = kept_back()
    desk.ad_intake.configure(policy(**knobs))
    for _ in desk.ad_intake.apply_all():
        pass
    assert used(desk) == 2


@spec("NEG-38")
def test_a_slot_that_is_gone_is_not_asked_about_again() -> None:
    desk = kept_back()
    desk.says("Machine", EP)
    desk.clock.at += 5
    assert total(desk.ad_intake.apply_kept_back()).slots == 0
    assert not desk.table.ads


def test_while_a_slots_ad_stands_no_other_daemon_speaks_of_it() -> None:
    desk = Desk()
    desk.slot(N=1)
    desk.slot(daemon="startd@impostor", N=2)
    assert used(desk) == 1
    desk.says("Machine", EP)
    assert not desk.table.ads
    desk.slot(daemon="startd@impostor", N=2)
    assert used(desk) == 2


def test_an_ad_that_can_not_be_read_keeps_nobody_else_out() -> None:
    desk = Desk()
    torn = ClassAd({"Name": "bad@ep"})
    torn.set_text("Requirements", "TARGET.Cpus > 1")
    packed = torn.pack().replace(b"TARGET.Cpus > 1", b"TARGET.Cpus > )")
    assert packed != torn.pack()
    desk.say("Machine", EP, {"bad@ep": packed, "good@ep": ClassAd({"Name": "good@ep", "Cpus": 1}).pack()})
    assert list(desk.table.ads) == ["good@ep"]
    assert [what[:3] for what in desk.refused] == [("Machine", EP, "bad@ep")]


@spec("ACC-18")
def test_slots_that_what_was_loaded_lacks_are_charged_to_nobody() -> None:
    """The negotiator was cut off while a dynamic slot ended; the collector heard it. Nobody says that again."""
    desk = Desk()
    claimed = {"State": "Claimed", "RemoteUser": "alice@p", "SlotWeight": 1}
    stays = ClassAd({"Name": "slot1_1@ep", "Cpus": 1, **claimed})
    goes = ClassAd({"Name": "slot1_2@ep", "Cpus": 1, **claimed})
    desk.says("Machine", EP, stays, goes)
    assert desk.table.in_use(desk.policy.cycle) == {"alice@p": (2.0, 2)}
    ads = {"slot1_1@ep": stays.pack()}
    desk.ads.load("Machine", EP, start_time=1, sequence=7, content=7, heard=NOW, ads=ads)
    touched = [taken.touched for taken in desk.ad_intake.apply_all()]
    assert touched[-1], "somebody must charge"
    assert desk.table.in_use(desk.policy.cycle) == {"alice@p": (1.0, 1)}
    assert list(desk.table.ads) == ["slot1_1@ep"]


def of_submitter(idle: int, **attributes: object) -> ClassAd:
    return ClassAd({"Name": "u@p", "ScheddIpAddr": "schedd.ap", "IdleJobs": idle, **attributes})


@pytest.mark.parametrize(
    ("before", "now", "wanted"),
    [
        pytest.param({"idle": 9, "JobsOffered": 9}, {"idle": 8, "JobsOffered": 9}, False, id="one began"),
        pytest.param({"idle": 9, "JobsOffered": 9}, {"idle": 8, "JobsOffered": 10}, True, id="two began, one came"),
        pytest.param({"idle": 0, "JobsOffered": 9}, {"idle": 1, "JobsOffered": 10}, True, id="one came"),
        pytest.param({"idle": 1, "JobsOffered": 9}, {"idle": 0, "JobsOffered": 10}, False, id="it has begun already"),
        pytest.param({"idle": 9}, {"idle": 8}, True, id="a schedd that does not count"),
    ],
)
def test_only_jobs_that_were_not_there_before_start_a_cycle(before: dict, now: dict, wanted: bool) -> None:  # type: ignore[type-arg]
    """A busy pool's submitter ads change with every start and end: no cycle is of use for that."""
    assert Desk().wants_slots(of_submitter(**before), of_submitter(**now)) is wanted


def test_slots_are_taken_in_one_by_one_where_there_are_many():
    """So that a machine that tells of thousands in one message lets others have their turn."""
    desk, names = Desk(), [f"s{number}@ep" for number in range(50)]
    desk.ads.apply(
        AdUpdate(
            my_type="Machine", daemon=EP, start_time=1, sequence=1, names=names,
            ads=[ClassAd({"Name": name, "Cpus": 1}).pack() for name in names],
        ),
        NOW,
    )  # fmt: skip
    taken = list(desk.ad_intake.steps(EP, dict.fromkeys(names), ()))
    assert [(one.slots, one.touched) for one in taken] == [(1, True)] * 50
    assert len(desk.table.ads) == 50
    assert [one.slots for one in desk.ad_intake.steps(EP, {}, names)] == [0] * 50
    assert len(desk.table.ads) == 0
