"""What became of a job, from recorded facts: issue "why, at any point in time"."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from services.journal.core.explain import (
    CAUSES,
    GONE,
    WAITING,
    AutoclusterChange,
    JobHistory,
    Outage,
    RecordedEvent,
    WaitReason,
    cause_of,
    clip,
    describe_event,
    hours_of,
    moment_map,
    seconds_by,
    span_map,
    spans_of,
    state_of,
)

HOUR = 3600.0
BEGIN = 1_700_000_000.0 - 1_700_000_000.0 % HOUR  # a full hour


def fact(at: float, kind: str, **body) -> RecordedEvent:
    return RecordedEvent(BEGIN + at, f"job.{kind}", body)


def why(at: float, code: str, autocluster: int = 7, shard: str = "", **counts: int) -> WaitReason:
    return WaitReason(BEGIN + at, autocluster, code, f"because of {code}", counts, shard)


def waited(facts: JobHistory, until: float) -> dict[str, float]:
    return seconds_by(spans_of(facts, BEGIN + until), lambda span, piece: piece.code if span.state in WAITING else None)


SUBMITTED = fact(0, "submitted", owner="ada", count=1)
KIND = AutoclusterChange(BEGIN + 0.5, 7, "ada@pool")


def test_a_job_that_waits_for_one_thing_after_the_other():
    facts = JobHistory(
        events=[
            SUBMITTED,
            fact(100, "matched", slot="slot1@a", cycle=3, negotiator="cm"),
            fact(102.25, "started", slot="slot1_1@a", attempt=1),
            fact(200, "evicted", slot="slot1_1@a", reason="preempted"),
            fact(210, "held", code=1, subcode=0, reason="by ada"),
            fact(300, "released", reason="by ada"),
            fact(350, "started", slot="slot2@a", attempt=2, began=BEGIN + 348),
            fact(400, "ended", slot="slot2@a", exit_code=0, ran_s=50.0),
        ],
        kinds=[KIND],
        whys=[why(10, "no-match", claimed=5), why(40, "ceiling"), why(100, ""), why(205, "share"), why(301, "share")],
    )
    spans = spans_of(facts, BEGIN + 1000)
    assert [(span.state, span.start / 1000 - BEGIN, span.end / 1000 - BEGIN) for span in spans] == [
        ("idle", 0, 100),
        ("starting", 100, 102.25),
        ("running", 102.25, 200),
        ("idle", 200, 210),
        ("held", 210, 300),
        ("idle", 300, 348),
        ("starting", 348, 350),
        ("running", 350, 400),
    ]
    assert waited(facts, 1000) == {
        "held": 90.0,
        "ceiling": 60.0,
        "share": 53.0,  # 205 to 210, and from the release on, as nothing else was told since
        "busy": 30.0,
        "negotiation": 15.0,  # before the first cycle, and 200 to 205
        "starting": 4.25,
    }
    assert state_of(facts) == "completed"
    assert [span_map(span)["causes"][0]["code"] for span in spans[:2]] == ["negotiation", "starting"]


def test_a_machine_that_is_drained_is_a_cause_of_its_own():
    assert cause_of("no-match", {"draining": 1, "job-requirements": 3, "slot-requirements": 2}) == "draining"
    assert cause_of("no-match", {"draining": 1, "claimed": 1}) == "busy"


def test_what_stops_everybody_comes_before_the_reason_of_a_cycle():
    facts = JobHistory(
        events=[SUBMITTED],
        kinds=[KIND],
        whys=[why(1, "no-match")],
        outages=[
            Outage("no-negotiator", BEGIN + 10, BEGIN + 30, CAUSES["no-negotiator"]),
            Outage("schedd-down", BEGIN + 20, BEGIN + 25, CAUSES["schedd-down"]),
            Outage("schedd-limit", BEGIN + 50, None, CAUSES["schedd-limit"]),
        ],
    )
    assert waited(facts, 60) == {
        "no-slots": 29.0,  # 1 to 10, 30 to 50
        "no-negotiator": 15.0,
        "schedd-limit": 10.0,
        "schedd-down": 5.0,
        "negotiation": 1.0,
    }


def test_reasons_end_when_a_new_leader_tells_all_of_its_own_or_the_schedd_begins_anew():
    facts = JobHistory(
        events=[SUBMITTED],
        kinds=[KIND],
        whys=[why(1, "share"), why(30, "quota")],
        resets=[(BEGIN + 10, ""), (BEGIN + 15, "other shard"), (BEGIN + 40, None)],
    )
    assert waited(facts, 50) == {"negotiation": 31.0, "quota": 10.0, "share": 9.0}


def test_a_job_is_explained_by_its_own_autocluster_at_each_time():
    facts = JobHistory(
        events=[SUBMITTED],
        kinds=[AutoclusterChange(BEGIN, 7, "ada@pool"), AutoclusterChange(BEGIN + 20, 8, "ada@pool")],
        whys=[why(0, "share"), why(25, "limit", 8), why(30, "ceiling")],
    )
    assert waited(facts, 40) == {"share": 20.0, "limit": 15.0, "negotiation": 5.0}


def test_the_newest_reason_of_several_negotiators_counts():
    facts = JobHistory(
        events=[SUBMITTED],
        kinds=[KIND],
        whys=[why(1, "share", shard="a"), why(5, "quota", shard="b"), why(9, "", shard="b")],
    )
    assert waited(facts, 10) == {"share": 5.0, "quota": 4.0, "negotiation": 1.0}


def test_a_match_that_empties_a_slot_is_told_apart():
    matches = {("slot1@a", 3): {"rank": 5.0, "preempts": [("slot1@a", "bob@pool")]}}
    events = [SUBMITTED, fact(10, "matched", slot="slot1@a", cycle=3, negotiator="cm"), fact(20, "unmatched", slot="s")]
    assert waited(JobHistory(events=events, matches=matches), 25) == {"negotiation": 15.0, "vacating": 10.0}


def test_a_job_of_the_scheduler_universe_runs_at_the_access_point():
    told = [
        describe_event(fact(at, kind, slot="", exit_code=1, ran_s=ran_s))
        for at, kind, ran_s in ((1.0, "started", 0.0), (15.0, "ended", 13.2), (1.0, "ended", 0.0))
    ]
    assert told == [
        "started at the access point (run 1)",
        "ended at the access point with exit code 1, having run 13 s",
        "ended with exit code 1, without a run (noop_job)",
    ]


def test_a_moment_says_state_cause_and_how_long():
    facts = JobHistory(
        events=[SUBMITTED, fact(60, "held", code=13, reason="no file")], kinds=[KIND], whys=[why(10, "ceiling")]
    )
    spans = spans_of(facts, BEGIN + 100)
    moment = moment_map(spans, BEGIN + 30)
    assert moment is not None
    assert (moment["state"], moment["code"]) == ("idle", "ceiling")
    assert (moment["since"], moment["until"]) == (BEGIN + 10, BEGIN + 60)
    assert moment_map(spans, BEGIN + 70)["code"] == "held"
    assert moment_map(spans, BEGIN - 1) is None


def test_causes_of_no_match():
    assert cause_of("no-match", {}) == "no-slots"
    assert cause_of("no-match", {"job-requirements": 5}) == "requirements"
    assert cause_of("no-match", {"job-requirements": 5, "slot-requirements": 1}) == "start-policy"
    assert cause_of("no-match", {"job-requirements": 5, "offline": 1}) == "offline"
    assert cause_of("no-match", {"slot-requirements": 5, "claimed": 1}) == "busy"
    assert cause_of("no-match", {"job-requirements": 5, "in-use": 1}) == "busy"
    assert cause_of("something of a later release", {}) == "unknown"
    for code in ("share", "ceiling", "quota", "limit", "out-of-time", "taken"):
        assert cause_of(code, {"free": 1}) == code


TYPES = (
    "submitted",
    "matched",
    "unmatched",
    "started",
    "evicted",
    "held",
    "released",
    "ended",
    "removed",
    "unheard-of",
)


@st.composite
def lives(draw) -> JobHistory:
    """Any facts in the order of time, sensible or not: what is recorded may have gaps."""
    moment = st.integers(0, 20_000_000).map(lambda ms: ms / 1000)
    times = sorted(draw(st.lists(moment, min_size=1, max_size=12)))
    events = [fact(at, draw(st.sampled_from(TYPES)), slot="s", cycle=1, began=BEGIN + draw(moment)) for at in times]
    kinds = [
        AutoclusterChange(BEGIN + at, draw(st.integers(1, 2)), "ada")
        for at in sorted(draw(st.lists(moment, max_size=4)))
    ]
    codes = st.sampled_from(("", "share", "no-match", "ceiling"))
    whys = [
        why(at, draw(codes), draw(st.integers(1, 2)), draw(st.sampled_from(("", "b"))))
        for at in sorted(draw(st.lists(moment, max_size=12)))
    ]
    resets = sorted(
        ((BEGIN + at, draw(st.sampled_from((None, "", "b")))) for at in draw(st.lists(moment, max_size=3))),
        key=lambda one: one[0],
    )
    outages = [
        Outage(draw(st.sampled_from(("no-negotiator", "schedd-down"))), BEGIN + min(a, b), BEGIN + max(a, b), "")
        for a, b in draw(st.lists(st.tuples(moment, moment), max_size=3))
    ]
    return JobHistory(events, kinds, whys, resets, outages)


@settings(max_examples=150)
@given(lives(), st.integers(0, 25_000_000))
def test_spans_neither_overlap_nor_leave_gaps_and_seconds_add_up(facts, until_ms):
    until = max(BEGIN + until_ms / 1000, facts.events[-1].at)
    spans = spans_of(facts, until)
    for span, following in pairwise(spans):
        assert span.end == following.start or any(one.type == "job.unheard-of" for one in facts.events)
        assert span.end <= following.start
    for span in spans:
        assert span.start < span.end
        assert span.state not in GONE
        assert span.pieces[0].start == span.start
        assert span.pieces[-1].end == span.end
        assert all(one.end == two.start for one, two in pairwise(span.pieces))
    total = sum(span.end - span.start for span in spans)
    hours = hours_of(spans)
    by_hour = sum(round(seconds * 1000) for hour in hours for seconds in hour["seconds"].values())
    assert by_hour == total
    assert all(sum(hour["seconds"].values()) <= HOUR + 1e-6 for hour in hours)
    by_cause = seconds_by(spans, lambda span, piece: piece.code)
    assert sum(round(seconds * 1000) for seconds in by_cause.values()) == total
    # Cut anywhere, the parts are the whole.
    middle = BEGIN + until_ms / 2000
    parts = [*clip(spans, 0, middle), *clip(spans, middle, 0)]
    assert sum(span.end - span.start for span in parts) == total


def test_a_parallel_job_waits_until_it_has_all_of_its_machines():
    def matched(at, slot, machines):
        more = {"negotiator": "cm", "cycle": 3, "machines": machines, "of_machines": 3}
        return fact(at, "matched", slot=slot, **more)

    facts = JobHistory(
        [
            SUBMITTED,
            matched(10, "slot1@a", 1),
            matched(11, "slot1@b", 2),
            fact(50, "unmatched", slot="", reason="had 2 of 3 machines, and gave them back"),
            matched(60, "slot1@a", 3),
        ],
        [KIND],
        [why(12, "no-match", free=0)],
    )
    spans = spans_of(facts, BEGIN + 70)
    assert [(span.state, span.start // 1000 - int(BEGIN), span.slot) for span in spans] == [
        ("idle", 0, ""),
        ("idle", 10, ""),
        ("idle", 11, ""),
        ("idle", 50, ""),
        ("starting", 60, "slot1@a"),
    ]
    assert spans[2].pieces[-1].text == "it has 2 of 3 machines; for another: because of no-match"
    assert spans[2].note == "matched with slot1@b (machine 2 of 3) by cm in cycle 3"
    assert spans[3].note == "not started: had 2 of 3 machines, and gave them back"
