"""A pool whose collector keeps its history, read by `roost stats`; and a view of other pools (VIEW-01 to VIEW-09)."""

import json
import time

import pytest

from shared.bus.api import Exchange
from shared.classad import ClassAd
from shared.messages.ads import ForwardedAds
from tests.integration.inside import InsidePool
from tests.spec import spec
from tests.waiting import wait_until

#: Slots of other pools, which one of the tests forwards.
FORWARDED = ("slot1@east", "slot1@west")


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    place = tmp_path_factory.mktemp("pool")
    inside = InsidePool(
        place,
        KEEP_POOL_HISTORY="true",
        POOL_HISTORY_DIR=str(place / "past"),
        POOL_HISTORY_SAMPLING_INTERVAL="1",
    )
    yield inside
    inside.close()


@spec("VIEW-01", "VIEW-03")
def test_stats_tells_how_slots_and_users_stood(pool):
    """The pool's own collector is the view server."""
    with pool.client() as client:
        client.submit(
            ClassAd({"Cmd": "/bin/true", "Iwd": "/tmp", "JobStatus": 5, "ShouldTransferFiles": "NO"}), [ClassAd()]
        )
        wait_until(lambda: len(client.pool_history("platforms", name="Total")["points"]) > 2, what="samples")
        wait_until(lambda: client.pool_history("users")["names"], what="a submitter in a sample")
    slots = pool.roost("stats", "-resourcelist").split()
    assert slots
    assert all(slot.startswith("slot1") for slot in slots)
    (own,) = [slot for slot in slots if slot not in FORWARDED]
    line = pool.roost("stats", "-lasthours", "1", "-resourcequery", own).splitlines()[-1].split("\t")
    assert 95.0 < float(line[0]) <= 100.0
    assert line[1].isdigit()
    assert line[3] in ("UNCLAIMED", "OWNER")
    total = pool.roost("condor_stats", "-orgformat", "-resgroupquery", "Total").splitlines()[-1].split("\t")
    assert 0 <= time.time() - int(total[0]) < 3600
    assert len(total) == 10
    assert 1 <= sum(map(int, total[1:])) <= len(slots)
    summed = pool.roost("stats", "-lasthours", "1").splitlines()
    assert summed[0].split() == ["WHAT", "LAST", "LEAST", "MEAN", "MOST"]
    assert any(line.startswith("slots ") for line in summed)
    platforms = pool.roost("stats", "-resgrouplist").split()
    assert "Total" in platforms
    assert any("/LINUX" in platform for platform in platforms)
    assert "Total" in pool.roost("stats", "-usergrouplist").split()
    assert "/" in pool.roost("stats", "-userlist")
    assert pool.roost("stats", "-usergroupquery", "nobody@nowhere") == "No Data.\n"
    written = pool.directory / "out"
    assert pool.roost("stats", "-lastweek", "-f", str(written), "-json", "-resgroupquery", "Total") == ""
    assert json.loads(written.read_text())["every"] == 60.0  # of a sample every second


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-ckptlist"], "ckptlist"),
        (["-lasthours", "many", "-userlist"], "a number of hours, not 'many'"),
        (["-from", "13", "1", "2020", "-userlist"], "month, day and year, not 13 1 2020"),
        (["-to", "1", "1", "2999", "-userlist"], "in the future"),
        (["-from", "2026-01-02", "-to", "2026-01-01", "-userlist"], "ends before it begins"),
        (["-from", "1", "1", "1975", "-usergroupquery", "Total"], "days are asked for"),
        (["-name", "nobody", "-userlist"], "no collector named nobody"),
    ],
)
def test_what_stats_refuses(pool, words, says):
    assert says in pool.roost("stats", *words, ok=False)


@spec("VIEW-07", "VIEW-08")
def test_a_view_answers_status_from_what_was_forwarded_to_it(pool):
    """`status -pool view:port`, asked elsewhere."""
    for number, other in enumerate(("east", "west")):
        name = f"slot1@{other}"
        ad = ClassAd({"MyType": "Machine", "Name": name, "Machine": other, "State": "Claimed", "Activity": "Busy"})
        told = ForwardedAds(
            by="collector.of-" + other,
            my_type="Machine",
            daemon=f"startd@{other}",
            start_time=int(time.time()),
            sequence=number + 1,
            names=[name],
            ads=[ad.pack()],
        )
        sender = pool.bus(f"collector.of-{other}")
        pool.run(sender.publish(Exchange.ADS, f"forward.Machine.startd@{other}", told))
        pool.run(sender.stop())
    place = pool.url.removeprefix("http://")

    def shown():
        return pool.roost("status", "-pool", place, "-af", "Name", "-constraint", 'State == "Claimed"').split()

    wait_until(lambda: sorted(shown()) == ["slot1@east", "slot1@west"], what="forwarded slots")
    wait_until(lambda: "slot1@east" in pool.roost("stats", "-pool", place, "-resourcelist"), what="them in the history")
