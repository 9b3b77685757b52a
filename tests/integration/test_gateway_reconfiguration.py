"""What a running gateway takes of a new configuration, without a restart: who may log in, and its limits."""

import threading

import pytest

from tests.integration.inside import InsidePool
from tests.spec import spec
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    made = InsidePool(tmp_path_factory.mktemp("gateway") / "pool")
    yield made
    made.close()


@pytest.fixture
def configure(pool):
    """Write the pool's configuration and have the gateway read it; the next test begins without any of it."""
    file = pool.directory / "config"

    def write(text, ok=True):
        file.write_text(text)
        return pool.roost("reconfig", "-gateway", ok=ok)

    yield write
    write("")


def token_of(pool, user):
    status, _, made = pool.ask("POST", "/v1/tokens", body={"user": user, "level": "WRITE"})
    assert status == 200, made
    return made["token"]


def status_for(pool, token):
    return pool.ask("GET", "/v1/ads?type=Machine&limit=1", token=token)[0]


@spec("CFG-16")
def test_who_may_not_log_in_any_more(pool, configure):
    bob, carol = token_of(pool, "bob@pool"), token_of(pool, "carol@pool")
    assert [status_for(pool, token) for token in (bob, carol)] == [200, 200]
    assert "DENY_READ" in configure("DENY_READ = bob@pool\n")
    assert [status_for(pool, token) for token in (bob, carol)] == [403, 200]
    configure("")
    assert status_for(pool, bob) == 200


@spec("CFG-16")
def test_limits_and_names_of_hosts(pool, configure):
    configure("ROOST_GATEWAY_RATE = 0.001\nROOST_GATEWAY_BURST = 1\nROOST_GATEWAY_HOSTS = pool.example.org\n")
    named = {"Host": "pool.example.org"}
    assert pool.ask("GET", "/v1/ads?type=Machine&limit=1", headers=named)[0] == 200
    assert pool.ask("GET", "/v1/ads?type=Machine&limit=1", headers=named)[0] == 429


@spec("CFG-16")
def test_a_stream_of_before_goes_on(pool, configure):
    heard, opened = [], threading.Event()

    def follow():
        with pool.client() as client:
            for event in client.events("gateway.tokens-changed", on_open=opened.set):
                heard.append(event)
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    assert opened.wait(60)
    configure("ROOST_GATEWAY_HEAVY = 3\n")
    wait_until(lambda: token_of(pool, "dave@pool") and heard, what="an event on the old stream")
    thread.join(60)


@spec("CFG-16")
def test_what_can_not_be_used_changes_nothing(pool, configure):
    bob = token_of(pool, "bob@pool")
    configure("DENY_READ = bob@pool\n")
    said = configure("ROOST_GATEWAY_RATE = soon\n", ok=False)
    assert "ROOST_GATEWAY_RATE = soon is not usable" in said
    assert f"{pool.directory}/config, line 1" in said
    assert status_for(pool, bob) == 403


@spec("CFG-16")
def test_what_waits_for_a_restart_is_said(pool, configure):
    said = configure("ROOST_GATEWAY_CONNECTIONS = 77\nROOST_GATEWAY_RATE = 90\n")
    assert "in force: ROOST_GATEWAY_RATE" in said
    assert "ROOST_GATEWAY_CONNECTIONS" in said.replace("in force: ROOST_GATEWAY_RATE", "")
