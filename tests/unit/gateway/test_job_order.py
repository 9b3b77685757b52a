"""Jobs in the order of a column: whatever their schedds send, every job once, and the same as sorting them all."""

import random

import pytest

from services.gateway.core.job_order import MOST_TEXTS, ORDERS, SortedJobs, TooMany, fields
from shared.classad import ClassAd
from shared.classad.column_page import Sheet, page, reader


def sheet(rows, by):
    """Jobs as a schedd sends them in columns."""
    data = page(len(rows), [(name, [row.get(name) for row in rows]) for name in fields(by)])
    found, pages = Sheet(), reader()
    pages.feed(data)
    for part in pages:
        found.add(part)
    return found


def job(cluster, proc=0, **more):
    return {"ClusterId": cluster, "ProcId": proc, "JobStatus": 1, **more}


def listed(found, limit=100):
    return [(place.schedd, place.job_id) for place in found.page(0, limit)]


@pytest.mark.parametrize("descending", [False, True])
def test_numbers_before_texts_before_none_and_alike_as_they_come(descending):
    rows = [
        job(9, RequestMemory=512),
        job(8, RequestMemory="much"),
        job(7),
        job(6, RequestMemory=64.5),
        job(5, RequestMemory=512),
    ]
    found = SortedJobs("memory", descending=descending)
    found.add("ap1", sheet(rows[:3], "memory"))
    found.add("ap1", sheet(rows[3:], "memory"))
    found.sort()
    order = ["8.0", "9.0", "5.0", "6.0", "7.0"] if descending else ["6.0", "9.0", "5.0", "8.0", "7.0"]
    assert listed(found) == [("ap1", one) for one in order]


def test_columns_and_ads_are_read_alike():
    rows = [job(3, AccountingGroup="b.x", Owner="zoe"), job(2, User="A@pool", Owner="ann"), job(1, Owner="cleo")]
    found = SortedJobs("user", descending=False)
    found.add("ap1", sheet(rows, "user"))
    for row in rows:
        found.add_ad("ap2", ClassAd(row))
    found.sort()
    assert listed(found) == [
        ("ap1", "2.0"),
        ("ap2", "2.0"),
        ("ap1", "3.0"),
        ("ap2", "3.0"),
        ("ap1", "1.0"),
        ("ap2", "1.0"),
    ]


def test_an_expression_is_sorted_by_its_value_in_the_job():
    """As RequestMemory is where the submit file asks for none."""
    usual = "ifThenElse(MemoryUsage isnt undefined, MemoryUsage, 1)"
    ads = [ClassAd({"ClusterId": cluster, "ProcId": 0}) for cluster in (4, 3, 2, 1)]
    ads[0].set_text("RequestMemory", usual)
    ads[0]["MemoryUsage"] = 300
    ads[1].set_text("RequestMemory", "64")
    ads[2].set_text("RequestMemory", usual)
    ads[3].set_text("RequestMemory", "error")
    found, whole = SortedJobs("memory", descending=False), Sheet()
    whole.add([ad.pack() for ad in ads])
    found.add("ap1", whole)
    found.sort()
    assert [one for _, one in listed(found)] == ["2.0", "3.0", "4.0", "1.0"]


def test_a_command_goes_by_its_name_as_it_is_shown():
    found = SortedJobs("command", descending=False)
    found.add("ap1", sheet([job(2, Cmd="/a/zip"), job(1, Cmd="/z/Awk")], "command"))
    found.sort()
    assert listed(found) == [("ap1", "1.0"), ("ap1", "2.0")]


@pytest.mark.parametrize("by", sorted(ORDERS))
def test_pages_have_every_job_once(by):
    dice = random.Random(by)
    values = [None, 0, -3, 2.5, "", "x", "Y", True, float("nan"), float("inf")]
    rows = [
        job(cluster, proc, **{name: dice.choice(values) for name in ORDERS[by] if name != "JobStatus"})
        for cluster in range(30, 0, -1)
        for proc in range(3)
    ]
    found = SortedJobs(by, descending=dice.random() < 0.5)
    found.add("ap1", sheet(rows, by))
    found.sort()
    pages = [place.job_id for after in range(0, 91, 7) for place in found.page(after, 7)]
    assert sorted(pages) == sorted(f"{row['ClusterId']}.{row['ProcId']}" for row in rows)
    assert len(found) == 90
    assert found.page(90, 7) == []


def test_jobs_by_number_go_by_cluster_and_proc():
    found = SortedJobs("job", descending=False)
    found.add("ap1", sheet([job(10, 2), job(10, 1), job(9, 11)], "job"))
    found.sort()
    assert [one for _, one in listed(found)] == ["9.11", "10.1", "10.2"]


@pytest.mark.parametrize("descending", [False, True])
def test_more_texts_than_are_sorted_in_one_go_are_in_one_order(descending):
    """Part by part, and the same as all at once; what is alike stays newest first, schedd by schedd."""
    dice = random.Random(7)
    rows = [job(cluster, JobBatchName=f"b{dice.randrange(40_000)}") for cluster in range(30_000, 0, -1)]
    found = SortedJobs("batch", descending=descending)
    found.add("ap2", sheet(rows[20_000:], "batch"))
    found.add("ap1", sheet(rows[:20_000], "batch"))
    found.sort()
    queues = [("ap1", row) for row in rows[:20_000]] + [("ap2", row) for row in rows[20_000:]]
    queues.sort(key=lambda one: one[1]["JobBatchName"], reverse=descending)
    assert listed(found, 30_000) == [(schedd, f"{row['ClusterId']}.0") for schedd, row in queues]


def test_ids_are_told_whatever_their_size_and_none_that_is_none():
    found = SortedJobs("status", descending=False)
    found.add("ap1", sheet([job(2**31 - 1, 2**32 - 1), job(-1), job(5, -1), job(2**31), job("7")], "status"))
    found.sort()
    assert listed(found) == [("ap1", "2147483647.4294967295")]


def test_too_many_different_texts_are_refused(monkeypatch):
    assert MOST_TEXTS == 1_000_000
    monkeypatch.setattr("services.gateway.core.job_order.MOST_TEXTS", 3)
    found = SortedJobs("batch", descending=False)
    found.add("ap1", sheet([job(9 - n, JobBatchName=f"b{n % 3}") for n in range(8)], "batch"))
    with pytest.raises(TooMany, match="more than 3 different values of batch"):
        found.add("ap1", sheet([job(1, JobBatchName="b3")], "batch"))
