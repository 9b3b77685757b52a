"""Attacks on who may send what, on a real broker with the generated definitions. The attacker has the password of the
execution points' user, as a job had that read it from its machine; the daemons are the real ones."""

import asyncio
import time

import pytest

from services.negotiator.daemon import Negotiator
from services.schedd.daemon import Schedd
from services.startd.daemon import Startd
from shared.bus import connect
from shared.bus.amqp.delivery import BURIED_BY_HEADER, PUBLISHER_HEADER, QUEUE_HEADER, SEAL_HEADER
from shared.bus.amqp.link import Link, guarded
from shared.bus.api import BusUnavailable, CallTimeout, Exchange, NotAllowed, Reject, RemoteFailure
from shared.bus.definitions import definitions
from shared.bus.handling import Saying, packed_for
from shared.bus.statements import Signer
from shared.bus.topology import ROLES, inbox_queue
from shared.daemon.lifecycle import run_daemon
from shared.messages import Ack, Envelope
from shared.messages.ads import SendAds
from shared.messages.base import Person
from shared.messages.claims import ClaimLost
from shared.messages.had import Lead, StepDown
from shared.messages.negotiation import SetPriority
from shared.messages.orders import Drain, OrderTaken, Restart, SwitchOff
from shared.messages.queue import ActOnJobs, FetchFiles, QueryJobs, SubmitJobs, Submitted
from shared.state import keys
from shared.state.embedded import EmbeddedStore
from tests.daemons import make_context
from tests.gateway_keys import KEYS, SIGNER, gateway_bus
from tests.scheddpool import USER, job_ad
from tests.startd_pool import Machine
from tests.waiting import eventually

pytestmark = pytest.mark.servers

MACHINE = {"NUM_CPUS": 1, "MEMORY": 512, "ROOST_DOCKER": "false"}


