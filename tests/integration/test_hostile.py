"""Whatever a user, a script or a misbehaving daemon sends: no daemon dies or stalls, nothing gets out of step."""

import asyncio
import contextlib
import errno
import os
import types
import typing

import msgpack
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from shared.bus.api import Exchange, RemoteFailure
from shared.classad import ClassAd
from shared.errors import RoostError
from shared.messages import catalogue
from shared.messages.ads import AdUpdate, PrivateAds
from shared.messages.claims import RequestClaim
from shared.messages.flows import PUBLISHED, REQUESTS
from shared.messages.had import Lead
from shared.messages.negotiation import GetPriorities, GetRequests, Matches, MatchNotice, SetPriority
from shared.messages.queue import SubmitJobs
from tests.waiting import eventually
from tests.wholepool import USER, WholePool

INBOXES = ("schedd.ap", "startd.ep", "negotiator", "negotiator.cm", "collector", "collector.cm", "had.cm", "journal")
SENDERS = ("schedd.ap", "startd.ep", "startd.evil", "negotiator.cm", "had.cm", "gateway.x", "schedd.evil")
#: How many examples; more by hand: ROOST_HOSTILE=2000 pytest tests/integration/test_hostile.py
EXAMPLES = int(os.environ.get("ROOST_HOSTILE", "12"))
BURST = 30
PUBLISHED_EVENTS = {name for entry in PUBLISHED if entry.exchange == "roost.events" for name in entry.types}

