"""Functions as jobs through concurrent.futures and asyncio, on a real pool."""

import asyncio
import subprocess
import sys
from concurrent.futures import CancelledError, Future, as_completed

import pytest

from roost import AsyncPool, ClientError, Pool
from roost.function_pool import STATES
from roost.functions import DependencyFailed, FunctionFailed, RemoteTraceback
from tests.integration import functions_to_run as jobs
from tests.integration.inside import InsidePool
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    inside = InsidePool(tmp_path_factory.mktemp("pool"), NUM_CPUS="3")
    yield inside
    inside.close()


@pytest.fixture
def pool(inside):
    with Pool(inside.url, inside.token) as pool:
        yield pool


def queued(inside):
    with inside.client() as client:
        return [*client.jobs()]


def test_values_of_any_kind_come_back_and_nothing_stays_in_the_queue(inside):
    with Pool(inside.url, inside.token, name="points") as pool:
        futures = {pool.submit(jobs.mirrored, jobs.Point(n, n + 1), scale=2): n for n in range(5)}
        for future in as_completed(futures, PATIENCE_S):
            n = futures[future]
            assert future.result() == jobs.Point(2 * n + 2, 2 * n)
        ids = [future.job_id for future in futures]
        size = 20_000_000
        assert len(pool.submit(jobs.large, size).result(PATIENCE_S)) == size
    assert pool.states() == {**dict.fromkeys(STATES, 0), "done": 6}
    assert repr(pool) == "<Pool 6 done>"
    assert "<td" in pool._repr_html_()
    assert not queued(inside)
    with inside.client() as client:
        assert {ad["JobBatchName"] for ad in client.jobs(*ids, history=True)} == {"points"}


def test_map_in_order_and_in_chunks(pool):
    assert list(pool.map(jobs.add, range(4), range(4), timeout=PATIENCE_S)) == [{"sum": 2 * n} for n in range(4)]
    assert list(pool.map(jobs.add, range(7), chunksize=3, timeout=PATIENCE_S)) == [{"sum": n + 1} for n in range(7)]
    with pytest.raises(ValueError, match="chunksize"):
        pool.map(jobs.add, [1], chunksize=0)


def test_what_a_call_raises_is_raised_here_with_its_traceback(pool):
    with pytest.raises(ValueError, match="not 3") as caught:
        pool.submit(jobs.refuse, 3).result(PATIENCE_S)
    assert isinstance(caught.value.__cause__, RemoteTraceback)
    assert "in refuse" in str(caught.value.__cause__)
    with pytest.raises(FunctionFailed, match="OddError: 1 2") as odd:
        pool.submit(jobs.fail_oddly).result(PATIENCE_S)
    assert "in fail_oddly" in odd.value.traceback
    with pytest.raises(FunctionFailed, match=r"left no result|held"):
        pool.submit(jobs.leave, 3).result(PATIENCE_S)


def test_what_can_not_be_run_is_refused_at_once(pool):
    with pytest.raises(ClientError, match="module's own level"):
        pool.submit(lambda: 1)
    with pytest.raises(TypeError, match="pickle"):
        pool.submit(jobs.add, (n for n in range(3)))
    with pytest.raises(TypeError, match="colour is no option"):
        pool.options(colour="red")


def test_resources_and_retries(inside, pool, tmp_path):
    again = pool.options(retries=1, memory="100MB", cpus=2).submit(jobs.second_time, str(tmp_path / "seen"))
    assert again.result(PATIENCE_S) == "done"
    with inside.client() as client:  # what a call gave is told before its job is in the history
        wait_until(lambda: [*client.jobs(again.job_id, history=True)], what="the job in the history")
        (ad,) = client.jobs(again.job_id, history=True)
    assert (ad["RequestCpus"], ad["RequestMemory"], ad["NumJobCompletions"]) == (2, 100, 2)


def test_a_call_is_taken_back_before_it_runs_and_removed_while_it_does(inside, tmp_path):
    with Pool(inside.url, inside.token) as pool:
        runs = pool.submit(jobs.wait_for, str(tmp_path / "never"))
        waits = pool.options(requirements="false").submit(jobs.add, 1)
        wait_until(lambda: runs.running() and waits.job_id, what="the first to run")
        assert not runs.cancel()
        assert waits.cancel()
        with pytest.raises(CancelledError):
            waits.result(PATIENCE_S)
        runs.remove("enough")
        with pytest.raises(FunctionFailed, match="removed: enough"):
            runs.result(PATIENCE_S)
    wait_until(lambda: not queued(inside), what="the jobs to be gone")
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(jobs.add, 1)


