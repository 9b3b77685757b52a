"""Jobs by cluster: every job is counted once, in its state, whatever its schedd sends; newest first, page by page."""

from services.gateway.core.batches import FIELDS, Batches
from shared.classad import ClassAd
from shared.classad.column_page import Sheet, page, reader


def sheet(rows):
    """Jobs as a schedd sends them in columns."""
    data = page(len(rows), [(name, [row.get(name) for row in rows]) for name in FIELDS])
    found, pages = Sheet(), reader()
    pages.feed(data)
    for part in pages:
        found.add(part)
    return found


def job(cluster, proc, status, **more):
    return {"ClusterId": cluster, "ProcId": proc, "JobStatus": status, "QDate": cluster * 10, "Cmd": "/bin/a", **more}


def test_jobs_are_counted_by_cluster_and_state():
    found = Batches()
    found.add("ap1", sheet([job(1, 0, 1), job(1, 1, 2, Cmd="/bin/other"), job(2, 0, 5, JobBatchName="night")]))
    found.add("ap1", sheet([job(1, 2, 1)]))
    found.add_ad("ap2", ClassAd(job(1, 0, 7)))
    found.order()
    told = found.page(0, 10)
    assert (told["fits"], told["jobs"], told["next"]) == (3, 5, None)
    rows = [(row["Schedd"], row["ClusterId"], row["states"], row["jobs"]) for row in told["rows"]]
    assert rows == [
        ("ap1", 2, {"Held": 1}, 1),
        ("ap1", 1, {"Idle": 2, "Running": 1}, 3),
        ("ap2", 1, {"Suspended": 1}, 1),
    ]
    assert told["rows"][0]["JobBatchName"] == "night"
    assert told["rows"][1]["Cmd"] == "/bin/a"  # of the first job


def test_pages_go_on_where_the_one_before_ended():
    found = Batches()
    found.add("ap1", sheet([job(cluster, 0, 1) for cluster in range(1, 6)]))
    found.order()
    first, second = found.page(0, 3), found.page(3, 3)
    assert [row["ClusterId"] for row in first["rows"] + second["rows"]] == [5, 4, 3, 2, 1]
    assert (first["next"], second["next"]) == (3, None)


def test_no_jobs_are_no_batches():
    found = Batches()
    found.order()
    assert found.page(0, 5) == {"rows": [], "next": None, "fits": 0, "jobs": 0}
