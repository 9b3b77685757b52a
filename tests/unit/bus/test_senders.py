"""The table of senders: every message has a row, and only what a row grants passes."""

import random
from pathlib import Path

import pytest
import structlog

from shared.bus.amqp.redelivered import MOST, Redelivered
from shared.bus.amqp.seal import Seal
from shared.bus.api import BusHealth, Exchange, RemoteFailure
from shared.bus.definitions import RIGHTS
from shared.bus.memory import MemoryBus, MemoryHub
from shared.bus.senders import ANSWER, TABLE, Arrival, Denied, Row, Senders, beyond, vouched, why_not
from shared.bus.topology import ROLES
from shared.messages import Ack, Envelope, Message, catalogue
from shared.messages.ads import AdUpdate, PrivateAds, SendAds
from shared.messages.asyncapi import newest
from shared.messages.base import Person
from shared.messages.flows import EVERY, PUBLISHED, REQUESTS
from shared.messages.negotiation import GetRequests, MatchNotice
from shared.messages.orders import Drain, Reconfigure, Restart, SetConfig, SwitchOff, SwitchOn
from shared.messages.queue import ActOnJobs, SubmitJobs
from tests.waiting import eventually

PLACES = (None, Exchange.RPC, Exchange.ADS, Exchange.EVENTS, Exchange.PRIVATE)
#: Fields that name a sender, of which `bare` makes messages without a body.
BARE = {"my_type": "Machine"}


def bare(kind, **fields):
    """A message of a type, with nothing in it but this."""
    return newest()[kind].model_construct(**BARE, **fields)


def test_every_message_has_a_row():
    assert set(TABLE) == {name for name, _ in catalogue()}


def test_a_row_names_roles_of_the_broker_only():
    for kind, row in TABLE.items():
        assert set(row.by) | set(row.answers) <= set(ROLES), kind
        assert row.by or row.answers, kind
        assert bool(row.by) == bool(row.exchanges), kind


def test_a_row_names_fields_that_its_message_has():
    for entry in (*PUBLISHED, *REQUESTS.values()):
        types = getattr(entry, "types", None) or (entry.type,)
        for attribute, _ in entry.names:
            assert any(attribute in newest()[kind].model_fields for kind in types), (types, attribute)


def test_only_what_a_row_grants_passes():
    """All types from all roles at all places, against the flows read a second time."""
    granted = set()
    for entry in PUBLISHED:
        for kind in entry.types:
            for role in ROLES if entry.by == (EVERY,) else entry.by:
                granted.add((kind, role, Exchange(entry.exchange)))
    serves = {"poolhistory": "collector"}
    for request in REQUESTS.values():
        granted |= {(request.type, role, Exchange.RPC) for role in request.by}
        inbox = request.inbox.partition(".")[0]
        servers = ROLES if inbox == "{subsystem}" else (serves.get(inbox, inbox),)
        granted |= {(answer, role, None) for answer in (*request.answers, "failure", "call.taken") for role in servers}
    advertise = {"ads.update", "ads.delta", "ads.heartbeat", "ads.invalidate"}
    passed = set()
    for kind in TABLE:
        for role in (*ROLES, "", "consumer", "gatewayx", "roost"):
            for place in PLACES:
                own = {"daemon": f"{role}@n", "by": f"{role}.n", "shard": ""}
                named = dict.fromkeys(("startd", "schedd", "had", "gateway", "negotiator"), "n")
                body = bare(kind, **own, **named)
                if kind in advertise and role == "startd":
                    assert not why_not(Envelope(body, f"{role}.n"), Arrival(Exchange.ADS))
                if not why_not(Envelope(body, f"{role}.n" if role else ""), Arrival(place)):
                    passed.add((kind, role, place))
    # Of ads it matters whose they are as well: of those roles only a startd has machines.
    others = {one for one in granted if one[0] in advertise and one[1] != "startd"}
    assert passed == granted - others


def test_random_pairs_of_user_and_sender_pass_only_where_the_user_may_be_that_sender():
    draw = random.Random(14)
    users = [*ROLES, *(f"{role}.{name}" for role in ROLES for name in ("a", "b.example", "a.b")), "roost", "guest", ""]
    senders = [*(f"{role}.{name}" for role in ROLES for name in ("a", "b.example", "a.b")), "", "startd", "startd."]
    for _ in range(20_000):
        user, sender = draw.choice(users), draw.choice(senders)
        kind, place = draw.choice(list(TABLE)), draw.choice(PLACES)
        body = bare(kind, daemon="", by="", startd="")
        if not why_not(Envelope(body, sender), Arrival(place, user)):
            assert user in ROLES or user.partition(".")[0] in ROLES
            assert sender == user or (user in ROLES and sender.startswith(f"{user}."))
            assert sender.partition(".")[0] in (TABLE[kind].by if place else TABLE[kind].answers)


