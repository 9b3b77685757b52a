"""What a daemon's user may do on a real broker: all that is granted works, and everything else is tried and refused.

The tables here are written by hand, and not made from the patterns that they test."""

import asyncio
import itertools
from contextlib import asynccontextmanager

import aio_pika
import pytest
from aiormq.exceptions import ChannelAccessRefused, DeliveryError, PublishError
from pamqp.commands import Basic

from shared.bus import connect
from shared.bus.api import Exchange, NotAllowed, RemoteFailure
from shared.bus.definitions import ADMINISTRATOR, daemons_of, definitions
from shared.bus.topology import (
    KINDS,
    ROLES,
    WORK_QUEUES,
    dead_letter_queue,
    inbox_declaration,
    private_declaration,
    work_queue_declaration,
)
from shared.messages import Ack
from shared.messages.ads import SendAds
from shared.messages.base import Envelope
from shared.messages.claims import ClaimLost
from tests.contract.bus_pool import ANYBODY, RETRY
from tests.contract.test_bus import Catch, dead, lost

pytestmark = pytest.mark.servers

NAMES = ("a", "b")
USERS = tuple(f"{role}.{name}" for role in ROLES for name in NAMES)
PASSWORDS = {user: f"secret of {user}" for user in (*USERS, ADMINISTRATOR)}
#: Inboxes that all daemons of a role serve.
SHARED = {
    "collector": ("collector", "poolhistory"),
    "negotiator": ("negotiator", "negotiator.active.blue"),
    "journal": ("journal",),
    "registrar": ("registrar",),
}
#: Roles whose every daemon a role may send to, and shared inboxes.
TALKS = {
    "collector": (ROLES, ("negotiator.active.blue",)),
    "negotiator": (ROLES, ("collector", "negotiator", "negotiator.active.blue")),
    "schedd": (("startd",), ("negotiator", "negotiator.active.blue")),
    "startd": (("schedd",), ("collector", "negotiator", "negotiator.active.blue")),
    "had": (ROLES, ("negotiator.active.blue",)),
    "gateway": (ROLES, tuple(itertools.chain.from_iterable(SHARED.values()))),
    "journal": ((), ("collector",)),
    "defrag": (("startd",), ("collector",)),
    "gangliad": ((), ("collector",)),
    "adstash": (("schedd",), ("collector",)),
    "rooster": ((), ("collector",)),
    "registrar": ((), ()),
}
#: Types of the ads of each role.
ADS = {
    "collector": ("Collector", "DaemonMaster"),
    "negotiator": ("Negotiator", "Accounting", "DaemonMaster"),
    "schedd": ("Scheduler", "Submitter", "DaemonMaster"),
    "startd": ("Machine", "Slot", "StartDaemon", "DaemonMaster"),
    "had": ("HAD", "DaemonMaster"),
    "gateway": ("DaemonMaster",),
    "journal": ("Journal", "DaemonMaster"),
    "defrag": ("Defrag", "DaemonMaster"),
    "gangliad": ("Gangliad", "DaemonMaster"),
    "adstash": ("Adstash", "DaemonMaster"),
    "rooster": ("Rooster", "DaemonMaster"),
    "registrar": ("Registrar", "DaemonMaster"),
}
TYPES = tuple(dict.fromkeys(itertools.chain.from_iterable(ADS.values())))
VERBS = ("update", "invalidate")
EVENTS = {
    "negotiator": ("negotiation.cycle", "accountant.changed"),
    "schedd": ("job.started",),
    "startd": ("slot.changed", "claim.made"),
    "had": ("had.leader",),
    "gateway": ("gateway.audit",),
    "defrag": ("defrag.round",),
    "rooster": ("rooster.round",),
}
EVENT_KEYS = ("daemon.started", *itertools.chain.from_iterable(EVENTS.values()))
#: What a role's queues may be bound with, on each exchange of broadcasts.
HEARS = {
    "collector": {"roost.ads": ("#", "ask.#"), "roost.private": ("#",), "roost.events": ("negotiation.offline",)},
    "negotiator": {"roost.ads": ("#", "ask.#"), "roost.private": ("#",), "roost.events": ("daemon.gone",)},
    "had": {"roost.events": ("had.leader", "accountant.changed"), "roost.ads": ("ask.#",)},
    "gateway": {
        "roost.events": ("#", "gateway.#", "negotiation.offline", "had.leader", "accountant.changed", "daemon.gone"),
        "roost.ads": ("ask.#",),
    },
    "journal": {
        "roost.events": ("#", "gateway.#", "negotiation.offline", "had.leader", "accountant.changed", "daemon.gone"),
        "roost.ads": ("ask.#",),
    },
}
PATTERNS = {
    "roost.ads": ("#", "ask.#", "*.Machine.#"),
    "roost.private": ("#", "startd@b"),
    "roost.events": ("#", "gateway.#", "negotiation.offline", "had.leader", "accountant.changed", "daemon.gone"),
}
HEARS["collector"]["roost.ads"] = HEARS["negotiator"]["roost.ads"] = PATTERNS["roost.ads"]
HEARS["collector"]["roost.private"] = HEARS["negotiator"]["roost.private"] = PATTERNS["roost.private"]


