"""Many clients at once, clients that do not read, and clients that go away in the middle."""

import socket
import threading
from urllib.parse import urlsplit

import msgpack
import pytest

from shared.classad import ClassAd
from tests.integration.inside import InsidePool
from tests.waiting import wait_until

CLIENTS, CLUSTERS, STREAMS = 20, 10, 50


@pytest.fixture
def pool(tmp_path):
    pool = InsidePool(tmp_path / "pool", START="false")
    yield pool
    pool.close()


def job(folder):
    return ClassAd({"Cmd": "/bin/true", "Iwd": str(folder), "ShouldTransferFiles": "NO", "RequestMemory": 10})


def connection(pool) -> socket.socket:
    parts = urlsplit(pool.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def request(pool, method: str, path: str, *headers: str) -> bytes:
    lines = (f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {pool.token}", *headers)
    return "\r\n".join((*lines, "", "")).encode()


def listeners(pool) -> int:
    with pool.client() as client:
        return client.pool()["listeners"]


def test_a_storm_of_submits_while_many_listen_and_do_not_read(pool, tmp_path):
    silent = [connection(pool) for _ in range(STREAMS)]
    for one in silent:
        one.sendall(request(pool, "GET", "/v1/events"))
    wait_until(lambda: listeners(pool) == STREAMS, what="all listeners")
    queued: list[int] = []
    failed: list[BaseException] = []

    def storm() -> None:
        try:
            with pool.client() as client:
                queued.extend(client.submit(job(tmp_path), [ClassAd()] * 2).cluster for _ in range(CLUSTERS))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=storm) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(queued) == list(range(1, CLIENTS * CLUSTERS + 1))
    with pool.client() as client:
        assert client.job_totals()["Idle"] == CLIENTS * CLUSTERS * 2
    for one in silent:
        one.close()
    wait_until(lambda: listeners(pool) == 0, what="the end of all listeners")


def test_an_event_is_written_once_however_many_listen(pool, tmp_path):
    stream = pool.runner("gateway").daemon.events
    followers = [stream.follow([]) for _ in range(3)]
    with pool.client() as client:
        for _ in range(3):
            client.submit(job(tmp_path), [ClassAd()])

    async def read(following):
        found = []
        while len(found) < 3:
            found += (await anext(following), *following.more())
        return [stream.text(told) for told in found if told.type == "job.submitted"]

    texts = [pool.run(read(following)) for following in followers]
    for following in followers:
        following.close()
    assert len(texts[0]) == 3
    assert all(one is other for row in texts[1:] for one, other in zip(texts[0], row, strict=True))


@pytest.mark.parametrize("sent", ["a little", "half", "all but a byte"])
def test_a_client_that_goes_away_in_the_middle_of_a_submit_leaves_nothing(pool, tmp_path, sent):
    procs = [ClassAd({"Args": "x" * 50}).pack()] * 5000
    body = msgpack.packb({"submit_id": "half", "cluster_ad": job(tmp_path).pack(), "procs": procs, "part": 0})
    cut = {"a little": 1000, "half": len(body) // 2, "all but a byte": len(body) - 1}[sent]
    head = request(pool, "POST", "/v1/jobs", "Content-Type: application/x-msgpack", f"Content-Length: {len(body)}")
    with connection(pool) as leaving:
        leaving.sendall(head + body[:cut])
    with pool.client() as client:
        queued = client.submit(job(tmp_path), [ClassAd()])
        assert client.job_totals()["Idle"] == 1
    assert queued.cluster == 1


def test_a_client_that_does_not_wait_for_the_answer_has_submitted_once(pool, tmp_path):
    """Who asks again with the same submit_id gets the cluster that is there."""
    message = {"submit_id": "once", "cluster_ad": job(tmp_path).pack(), "procs": [ClassAd().pack()] * 100, "part": 0}
    body = msgpack.packb(message)
    head = request(pool, "POST", "/v1/jobs", "Content-Type: application/x-msgpack", f"Content-Length: {len(body)}")
    with connection(pool) as leaving:
        leaving.sendall(head + body)
    status, _, answer = pool.submit_raw(message)
    assert (status, answer["cluster"], answer["count"]) == (200, 1, 100)
    with pool.client() as client:
        assert client.job_totals()["Idle"] == 100
