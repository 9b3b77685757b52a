import types
from functools import partial

import pytest

from engine.queue.job_columns import in_columns, needed, projected
from engine.queue.jobs import Cluster, Job, JobId, JobStatus, raw_cells, unpacked
from engine.queue.packed_jobs import PackedJobs
from services.schedd.io import column_parts, queries
from services.schedd.io.queries import Queries
from services.schedd.settings import Settings
from shared.bus.api import RemoteFailure
from shared.classad import ClassAd, parse_expr
from shared.classad.column_page import Sheet, reader
from shared.classad.expr import fold
from shared.messages.queue import QueryJobs
from tests.spec import spec

AD = ClassAd({"Cmd": "x", "Épaisseur": 1, "épaisseur": 2})


def test_a_projection_finds_names_beyond_ascii_and_those_that_are_not_stored():
    cluster = Cluster(7, "alice", "alice@pool", "alice@pool", qdate=3, ad=AD)
    job = Job(cluster, 5, ClassAd({"Épaisseur": 2}), JobStatus.IDLE, 0, "alice@pool")
    keys = [fold(name) for name in ("CMD", "Épaisseur", "procid", "GlobalJobId", "ServerTime", "AutoClusterId", "None")]
    assert dict(ClassAd.unpack(projected("ap", job, 9.5, keys)).items()) == {
        "Cmd": "x",
        "Épaisseur": 2,
        "ProcId": 5,
        "GlobalJobId": "ap#7.5#3",
        "ServerTime": 9,
    }


def test_a_projection_tells_exactly_when_the_ad_was_read():
    cluster = Cluster(7, "alice", "alice@pool", "alice@pool", qdate=3, ad=AD)
    job = Job(cluster, 5, ClassAd({}), JobStatus.IDLE, 0, "alice@pool")
    read = ClassAd.unpack(projected("ap", job, 9.625, [fold("RoostReadAt")]))
    assert dict(read.items()) == {"RoostReadAt": 9.625}


def test_names_that_differ_for_ads_differ_in_the_queue():
    assert raw_cells(AD.pack()).keys() == AD.table().keys()


