"""`roost wait -log`: the ends of jobs, of logs as our schedd and HTCondor write them."""

import threading
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.cli.jobs_to_end import JobsToEnd, job_of
from roost.cli.main import main
from shared import job_log
from shared.job_log import LogReader


def job(cluster, proc):
    return SimpleNamespace(cluster=cluster, proc=proc)


def submitted(cluster, proc):
    return job_log.written(job_log.submitted(job(cluster, proc), 1e9, "ap1")).decode()


def aborted(cluster, proc):
    return job_log.written(job_log.aborted(job(cluster, proc), 1e9, "because\n...\n")).decode()


TERMINATED = """005 (012.000.000) 2026-11-22 10:00:00 Job terminated.
\t(1) Normal termination (return value 0)
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage
...
"""
XML = """<c>
    <a n="MyType"><s>JobTerminatedEvent</s></a>
    <a n="EventTypeNumber"><i>5</i></a>
    <a n="EventTime"><s>2026-11-22T10:00:00</s></a>
    <a n="Cluster"><i>12</i></a>
    <a n="Proc"><i>1</i></a>
</c>
"""


def read(*pieces):
    reader = LogReader()
    return [(event.number, job_of(event)) for piece in pieces for event in reader.feed(piece)]


def test_events_are_read_in_both_forms():
    text = submitted(12, 0) + submitted(12, 1) + TERMINATED + XML + aborted(13, 0)
    assert read(text) == [(0, "12.0"), (0, "12.1"), (5, "12.0"), (5, "12.1"), (9, "13.0")]


@settings(max_examples=60)
@given(st.lists(st.integers(1, 200), max_size=12))
def test_pieces_of_any_size_are_read_alike(cuts):
    text = submitted(12, 0) + TERMINATED + XML + aborted(13, 0)
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(text[at : at + cut])
        at += cut
    assert read(*pieces, text[at:]) == read(text)


def test_our_own_xml_is_read():
    xml = job_log.Form("xml")
    data = job_log.written(job_log.submitted(job(12, 3), 1e9, "ap1"), xml).decode()
    data += job_log.written(job_log.aborted(job(12, 3), 1e9, "because"), xml).decode()
    assert read(data) == [(0, "12.3"), (9, "12.3")]


def test_a_job_is_waited_for_alone_or_with_its_cluster():
    for only, running in (("", {"12.0", "12.1", "13.0"}), ("12", {"12.0", "12.1"}), ("12.1", {"12.1"}), ("1", set())):
        waiting = JobsToEnd(only)
        for event in LogReader().feed(submitted(12, 0) + submitted(12, 1) + submitted(13, 0)):
            waiting.take(event)
        assert waiting.running == running
        assert waiting.known is bool(running)
        assert not waiting.done()


def test_all_jobs_of_a_log_are_waited_for(tmp_path, capsys):
    log = tmp_path / "log"
    log.write_text(submitted(12, 0) + submitted(12, 1) + TERMINATED)
    done = []
    thread = threading.Thread(target=lambda: done.append(main(["wait", "-log", str(log), "-echo"])))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive(), "one job has not ended"
    with log.open("a") as more:
        text = aborted(12, 1)
        more.write(text[:20])
        more.flush()
        more.write(text[20:])
    thread.join(60)
    assert done == [0]
    said = capsys.readouterr().out.splitlines()
    assert [line[:3] for line in said] == ["000", "000", "005", "009", "All"]


@pytest.mark.parametrize(
    ("typed", "code", "says"),
    [
        ("-timeout 0", 1, "Time expired."),
        ("-num 1", 0, "1 jobs done."),
        ("12.0", 0, "All jobs done."),
        ("12.1 -timeout 0", 1, "Time expired."),
        ("99", 1, "no job 99"),
        ("12 13", 1, "at most one job"),
        ("-num 0", 1, "from 1 on"),
    ],
)
def test_how_waiting_ends(tmp_path, capsys, typed, code, says):
    log = tmp_path / "log"
    log.write_text(submitted(12, 0) + submitted(12, 1) + TERMINATED)
    assert main(["wait", "-log", str(log), *typed.split()]) == code
    told = capsys.readouterr()
    assert says in told.out + told.err


def test_a_log_that_is_not_there_is_told(tmp_path, capsys):
    assert main(["wait", "-log", str(tmp_path / "nothing")]) == 1
    assert "nothing" in capsys.readouterr().err
    assert main(["wait", "12", "-num", "3"]) == 1