INTEGERS = (0, 1, -1, 2, 10, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
REALS = (0.0, -1.0, 1e300, -1e300, float("inf"), float("-inf"), float("nan"), 0.5)
integers = st.one_of(st.sampled_from(INTEGERS), st.integers(-3, 100))
floats = st.one_of(st.sampled_from(REALS), st.floats(0, 10))
TEXTS = (
    "",
    "a",
    "1.0",
    "1",
    "999999999999999999.0",
    "x" * 3000,
    "../../etc/passwd",
    "nul\0nul",
    "new\nline",
    "é" * 200,
    USER,
    "alice@pool",
    "slot1@ep",
    "slot1_1@ep",
    "startd@ep",
    "schedd@ap",
    "startd@evil",
    "schedd@evil",
    "@",
    "Machine",
    "Submitter",
    "Scheduler",
    "Accounting",
    "ap",
    "ep",
    "cm",
    "startd.ep",
    "schedd.ap",
    "schedd.evil",
    "true",
    "(" * 500,
    'regexp("(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab")',
)
texts = st.one_of(st.sampled_from(TEXTS), st.text(max_size=8))
VALUES = (  # those with a zero byte and the like only come packed
    1,
    0,
    -5,
    2**62,
    1e300,
    float("inf"),
    float("nan"),
    "",
    "text",
    "nul\0",
    "x" * 2000,
    True,
    None,
    [1, 2, "three"],
    {"a": 1},
    "=a",
    "=MY.a + MY.b",
    "=1/0",
    '=regexp("(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab")',
    "=((((((((((1))))))))))",
    '=real("INF")',
    '=real("NaN")',
    "/dev/full",
    "/nonexistent/x",
    "schedd.evil",
    "startd.evil",
    "\udcff\udcfe",
)
_TEXT = """
    a b Name Cpus Memory Disk State Activity IdleJobs RunningJobs ScheddIpAddr MyAddress Requirements Rank Start
    SlotWeight PartitionableSlot RequestCpus RequestMemory RequestDisk RequestGPUs JobPrio JobStatus Iwd Cmd Args
    Arguments Env Environment In Out Err UserLog PeriodicHold PeriodicRemove PeriodicRelease OnExitHold
    OnExitRemove JobLeaseDuration KillSig JobMaxVacateTime AllowedJobDuration LeaveJobInQueue TransferInput
    TransferOutput TransferOutputRemaps ShouldTransferFiles AccountingGroup NiceUser ImageSize DiskUsage
    ConcurrencyLimits MachineResources RemoteUser ClassAdLifetime RoostClaims Offline SlotID DockerImage
    MaxTransferOutputMB CoreSize TimerRemove RetireTime CumulativeSuspensionTime HoldReason JobUniverse
"""
NAMES = tuple(_TEXT.split())


@st.composite
def packed_ads(draw):
    """A packed ad, mostly a good one with bad values; sometimes no ad at all."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(st.binary(max_size=40))
    if kind == 1:
        return msgpack.packb({"Name": msgpack.ExtType(draw(st.integers(0, 5)), b"((((")})
    ad = {"Cmd": "/bin/true", "Iwd": "/tmp", "ShouldTransferFiles": "NO", "Name": "slot1@ep"}
    if draw(st.booleans()):
        ad |= {"RequestCpus": 1, "RequestMemory": 16}
    for name, value in draw(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=6)):
        if isinstance(value, str) and value.startswith("="):
            value = msgpack.ExtType(1, value[1:].encode())  # as ClassAd.pack() writes expressions
        ad[name] = value
    return msgpack.packb(ad, unicode_errors="surrogateescape")


EPOCHS = st.sampled_from((-1, 0, 1, 2**63 - 1, 2**63, 2**64 - 1))  # what lies between is believed, as it must be


def of(annotation):
    """Values of the type of a field."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return values_of(FieldInfo.from_annotation(annotation))
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(of(one) for one in arguments))
    if origin is list:
        return st.lists(of(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(of(arguments[0]), of(arguments[1]), max_size=3)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return models(annotation)
    return {
        int: integers,
        float: floats,
        str: texts,
        bytes: packed_ads(),
        bool: st.booleans(),
        type(None): st.none(),
        typing.Any: st.one_of(integers, floats, texts, st.none(), st.lists(integers, max_size=3)),
    }[annotation]


def values_of(field):
    """Values that the field takes: a sender could not make others, and receivers refuse them as they refuse garbage."""
    least = max((one.ge for one in field.metadata if hasattr(one, "ge")), default=None)
    most = min((one.le for one in field.metadata if hasattr(one, "le")), default=None)
    longest = min((one.max_length for one in field.metadata if hasattr(one, "max_length")), default=None)
    shortest = max((one.min_length for one in field.metadata if hasattr(one, "min_length")), default=0)
    if shortest and typing.get_origin(field.annotation) is list:
        return st.lists(of(typing.get_args(field.annotation)[0]), min_size=shortest, max_size=longest)
    if longest is not None:
        return of(field.annotation).map(lambda value: value[:longest])
    if least is None and most is None:
        return of(field.annotation)
    return st.one_of(st.sampled_from([end for end in (least, most) if end is not None]), st.integers(least, most))


def models(kind):
    fields = {name: values_of(field) for name, field in kind.model_fields.items()}
    return st.builds(kind, **fields | {"epoch": EPOCHS} if "epoch" in fields else fields)


KINDS = {kind.type: kind for kind in catalogue().values()}
MESSAGES = st.sampled_from(sorted(KINDS)).flatmap(lambda name: models(KINDS[name]))
#: Orders by which an administrator stops machines and daemons by right: made-up ones come from others than a gateway.
STOPS = {"daemon.off", "daemon.restart", "daemon.set-config", "machine.drain", "machine.vacate"}
OTHERS = tuple(sender for sender in SENDERS if not sender.startswith("gateway."))
AD_TYPES = sorted(name for name in KINDS if name.startswith("ads."))


def home(inbox):
    """The inbox of this pool that the catalogue means."""
    return {"schedd": "schedd.ap", "startd": "startd.ep"}.get(
        inbox.partition(".")[0], "negotiator.cm" if inbox.startswith("negotiator.") else inbox.partition(".{")[0]
    )


@st.composite
def sendings(draw):
    """(sender, exchange or None, key or inbox, message): mostly what belongs there."""
    sender, exchange, key, message = draw(any_sendings())
    if message.type in STOPS and sender not in OTHERS:
        sender = draw(st.sampled_from(OTHERS))
    return sender, exchange, key, message


@st.composite
def any_sendings(draw):
    sender = draw(st.sampled_from(SENDERS))
    door = draw(st.sampled_from(("request", "request", "request", "ads", "ads", "private", "events", "anything")))
    if door == "request":
        request = REQUESTS[draw(st.sampled_from(sorted(REQUESTS)))]
        inbox = home(request.inbox) if request.type != "ads.send" else draw(st.sampled_from(INBOXES))
        return sender, None, inbox, draw(models(KINDS[request.type]))
    if door == "anything":
        return sender, None, draw(st.sampled_from(INBOXES)), draw(MESSAGES)
    if door == "ads":
        message = draw(models(KINDS[draw(st.sampled_from(AD_TYPES))]))
        if sender == "schedd.evil" and hasattr(message, "my_type"):
            message = message.model_copy(update={"daemon": "schedd@evil", "my_type": "Submitter"})
        elif sender == "startd.evil" and hasattr(message, "my_type"):
            message = message.model_copy(update={"daemon": "startd@evil", "my_type": "Machine"})
        key = f"{message.type.partition('.')[2]}.{getattr(message, 'my_type', 'x')}.x"[:200]
        return sender, Exchange.ADS, key, message
    if door == "private":
        return sender, Exchange.PRIVATE, "startd@evil", draw(models(KINDS["ads.private"]))
    kind = KINDS[draw(st.sampled_from(sorted(PUBLISHED_EVENTS)))]
    return sender, Exchange.EVENTS, kind.type, draw(models(kind))


async def deliver(pool, sending):
    sender, exchange, key, message = sending
    bus = await pool.bus(sender)
    try:
        if exchange is None:
            return await bus.call(key, message, timeout=20.0)
        await bus.publish(exchange, key, message)
    except (RoostError, ValueError, OverflowError, TypeError) as error:
        return error
    return None


async def settle(pool):
    """After a burst: alive, answering, working, and in step."""
    await pool.works()
    await eventually(lambda: not pool.consistent(), what="books that add up")


@pytest.mark.dear(held_by="tests/security/test_fuzz_corpus.py::test_no_message_is_a_crash_or_widens_rights")
@settings(
    max_examples=EXAMPLES,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    print_blob=True,
)
@given(st.lists(sendings(), min_size=BURST // 2, max_size=BURST), st.randoms(use_true_random=False))
def test_random_messages_of_every_type_to_every_door_do_no_harm(tmp_path_factory, burst, chance):
    async def scenario():
        async with WholePool(tmp_path_factory.mktemp("pool")) as pool:
            await pool.begin("journal", "cm")
            stale = chance.sample(burst, min(5, len(burst)))
            for sending in burst + stale:
                await deliver(pool, sending)
                assert not pool.dead(), (pool.dead(), sending)
            await settle(pool)

    asyncio.run(scenario())


@pytest.fixture
async def pool(tmp_path):
    async with WholePool(tmp_path) as pool:
        yield pool


async def submitted(pool, **attributes):
    """A cluster of one job, from an ad as bytes: no client of ours would write most of these."""
    ad = {"Cmd": "/bin/true", "Iwd": str(pool.directory), "ShouldTransferFiles": "NO", "RequestMemory": 16}
    packed = msgpack.packb(ad | attributes, unicode_errors="surrogateescape")
    answer = await pool.call(
        "schedd.ap", SubmitJobs(user=USER, submit_id="hostile", cluster_ad=packed, procs=[ClassAd().pack()])
    )
    return answer.cluster


@pytest.mark.parametrize("stream", ["In", "Out", "Err"])
async def test_a_pipe_with_nobody_at_its_other_end_keeps_no_other_job_waiting(pool, stream):
    os.mkfifo(pool.directory / "pipe")
    cluster = await submitted(pool, **{stream: "pipe"})
    await eventually(lambda: pool.schedd.table.totals()["Idle"] == 0)
    await pool.works()
    if stream != "In":  # there it is the job's own to wait
        (ad,) = await pool.rests(cluster)
        assert (ad.eval("JobStatus"), ad.eval("HoldReasonCode"), ad.eval("HoldReasonSubCode")) == (5, 7, errno.ENXIO)


async def test_no_user_log_stops_the_schedd_or_its_next_life(pool):
    os.mkfifo(pool.directory / "pipe")
    for path in ("zero\0byte", "no\udcffutf8", "pipe", ".", "/dev/full", "/proc/nowhere/log"):
        cluster = await submitted(pool, UserLog=path)
        (ad,) = await pool.rests(cluster)
        assert ad.eval("JobStatus") == 4, path
    await pool.end("schedd")
    await pool.begin("schedd", "ap")
    await pool.works()


@pytest.mark.parametrize("name", ["RequestCpus", "RequestMemory", "RequestDisk", "JobLeaseDuration", "JobPrio"])
async def test_no_number_of_a_job_stops_the_pool(pool, name):
    """One pool for all values: what stops it is the last that it was given, or one that waits since before."""
    for value in (2**62, 1e300, float("inf"), float("nan"), -3, "two"):
        with contextlib.suppress(RemoteFailure):
            await submitted(pool, **{name: value})
        await pool.works()
        await eventually(lambda: not pool.consistent(), what=f"books that add up after {name} = {value}")


@pytest.mark.parametrize("epoch", [2**63, 2**64 - 1, -1])
async def test_an_impossible_epoch_is_refused_and_changes_nothing(pool, epoch):
    for inbox, message in (
        ("schedd.ap", GetRequests(negotiator="x", epoch=epoch, cycle=1, submitters=[])),
        ("schedd.ap", Matches(negotiator="x", epoch=epoch, cycle=1, matches=[])),
        ("negotiator.cm", Lead(had="x", epoch=epoch, lease_s=1e9)),
        ("startd.ep", MatchNotice(negotiator="x", epoch=epoch, slots=[])),
        (
            "startd.ep",
            RequestClaim(
                request_id="r",
                claim_id=pool.startd.shared.slot_manager.slots["slot1@ep"].offer,
                slot="slot1@ep",
                schedd="ap",
                submitter=USER,
                job_ad=ClassAd({"RequestCpus": 1}).pack(),
                lease_s=60,
                alive_interval_s=60,
                epoch=epoch,
            ),
        ),
    ):
        with pytest.raises(RemoteFailure, match="epoch"):
            await pool.call(inbox, message)
    await pool.works()


async def test_a_startd_can_not_speak_for_the_slots_of_another(pool):
    await pool.works()
    evil = await pool.bus("startd.evil")
    before = dict(pool.negotiator.table.claims)
    stolen = PrivateAds(daemon="startd@evil", start_time=10**11, sequence=1, claims={"slot1@ep": "stolen"})
    forged = AdUpdate(
        my_type="Machine",
        daemon="startd@evil",
        start_time=10**11,
        sequence=1,
        names=["slot1@ep", "slot1@evil"],
        ads=[ClassAd({"Name": "slot1@ep", "MyAddress": "startd.evil", "Cpus": 99}).pack(), b"\xc1garbage"],
    )
    await evil.publish(Exchange.PRIVATE, "startd@evil", stolen)
    await evil.publish(Exchange.ADS, "update.Machine.startd@evil", forged)
    await eventually(lambda: pool.negotiator.ads.group("Machine", "startd@evil"))
    assert pool.negotiator.table.ads["slot1@ep"].eval("MyAddress") == "startd.ep"
    assert pool.negotiator.table.claims["slot1@ep"] == before["slot1@ep"]
    await pool.works()


async def test_a_name_that_no_ad_can_hold_is_refused(pool):
    with pytest.raises(RemoteFailure, match="no name"):
        await pool.call("negotiator", SetPriority(submitter="zero\0byte", what="factor", value=2.0))
    await pool.call("negotiator", GetPriorities())
    ad, user = pool.job().pack(), USER.partition("@")[0] + "@zero\0byte"
    with pytest.raises(RemoteFailure, match="no user"):
        await pool.call("schedd.ap", SubmitJobs(user=user, submit_id="x", cluster_ad=ad, procs=[ClassAd().pack()]))
    await pool.works()
