"""What URLs of stores mean, and that their passwords are not shown."""

import os

import pytest
import structlog.testing

import shared.state.private
from shared.state import BadUrl, StoreUnavailable, open_store
from shared.state.private import PrivateRedis, is_recent, socket_path
from shared.state.urls import parse


def test_plain_url_keeps_what_the_client_understands():
    url = parse("redis://u:secret@h:1/2?prefix=p:&socket_timeout=3")
    assert (url.variant, url.prefix) == ("redis", "p:")
    assert url.url == "redis://u:secret@h:1/2?socket_timeout=3"
    assert "secret" not in url.shown


def test_sentinels():
    url = parse("redis+sentinel://:p%40ss@a:1,b/pool/3?prefix=x:")
    assert url.sentinels == (("a", 1), ("b", 26379))
    assert (url.service, url.db, url.password, url.username, url.prefix) == ("pool", 3, "p@ss", None, "x:")
    assert "ss" not in url.shown.partition("@")[0].removeprefix("redis+sentinel")


def test_sentinels_may_have_a_password_of_their_own():
    url = parse("redis+sentinel://me:mine@a:1/pool?prefix=x:&sentinel_user=ask&sentinel_password=th%40irs")
    assert (url.username, url.password, url.prefix) == ("me", "mine", "x:")
    assert (url.sentinel_username, url.sentinel_password) == ("ask", "th@irs")
    assert "irs" not in url.shown
    assert "mine" not in url.shown


@pytest.mark.parametrize(
    "text", ["http://x", "redis+sentinel://a:1", "redis+sentinel:///pool", "redis+sentinel://a:b/pool", "nonsense"]
)
def test_other_urls_are_refused_with_the_mend(text):
    with pytest.raises(BadUrl, match="redis"):
        open_store(text)


def test_bad_url_does_not_show_its_password():
    with pytest.raises(BadUrl) as refused:
        parse("amqp://me:secret@host/")
    assert "secret" not in str(refused.value)


def test_auto_without_a_directory_stays_in_the_process():
    assert open_store("auto").health.variant == "embedded"


@pytest.mark.parametrize(
    ("kept", "installed", "expected"),
    [
        ((), True, "private"),
        ((), False, "embedded"),
        (("state.journal",), True, "embedded"),
        (("appendonlydir/appendonly.aof.manifest",), False, "private"),
        (("appendonly.aof",), False, "private"),
        (("state.journal", "appendonlydir/appendonly.aof.1.incr.aof"), False, "private"),
        (("appendonlydir/appendonly.aof.1.incr.aof", "state.journal"), True, "embedded"),
    ],
)
def test_auto_stays_with_what_has_the_data(tmp_path, monkeypatch, kept, installed, expected):
    server = tell_version(tmp_path / "redis-server", "Redis server v=7.0.15 sha=00000000:0") if installed else None
    monkeypatch.setattr(shared.state.private, "program", lambda: server)
    for age, name in enumerate(reversed(kept)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("data")
        os.utime(path, (1e9 - age, 1e9 - age))
    assert open_store("auto", tmp_path).health.variant == expected


def tell_version(program, text):
    """A redis-server as far as it is asked for its version: of old ones there is none to be had."""
    program.write_text(f"#!/bin/sh\necho '{text}'\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize(
    ("told", "recent"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0", True),
        ("Redis server v=8.0.2 sha=00000000:1 malloc=jemalloc-5.3.0 bits=64", True),
        ("Valkey server v=8.1.1 sha=00000000:1 malloc=jemalloc-5.3.0 bits=64", True),
        ("Redis server v=10.0.0 sha=0", True),
        ("Redis server v=6.2.14 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64", False),
        ("Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64", False),
        ("something else", False),
        ("", False),
    ],
)
def test_a_server_without_functions_is_not_taken_for_a_new_pool(tmp_path, monkeypatch, told, recent):
    server = tell_version(tmp_path / "redis-server", told)
    assert is_recent(server) == recent
    monkeypatch.setattr(shared.state.private, "program", lambda: server)
    assert open_store("auto", tmp_path / "pool").health.variant == ("private" if recent else "embedded")


async def test_a_pool_that_has_its_data_in_an_old_server_is_told_so(tmp_path, monkeypatch):
    server = tell_version(tmp_path / "redis-server", "Redis server v=6.0.16 sha=00000000:0")
    monkeypatch.setattr(shared.state.private, "program", lambda: server)
    store = open_store("private:", tmp_path / "pool")
    try:
        with pytest.raises(StoreUnavailable, match="older than Redis 7"):
            await store.start()
    finally:
        await store.stop()


def test_a_program_that_can_not_be_run_is_no_server(tmp_path):
    assert not is_recent(str(tmp_path / "nothing"))


async def test_a_private_socket_is_not_put_where_somebody_else_may_have_been_before(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    directory = tmp_path / ("long" * 40)
    socket_path(directory).parent.mkdir(mode=0o755)
    with pytest.raises(StoreUnavailable, match="only this user"):
        await PrivateRedis(directory).start()


async def test_a_server_that_has_just_been_started_is_no_fault(tmp_path):
    with structlog.testing.capture_logs() as logs:
        store = PrivateRedis(tmp_path / "pool")
        try:
            await store.start()
        finally:
            await store.stop()
    assert [one["event"] for one in logs] == ["redis_started"]
