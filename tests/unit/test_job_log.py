"""Logs of jobs: what is written in each form is read again, in pieces of any size, also what HTCondor writes."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost import ClientError, JobEventLog, JobEventType
from shared import job_log
from shared.job_log import Form, LogReader, parse_form
from tests.reference import event_logs

AT = 1_790_000_000.5


class Id:
    cluster, proc = 12, 3


def held(reason="why"):
    return job_log.held(Id, AT, reason, 1, 2)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("", Form()),
        ("ISO_DATE", Form()),
        ("legacy", Form(iso=False)),
        ("UTC, SUB_SECOND", Form(utc=True, sub_second=True)),
        ("XML", Form("xml")),
        ("JSON", Form("json")),
        ("JSON XML", Form("xml")),
        ("XML !XML", Form()),
        ("LEGACY SUB_SECOND", Form(iso=False, sub_second=True)),
        ("!ISO_DATE", Form(iso=False)),
    ],
)
def test_forms_are_words_one_after_the_other(text, form):
    assert parse_form(text) == form


def test_a_word_that_is_no_form_is_named():
    with pytest.raises(ValueError, match="'YAML' is no form of a job's log: give some of XML, JSON"):
        parse_form("UTC YAML")


@pytest.mark.parametrize(
    ("form", "says"),
    [
        (Form(utc=True), "012 (012.003.000) 2026-09-21 14:13:20Z Job was held.\n\twhy\n\tCode 1 Subcode 2\n...\n"),
        (Form(utc=True, iso=False, sub_second=True), "012 (012.003.000) 09/21 14:13:20.500Z Job was held.\n"),
        (Form("json", utc=True), '"EventTime": "2026-09-21T14:13:20Z"'),
        (Form("xml", utc=True, sub_second=True), '<a n="EventTime"><s>2026-09-21T14:13:20.500Z</s></a>'),
    ],
)
def test_an_event_in_each_form(form, says):
    assert says in job_log.written(held(), form).decode()


def test_a_log_that_changes_its_form_on_the_way_is_read():
    forms = (Form(), Form("xml"), Form("json"), Form(iso=False), Form("json"), Form("xml"), Form(utc=True))
    text = b"".join(job_log.written(held(str(number)), form) for number, form in enumerate(forms)).decode()
    events = list(LogReader(now=lambda: AT + 60).feed(text))
    assert [event.attributes["HoldReason"] for event in events] == [str(number) for number in range(len(forms))]
    assert {(event.number, event.cluster, event.proc, int(event.at)) for event in events} == {(12, 12, 3, int(AT))}


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.lists(st.integers(1, 300), max_size=12))
def test_pieces_of_any_size_are_read_alike(seed, cuts):
    text = event_logs.EVENT_LOGS.make(random.Random(seed))["text"]
    whole = [(event.number, event.at, event.attributes) for event in LogReader(now=lambda: AT).feed(text)]
    reader, at, found = LogReader(now=lambda: AT), 0, []
    for end in [*(cuts := [sum(cuts[: n + 1]) for n in range(len(cuts))]), len(text)]:
        found += [(event.number, event.at, event.attributes) for event in reader.feed(text[at:end])]
        at = max(at, end)
    assert found == whole


@settings(max_examples=100)
@given(st.text(max_size=200))
def test_no_text_in_a_log_breaks_its_reader(text):
    bad = []
    after = job_log.written(held("after")).decode()
    events = list(LogReader(bad.append).feed(f"{text}\n...\n{after}"))
    assert len(events) <= 2  # an XML or JSON that is not closed keeps what follows
    assert all(str(one) for one in bad)


def test_what_is_no_event_is_named_and_passed_over():
    bad = []
    good = job_log.written(held()).decode()
    text = f"what is this?\n...\n{good}012 (1.2.3) 2026-13-45 10:00:00 Job was held.\n...\n{good}"
    assert len(list(LogReader(bad.append).feed(text))) == 2
    assert [str(one)[:24] for one in bad] == ["'what is this?' is no ev", "'012 (1.2.3) 2026-13-45 "]


def test_a_time_without_a_year_is_of_the_last_one_that_it_can_be():
    now = time.mktime((2026, 3, 1, 12, 0, 0, 0, 0, -1))
    line = "011 (1.0.0) {} 10:00:00 Job was unsuspended.\n...\n"
    years = [
        time.localtime(next(LogReader(now=lambda: now).feed(line.format(day))).at).tm_year
        for day in ("02/28", "12/31", "02/29", "03/02")
    ]
    assert years == [2026, 2025, 2024, 2026]


def test_what_a_job_wants_told_comes_after_the_event():
    told = job_log.job_ad_information(held(), {"Owner": "ann", "JobPrio": 3})
    text = job_log.written(told).decode()
    assert text.startswith("028 (012.003.000)")
    (event,) = LogReader().feed(text)
    assert event.attributes == {
        "TriggerEventTypeNumber": 12,
        "TriggerEventTypeName": "ULOG_JOB_HELD",
        "HoldReason": "why",
        "HoldReasonCode": 1,
        "HoldReasonSubCode": 2,
        "Owner": "ann",
        "JobPrio": 3,
    }


def test_a_growing_log_is_followed(tmp_path):
    log = tmp_path / "job.log"
    log.write_bytes(job_log.written(job_log.submitted(Id, AT, "ap")) + job_log.written(held())[:30])
    with JobEventLog(str(log)) as events:
        (first,) = events.events(stop_after=0)
        assert (first.type, first.cluster, first.proc, first.timestamp) == (JobEventType.SUBMIT, 12, 3, int(AT))
        assert (first["submithost"], first["MyType"]) == ("<ap>", "SubmitEvent")
        with log.open("ab") as more:
            more.write(job_log.written(held())[30:] + b"nothing\n...\n" + job_log.written(held("next")))
        assert next(events.events(stop_after=0))["HoldReason"] == "why"
        with pytest.raises(ClientError, match=r"job\.log: 'nothing' is no event"):
            next(events)
        assert next(events).get("HoldReason") == "next"
        with pytest.raises(StopIteration):
            next(events)
    assert list(events.events()) == []


def test_a_log_that_is_not_there(tmp_path):
    with pytest.raises(OSError, match="nothing"):
        JobEventLog(str(tmp_path / "nothing"))
