"""The same jobs give the same results embedded and on RabbitMQ + Redis, also while daemons are killed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import batch
from tests.integration.pools import EmbeddedPool, ProcessPool
from tests.servers import Rabbit, Redis, free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

BIG = {"NUM_CPUS": "8", "MEMORY": "8192"}


def test_batch_in_an_embedded_pool(tmp_path: Path) -> None:
    pool = EmbeddedPool(tmp_path / "pool")
    prepared = batch.prepare(tmp_path / "work", batch.ONCE)
    try:
        pool.start("-cpus", "8")
        cluster = pool.submit(tmp_path / "work" / "batch.sub")
        pool.wait_for_rest(cluster, prepared.total)
        assert batch.problems(prepared, pool.final(cluster)) == []
    finally:
        pool.close()


@pytest.mark.dear(held_by="tests/integration/test_up.py::test_a_pool_remembers_users_and_jobs_over_stop_and_kill")
def test_embedded_pool_killed_in_the_middle_carries_on_when_started_again(tmp_path: Path) -> None:
    pool = EmbeddedPool(tmp_path / "pool")
    prepared = batch.prepare(tmp_path / "work", batch.JOBS)
    try:
        pool.start("-cpus", "8")
        cluster = pool.submit(tmp_path / "work" / "batch.sub")
        wait_until(lambda: len(pool.final(cluster)) >= 15, 60, "15 jobs done")
        pool.kill()
        pool.start("-cpus", "8")
        pool.wait_for_rest(cluster, prepared.total)
        assert batch.problems(prepared, pool.final(cluster)) == []
    finally:
        pool.close()


@pytest.mark.servers
def test_batch_on_rabbitmq_and_redis(tmp_path: Path, amqp_url: str, redis_url: str) -> None:
    pool = ProcessPool(tmp_path / "pool", amqp_url, redis_url, free_port(), **BIG)
    prepared = batch.prepare(tmp_path / "work", batch.ONCE)
    try:
        pool.start()
        cluster = pool.submit(tmp_path / "work" / "batch.sub")
        pool.wait_for_rest(cluster, prepared.total)
        assert batch.problems(prepared, pool.final(cluster)) == []
    finally:
        pool.close()


@pytest.fixture(scope="module")
def shared_pool(tmp_path_factory: pytest.TempPathFactory, _rabbit_session: Rabbit) -> Iterator[ProcessPool]:
    """One for all victims: most of the time goes into starting six daemons."""
    redis = Redis()
    with contextlib.closing(redis), _rabbit_session.vhost() as url:
        redis.start()
        pool = ProcessPool(tmp_path_factory.mktemp("pool"), url, redis.url, free_port(), **BIG)
        with contextlib.closing(pool):
            pool.start()
            yield pool


@pytest.mark.servers
@pytest.mark.xdist_group("batch")
@pytest.mark.parametrize(
    "victims", [("collector", "had", "negotiator"), ("schedd", "startd", "gateway")], ids=["central manager", "others"]
)
def test_killing_a_daemon_in_the_middle_loses_and_duplicates_nothing(
    tmp_path: Path, shared_pool: ProcessPool, victims: tuple[str, ...]
) -> None:
    """One after the other, each after a sixth of the jobs more."""
    pool, prepared = shared_pool, batch.prepare(tmp_path / "work", batch.JOBS)
    cluster = pool.submit(tmp_path / "work" / "batch.sub")
    for number, victim in enumerate(victims, start=1):
        done = number * batch.JOBS // 6
        wait_until(lambda done=done: len(pool.final(cluster)) >= done, 60, f"{done} jobs done")
        assert len(pool.final(cluster)) < prepared.total
        pool.kill(victim)
        pool.start_daemon(victim)
    pool.wait_for_rest(cluster, prepared.total, 200)
    assert batch.problems(prepared, pool.final(cluster)) == []
