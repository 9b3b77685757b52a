"""Late materialization, decided: how many jobs a factory gives, what its cluster's ad says, how jobs are stored."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.queue import late_materialization
from engine.queue.late_materialization import UNLIMITED, BadLimit, Bounds, Factory, Item, Mode
from shared.classad import ClassAd

BOUNDS = Bounds(cluster=20_000, owner=100_000)
COUNT = st.integers(0, 60)


def room(factory, bounds=BOUNDS, *, next_proc=0, present=0, waiting=0, queued=None):
    queued = present if queued is None else queued
    return late_materialization.room(
        factory, bounds, next_proc=next_proc, present=present, waiting=waiting, queued=queued
    )


@settings(max_examples=200)
@given(
    total=COUNT,
    limit=st.none() | COUNT,
    max_idle=st.none() | COUNT,
    cluster=COUNT,
    owner=COUNT,
    given_before=COUNT,
    present=COUNT,
    waiting=COUNT,
    others=COUNT,
)
def test_a_factory_gives_jobs_for_as_long_as_one_more_breaks_no_limit(
    total, limit, max_idle, cluster, owner, given_before, present, waiting, others
):
    """Against a loop that gives one job at a time."""
    given_before, present = min(given_before, total), min(present, given_before)
    waiting = min(waiting, present)
    factory = Factory(total, UNLIMITED if limit is None else limit, UNLIMITED if max_idle is None else max_idle)
    expected = 0
    while (
        given_before + expected < total
        and present + expected < cluster
        and present + others + expected < owner
        and (limit is None or present + expected < limit)
        and (max_idle is None or waiting + expected < max_idle)
    ):
        expected += 1
    found = room(
        factory,
        Bounds(cluster, owner),
        next_proc=given_before,
        present=present,
        waiting=waiting,
        queued=present + others,
    )
    assert found == expected


@pytest.mark.parametrize("mode", [Mode.ERROR, Mode.HELD, Mode.DONE, Mode.REMOVED])
def test_a_factory_that_is_paused_or_over_gives_nothing(mode):
    assert room(Factory(10, mode=mode)) == 0
    assert Factory(10, mode=mode).over is (mode in (Mode.DONE, Mode.REMOVED))


def test_a_cluster_without_limits_has_no_factory():
    assert late_materialization.limits_of(ClassAd({"Cmd": "x"})) is None
    assert late_materialization.limits_of(ClassAd({"JobMaterializeLimit": 5})) == (5, UNLIMITED)
    assert late_materialization.limits_of(ClassAd({"JobMaterializeMaxIdle": 5})) == (UNLIMITED, 5)
    assert late_materialization.limits_of(ClassAd({"JobMaterializeLimit": 1 << 60})) == (UNLIMITED, UNLIMITED)


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "many", float("nan")])
@pytest.mark.parametrize("name", ["JobMaterializeLimit", "JobMaterializeMaxIdle"])
def test_what_is_no_number_of_jobs_is_refused_with_a_mend(name, value):
    command = {"JobMaterializeLimit": "max_materialize", "JobMaterializeMaxIdle": "max_idle"}[name]
    with pytest.raises(BadLimit, match=rf"{name}: .* set {command} to a whole number of 1 or more"):
        late_materialization.limits_of(ClassAd({name: value}))


def test_an_edit_may_stop_a_factory():
    assert late_materialization.limits_of(ClassAd({"JobMaterializeLimit": 0}), least=0) == (0, UNLIMITED)
    assert room(Factory(10, limit=0)) == 0


@given(
    total=st.integers(1, 100),
    given_before=st.integers(0, 100),
    limit=st.none() | st.integers(0, 50),
    max_idle=st.none() | st.integers(0, 50),
    mode=st.sampled_from(Mode),
    edited=st.frozensets(st.sampled_from(["requestmemory", "jobprio"])),
)
@settings(max_examples=100)
def test_a_cluster_ad_says_all_that_its_factory_is(total, given_before, limit, max_idle, mode, edited):
    ad = ClassAd({"Cmd": "x"})
    for name, value in (("JobMaterializeLimit", limit), ("JobMaterializeMaxIdle", max_idle)):
        if value is not None:
            ad[name] = value
    given_before = min(given_before, total)
    reason = "because" if mode in (Mode.HELD, Mode.ERROR) else ""
    factory = Factory(
        total,
        *(late_materialization.limits_of(ad, least=0) or (UNLIMITED, UNLIMITED)),
        mode=mode,
        reason=reason,
        edited=edited,
    )
    if given_before == total and mode is not Mode.REMOVED:
        factory.mode = Mode.DONE
    late_materialization.describe(ad, factory, given_before)
    assert ad["JobMaterializeNextProcId"] == ad["JobMaterializeNextRow"] == given_before
    assert late_materialization.restored(ClassAd.unpack(ad.pack()), given_before) == factory


def test_an_ordinary_cluster_has_no_factory_after_a_restart():
    assert late_materialization.restored(ClassAd({"Cmd": "x", "JobMaterializeLimit": 5}), 3) is None


def test_a_limit_that_was_an_expression_is_kept_as_its_number():
    ad = ClassAd()
    ad.set_text("JobMaterializeLimit", "RequestCpus * 2")
    ad["RequestCpus"] = 3
    factory = Factory(10, *late_materialization.limits_of(ad))
    late_materialization.describe(ad, factory, 0)
    ad["RequestCpus"] = 50
    assert ad["JobMaterializeLimit"] == 6


def test_a_stored_limit_that_is_none_pauses_the_factory_and_ends_no_schedd():
    found = late_materialization.restored(ClassAd({"JobMaterializeItemCount": 5, "JobMaterializeLimit": "x"}), 0)
    assert (found.mode, room(found)) == (Mode.ERROR, 0)
    assert "JobMaterializeLimit" in found.reason


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.binary(max_size=300_000), st.integers(-(2**31), 2**31), st.sampled_from(["a", "b"])), max_size=20
    )
)
def test_stored_jobs_are_the_jobs_in_their_order(rows):
    items = [Item(*row) for row in rows]
    found = []
    for piece in late_materialization.pieces(items):
        assert len(piece) == 1 or sum(len(item.ad) for item in piece) <= late_materialization.PIECE_BYTES
        found += late_materialization.unpack_items(late_materialization.pack_items(piece, "a"), "a")
    assert found == items


def test_many_jobs_are_stored_in_pieces_that_are_small():
    items = [Item(ClassAd({"Args": f"-n {number}", "Out": f"out.{number}"}).pack(), 0, "a@p") for number in range(1000)]
    stored = [late_materialization.pack_items(piece, "a@p") for piece in late_materialization.pieces(items)]
    assert len(stored) == 4
    assert sum(map(len, stored)) < 20 * 1000  # a job


@pytest.mark.parametrize(
    "body", [b"", b"junk", late_materialization.zlib.compress(b"\xc1"), late_materialization.zlib.compress(b"\x05")]
)
def test_damaged_pieces_are_told_as_such(body):
    with pytest.raises(ValueError, match="can not be read"):
        late_materialization.unpack_items(body, "a")


def test_what_questions_see_is_no_job():
    ad = ClassAd({"ClusterId": 7, "JobStatus": 1, "Owner": "alice"})
    shown = late_materialization.shown(ad, [1, 1, 2, 5, 6, 7, 4])
    assert [shown[name] for name in ("JobsPresent", "JobsIdle", "JobsRunning", "JobsHeld")] == [7, 2, 3, 1]
    assert "JobStatus" not in shown
    assert "ProcId" not in shown
    assert ad["JobStatus"] == 1