def own_inboxes(role, name):
    mine = [f"{role}.{name}", f"{role}.off.{name}"]
    return [*mine, f"startd.{name}/visits"] if role == "startd" else mine


INBOXES = [inbox for role in ROLES for name in NAMES for inbox in own_inboxes(role, name)]
INBOXES += itertools.chain.from_iterable(SHARED.values())


def served(role, name):
    return {*own_inboxes(role, name), *SHARED.get(role, ())}


def sends(role, name):
    roles, shared = TALKS[role]
    found = {f"{one}.{tail}{other}" for one in roles for tail in ("", "off.") for other in NAMES}
    if role == "gateway":
        found |= {f"startd.{other}/visits" for other in NAMES}
    return found | set(shared) | served(role, name)


def listening(role, name):
    return f"roost.listen.{role}.{name}.0123456789ab"


class Burglar:
    """Tries things on a channel of its own each, since the broker closes it over what it refuses."""

    def __init__(self, connection):
        self.connection = connection

    async def may(self, attempt):
        channel = self.connection.channel(publisher_confirms=True, on_return_raises=False)
        await channel.initialize()
        raw = await channel.get_underlay_channel()
        try:
            await attempt(raw)
        except ChannelAccessRefused:
            return False
        await channel.close()
        return True

    async def may_publish(self, exchange, key, user):
        properties = Basic.Properties(user_id=user)
        return await self.may(
            lambda raw: raw.basic_publish(b"x", exchange=exchange, routing_key=key, properties=properties)
        )


def _queues():
    return [*map(inbox_declaration, INBOXES), *map(work_queue_declaration, WORK_QUEUES)]


async def _declare(url, queues, plain=()):
    """Make queues, with their bindings, anew. plain: durable ones without any."""
    connection = await aio_pika.connect(url)
    raw = await (await connection.channel()).get_underlay_channel()
    for queue in queues:
        await raw.queue_delete(queue.name)
        await raw.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))
        for exchange, key in queue.bindings:
            await raw.queue_bind(queue.name, exchange, key)
    for name in plain:
        await raw.queue_declare(name, durable=True)
    await connection.close()


def _as_defined(server, url):
    """A virtual host as the definitions make it, with two daemons of each role and all their queues. Gives what
    connects as one of them."""
    vhost = url.rpartition("/")[2]
    server.api("POST", "/api/definitions", definitions(vhost, PASSWORDS))
    asyncio.run(_declare(url, _queues(), [*(listening(*user.split(".")) for user in USERS), "consumer.x"]))

    @asynccontextmanager
    async def burglar(user):
        opened = await aio_pika.connect(server.url_of(vhost, user, PASSWORDS[user]))
        yield Burglar(opened)
        await opened.close()

    burglar.vhost, burglar.url = vhost, url
    return burglar


