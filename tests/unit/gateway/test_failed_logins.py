"""Failed logins are counted by address and by secret; who was known stays so; what is remembered is bounded."""

import pytest

from services.gateway.core.failed_logins import KNOWN_S, MOST_KNOWN, FailedLogins, network
from services.gateway.core.limits import MOST_KEYS


def failing(logins, address, count, now=0.0, secret="guess"):
    for number in range(count):
        logins.failed(address, f"{secret}-{number}", now)


def test_an_address_may_fail_so_often_and_then_at_a_rate():
    logins = FailedLogins(0.5, 3)
    failing(logins, "192.0.2.1", 2)
    assert logins.wait("192.0.2.1", "next", 0.0) == 0.0
    failing(logins, "192.0.2.1", 1)
    assert logins.wait("192.0.2.1", "next", 0.0) == 2.0
    assert logins.wait("192.0.2.1", "next", 1.5) == 0.5
    assert logins.wait("192.0.2.1", "next", 2.0) == 0.0


def test_others_are_not_locked_out():
    logins = FailedLogins(0.5, 3)
    logins.succeeded("colleague", 0.0)
    failing(logins, "192.0.2.1", 1000)
    assert logins.wait("192.0.2.2", "next", 0.0) == 0.0
    assert logins.wait("192.0.2.1", "colleague", 0.0) == 0.0
    assert logins.wait("192.0.2.1", "colleague", KNOWN_S + 1e6) == 0.0  # long after the failures, by its own right
    failing(logins, "192.0.2.1", 1000, KNOWN_S)
    assert logins.wait("192.0.2.1", "colleague", KNOWN_S) > 0.0  # not for ever on an old success


def test_a_secret_that_is_over_is_counted_wherever_it_comes_from():
    logins = FailedLogins(0.5, 3)
    logins.succeeded("revoked", 0.0)
    for number in range(3):
        assert logins.wait(f"192.0.2.{number}", "revoked", 0.0) == 0.0
        logins.failed(f"192.0.2.{number}", "revoked", 0.0)
    assert logins.wait("192.0.2.99", "revoked", 0.0) == 2.0
    assert logins.wait("192.0.2.99", "another", 0.0) == 0.0


def test_no_rate_is_no_limit():
    logins = FailedLogins(0, 30)
    failing(logins, "192.0.2.1", 1000)
    assert logins.wait("192.0.2.1", "next", 0.0) == 0.0


def test_a_flood_takes_no_more_than_its_share_of_memory():
    logins = FailedLogins(0.5, 3)
    for number in range(30_000):
        logins.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", f"guess-{number}", 0.0)
        logins.succeeded(f"known-{number}", 0.0)
    assert len(logins) == MOST_KNOWN + 2 * MOST_KEYS


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("", ""),
        ("local", "local"),
    ],
)
def test_who_has_many_addresses_is_one(address, counted):
    assert network(address) == counted
