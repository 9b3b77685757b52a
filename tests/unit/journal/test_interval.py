"""What jobs asked for in an interval, for a replay."""

from services.journal.core.explain import RecordedEvent
from services.journal.core.replay import by_job, offers_of

START, END = 1000.0, 2000.0


def fact(at: float, kind: str, **body) -> RecordedEvent:
    return RecordedEvent(at, f"job.{kind}", body)


def test_a_job_that_comes_runs_and_ends_in_the_interval():
    events = [fact(1100, "submitted"), fact(1200, "started", slot="a", began=1190.0), fact(1300, "ended", slot="a")]
    (offer,) = offers_of(events, START, END)
    assert (offer.at, offer.until, offer.runs_s, offer.slot) == (1100.0, None, 110.0, "")
    assert (offer.waited_s, offer.ran_s, offer.started, offer.ended) == (90.0, 110.0, 1190.0, True)


def test_a_job_that_ran_as_it_began_has_the_rest_of_its_run_before_it():
    events = [fact(500, "submitted"), fact(900, "started", slot="a"), fact(1500, "ended", slot="a")]
    (offer,) = offers_of(events, START, END)
    assert (offer.at, offer.runs_s, offer.slot) == (1000.0, 500.0, "a")
    assert (offer.waited_s, offer.ran_s, offer.started) == (0.0, 500.0, 1000.0)


def test_a_job_that_waited_as_it_began_waits_from_then_on_and_its_length_is_known_from_later():
    events = [
        fact(500, "submitted"),
        fact(600, "started", slot="a"),
        fact(700, "evicted", slot="a"),
        fact(1900, "started", slot="b"),
        fact(5000, "ended", slot="b"),
    ]
    (offer,) = offers_of(events, START, END)
    assert (offer.at, offer.runs_s, offer.slot) == (1000.0, 3100.0, "")
    assert (offer.waited_s, offer.ran_s, offer.started, offer.ended) == (900.0, 100.0, 1900.0, False)


def test_an_eviction_in_the_interval_is_waiting_again():
    events = [
        fact(1000, "submitted"),
        fact(1100, "started", slot="a"),
        fact(1400, "evicted", slot="a"),
        fact(1500, "started", slot="b"),
        fact(1600, "ended", slot="b"),
    ]
    (offer,) = offers_of(events, START, END)
    assert (offer.waited_s, offer.ran_s, offer.runs_s, offer.started) == (200.0, 400.0, 100.0, 1100.0)


def test_a_job_that_is_held_before_it_ran_is_withdrawn_and_offered_again_at_its_release():
    events = [
        fact(1000, "submitted"),
        fact(1200, "held"),
        fact(1500, "released"),
        fact(1600, "removed"),
    ]
    first, second = offers_of(events, START, END)
    assert (first.at, first.until, first.runs_s, first.waited_s) == (1000.0, 1200.0, None, 200.0)
    assert (second.at, second.until, second.waited_s) == (1500.0, 1600.0, 100.0)


def test_a_job_that_is_submitted_on_hold_is_offered_once_it_is_released():
    events = [fact(1100, "submitted"), fact(1100, "held"), fact(1105, "released"), fact(1110, "started", slot="a")]
    (offer,) = offers_of(events, START, END)
    assert (offer.at, offer.waited_s) == (1105.0, 5.0)


def test_jobs_that_never_end_or_are_not_of_the_interval():
    assert offers_of([fact(100, "submitted"), fact(200, "removed")], START, END) == []
    assert offers_of([fact(2100, "submitted")], START, END) == []
    (offer,) = offers_of([fact(900, "submitted"), fact(1990, "started", slot="a")], START, END)
    assert (offer.runs_s, offer.ran_s, offer.waited_s, offer.ended) == (None, 10.0, 990.0, False)
    # The journal began when it ran already.
    (offer,) = offers_of([fact(1200, "evicted", slot="a"), fact(1300, "started", slot="a")], START, END)
    assert (offer.at, offer.waited_s) == (1200.0, 100.0)


def test_events_of_a_cluster_are_of_each_of_its_jobs_and_some_are_held_at_once():
    submitted = fact(1, "submitted", schedd="ap", first_proc=0, count=3, held=[[1, 2]], hold_code=15, hold_reason="so")
    jobs = by_job(
        [(7, -1, submitted), (7, 0, fact(2, "started", schedd="ap")), (7, 0, fact(2, "held", schedd="other"))]
    )
    assert {key: [fact.type for fact in facts] for key, facts in jobs.items()} == {
        ("ap", 7, 0): ["job.submitted", "job.started"],
        ("ap", 7, 1): ["job.submitted", "job.held"],
        ("ap", 7, 2): ["job.submitted", "job.held"],
        ("other", 7, 0): ["job.held"],
    }
    assert jobs["ap", 7, 1][1].body["code"] == 15
