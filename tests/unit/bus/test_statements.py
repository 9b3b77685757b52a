"""What gateways say of people: believed for one message, for a minute, by who has the gateway's key."""

import asyncio
import dataclasses
import stat
import time

import msgpack
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from shared.bus.api import BusHealth, Exchange
from shared.bus.handling import Saying, packed_for, unpack_checked
from shared.bus.senders import TABLE, Arrival, Denied, Senders
from shared.bus.statements import (
    LIFE_S,
    LOOK_S,
    SKEW_S,
    Believer,
    Keys,
    NotBelieved,
    Replayed,
    Signer,
    digest_of,
    make_key_pair,
    signer_of,
)
from shared.messages import Envelope
from shared.messages.base import Person, pack_body
from shared.messages.flows import REQUESTS
from shared.messages.negotiation import SetPriority
from shared.messages.orders import Drain, SetConfig
from shared.messages.queue import ActOnJobs, FetchFiles, QueryJobs, SubmitJobs
from shared.operations import NEEDS

NOW = 1_800_000_000.0
ALICE, ROOT = Person("alice@pool", "WRITE", ("jobs.*",)), Person("root@pool", "ADMINISTRATOR")
SIGNER = Signer.new()


class Log:
    def warning(self, *_, **__):
        pass


def signed(envelope, person=ALICE, signer=SIGNER, inbox="schedd.ap"):
    return asyncio.run(packed_for(envelope, Saying(signer, person, inbox)))


def sent(body, person=ALICE, signer=SIGNER, inbox="schedd.ap", now=NOW, sender="gateway.gw"):
    """A message as it comes out of the envelope at the other end."""
    return Envelope.unpack(signed(Envelope(body, sender, ts=now), person, signer, inbox))


def believe(believing, envelope, inbox="schedd.ap", *, again=False):
    return believing.believe(envelope, inbox, asyncio.run(digest_of(envelope.content)), again=again)


def checked(envelope, arrival=None):
    """The message as a handler sees it."""
    return asyncio.run(unpack_checked(envelope.pack(bytes(envelope.content) or None), arrival or AT, senders()))


def believer(now=NOW, *signers):
    return Believer(Keys(given=tuple(one.public for one in signers or (SIGNER,))), lambda: now)


def senders(now=NOW):
    return Senders(BusHealth(), Log(), TABLE, believer(now))


def act(user="alice@pool", **more):
    return ActOnJobs(user=user, action="hold", ids=["1.0"], **more)


AT = Arrival(Exchange.RPC, "gateway", inbox="schedd.ap")


def test_what_a_gateway_signed_is_believed_and_told_to_the_handler():
    envelope = checked(sent(act()), AT)
    assert envelope.person == ALICE
    assert envelope.body == act()
    assert Envelope.unpack(envelope.pack()).person is None  # it is nobody's word but the signature's


def test_a_statement_changes_nothing_for_who_does_not_know_it():
    plain = Envelope(act(), "gateway.gw", ts=NOW)
    raw = msgpack.unpackb(signed(plain))
    raw.pop("statement")
    assert msgpack.packb(raw) == plain.pack()


@pytest.mark.parametrize(
    "change",
    [
        {"id": "another"},
        {"sender": "gateway.other"},
        {"content": pack_body(act(reason="x"))},
        {"content": pack_body(act("bob@pool"))},
        {"body": QueryJobs()},
    ],
)
def test_a_statement_holds_for_its_message_only(change):
    envelope = dataclasses.replace(sent(act()), **change)
    with pytest.raises(NotBelieved, match="another message"):
        believe(believer(), envelope)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user", "root@pool"),
        ("level", "ADMINISTRATOR"),
        ("scopes", []),
        ("until_ms", round(NOW * 1000)),
        ("signature", b""),
    ],
)
def test_nothing_in_it_can_be_changed(name, value):
    envelope = sent(act())
    changed = dataclasses.replace(envelope, statement=envelope.statement | {name: value})
    with pytest.raises(NotBelieved, match="another message"):
        believe(believer(), changed)