def test_shutdown_takes_back_what_does_not_run(inside):
    pool = Pool(inside.url, inside.token, requirements="false")
    futures = [pool.submit(jobs.add, n) for n in range(3)]
    wait_until(lambda: futures[-1].job_id, what="the jobs")
    pool.shutdown(cancel_futures=True)
    assert all(future.cancelled() for future in futures)
    assert not queued(inside)


def test_a_job_that_is_held_has_failed(inside, pool):
    future = pool.options(requirements="false").submit(jobs.add, 1)
    wait_until(lambda: future.job_id, what="the job")
    inside.roost("hold", future.job_id)
    with pytest.raises(FunctionFailed, match="was held"):
        future.result(PATIENCE_S)


def test_a_pool_that_is_not_there():
    with pytest.raises(ClientError):
        Pool("http://127.0.0.1:1", "token")


def test_calls_take_the_values_of_other_calls(inside, pool):
    one, two = pool.submit(jobs.add, 1), pool.submit(jobs.add, 2)
    elsewhere = Future()
    sums = [pool.submit(jobs.total, [one, two], more={"again": one}), pool.submit(jobs.total, [elsewhere], more={})]
    assert one.result(PATIENCE_S) == {"sum": 2}
    late = pool.submit(jobs.total, [one, {"sum": sums[0]}], more={})
    assert (sums[0].result(PATIENCE_S), late.result(PATIENCE_S)) == (2 + 3 + 2, 2 + 7)
    assert (sums[1].state, sums[1].job_id) == ("waiting", "")
    elsewhere.set_result({"sum": 40})
    assert sums[1].result(PATIENCE_S) == 40


def test_a_call_whose_needs_fail_is_not_run(inside, pool, tmp_path):
    fails = pool.submit(jobs.refuse, 3)
    behind = pool.submit(jobs.add, fails)
    last = pool.submit(jobs.add, 1, b=[behind])
    with pytest.raises(DependencyFailed, match=r"as add, whose value it takes, failed: .*refuse \(job .*not 3"):
        last.result(PATIENCE_S)
    assert isinstance(last.exception().__cause__, DependencyFailed)
    assert isinstance(behind.exception().__cause__, ValueError)
    assert (behind.job_id, last.job_id) == ("", "")
    waits = pool.options(requirements="false").submit(jobs.add, 1)
    left, needs = pool.submit(jobs.add, waits), pool.submit(jobs.add, waits)
    assert left.cancel()
    assert waits.cancel()
    with pytest.raises(DependencyFailed, match="was cancelled"):
        needs.result(PATIENCE_S)
    no_value = Future()
    sound, unsound = pool.submit(jobs.add, 1), pool.submit(jobs.add, no_value)
    no_value.set_result(n for n in range(3))
    with pytest.raises(TypeError, match="pickle"):
        unsound.result(PATIENCE_S)
    assert sound.result(PATIENCE_S) == {"sum": 2}


PROGRAM = """
import sys
from roost import Pool


class Mine:
    def __init__(self, n):
        self.n = n


def double(mine):
    return Mine(2 * mine.n)


if __name__ == "__main__":
    with Pool() as pool:
        print([mine.n for mine in pool.map(double, map(Mine, range(3)))])
"""


def test_a_program_with_functions_and_classes_of_its_own(inside, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=inside.environment(), capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert done.stdout == "[0, 2, 4]\n", done.stderr


async def test_the_same_for_asyncio(inside, tmp_path):
    async with AsyncPool(inside.url, inside.token, retries=0) as pool:
        values = await asyncio.gather(*(pool.submit(jobs.add, n) for n in range(3)))
        assert values == [{"sum": n + 1} for n in range(3)]
        with pytest.raises(ValueError, match="not 3"):
            await pool.submit(jobs.refuse, 3)
        one = pool.submit(jobs.add, 1)
        assert await pool.submit(jobs.total, [one], more={"again": one}) == 4
        with pytest.raises(DependencyFailed, match="not 5"):
            await pool.submit(jobs.add, pool.submit(jobs.refuse, 5))
        with pytest.raises(TypeError, match="await it"):
            pool.submit(jobs.add, asyncio.get_running_loop().create_future())
    with pytest.raises(RuntimeError, match="async with"):
        pool.submit(jobs.add, 1)
    calls = []

    async def broken_off():
        async with AsyncPool(inside.url, inside.token, requirements="false") as pool:
            calls.append(pool.submit(jobs.add, 1))
            raise KeyError

    with pytest.raises(KeyError):
        await broken_off()
    assert calls[0].cancelled()
    assert not queued(inside)
