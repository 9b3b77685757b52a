"""What the gateway answers while the daemons behind it are away, and the way of a dead letter."""

import asyncio
import json
import stat
import sys
import time

import aio_pika
import pytest

from roost.client import Client
from shared.bus.api import Exchange
from shared.classad import ClassAd
from shared.messages.ads import AdHeartbeat
from tests import warm
from tests.integration.inside import InsidePool
from tests.waiting import wait_until


@pytest.fixture
def pool(tmp_path):
    inside = InsidePool(tmp_path / "pool")
    yield inside
    inside.close()


@pytest.mark.parametrize(
    ("daemon", "method", "path", "body"),
    [
        ("collector", "GET", "/v1/ads", None),
        ("collector", "GET", "/v1/jobs", None),
        ("negotiator", "GET", "/v1/priorities", None),
        ("negotiator", "POST", "/v1/priorities/x", {"what": "factor", "value": 2}),
        ("negotiator", "POST", "/v1/reschedule", None),
    ],
)
def test_a_daemon_that_is_away_is_named_and_waited_for_only_so_long(pool, daemon, method, path, body):
    pool.stop_daemon(daemon)
    answers = []

    def refused() -> bool:  # what the gateway knows already it may tell for some seconds
        began = time.monotonic()
        answers.append(pool.ask(method, path, body=body))
        assert time.monotonic() - began < 25
        return answers[-1][0] == 503

    wait_until(refused, what="the gateway to notice")
    _, headers, answer = answers[-1]
    assert int(headers["retry-after"]) >= 1
    assert answer["error"]["retryable"] is True
    assert daemon in answer["error"]["message"]
    pool.start_daemon(daemon)
    wait_until(lambda: pool.ask(method, path, body=body)[0] == 200, what=f"the {daemon} back")


def test_jobs_of_a_schedd_that_is_away_are_not_shown_as_none(pool):
    inbox_gone = pool.run(_cut_off(pool))
    status, _, answer = pool.ask("GET", "/v1/jobs?schedd=ghost")
    assert status == 503
    assert "ghost" in answer["error"]["message"]
    pool.run(inbox_gone.stop())


async def _cut_off(pool):
    """A schedd whose ad is in the collector, and that answers nobody."""
    from shared.bus.memory import MemoryBus
    from shared.messages.ads import AdUpdate

    bus = MemoryBus(pool.pool._hub, sender="schedd.ghost")
    await bus.start()
    ad = ClassAd({"MyType": "Scheduler", "Name": "ghost", "MyAddress": "schedd.ghost"})
    update = AdUpdate(
        my_type="Scheduler", daemon="schedd@ghost", start_time=1, sequence=1, names=["ghost"], ads=[ad.pack()]
    )
    await bus.publish(Exchange.ADS, "update.Scheduler.schedd@ghost", update)
    return bus


def roost(environment, *words, ok=True):
    done = warm.run(
        [sys.executable, "-m", "roost", *words],
        env=environment,
        timeout=60,
    )
    assert not ok or done.returncode == 0, done.stderr
    return done


def dead_letter_tour(environment) -> None:
    """List, requeue (it dies again, being garbage), discard: through the command."""
    letters = json.loads(roost(environment, "dead-letters", "-json").stdout)
    assert letters
    shown = roost(environment, "dead-letters").stdout
    (first,) = {d["id"] for d in letters}
    assert first in shown
    assert letters[0]["reason"].strip() in shown
    assert roost(environment, "dead-letters", "-requeue", first).stdout == "1 of 1 requeued\n"

    def again():
        return [d["id"] for d in json.loads(roost(environment, "dead-letters", "-json").stdout) if d["id"] != first]

    wait_until(again, what="the garbage to be given up again")
    missing = roost(environment, "dead-letters", "-discard", "no-such-letter", ok=False)
    assert (missing.returncode, missing.stdout) == (1, "0 of 1 discarded\n")
    done = roost(environment, "dead-letters", "-discard", "all")
    assert done.stdout == "1 of 1 discarded\n"
    assert json.loads(roost(environment, "dead-letters", "-json").stdout) == []


def test_garbage_on_the_bus_is_listed_requeued_and_discarded(pool):
    bus = pool.bus()
    body = AdHeartbeat(my_type="Machine", daemon="x", start_time=1, base=1, sequence=2)
    # To an inbox whose daemon has no use for it.
    pool.run(bus.send(f"schedd.{pool.runner('schedd').daemon.context.name}", body))
    wait_until(lambda: len(pool.run(bus.dead_letters())) > 0, what="the dead letter")
    pool.run(bus.stop())
    dead_letter_tour(pool.environment())


def test_garbage_on_a_real_broker_too(amqp_url, redis_url, tmp_path):
    from tests.integration.pools import EmbeddedPool

    real = EmbeddedPool(tmp_path / "pool")
    try:
        real.start("-amqp", amqp_url, "-redis", redis_url, "-cpus", "1", "-memory", "1024")
        # Daemons elsewhere that belong to this pool know its gateway by the public half.
        assert stat.S_IMODE((tmp_path / "pool" / "gateway.key").stat().st_mode) == 0o600
        assert "PUBLIC KEY" in (tmp_path / "pool" / "gateway.key.pub").read_text()
        with real.client() as client:
            (schedd,) = client.pool()["schedds"]

        async def publish() -> None:
            connection = await aio_pika.connect(amqp_url)
            async with connection:
                channel = await connection.channel()
                exchange = await channel.get_exchange(Exchange.RPC, ensure=False)
                await exchange.publish(aio_pika.Message(b"\xc1 garbage"), f"schedd.{schedd}")

        asyncio.run(publish())

        def there() -> list:
            with real.client() as client:
                return client.dead_letters()

        wait_until(there, what="the dead letter")
        dead_letter_tour(real.environment())
    finally:
        real.close()


def test_the_client_says_what_is_wrong_when_the_gateway_is_away(pool):
    pool.stop_daemon("gateway")
    client = Client(pool.url, pool.token, timeout=5)
    for ask in (client.pool, lambda: list(client.jobs()), lambda: next(client.events())):
        with pytest.raises(Exception, match="is it up\\?"):
            ask()