@pytest.fixture(scope="module", autouse=True)
def _users(_rabbit_session):
    """Users are of the whole broker, so they go when all tests here are done."""
    yield
    _rabbit_session.ensure_running()
    for user in (*PASSWORDS, *ROLES):
        _rabbit_session.api("DELETE", f"/api/users/{user}")


@pytest.fixture
def broker(rabbit_server, amqp_url):
    return _as_defined(rabbit_server, amqp_url)


@pytest.fixture(scope="module")
def _tried(_rabbit_session, _users):
    _rabbit_session.ensure_running()
    with _rabbit_session.vhost() as url:
        yield _as_defined(_rabbit_session, url)


@pytest.fixture
def tried(_tried, rabbit_server):
    """Such a virtual host for all tests that only try what they may: what is there is nothing to them."""
    return _tried


@pytest.mark.parametrize("role", ROLES)
async def test_a_daemon_reaches_its_own_queues_and_no_others(tried, role):
    """Each right that the broker knows (to configure, read and write it), for every queue that there is; all that such
    a right is for, with its own and one of each kind of others'."""
    own = {f"roost.inbox.{inbox}" for inbox in served(role, "a")} | {listening(role, "a")}
    own |= {"collector": {"roost.collector"}, "journal": {"roost.view"}}.get(role, set())
    queues = [f"roost.inbox.{inbox}" for inbox in INBOXES]
    queues += [listening(*user.split(".")) for user in USERS]
    queues += [*WORK_QUEUES, "roost.dead", "consumer.x", "mine", f"roost.listen.{role}.a.b.0123456789ab"]
    wrong = []
    whole = {*own, *WORK_QUEUES, "roost.dead", "consumer.x", "mine", listening(role, "b"), f"roost.inbox.{role}.b"}
    whole |= {f"roost.inbox.{inboxes[0]}" for other, inboxes in SHARED.items() if other != role}
    async with tried(f"{role}.a") as burglar:
        for queue in queues:
            mine = queue in own
            declared = (
                inbox_declaration(queue.removeprefix("roost.inbox."))
                if queue.startswith("roost.inbox.")
                else work_queue_declaration(queue)
                if queue in WORK_QUEUES
                else dead_letter_queue()
                if queue == "roost.dead"
                else private_declaration(queue, Exchange.ADS, ())
            )
            arguments = {} if queue.startswith(("roost.listen", "consumer", "mine")) else dict(declared.arguments)
            for what, attempt, expected in (
                (
                    "declare",
                    lambda raw, queue=queue, arguments=arguments: raw.queue_declare(
                        queue, durable=True, arguments=arguments
                    ),
                    mine,
                ),
                (
                    "get",
                    lambda raw, queue=queue: raw.basic_get(queue),
                    mine or (role, queue) == ("gateway", "roost.dead"),
                ),
                (
                    "consume",
                    lambda raw, queue=queue: raw.basic_consume(queue, _ignore),
                    mine or (role, queue) == ("gateway", "roost.dead"),
                ),
                (
                    "purge",
                    lambda raw, queue=queue: raw.queue_purge(queue),
                    mine or (role, queue) == ("gateway", "roost.dead"),
                ),
                ("bind", lambda raw, queue=queue: raw.queue_bind(queue, "roost.requests", f"{role}.a"), None),
                ("delete", lambda raw, queue=queue: raw.queue_delete(queue), mine),
            ):
                if queue == "mine" and what not in ("declare", "delete"):
                    continue  # there is none
                if queue not in whole and what not in ("declare", "get", "bind"):
                    continue  # the broker asks the same right for it
                if what == "bind":
                    expected = mine or queue == "roost.dead"  # whoever buries dead letters may write there
                if mine and what == "delete":
                    continue  # it is needed below
                if await burglar.may(attempt) != expected:
                    wrong.append((what, queue, expected))
    assert wrong == []