def test_a_message_without_a_row_is_refused():
    class Stray(Message):
        type = "stray.message"

    for place in PLACES:
        assert "no row" in why_not(Envelope(Stray(), "gateway.a"), Arrival(place, "gateway"))


def test_a_user_of_one_daemon_is_that_daemon_only():
    assert vouched("startd.ep1", "startd.ep1")
    assert not vouched("startd.ep1", "startd.ep2")
    assert not vouched("startd.ep1", "startd.ep1.x")
    assert not vouched("startd.ep1", "startd")
    assert vouched("startd", "startd.ep1")
    assert not vouched("startd", "startdx.ep1")
    assert not vouched("", "startd.ep1")


@pytest.mark.parametrize("order", [Reconfigure(), Restart(), SwitchOff(), SwitchOn(), SetConfig()])
@pytest.mark.parametrize("sender", ["schedd.node1", "", "gatewayx.a", "defrag.a", "gateway"])
def test_orders_come_from_gateways_only(order, sender):
    refused = why_not(Envelope(order, sender), Arrival(Exchange.RPC))
    assert bool(refused) == (sender != "gateway")
    assert not refused or "gateway may send it" in refused


def test_a_machine_is_told_to_drain_by_gateways_and_defrag():
    drain, at = Drain(request_id="d"), Arrival(Exchange.RPC)
    assert {role for role in ROLES if not why_not(Envelope(drain, f"{role}.a"), at)} == {"gateway", "defrag"}


def test_a_daemon_speaks_for_itself_only():
    def update(daemon, my_type="Machine"):
        return AdUpdate(my_type=my_type, daemon=daemon, start_time=1, sequence=1, names=[], ads=[])

    on = Arrival(Exchange.ADS)
    assert why_not(Envelope(update("startd@a"), "startd.a"), on) == ""
    assert "startd@a" in why_not(Envelope(update("startd@a"), "startd.b"), on)
    assert "startd@a" in why_not(Envelope(update("startd@a"), "schedd.a"), on)
    assert "Negotiator" in why_not(Envelope(update("startd@a", "Negotiator"), "startd.a"), on)
    assert why_not(Envelope(update("schedd@a", "DaemonMaster"), "schedd.a"), on) == ""
    private = PrivateAds(daemon="startd@a", start_time=1, sequence=1, claims={})
    assert "itself" in why_not(Envelope(private, "startd.b"), Arrival(Exchange.PRIVATE))


def test_a_negotiator_speaks_in_the_name_of_its_shard():
    def asked(negotiator, shard):
        return GetRequests(negotiator=negotiator, epoch=1, cycle=1, submitters=[], shard=shard)

    at = Arrival(Exchange.RPC)
    assert why_not(Envelope(asked("cm", ""), "negotiator.cm"), at) == ""
    assert why_not(Envelope(asked("gpus", "gpus"), "negotiator.cm"), at) == ""
    assert "itself" in why_not(Envelope(asked("other", ""), "negotiator.cm"), at)
    notice = MatchNotice(negotiator="other", epoch=1, slots=[])
    assert "itself" in why_not(Envelope(notice, "negotiator.cm"), at)


def test_types_of_ads_are_those_that_the_broker_lets_a_role_publish():
    for role in ROLES:
        for my_type in ("Machine", "Negotiator", "Scheduler", "Collector", "HAD", "Defrag"):
            body = AdUpdate(my_type=my_type, daemon=f"{role}@a", start_time=1, sequence=1, names=[], ads=[])
            passes = not why_not(Envelope(body, f"{role}.a"), Arrival(Exchange.ADS))
            assert passes == (my_type in RIGHTS[role].ads), (role, my_type)


def test_refusals_are_counted_and_logged_once_by_sender_and_type():
    health = BusHealth()
    with structlog.testing.capture_logs() as logs:
        senders = Senders(health, structlog.stdlib.get_logger(), TABLE)
        for _ in range(5):
            for sender in ("startd.a", "startd.b"):
                with pytest.raises(Denied, match="gateway may send it"):
                    senders.admit(Envelope(Restart(), sender), Arrival(Exchange.RPC))
    assert [entry["event"] for entry in logs] == ["bus.denied"] * 2
    assert health.denied.by_name == {("daemon.restart",): 10}