@pytest.mark.parametrize(
    "statement",
    [{}, {"user": 1}, {"user": "a", "level": "WRITE", "scopes": 3}, {"key": 1, "until_ms": "x", "signature": 0}, None],
)
def test_what_is_no_statement_is_refused(statement):
    whole = sent(act()).statement
    for broken in (statement, None if statement is None else whole | statement | {"key": [], "signature": "x"}):
        with pytest.raises(NotBelieved):
            believe(believer(), dataclasses.replace(sent(act()), statement=broken))


def test_only_a_body_at_the_end_of_its_envelope_is_signed():
    """There it is told without reading it twice; nobody puts it elsewhere."""
    raw = msgpack.unpackb(signed(Envelope(act(), "gateway.gw", ts=NOW)))
    assert list(raw)[-1] == "body"
    body = raw.pop("body")
    moved = Envelope.unpack(msgpack.packb({"body": body, **raw}))
    with pytest.raises(NotBelieved, match="another message"):
        believe(believer(), moved)
    other = act().model_copy(update={"action": "release"}).model_dump()
    twice = msgpack.packb({"body": other, **raw, "bodZ": body}).replace(b"\xa4bodZ", b"\xa4body")
    assert twice.count(b"\xa4body") == 2
    read = Envelope.unpack(twice)
    believe(believer(), read)
    assert read.body == act()  # what is obeyed is what was signed


def test_a_long_name_and_many_scopes_are_signed_too():
    person = Person("a" * 3000 + "@pool", "WRITE", (*(f"jobs.{n}" for n in range(1000)), "jobs.act"))
    assert checked(sent(act(person.user), person)).person == person


def test_it_holds_at_its_inbox_only():
    with pytest.raises(NotBelieved, match="another message"):
        believe(believer(), sent(act(), inbox="schedd.ap"), "schedd.ap2")


@pytest.mark.parametrize(
    ("now", "good"),
    [
        (NOW, True),
        (NOW + LIFE_S + SKEW_S - 1, True),
        (NOW + LIFE_S + SKEW_S + 1, False),
        (NOW - SKEW_S + 1, True),
        (NOW - SKEW_S - 1, False),
    ],
)
def test_it_holds_for_a_minute_and_clocks_may_differ_by_seconds(now, good):
    try:
        believe(believer(now), sent(act()))
    except NotBelieved:
        assert not good
    else:
        assert good


def test_a_message_is_believed_once_but_when_the_broker_delivers_it_again():
    believing, envelope = believer(), sent(act())
    believe(believing, envelope)
    with pytest.raises(Replayed):
        believe(believing, envelope)
    believe(believing, envelope, again=True)
    now = [NOW]
    believing = Believer(Keys(given=(SIGNER.public,)), lambda: now[0])
    for n in range(100):
        now[0] = NOW + n * 10
        believe(believing, sent(act(), now=now[0]))
    assert len(believing.seen) <= 9  # those that are over are forgotten


def test_a_stranger_and_another_gateways_key_are_not_believed():
    with pytest.raises(NotBelieved, match="ROOST_GATEWAY_KEYS"):
        believe(believer(), sent(act(), signer=Signer.new()))
    with pytest.raises(NotBelieved, match=r"knows no gateway's key.*ROOST_GATEWAY_KEYS"):
        believe(Believer(Keys(), lambda: NOW), sent(act()))
    with pytest.raises(Denied, match="has no key to say"):
        checked(Envelope(act(), "gateway.gw"), AT)