async def _ignore(_):
    return None


@pytest.mark.parametrize("role", ROLES)
async def test_a_daemon_binds_and_sends_as_its_role_needs_and_not_otherwise(tried, role):
    wrong = []
    own = f"roost.inbox.{role}.a"
    async with tried(f"{role}.a") as burglar:

        async def bind(exchange, key, expected):
            if await burglar.may(lambda raw: raw.queue_bind(own, exchange, key)) != expected:
                wrong.append(("bind", exchange, key, expected))

        async def publish(exchange, key, expected):
            if await burglar.may_publish(exchange, key, f"{role}.a") != expected:
                wrong.append(("publish", exchange, key, expected))

        for inbox in INBOXES:
            await bind("roost.requests", inbox, inbox in served(role, "a"))
            await publish("roost.requests", inbox, inbox in sends(role, "a"))
        for pattern in ("#", "*", "*.b", "*.*", f"{role}.*", f"{role}.#", f"{role}.a.#", "negotiator.active.#"):
            # The negotiator's shards have any name, so also this one.
            await bind("roost.requests", pattern, (role, pattern) == ("negotiator", "negotiator.active.#"))
        for exchange, patterns in PATTERNS.items():
            for pattern in patterns:
                hears = HEARS.get(role, {"roost.ads": ("ask.#",)})
                await bind(exchange, pattern, pattern in hears.get(exchange, ()))
        for other, (at, name) in itertools.product(ROLES, enumerate(NAMES)):
            # Its own name with every type; the others' with the types that are theirs, or that are its own.
            own_name = (other, name) == (role, "a")
            types = TYPES if own_name else dict.fromkeys((*ADS[other], *ADS[role]))
            for number, my_type in enumerate(types, at):
                granted = own_name and my_type in ADS[role]
                # Of two others of a role with one verb each: what is refused takes the broker as long as all else.
                for verb in VERBS if own_name else (VERBS[number % 2],):
                    await publish("roost.ads", f"{verb}.{my_type}.{other}@{name}", granted or role == "gateway")
        await publish("roost.ads", "ask.all", role in ("collector", "negotiator", "gateway"))
        await publish("roost.ads", "forward.Machine.startd@b", role in ("collector", "gateway"))
        for key in EVENT_KEYS:
            said = key == "daemon.started" or key in EVENTS.get(role, ())
            await publish("roost.events", key, said or role == "gateway")
        for name in NAMES:
            await publish("roost.private", f"startd@{name}", role == "gateway" or (role, name) == ("startd", "a"))
        for exchange in ("amq.topic", "amq.direct", "amq.fanout", "amq.headers"):
            await publish(exchange, "x", False)
    assert wrong == []
    await _declare(tried.url, [inbox_declaration(f"{role}.a")])  # else it hears all that others publish


@pytest.mark.parametrize("role", ROLES)
async def test_no_daemon_changes_exchanges(tried, role):
    async with tried(f"{role}.a") as burglar:
        for exchange, kind in KINDS.items():
            assert not await burglar.may(
                lambda raw, exchange=exchange, kind=kind: raw.exchange_declare(
                    exchange, exchange_type=kind, durable=True
                )
            )
            assert not await burglar.may(lambda raw, exchange=exchange: raw.exchange_delete(exchange))
        for name in ("mine", f"roost.exchange.{role}.a"):
            assert not await burglar.may(lambda raw, name=name: raw.exchange_declare(name, exchange_type="fanout"))
        for pattern in ("#", f"{role}.b", "gateway.a"):
            assert not await burglar.may(
                lambda raw, pattern=pattern: raw.exchange_bind(
                    destination="roost.dead", source="roost.requests", routing_key=pattern
                )
            ) or (role, pattern) == ("gateway", "gateway.a")


