import pytest

from shared.bus.definitions import vhost_of


@pytest.mark.parametrize(
    ("urls", "vhost"),
    [
        ("amqp://u:p@host:5672/", "/"),
        ("amqp://u:p@host:5672", "/"),
        ("amqp://u:p@host:5672/%2F", "/"),
        ("amqp://u:p@host:5672/pool", "pool"),
        ("amqp://u:p@host:5672/a%20b%2Fc?heartbeat=5", "a b/c"),
        ("amqp://u:p@one/pool,amqp://u:p@two/pool", "pool"),
        ("", "/"),
    ],
)
def test_a_virtual_host_is_what_the_url_means(urls, vhost):
    assert vhost_of(urls) == vhost