async def test_callers_are_told_and_what_nobody_waits_for_becomes_a_dead_letter():
    hub = MemoryHub()
    startd, schedd = MemoryBus(hub, sender="startd.a"), MemoryBus(hub, sender="schedd.b")
    seen = []

    async def handler(envelope):
        seen.append(envelope)
        return Ack()

    for bus in (startd, schedd):
        await bus.start()
    await startd.serve("startd.a", handler)
    with pytest.raises(RemoteFailure, match="gateway may send it") as failed:
        await schedd.call("startd.a", Restart())
    assert failed.value.code == "denied"
    assert await schedd.dead_letters() == []
    await schedd.send("startd.a", Restart())
    (letter,) = await eventually(schedd.dead_letters)
    assert "gateway may send it" in letter.reason
    assert startd.health.denied.by_name == {("daemon.restart",): 2}
    assert seen == []
    for bus in (startd, schedd):
        await bus.stop()


async def test_an_answer_that_its_sender_may_not_give_is_not_believed():
    hub = MemoryHub()
    served, asking = MemoryBus(hub, sender="had.a", rows=TABLE), MemoryBus(hub, sender="collector.b")

    async def handler(_):
        return SendAds(my_type="x")  # a request, not an answer

    for bus in (served, asking):
        await bus.start()
    await served.serve("had.a", handler)
    with pytest.raises(RemoteFailure, match="not believed") as failed:
        await asking.call("had.a", SendAds(my_type="x"))
    assert failed.value.code == "denied"
    for bus in (served, asking):
        await bus.stop()


def test_answers_come_as_answers_only():
    assert why_not(Envelope(Ack(), "startd.a"), ANSWER) == ""
    assert "as an answer only" in why_not(Envelope(Ack(), "startd.a"), Arrival(Exchange.RPC))
    assert "to an inbox only" in why_not(Envelope(Restart(), "gateway.a"), ANSWER)
    assert Row() == Row((), (), ())  # nobody, nowhere


# Seals of dead letters


def test_a_seal_is_its_makers_and_of_one_message_from_one_user_in_one_queue(tmp_path: Path):
    seal = Seal(tmp_path / "a.seal")
    made = seal.of("q", "startd", b"data")
    assert seal.fits(made, "q", "startd", b"data")
    assert not seal.fits(made, "q", "gateway", b"data")
    assert not seal.fits(made, "q2", "startd", b"data")
    assert not seal.fits(made, "q", "startd", b"Data")
    assert not seal.fits(made, "qs", "tartd", b"data")
    assert not Seal(tmp_path / "b.seal").fits(made, "q", "startd", b"data")
    assert not seal.fits("\N{LATIN SMALL LETTER E WITH ACUTE}", "q", "startd", b"data")
    assert Seal(tmp_path / "a.seal").fits(made, "q", "startd", b"data")  # the next life knows it
    assert (tmp_path / "a.seal").stat().st_mode & 0o777 == 0o600


def test_a_seal_that_was_cut_short_is_made_anew(tmp_path: Path):
    (tmp_path / "a.seal").write_bytes(b"short")
    seal = Seal(tmp_path / "a.seal")
    assert seal.fits(seal.of("q", "u", b""), "q", "u", b"")
    assert len((tmp_path / "a.seal").read_bytes()) == 32


# Counts of redeliveries


def test_redeliveries_are_counted_over_lives_and_forgotten_when_done(tmp_path: Path):
    path = tmp_path / "spool" / "a.redelivered"
    assert [Redelivered(path).again(b"poison") for _ in range(3)] == [1, 2, 3]
    counts = Redelivered(path)
    assert counts.again(b"poison") == 4
    counts.done(b"poison")
    assert counts.again(b"other") == 1
    assert Redelivered(path).again(b"poison") == 1
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_can_not_be_read_or_kept_counts_anew(tmp_path: Path):
    path = tmp_path / "a.redelivered"
    for text in ("", "[]", '{"x": "y"}', "\0"):
        path.write_text(text)
        assert Redelivered(path).again(b"m") == 1
    assert Redelivered(tmp_path / "file" / "x").again(b"m") == 1
    many = Redelivered(None)
    for n in range(MOST + 5):
        many.again(str(n).encode())
    assert many.again(b"0") == 1  # forgotten
    assert many.again(str(MOST).encode()) == 2


@pytest.mark.parametrize(
    ("level", "owner", "refused"),
    [("WRITE", "ann@pool", False), ("WRITE", "ben@pool", True), ("ADMINISTRATOR", "ben@pool", False)],
)
def test_only_an_administrator_submits_for_others(level, owner, refused):
    body = SubmitJobs(submit_id="1", user=owner, cluster_ad=b"", procs=[b""])
    said = beyond(body, Person("ann@pool", level), TABLE[body.type].permit)
    assert bool(said) is refused
    assert not refused or "it says it is from 'ben@pool', its statement from 'ann@pool'" in said


def test_an_administrator_acts_in_no_other_name():
    body = ActOnJobs(action="hold", user="ben@pool", admin=True, ids=["1.0"])
    assert "it says it is from" in beyond(body, Person("ann@pool", "ADMINISTRATOR"), TABLE[body.type].permit)