async def test_one_queue_can_not_be_bound_to_others_inboxes(broker, rabbit_server):
    """The eavesdropper of old: eight inboxes of others."""
    spied = ("schedd.a", "schedd.b", "startd.b", "gateway.a", "collector", "negotiator", "negotiator.a", "had.a")
    for user in ("startd.a", "schedd.b"):
        async with broker(user) as burglar:
            bound = [
                inbox
                for inbox in spied
                if await burglar.may(
                    lambda raw, user=user, inbox=inbox: raw.queue_bind(f"roost.inbox.{user}", "roost.requests", inbox)
                )
            ]
            assert bound == [inbox for inbox in spied if inbox == user]


@pytest.fixture
async def daemon(broker, rabbit_server):
    buses = []

    async def bus(sender, user=None):
        user = user or sender
        url = rabbit_server.url_of(broker.vhost, user, PASSWORDS[user])
        made = connect(url, sender, retry=RETRY, publish_wait_s=10)
        buses.append(made)
        await made.start()
        return made

    yield bus
    for made in buses:
        await made.stop()


async def test_a_daemon_with_its_own_user_may_not_call_itself_otherwise(daemon):
    """Also another of its role: a user of one daemon vouches for the whole name."""
    schedd, catch = await daemon("schedd.a"), Catch()
    await schedd.serve("schedd.a", catch)
    for claimed in ("startd.b", "negotiator.a", "startd", "startd.a.b"):
        forger = await daemon(claimed, user="startd.a")
        with pytest.raises(RemoteFailure, match=r"knows its publisher as user 'startd\.a'"):
            await forger.call("schedd.a", SendAds(my_type="A"))
    honest = await daemon("startd.a")
    told = ClaimLost(startd="a", slot="slot1", claim_id="c", reason="test")
    assert await honest.call("schedd.a", told) == Ack()
    assert [envelope.sender for envelope in catch.envelopes] == ["startd.a"]


async def test_what_the_default_exchange_lets_through_is_refused_by_its_receiver(daemon, broker):
    """RabbitMQ checks no keys there, nor where a queue's expired messages go: but it knows who published."""
    schedd, catch = await daemon("schedd.a"), Catch()
    await schedd.serve("schedd.a", catch)
    forged = Envelope(lost("slot1"), "startd.b", "id", 1.0).pack()
    as_a = Basic.Properties(user_id="startd.a", delivery_mode=2)
    as_b = Basic.Properties(user_id="startd.b", delivery_mode=2)
    async with broker("startd.a") as burglar:
        assert await burglar.may(
            lambda raw: raw.basic_publish(forged, routing_key="roost.inbox.schedd.a", properties=as_a)
        )
        for refused in (as_b, Basic.Properties(user_id="negotiator.a")):
            with pytest.raises((DeliveryError, PublishError, Exception), match="user_id"):
                await burglar.may(
                    lambda raw, refused=refused: raw.basic_publish(
                        forged, routing_key="roost.inbox.schedd.a", properties=refused
                    )
                )
        trap = {"x-dead-letter-exchange": "roost.requests", "x-dead-letter-routing-key": "schedd.a"}
        await burglar.may(lambda raw: raw.queue_delete("roost.inbox.startd.off.a"))
        assert await burglar.may(
            lambda raw: raw.queue_declare("roost.inbox.startd.off.a", durable=True, arguments=trap)
        )
        expired = Basic.Properties(user_id="startd.a", expiration="1")
        assert await burglar.may(
            lambda raw: raw.basic_publish(forged, routing_key="roost.inbox.startd.off.a", properties=expired)
        )
    letters = await dead(await daemon("gateway.a"), 2)
    assert all("'startd.b'" in letter.reason and "user 'startd.a'" in letter.reason for letter in letters)
    assert catch.envelopes == []