@pytest.mark.parametrize(
    ("body", "person", "why"),
    [
        (act("bob@pool"), ALICE, "bob@pool"),
        (act(admin=True), ALICE, "no administrator"),
        (SubmitJobs(user="condor@pool", submit_id="s", cluster_ad=b"", procs=[]), ALICE, "condor@pool"),
        (act(), Person("alice@pool", "READ"), "takes WRITE"),
        (act(), Person("alice@pool", "OWNER"), "takes WRITE"),
        (Drain(request_id="d", by="alice@pool"), ALICE, "takes ADMINISTRATOR"),
        (Drain(request_id="d", by="root@elsewhere"), ROOT, "root@elsewhere"),
        (SetConfig(by="alice@pool", level="ADMINISTRATOR"), Person("alice@pool", "WRITE"), "ADMINISTRATOR"),
    ],
)
def test_a_body_that_asks_for_more_than_its_statement_says_is_refused(body, person, why):
    with pytest.raises(Denied, match=why):
        checked(sent(body, person), AT)


@pytest.mark.parametrize(
    ("body", "scopes", "good"),
    [
        (act(), ("jobs.query", "jobs.submit"), False),
        (act(), ("jobs.act",), True),
        (act().model_copy(update={"action": "remove"}), ("jobs.submit",), True),  # what one's submit queued in part
        (act().model_copy(update={"action": "edit"}), ("jobs.act",), False),
        (act().model_copy(update={"action": "edit"}), ("jobs.[ae]*",), True),
        (SubmitJobs(user="alice@pool", submit_id="s", cluster_ad=b"", procs=[]), ("jobs.act",), False),
        (FetchFiles(user="alice@pool", job_id="1.0"), ("credentials",), False),
        (FetchFiles(user="alice@pool", job_id="1.0"), ("jobs.files",), True),
        (FetchFiles(user="alice@pool", job_id="", credentials=True), ("jobs.*",), False),
        (FetchFiles(user="alice@pool", job_id="", credentials=True), ("credentials",), True),
        (QueryJobs(user="alice@pool"), ("jobs.submit",), False),
        (QueryJobs(user="alice@pool"), ("jobs.query",), True),
        (SetPriority(submitter="bob@pool", what="factor", by="alice@pool"), ("quotas.set",), False),
        (SetPriority(submitter="group", what="quota", by="alice@pool"), ("priorities.set",), False),
        (SetPriority(submitter="group", what="quota", by="alice@pool"), ("quotas.*",), True),
        (Drain(request_id="d", by="alice@pool"), ("vacate", "off"), False),
    ],
)
def test_a_token_for_some_operations_opens_no_others_at_the_daemons_either(body, scopes, good):
    envelope = sent(body, Person("alice@pool", "ADMINISTRATOR", scopes))
    if good:
        assert checked(envelope).person.scopes == scopes
    else:
        with pytest.raises(Denied, match="it takes the operation"):
            checked(envelope)


def test_every_operation_of_the_table_is_one_that_gateways_guard():
    named = {
        operation
        for request in REQUESTS.values()
        if request.permit
        for operations in (request.permit.operations, *request.permit.where.values())
        for operation in operations
    }
    assert named <= NEEDS.keys()
    texts = {"action": {"edit", "remove"}, "credentials": {"True"}, "what": {"quota", "dynamic-quota", "no-quota"}}
    for request in REQUESTS.values():
        if request.permit and request.permit.attribute:
            assert request.permit.where.keys() == texts[request.permit.attribute]


def test_administrators_and_those_who_act_for_themselves_pass():
    assert checked(sent(act("root@pool", admin=True), ROOT), AT).person == ROOT
    writer = Person("alice@pool", "WRITE")
    assert checked(sent(SetConfig(by="alice@pool", level="WRITE"), writer), AT).person == writer
    drain = Envelope(Drain(request_id="d"), "defrag.d")
    assert checked(drain, Arrival(Exchange.RPC, "defrag", inbox="startd.x")).person is None
    assert checked(Envelope(QueryJobs(), "gateway.gw"), AT).person is None
    assert checked(sent(QueryJobs(user="alice@pool")), AT).person == ALICE
    assert checked(sent(QueryJobs()), AT).person is None  # what everybody is told needs no name
    for question in (QueryJobs(user="alice@pool"), QueryJobs(admin=True)):
        with pytest.raises(Denied, match="has no key to say"):
            checked(Envelope(question, "gateway.gw"), AT)
    with pytest.raises(Denied, match="no administrator"):
        checked(sent(QueryJobs(admin=True)), AT)


