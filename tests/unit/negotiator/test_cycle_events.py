"""What a cycle tells the journal: changes only, and no flood of them."""

from engine.fairshare.group_tree import GroupConfig, GroupTree
from engine.fairshare.priorities import Record, Share
from engine.match.model import Matched, Rejected, Request, Result
from services.negotiator.cycle_events import RESTATE_S, JournalEvents, journal_events
from shared.classad import ClassAd
from shared.messages.events import MatchesMade, StandingsTold

NOW = 1_700_000_000.0


def rejected(autocluster: int, code: str = "share", schedd: str = "schedd.ap", **counts: int) -> Rejected:
    request = Request(schedd, autocluster, 5, ClassAd())
    return Rejected("ada@pool", request, 5, code, f"because of {code}", counts, {})


def made() -> JournalEvents:
    return JournalEvents(GroupTree.of(GroupConfig()))


def codes(told) -> list[tuple[int, str]]:
    return [(reason.autocluster, reason.code) for reason in told.reasons]


def test_the_first_cycle_tells_all_and_later_ones_what_has_changed():
    chronicle = made()
    first = chronicle.reasons([rejected(1), rejected(2, "ceiling")], (), NOW)
    assert (first.whole, codes(first)) == (True, [(1, "share"), (2, "ceiling")])
    assert first.reasons[0].schedd == "ap"
    assert not chronicle.reasons([rejected(1), rejected(2, "ceiling")], (), NOW + 1)
    changed = chronicle.reasons([rejected(1, "quota"), rejected(3)], (), NOW + 2)
    assert (changed.whole, codes(changed)) == (False, [(1, "quota"), (3, "share"), (2, "")])


def test_ten_thousand_equal_cycles_are_one_reason_and_its_end():
    chronicle = made()
    told = []
    for cycle in range(10_000):
        told += codes(chronicle.reasons([rejected(1)], (), NOW + cycle / 10))
    told += codes(chronicle.reasons([], (), NOW + 1000))
    assert told == [(1, "share"), (1, "")]


def test_what_goes_to_and_fro_is_held_back_and_told_as_it_is_in_the_end():
    chronicle = made()
    told = 0
    last = ""
    for cycle in range(3000):  # 300 s
        code = ("share", "quota")[cycle % 2]
        for reason in chronicle.reasons([rejected(n, code) for n in range(100)], (), NOW + cycle / 10).reasons:
            told += 1
            last = reason.code
    # The allowance of the beginning, and 20 a second of all together.
    assert told <= 100 * 5 + 20 * 300 + 100
    assert last in ("share", "quota")
    calm = chronicle.reasons([rejected(n, "ceiling") for n in range(100)], (), NOW + 2000)
    assert {code for _, code in codes(calm)} == {"ceiling"}
    assert len(calm.reasons) == 100


def test_numbers_alone_are_told_anew_once_a_minute():
    chronicle = made()
    chronicle.reasons([rejected(1, free=5)], (), NOW)
    assert not chronicle.reasons([rejected(1, free=6)], (), NOW + 59)
    assert codes(chronicle.reasons([rejected(1, free=6)], (), NOW + 60)) == [(1, "share")]


def test_all_is_told_again_after_an_hour_and_when_somebody_may_have_missed_it():
    chronicle = made()
    chronicle.reasons([rejected(1)], (), NOW)
    again = chronicle.reasons([rejected(1)], (), NOW + RESTATE_S)
    assert (again.whole, codes(again)) == (True, [(1, "share")])
    chronicle.forget()
    assert chronicle.reasons([rejected(1)], (), NOW + RESTATE_S + 1).whole


def test_a_silent_schedd_leaves_its_reasons_as_they_were():
    chronicle = made()
    chronicle.reasons([rejected(1), rejected(1, schedd="schedd.other")], (), NOW)
    told = chronicle.reasons([rejected(1, schedd="schedd.other")], ("schedd.ap",), NOW + 1)
    assert (codes(told), told.silent, bool(told)) == ([], ("ap",), True)
    assert not chronicle.reasons([rejected(1, schedd="schedd.other")], ("schedd.ap",), NOW + 2)
    told = chronicle.reasons([rejected(1), rejected(1, schedd="schedd.other")], (), NOW + 3)
    assert (codes(told), told.silent, bool(told)) == ([], (), True)


def result(**more) -> Result:
    return Result(matches=(), rejections=(), spins=1, considered=0, **more)


def test_standings_are_told_when_they_change_and_when_they_have_decayed_for_long():
    chronicle = made()
    records = {"ada@pool": Record(priority=2.0, factor=10.0), "bob@pool": Record(factor=10.0)}
    shares = result(shares={"ada@pool": Share(0.25, 10.0, 3.0)})
    stand, gone = chronicle.standings(records, shares, {"ada@pool": (4.0, 4)}, {"ada@pool": 20.0}, NOW)
    assert gone == []
    ada, bob = stand
    assert (ada.in_use, ada.given, ada.share, ada.limit, ada.requested, ada.group) == (
        7.0,
        3.0,
        0.25,
        10.0,
        20.0,
        "<none>",
    )
    assert (bob.in_use, bob.priority, bob.requested) == (0.0, 0.5, 0.0)
    same = {"ada@pool": (7.0, 7)}
    unchanged = result(shares={"ada@pool": Share(0.25, 10.0, 0.0)})
    assert chronicle.standings(records, unchanged, same, {"ada@pool": 20.0}, NOW + 1) == ([], [])
    stand, gone = chronicle.standings({"ada@pool": records["ada@pool"]}, unchanged, same, {"ada@pool": 20.0}, NOW + 301)
    assert ([one.submitter for one in stand], gone) == (["ada@pool"], ["bob@pool"])


def test_matches_and_those_who_lose_their_slots():
    request = Request("schedd.ap", 4, 3, ClassAd())
    given = [
        Matched("ada@pool", request, "slot1@a", 1, 1.0, rank=7.5),
        Matched("ada@pool", request, "slot1@b", 2, 2.0),
        Matched("bob@pool", request, "slot1@c", 1, 1.0, "PRIORITY_PREEMPTION", ("slot1@c",)),
    ]
    events = journal_events(
        made(),
        result(preempted_users={"slot1@c": "eve@pool"}),
        given,
        in_use={},
        pool=10.0,
        records={"ada@pool": Record(factor=1.0)},
        requested={},
        silent=(),
        half_life=86400.0,
        by={"at": NOW, "negotiator": "cm", "epoch": 1, "cycle": 2, "shard": ""},
    )
    (told,) = (event for event in events if isinstance(event, MatchesMade))
    assert [(group.submitter, group.slots, group.counts, group.ranks) for group in told.groups] == [
        ("ada@pool", ["slot1@a", "slot1@b"], [1, 2], [7.5, 0.0]),
        ("bob@pool", ["slot1@c"], [1], []),
    ]
    (taken,) = told.preempted
    assert (taken.slot, taken.from_user, taken.by_user, taken.why) == (
        "slot1@c", "eve@pool", "bob@pool", "priority_preemption",
    )  # fmt: skip
    assert any(isinstance(event, StandingsTold) for event in events)
    parts = list(made().matches(given * 50, 40))
    assert [sum(len(group.slots) for group in part) for part in parts] == [40, 40, 20, 40, 10]