async def test_a_daemon_serves_only_its_own_inbox(daemon):
    startd = await daemon("startd.a")
    for inbox in ("startd.b", "startd.off.b", "startd.a.b", "collector", "negotiator.active.x"):
        with pytest.raises(NotAllowed):
            await startd.serve(inbox, Catch())
    await startd.serve("startd.a/visits", Catch())


async def test_a_user_of_a_daemon_is_added_to_a_broker_that_runs(daemon, broker, rabbit_server):
    added = daemons_of(broker.vhost, {"startd.late": "secret of late"})
    await asyncio.to_thread(rabbit_server.api, "POST", "/api/definitions", added)
    PASSWORDS["startd.late"] = "secret of late"
    try:
        late = await daemon("startd.late")
        await late.serve("startd.late", Catch())
        with pytest.raises(NotAllowed):
            await late.serve("startd.a", Catch())
    finally:
        PASSWORDS.pop("startd.late")
        await asyncio.to_thread(rabbit_server.api, "DELETE", "/api/users/startd.late")


async def test_users_of_whole_roles_from_before_can_not_log_in_any_more(broker, rabbit_server):
    """The broker keeps users that its definitions do not name: so they name them, without a password or a right."""
    as_before = definitions(broker.vhost, dict.fromkeys((*ROLES, ADMINISTRATOR), "as before"))
    await asyncio.to_thread(rabbit_server.api, "POST", "/api/definitions", as_before)
    url = rabbit_server.url_of(broker.vhost, "startd", "as before")
    await (await aio_pika.connect(url)).close()
    await asyncio.to_thread(rabbit_server.api, "POST", "/api/definitions", definitions(broker.vhost, PASSWORDS))
    with pytest.raises(aio_pika.exceptions.ProbableAuthenticationError):
        await aio_pika.connect(url)
    with pytest.raises(aio_pika.exceptions.ProbableAuthenticationError):
        await aio_pika.connect(rabbit_server.url_of(broker.vhost, "startd", ""))


async def test_a_broker_that_ran_the_version_before_goes_on(amqp_url):
    """Its inboxes are bound to a direct exchange that nobody publishes to any more; what waits in them is not lost."""
    connection = await aio_pika.connect(amqp_url)
    raw = await (await connection.channel()).get_underlay_channel()
    await raw.exchange_declare("roost.rpc", exchange_type="direct", durable=True)
    for inbox in ("schedd.a", "negotiator", "collector"):
        queue = inbox_declaration(inbox)
        await raw.queue_declare(queue.name, durable=True, arguments=dict(queue.arguments))
        await raw.queue_bind(queue.name, "roost.rpc", inbox)
    await raw.queue_declare("roost.inbox.gateway.spy", durable=True)
    await raw.queue_bind("roost.inbox.gateway.spy", "roost.rpc", "schedd.a")
    waiting = Envelope(lost("before"), "startd.b", "id", 1.0).pack()
    await raw.basic_publish(waiting, exchange="roost.rpc", routing_key="schedd.a")
    schedd, startd = (connect(amqp_url, name, retry=RETRY, rows=ANYBODY) for name in ("schedd.a", "startd.b"))
    try:
        await startd.start()
        await startd.send("negotiator", lost("for whoever comes"))
        await schedd.start()
        catch, later = Catch(), Catch()
        await schedd.serve("schedd.a", catch)
        await catch.got(1)
        await startd.send("schedd.a", lost("after"))
        await catch.got(2)
        assert [envelope.body.slot for envelope in catch.envelopes] == ["before", "after"]
        await schedd.serve("negotiator", later)
        await later.got(1)
        spied = await raw.queue_declare("roost.inbox.gateway.spy", passive=True)
        assert spied.message_count == 1  # from before
    finally:
        for bus in (schedd, startd):
            await bus.stop()
        await connection.close()