def test_every_message_in_which_a_gateway_names_a_person_carries_one():
    """A field that says who asks is a gateway's word: it is signed."""
    from shared.messages.asyncapi import newest

    for request in REQUESTS.values():
        fields = newest()[request.type].model_fields
        if "gateway" in request.by and {"user", "admin", "level"} & set(fields):
            assert request.permit, request.type
        if "gateway" in request.by and "by" in fields and request.type not in ("negotiation.reschedule",):
            assert request.permit or request.type == "collector.count", request.type


# Keys


def test_a_key_is_made_once_closed_and_its_public_half_is_for_everybody(tmp_path):
    made = signer_of(tmp_path / "own" / "gateway.key")
    assert signer_of(tmp_path / "own" / "gateway.key").public == made.public
    assert stat.S_IMODE((tmp_path / "own" / "gateway.key").stat().st_mode) == 0o600
    keys = Keys(tmp_path / "own" / "gateway.key.pub")
    believe(Believer(keys, lambda: NOW), sent(act(), signer=made))


def test_a_pair_lies_where_it_shall_and_is_made_whole_again(tmp_path):
    private, public = tmp_path / "gateway" / "key", tmp_path / "everybody" / "gw1.pub"
    made = make_key_pair(private, public)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    public.unlink()
    assert make_key_pair(private, public).public == made.public
    believe(Believer(Keys(public.parent), lambda: NOW), sent(act(), signer=made))
    public.chmod(0o600)
    before = public.read_bytes()
    make_key_pair(private, public)
    assert (stat.S_IMODE(public.stat().st_mode), public.read_bytes()) == (0o600, before)  # what is there is kept


def test_keys_of_a_directory_come_and_go_while_daemons_run(tmp_path):
    first, second, now = Signer.new(), Signer.new(), [0.0]
    keys = Keys(tmp_path, monotonic=lambda: now[0])
    believing = Believer(keys, lambda: NOW)

    def believed(signer):
        now[0] += LOOK_S
        try:
            believe(believing, sent(act(), signer=signer))
        except NotBelieved:
            return False
        return True

    assert (believed(first), believed(second)) == (False, False)
    (tmp_path / "a.pub").write_bytes(first.public_pem)
    assert (believed(first), believed(second)) == (True, False)
    (tmp_path / "b.pub").write_bytes(second.public_pem + first.public_pem)
    (tmp_path / "c.pub").write_text("-----BEGIN PUBLIC KEY-----\nnonsense\n-----END PUBLIC KEY-----\n")
    (tmp_path / "d.txt").write_text("no key")
    assert (believed(first), believed(second)) == (True, True)
    (tmp_path / "a.pub").unlink()
    (tmp_path / "b.pub").write_bytes(second.public_pem)
    assert (believed(first), believed(second)) == (False, True)
    for file in tmp_path.iterdir():
        file.unlink()
    tmp_path.rmdir()
    assert (believed(first), believed(second)) == (False, False)


def test_files_that_hold_no_key_are_told(tmp_path):
    path = tmp_path / "gateway.key"
    path.write_text("nonsense")
    with pytest.raises(ValueError, match=str(path)):
        signer_of(path)
    other = X25519PrivateKey.generate()
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(other.private_bytes(*form))
    with pytest.raises(ValueError, match="Ed25519"):
        signer_of(path)


def test_what_signing_and_checking_cost():
    """Of a body of 8 MiB neither holds a loop for long; the bound is generous, for busy machines."""
    body = SubmitJobs(user="alice@pool", submit_id="s", cluster_ad=b"x" * 1024, procs=[b"y" * 4096] * 2000)
    began = time.process_time()
    envelope = sent(body)
    believe(believer(), envelope)
    assert time.process_time() - began < 1.0