def queue(count=600, *, packed=False):
    """A schedd's queue of two clusters, and who answers about it. packed: the jobs are, in each in one group."""
    clusters = {}
    for number in (1, 3):
        ad = ClassAd({"ClusterId": number, "Cmd": "/bin/x", "Memory": parse_expr("Size * 2"), "Size": number})
        cluster = clusters[number] = Cluster(number, "alice", "alice@pool", "alice@pool", qdate=3, ad=ad)
        group = PackedJobs(0, "alice@pool", 0.0)
        for proc in range(count // 2):
            own = {"Args": f"a{proc}", **({"Size": 50, "CMD": "/bin/y"} if proc == 7 else {})}
            own |= {"Deep": parse_expr("Memory + Deeper"), f"Rare{proc}": 1} if proc % 100 == 9 else {}
            if packed:
                group.ads[proc] = ClassAd(own).pack()
                group.names |= {fold(name) for name in own}
            else:
                cluster.jobs[proc] = Job(cluster, proc, ClassAd(own), JobStatus.IDLE, 0, "alice@pool")
        if packed:
            cluster.jobs.add_packed(group, partial(unpacked, cluster))
    table = types.SimpleNamespace(clusters=clusters, totals=lambda: {"Idle": count}, scheduler_totals=dict)
    table.get = lambda job_id: clusters[job_id.cluster].jobs.get(job_id.proc)
    return Queries(types.SimpleNamespace(name="ap", table=table, now=lambda: 9.5, settings=Settings()))


async def pages(asking, **question):
    """All that is answered, page by page: how many jobs each had, and the ads."""
    sheet, sizes, after = Sheet(), [], ""
    while True:
        page = await asking.query(QueryJobs(**question, after=after))
        if page.columns:
            found = reader()
            found.feed(page.columns)
            for one in found:
                sheet.add(one)
        else:
            sheet.add(page.ads)
        sizes.append(page.rows or len(page.ads))
        assert page.totals == {"Idle": 600}
        if not page.next:
            assert sum(sizes) == len(sheet)
            return sizes, [dict(ad.items()) for ad in sheet]
        after = page.next


WISH = ["ClusterId", "ProcId", "Cmd", "Args", "Memory", "Nothing", "GlobalJobId", "ServerTime", "AutoClusterId"]


def said(ads, *names):
    """The values of these attributes in each, whoever spells them how."""
    folded = [ClassAd(ad) for ad in ads]
    return [[ad.eval(name) for name in names] for ad in folded]


@spec("TLS-05")
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "question",
    [
        {},
        {"limit": 10},
        {"limit": 400, "newest": True},
        {"ids": ["3", "1.7"]},
        {"constraint": "ProcId % 9 == 7"},
        {"constraint": '(regexp("9", Args) && ClusterId > 1) || Size == 50 || Cmd == "/bin/z"'},
        {"constraint": "Memory == 2 && GlobalJobId isnt ServerTime"},
        {"constraint": "Deep is undefined && Size > 1"},
        {"constraint": " || ".join(f"ProcId == {number}" for number in range(1, 300, 3))},  # too long to be taken apart
    ],
)
async def test_jobs_in_columns_say_what_the_ads_say(question, packed):
    """`roost q` of many jobs. Expressions bring along what they name, in both forms."""
    asking = queue(packed=packed)
    wish = {**question, "projection": WISH}
    sizes, found = await pages(asking, **wish, columns=True)
    also, expected = await pages(queue(), **wish)
    assert sizes == also
    assert said(found, *WISH) == said(expected, *WISH)
    assert len(found) > 9
    assert 100 in [memory for (memory,) in said(found, "Memory")] or question.keys() & {"limit", "constraint"}


async def test_pages_of_jobs_in_columns_have_limits(monkeypatch):
    asking = queue()
    expected = said((await pages(asking, projection=WISH))[1], *WISH)
    monkeypatch.setattr(queries, "PART_JOBS", 20)
    monkeypatch.setattr(queries, "PAGE_BYTES", 3000)
    sizes, found = await pages(asking, projection=WISH, columns=True)
    assert len(sizes) > 5
    assert max(sizes) <= 120
    assert said(found, *WISH) == expected
    monkeypatch.setattr(queries, "PAGE_JOBS", 30)
    assert (await pages(asking, projection=WISH, columns=True))[0][:2] == [30, 30]


@pytest.mark.parametrize("packed", [False, True])
async def test_what_only_some_jobs_name_makes_few_columns(monkeypatch, packed):
    asking = queue(packed=packed)
    monkeypatch.setattr(column_parts, "MOST_COLUMNS", 4)
    wish = ["ProcId", "Deep"]
    _, found = await pages(asking, projection=wish, columns=True)
    assert said(found, *wish) == said((await pages(asking, projection=wish))[1], *wish)
    assert len(found) == 600


async def test_a_wrong_constraint_is_refused_in_columns_too():
    with pytest.raises(RemoteFailure, match="constraint"):
        await queue().query(QueryJobs(constraint="((", projection=["ProcId"], columns=True))


def test_columns_have_what_some_jobs_have():
    asking = queue()
    jobs = [asking.updates.table.get(JobId(1, proc)) for proc in (6, 7, 9)]
    columns = dict(in_columns("ap", jobs, 9.5, {"cmd", "size", "procid", "rare9", "nothing", "servertime"}))
    assert columns == {
        "Cmd": ["/bin/x", "/bin/y", "/bin/x"],
        "Size": [1, 50, 1],
        "ProcId": [6, 7, 9],
        "Rare9": [None, None, 1],
        "ServerTime": [9, 9, 9],
    }
    assert needed(jobs[2], ["deep"]) == {"deep", "memory", "deeper", "size"}