class World:
    """A broker with a user for each role, and daemons on it."""

    def __init__(self, server, vhost, directory):
        self.server, self.vhost, self.directory = server, vhost, directory
        self.passwords = {user: f"secret of {user}" for user in (*ROLES, "roost")}
        self.store = EmbeddedStore()
        self._ends = []

    async def begin(self):
        made = definitions(self.vhost, self.passwords)
        await asyncio.to_thread(self.server.api, "POST", "/api/definitions", made)
        await self.store.start()

    async def end(self):
        for end in reversed(self._ends):
            await end()
        await self.store.stop()
        for user in self.passwords:
            await asyncio.to_thread(self.server.api, "DELETE", f"/api/users/{user}")

    def url(self, user):
        return self.server.url_of(self.vhost, user, self.passwords[user])

    async def bus(self, sender, user=None, **options):
        """A gateway's says for whom each message is, unless it is given another key."""
        make = gateway_bus if sender.startswith("gateway.") and "signer" not in options else connect
        user = user or sender.partition(".")[0]
        spool = self.directory / f"{sender}.facts"
        made = make(self.url(user), sender, publish_wait_s=30, spool=spool, **options)
        await made.start()
        self._ends.append(made.stop)
        return made

    async def link(self, user):
        made = await Link.open(self.url(user), name="burglar", heartbeat_s=10, timeout_s=30)
        self._ends.append(made.close)
        return made

    async def daemon(self, subsystem, name, make, **config):
        bus = await self.bus(f"{subsystem.lower()}.{name}", keys=KEYS)
        directory = self.directory / subsystem
        context = make_context(subsystem, name, bus=bus, store=self.store, config=config or None, directory=directory)
        daemon, started = make(context), asyncio.Event()
        life = asyncio.ensure_future(run_daemon(daemon, drain_s=5, started=started.set))

        async def end():
            context.stopping.set()
            await life

        self._ends.append(end)
        waiting = asyncio.ensure_future(started.wait())
        await asyncio.wait((life, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if life.done():
            life.result()
        return daemon


@pytest.fixture
async def world(rabbit_server, amqp_url, tmp_path):
    world = World(rabbit_server, amqp_url.rpartition("/")[2], tmp_path)
    await world.begin()
    yield world
    await world.end()


def submit(user=USER, **more):
    return SubmitJobs(user=user, submit_id="s", cluster_ad=job_ad().pack(), procs=[b"\x80"], **more)


async def refused(bus, inbox, message):
    """Nobody obeys: the daemon says so, unless the broker lets the message not even pass."""
    with pytest.raises((RemoteFailure, NotAllowed, BusUnavailable, CallTimeout)) as failed:
        await bus.call(inbox, message, timeout=20)
    assert not isinstance(failed.value, RemoteFailure) or failed.value.code == "denied"
    return str(failed.value)


async def test_who_reads_the_password_of_an_execution_point_commands_no_access_point(world):
    schedd = await world.daemon("SCHEDD", "ap", Schedd)
    gateway, startd = await world.bus("gateway.gw"), await world.bus("startd.ep1")
    submitted = await gateway.call("schedd.ap", submit())
    assert isinstance(submitted, Submitted)
    job = f"{submitted.cluster}.0"
    attacks = [
        ActOnJobs(user="root@pool", admin=True, action="hold", ids=[job]),
        FetchFiles(user="root@pool", admin=True, job_id=job),
        QueryJobs(),
        submit("condor@pool", spool=False),
        Restart(),
        SwitchOff(),
    ]
    for attack in attacks:
        said = await refused(startd, "schedd.ap", attack)
        assert "gateway" in said
    for attack in attacks:  # and in another's name
        forger = await world.bus("gateway.gw", user="startd")
        said = await refused(forger, "schedd.ap", attack)
        assert "'startd'" in said
    (page,) = [await gateway.call("schedd.ap", QueryJobs())]
    assert len(page.ads) == 1
    assert page.totals["Held"] == 0
    assert sum(schedd.context.bus.health.denied.by_name.values()) == 2 * len(attacks)


async def test_nor_a_negotiator(world):
    """The broker lets a startd speak to who negotiates; and what it refuses can be written into the queue itself."""
    negotiator = await world.daemon("NEGOTIATOR", "cm", Negotiator)
    had, startd, gateway = await world.bus("had.cm"), await world.bus("startd.ep1"), await world.bus("gateway.gw")
    await world.store.set(keys.had_epoch(), 1)
    assert (await had.call("negotiator.cm", Lead(had="cm", epoch=1, lease_s=3600.0), timeout=60)).active
    await eventually(lambda: negotiator.ready() == "", 60)
    attacks = (
        SetPriority(submitter="bob@pool", what="factor", value=1.0, by="root@pool"),
        StepDown(had="cm", epoch=10**6, reason="so"),
        Restart(),
    )
    for attack in attacks:
        assert "may send it, and nobody else" in await refused(startd, "negotiator", attack)
    link = await world.link("startd")
    for sender in ("startd.ep1", "had.cm", "gateway.gw"):
        for number, attack in enumerate(attacks):
            data = Envelope(attack, sender).pack()
            properties = amqp_properties(user_id="startd", message_id=f"{sender}{number}")
            queue = inbox_queue("negotiator.cm")
            await guarded(link.confirming.basic_publish(data, exchange="", routing_key=queue, properties=properties))
    letters = await eventually(lambda: at_least(9, gateway.dead_letters), 60)
    assert all(letter.reason.startswith("denied: ") for letter in letters)
    assert negotiator.leading()
    assert not negotiator.context.stopping.is_set()


async def test_orders_to_a_machine_come_from_gateways_and_not_by_the_way_of_dead_letters(world):
    """Whoever is a startd may write into queues of startds. What it says of itself there, and of who had the message
    before, is not believed."""
    startd = await world.daemon("STARTD", "ep2", lambda context: Startd(context, Machine()), **MACHINE)
    link = await world.link("startd")
    queue = inbox_queue("startd.ep2")
    order = Envelope(SwitchOff(by="root@pool"), "gateway.gw").pack()
    drain = Envelope(Drain(request_id="d", how="fast"), "gateway.gw").pack()
    headers = [
        {},
        {"x-roost-requeued-by": "startd", "x-roost-deliveries": 1},
        {SEAL_HEADER: "0" * 64, PUBLISHER_HEADER: "gateway", QUEUE_HEADER: queue, BURIED_BY_HEADER: "startd.ep2"},
        {SEAL_HEADER: "\xff", PUBLISHER_HEADER: "gateway", QUEUE_HEADER: queue, BURIED_BY_HEADER: "startd.ep2"},
    ]
    for number, told in enumerate(headers):
        for data in (order, drain):
            properties = amqp_properties(user_id="startd", headers=told, message_id=f"m{number}")
            await guarded(link.confirming.basic_publish(data, exchange="", routing_key=queue, properties=properties))
    gateway = await world.bus("gateway.gw")
    letters = await eventually(lambda: at_least(2 * len(headers), gateway.dead_letters), 60)
    assert len(letters) == 2 * len(headers)
    # Two of the headers show a seal that is not the startd's: by that they are refused, not only as no gateway signed.
    assert sum("nobody vouches for who published it" in letter.reason for letter in letters) == 4
    assert not startd.context.stopping.is_set()
    # Nor are they when an administrator has them put back: each is again what it was.
    for letter in letters:
        assert await gateway.requeue([letter.id]) == [letter.id]
    again = await eventually(lambda: renewed(gateway, letters), 60)
    assert {letter.type for letter in again} == {"daemon.off", "machine.drain"}
    assert not startd.context.stopping.is_set()
    # And a forged letter that names a gateway as its publisher is not put back at all, or not believed.
    for by, seal in (("startd.ep2", "0" * 64), ("startd.ep2", ""), ("gateway.gw", "0" * 64)):
        told = {"reason": "r", "exchange": "", "key": queue, "queue": queue, "by": by, "publisher": "gateway"}
        properties = amqp_properties(user_id="startd", headers={**told, "seal": seal}, message_id=f"{by}{seal[:1]}")
        await guarded(
            link.confirming.basic_publish(order, exchange=Exchange.DEAD, routing_key="", properties=properties)
        )
    for letter in await dead_of(gateway, "startd.ep2", "startd.ep20", "gateway.gw0"):
        if letter.by == "startd" and letter.buried_by == "startd.ep2" and letter.seal:
            assert await gateway.requeue([letter.id]) == [letter.id]
        else:
            with pytest.raises(Reject, match="nobody vouches"):
                await gateway.requeue([letter.id])
    assert isinstance(await gateway.call("startd.ep2", Drain(request_id="honest"), timeout=60), OrderTaken)
    assert not startd.context.stopping.is_set()


async def dead_of(gateway, *ids):
    async def found():
        letters = [letter for letter in await gateway.dead_letters() if letter.id in ids]
        return letters if len(letters) == len(ids) else None

    return await eventually(found, 60)


async def renewed(gateway, before):
    """As many dead letters as before, all of them others."""
    letters = await gateway.dead_letters()
    old = {letter.id for letter in before}
    return letters if len(letters) == len(before) and not any(letter.id in old for letter in letters) else None


async def at_least(count, ask):
    found = await ask()
    return found if len(found) >= count else None


def amqp_properties(**fields):
    from pamqp.commands import Basic

    return Basic.Properties(delivery_mode=2, **fields)


async def test_an_honest_dead_letter_is_put_back_also_into_a_queue_that_several_read(world):
    """It comes from whom it came before, and goes to the one that buried it, who alone can know."""
    collectors = [await world.bus(f"collector.{name}") for name in "ab"]
    negotiator, gateway = await world.bus("negotiator.cm"), await world.bus("gateway.gw")
    broken, seen = True, []

    def server(bus):
        async def handle(envelope):
            if broken:
                raise ValueError("a mistake")
            seen.append((bus.sender, envelope.sender, envelope.body))
            return Ack()

        return handle

    for bus in collectors:
        await bus.serve("collector", server(bus))
        await bus.serve(bus.sender, server(bus))
    for n in range(4):
        await negotiator.send("collector", SendAds(my_type=str(n)))
    letters = await eventually(lambda: at_least(4, gateway.dead_letters), 60)
    assert {letter.publisher for letter in letters} == {"negotiator"}
    broken = False
    assert len(await gateway.requeue([letter.id for letter in letters])) == 4
    await eventually(lambda: len(seen) == 4, 60)
    buried = {Envelope.unpack(letter.data).body.my_type: letter.buried_by for letter in letters}
    assert {body.my_type: at for at, _, body in seen} == buried
    assert {sender for _, sender, _ in seen} == {"negotiator.cm"}
    assert await gateway.dead_letters() == []


async def test_what_another_life_buried_is_known_by_its_seal(world):
    schedd, startd, gateway = await world.bus("schedd.ap"), await world.bus("startd.ep"), await world.bus("gateway.gw")

    async def fail(_):
        raise ValueError("a mistake")

    await schedd.serve("schedd.ap", fail)
    await startd.send("schedd.ap", ClaimLost(startd="ep", slot="s", claim_id="c", reason="r"))
    (letter,) = await eventually(lambda: at_least(1, gateway.dead_letters), 60)
    await schedd.stop()
    schedd, seen = await world.bus("schedd.ap"), []

    async def take(envelope):
        seen.append(envelope)
        return Ack()

    await schedd.serve("schedd.ap", take)
    assert await gateway.requeue([letter.id]) == [letter.id]
    await eventually(lambda: seen, 60)
    assert seen[0].sender == "startd.ep"


async def test_a_foreign_ad_in_ones_own_name_is_dropped(world):
    """The broker looks at keys; what the body says is looked at here."""
    from shared.messages.ads import AdUpdate

    collector, startd = await world.bus("collector.cm"), await world.bus("startd.ep1")
    seen = []

    async def take(envelope):
        seen.append(envelope.body.sequence)

    await collector.consume("roost.collector", take)

    async def say(sequence, my_type="Machine", daemon="startd@ep1"):
        body = AdUpdate(my_type=my_type, daemon=daemon, start_time=1, sequence=sequence, names=[], ads=[])
        await startd.publish(Exchange.ADS, "update.Machine.startd@ep1", body)

    await say(1, daemon="startd@ep2")
    await say(2, my_type="Negotiator")
    await say(3, my_type="Negotiator", daemon="negotiator@cm")
    await say(4)
    await eventually(lambda: seen, 60)
    assert seen == [4]
    assert collector.health.denied.by_name == {("ads.update",): 3}


async def test_not_even_a_gateways_password_makes_an_administrator(world):
    """Who has a gateway's user of the broker, and not its key, speaks for nobody; and no message is obeyed twice."""
    schedd = await world.daemon("SCHEDD", "ap", Schedd)
    gateway = await world.bus("gateway.gw")
    thief = await world.bus("gateway.thief", signer=Signer.new())
    mute = await world.bus("gateway.mute", signer=None)
    alice, root = Person(USER, "WRITE"), Person("root@pool", "ADMINISTRATOR")
    submitted = await gateway.call("schedd.ap", submit(spool=True), person=alice)
    job = f"{submitted.cluster}.0"
    hold = ActOnJobs(user="root@pool", admin=True, action="remove", ids=[job])
    for bus in (thief, mute):
        for attack in (hold, submit("condor@pool"), FetchFiles(user=USER, job_id=job), QueryJobs(admin=True)):
            with pytest.raises(RemoteFailure) as failed:
                await bus.call("schedd.ap", attack, timeout=20, person=root)
            assert failed.value.code == "denied"
    with pytest.raises(RemoteFailure, match="no administrator"):
        await gateway.call("schedd.ap", hold.model_copy(update={"user": USER}), timeout=20, person=alice)
    # What the gateway signed is heard once, wherever it is sent by whoever saw it.
    envelope = Envelope(hold, "gateway.gw", ts=time.time())
    data = await packed_for(envelope, Saying(SIGNER, root, "schedd.ap"))
    link = await world.link("gateway")
    for number in range(3):
        properties = amqp_properties(user_id="gateway", message_id=f"m{number}")
        queue = inbox_queue("schedd.ap")
        await guarded(link.confirming.basic_publish(data, exchange="", routing_key=queue, properties=properties))
    letters = await eventually(lambda: at_least(2, gateway.dead_letters), 60)
    assert all("it came before" in letter.reason for letter in letters)
    page = await gateway.call("schedd.ap", QueryJobs(), timeout=60)
    assert page.ads == []
    assert not schedd.context.stopping.is_set()


async def put(link, inbox, data, number=0):
    """Past the broker's rights on routing keys, as a gateway's user."""
    properties = amqp_properties(user_id="gateway", message_id=f"m{number}")
    await guarded(
        link.confirming.basic_publish(data, exchange="", routing_key=inbox_queue(inbox), properties=properties)
    )


async def test_no_message_is_obeyed_again_by_the_next_life_of_a_daemon(world):
    """Whoever sees a message and can have the daemon restarted within its minute has it obeyed once all the same."""
    seen = []

    async def take(envelope):
        seen.append(envelope.body.reason)
        return Ack()

    def signed(reason):
        hold = ActOnJobs(user="root@pool", admin=True, action="hold", ids=["1.0"], reason=reason)
        said = Saying(SIGNER, Person("root@pool", "ADMINISTRATOR"), "schedd.ap")
        return packed_for(Envelope(hold, "gateway.gw", ts=time.time()), said)

    gateway, link, copied = await world.bus("gateway.gw"), await world.link("gateway"), await signed("first")
    schedd = await world.bus("schedd.ap", keys=KEYS)
    await schedd.serve("schedd.ap", take)
    await put(link, "schedd.ap", copied)
    await eventually(lambda: seen == ["first"], 60)
    await schedd.stop()
    schedd = await world.bus("schedd.ap", keys=KEYS)
    await schedd.serve("schedd.ap", take)
    await put(link, "schedd.ap", copied, 1)
    (letter,) = await eventually(lambda: at_least(1, gateway.dead_letters), 60)
    assert "it came before" in letter.reason
    await put(link, "schedd.ap", await signed("second"), 2)
    await eventually(lambda: len(seen) > 1, 60)
    assert seen == ["first", "second"]


async def test_a_daemon_that_knows_no_key_obeys_nobody_and_says_what_to_set(world):
    async def take(envelope):
        return Ack()

    startd, gateway = await world.bus("startd.ep1"), await world.bus("gateway.gw")
    await startd.serve("startd.ep1", take)
    with pytest.raises(
        RemoteFailure, match=r"ROOST_GATEWAY_KEYS is not set; set ROOST_GATEWAY_KEY at the .*gateway-key"
    ):
        await gateway.call("startd.ep1", Drain(request_id="d"), timeout=60)
    mute = await world.bus("gateway.mute", signer=None)
    with pytest.raises(RemoteFailure, match=r"the gateway has no key .* set ROOST_GATEWAY_KEY at the gateway"):
        await mute.call("startd.ep1", Drain(request_id="d", by="root@pool"), timeout=60)
    assert startd.health.denied.by_name == {("machine.drain",): 2}


async def test_what_depends_on_who_asks_is_told_to_a_statement_only(world):
    """A gateway's user alone reads what everybody with READ reads, and no environment of a job."""
    await world.daemon("SCHEDD", "ap", Schedd)
    gateway, thief = await world.bus("gateway.gw"), await world.bus("gateway.thief", signer=Signer.new())
    ad = job_ad(Environment="SECRET=1")
    await gateway.call("schedd.ap", SubmitJobs(user=USER, submit_id="s", cluster_ad=ad.pack(), procs=[b"\x80"]))
    owner, reader = Person(USER, "READ"), Person("eve@pool", "READ")
    for asked in (QueryJobs(user=USER), QueryJobs(admin=True)):
        with pytest.raises(RemoteFailure, match="ROOST_GATEWAY_KEYS"):
            await thief.call("schedd.ap", asked, person=owner, timeout=60)
    shown = [
        (await bus.call("schedd.ap", asked, person=person, timeout=60)).ads[0]
        for bus, asked, person in (
            (thief, QueryJobs(), owner),
            (gateway, QueryJobs(user="eve@pool"), reader),
            (gateway, QueryJobs(user=USER), owner),
        )
    ]
    assert ["SECRET" in repr(ad) for ad in shown] == [False, False, True]
