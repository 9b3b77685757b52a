"""Failed logins at a real gateway: they are limited by address and by token, audited, and lock nobody else out."""

import http.client
import json

import pytest

from tests.integration.inside import InsidePool
from tests.waiting import wait_until

AT_ONCE = 5


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    inside = InsidePool(
        tmp_path_factory.mktemp("pool"),
        ROOST_GATEWAY_FAILED_LOGINS=str(AT_ONCE),
        ROOST_GATEWAY_FAILED_LOGIN_RATE="0.5",
        ROOST_GATEWAY_PROXIES="127.0.0.1",
    )
    yield inside
    inside.close()


def ask(pool, token, address):
    """(status, Retry-After, body), as of this address: the test is a proxy that the gateway believes."""
    host, port = pool.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        connection.request(
            "GET", "/v1/whoami", headers={"Authorization": f"Bearer {token}", "X-Forwarded-For": address}
        )
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Retry-After"), json.loads(answer.read())
    finally:
        connection.close()


def fail(pool, address, name):
    """Guess until guesses are not looked at any more; how many were."""
    for number in range(1000):
        status, again, body = ask(pool, f"{name}-{number}", address)
        if status == 429:
            assert int(again) >= 1
            assert body["error"] == {
                "code": "too-many",
                "message": f"too many failed logins from {address}, or with this token: it is not looked at now",
                "retryable": True,
            }
            return number
        assert status == 401
    raise AssertionError("guesses are looked at without end")


def test_guesses_from_one_address_end_and_others_go_on(pool):
    with pool.client() as client:
        mine, fresh = client.create_token("alice@x", "READ"), client.create_token("bob@x", "READ")
    assert ask(pool, mine, "192.0.2.1")[0] == 200
    assert AT_ONCE <= fail(pool, "192.0.2.1", "guess") < 100
    assert ask(pool, mine, "192.0.2.1")[0] == 200  # who shares the address, and was known
    assert ask(pool, fresh, "192.0.2.1")[0] == 429  # a guess that is right tells nothing
    assert ask(pool, fresh, "192.0.2.2")[0] == 200
    assert ask(pool, "guess-0", "192.0.2.2")[0] == 401

    def again():
        return ask(pool, "one-more", "192.0.2.1")[0] == 401

    wait_until(again, what="the next guess to be looked at")


def test_a_token_that_is_over_is_counted_from_wherever_it_comes(pool):
    answers = [ask(pool, "the old script's", f"198.51.100.{number}")[0] for number in range(3 * AT_ONCE)]
    assert answers[:AT_ONCE] == [401] * AT_ONCE
    assert answers[-1] == 429
    assert ask(pool, "another", "198.51.100.1")[0] == 401


def test_who_has_a_whole_network_of_ipv6_is_one(pool):
    answers = [ask(pool, f"six-{number}", f"2001:db8:7:7::{number + 1:x}")[0] for number in range(3 * AT_ONCE)]
    assert answers[:AT_ONCE] == [401] * AT_ONCE
    assert answers[-1] == 429
    assert ask(pool, "six", "2001:db8:7:8::1")[0] == 401


def test_failures_and_refusals_are_in_the_audit_log_and_what_was_tried_is_not(pool):
    fail(pool, "203.0.113.7", "secret-guess")

    def told():
        with pool.client() as client:
            records = [one for one in client.audit() if one["address"] == "203.0.113.7"]
        return {one["status"] for one in records} >= {401, 429} and records

    records = told()
    assert records
    assert all(one["outcome"] == "refused" for one in records)
    assert "secret-guess" not in json.dumps(records)
    assert "secret-guess" not in (pool.directory / "log" / "gateway-audit.log").read_text()
