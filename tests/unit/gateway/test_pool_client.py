"""Which negotiator the gateway asks (MUL-03, MUL-04)."""

import asyncio

import pytest

from services.gateway.pool_client import AmbiguousDaemon, Negotiator, NoSuchDaemon, PoolClient
from shared.bus.api import CallTimeout, Reject, RemoteFailure
from shared.bus.memory import MemoryBus, MemoryHub
from shared.classad import ClassAd, parse_expr
from shared.daemon.clock import SystemClock
from shared.errors import RetryableError
from shared.messages.ads import AdPage, QueryAds
from shared.messages.analysis import Analysis, Analyze
from shared.messages.base import Ack, Failure
from shared.messages.negotiation import GetPriorities, Priorities, Reschedule, SetPriority
from tests.spec import spec


class Time(SystemClock):
    at = 0.0

    def monotonic(self):
        return self.at


class Collector:
    """Tells of these negotiators: (Name, shard)."""

    def __init__(self, *known):
        self.known = known
        self.silent = False

    async def answer(self, envelope):
        if self.silent:
            return Failure(code="unavailable", reason="the collector rests", retryable=True)
        return AdPage(ads=[ClassAd({"Name": name, "Shard": shard}).pack() for name, shard in self.known])


@pytest.fixture
async def ask():
    hub = MemoryHub()
    served, asking = MemoryBus(hub, sender="collector.cm"), MemoryBus(hub, sender="gateway.g")
    await served.start()
    await asking.start()
    collector, clock = Collector(), Time()
    await served.serve("collector", collector.answer)
    view = PoolClient(asking, clock)

    async def ask(name="", *known, silent=False):
        collector.known, collector.silent = known, silent
        clock.at += 60.0
        found = await view.negotiator(name)
        return found.shard, found.inbox

    ask.served, ask.view = served, view
    yield ask
    await asking.stop()
    await served.stop()


async def test_the_only_negotiator_needs_no_name(ask):
    assert await ask() == ("", "negotiator")
    assert await ask("", ("cm", "")) == ("", "negotiator")
    assert await ask("", ("gpus", "gpus")) == ("gpus", "negotiator.active.gpus")


async def test_those_who_stand_by_for_each_other_are_one(ask):
    assert await ask("", ("cm1", ""), ("cm2", "")) == ("", "negotiator")
    assert await ask("cm2", ("cm1", ""), ("cm2", "")) == ("", "negotiator")
    assert await ask("", ("gpus", "gpus"), ("gpus", "gpus")) == ("gpus", "negotiator.active.gpus")


async def test_of_several_one_must_be_named(ask):
    pool = (("gpus", "gpus"), ("cpus", "cpus"), ("cm", ""))
    with pytest.raises(AmbiguousDaemon, match=r"several negotiators.*cm, cpus, gpus"):
        await ask("", *pool)
    assert await ask("gpus", *pool) == ("gpus", "negotiator.active.gpus")
    assert await ask("cm", *pool) == ("", "negotiator")
    with pytest.raises(NoSuchDaemon, match=r"no negotiator tpus.*known: cm, cpus, gpus"):
        await ask("tpus", *pool)


async def test_a_silent_collector_is_done_without_once_the_negotiators_are_known(ask):
    with pytest.raises(RemoteFailure, match="rests"):
        await ask("", silent=True)
    await ask("", ("gpus", "gpus"))
    assert await ask("", silent=True) == ("gpus", "negotiator.active.gpus")


@spec("MUL-03")
async def test_all_negotiators_begin_soon_or_the_one_that_is_named(ask):
    pool = (("gpus", "gpus"), ("cpus", "cpus"), ("cm", ""))
    heard = []
    for inbox in ("negotiator", "negotiator.active.gpus"):

        async def answer(envelope, inbox=inbox):
            heard.append((inbox, envelope.body.by))
            return Ack()

        await ask.served.serve(inbox, answer)
    await ask("cm", *pool)
    # One is away: it is named, and the others have heard it.
    with pytest.raises(RetryableError, match="negotiator cpus can not be reached"):
        await ask.view.reschedule("", "alice@x")
    assert sorted(heard) == [("negotiator", "alice@x"), ("negotiator.active.gpus", "alice@x")]
    heard.clear()
    await ask.view.reschedule("gpus", "alice@x")
    assert heard == [("negotiator.active.gpus", "alice@x")]
    with pytest.raises(NoSuchDaemon):
        await ask.view.reschedule("tpus", "alice@x")
    heard.clear()
    await ask("")  # nobody has told of a negotiator yet
    await ask.view.reschedule("", "alice@x")
    assert heard == [("negotiator", "alice@x")]


async def test_a_question_that_a_hung_collector_took_is_answered_by_another():
    """Whichever of the two is asked first."""
    hub = MemoryHub()
    buses = [MemoryBus(hub, sender=f"collector.cm{number}") for number in (1, 2)]
    asking = MemoryBus(hub, sender="gateway.g")
    over, taken = asyncio.Event(), []

    async def hang(envelope):
        taken.append(envelope.body)
        await over.wait()
        raise Reject("too late")

    for bus in (*buses, asking):
        await bus.start()
    await buses[0].serve("collector", hang)
    await buses[1].serve("collector", Collector(("cm", "")).answer)
    view = PoolClient(asking, SystemClock())
    for _ in range(4):
        page = await view.ask("collector", QueryAds(my_types=["Negotiator"]), AdPage, timeout=600.0)
        assert len(page.ads) == 1
        if taken:
            break
    assert taken
    over.set()
    for bus in (asking, *buses):
        await bus.stop()


async def test_where_the_hung_collector_takes_the_question_again_too_the_others_own_inboxes_are_asked():
    """On the inbox that they share they take turns, and other questions come between."""
    hub = MemoryHub()
    hung, lives, asking = (MemoryBus(hub, sender=one) for one in ("collector.cm1", "collector.cm2", "gateway.g"))
    over, taken = asyncio.Event(), []

    async def hang(envelope):
        taken.append(envelope.body)
        await over.wait()
        raise Reject("too late")

    async def answer(envelope):
        return AdPage(ads=[], collector="cm2")

    for bus in (hung, lives, asking):
        await bus.start()
    await hung.serve("collector", hang)  # alone: whenever this is asked it is its turn
    await hung.serve("collector.cm1", hang)
    await lives.serve("collector.cm2", answer)
    view = PoolClient(asking, SystemClock())
    for name in ("cm2", "cm1"):  # both answered before
        view._remember(f"collector.{name}")
    page = await view.ask("collector", QueryAds(my_types=["Negotiator"]), AdPage, timeout=600.0)
    assert page.collector == "cm2"
    assert len(taken) >= 2  # it had both
    over.set()
    for bus in (asking, lives, hung):
        await bus.stop()


async def test_collectors_that_answer_are_remembered():
    hub = MemoryHub()
    served, asking = MemoryBus(hub, sender="collector.cm"), MemoryBus(hub, sender="gateway.g")
    names = [f"cm{number}" for number in (*range(9), 3)]

    async def answer(envelope):
        return AdPage(ads=[], collector=names[len(seen)])

    for bus in (served, asking):
        await bus.start()
    await served.serve("collector", answer)
    view, seen = PoolClient(asking, SystemClock()), []
    for name in names:
        seen.append((await view.ask("collector", QueryAds(my_types=["Negotiator"]), AdPage)).collector)
        assert next(reversed(view._collectors)) == f"collector.{name}"
    assert list(view._collectors) == [f"collector.cm{number}" for number in (1, 2, 4, 5, 6, 7, 8, 3)]
    for bus in (asking, served):
        await bus.stop()


class Negotiators:
    """Who is asked on the negotiators' inbox. Each answers as `how` says, one after the other."""

    def __init__(self, *how):
        self.how, self.asked, self.over = list(how), [], asyncio.Event()

    async def answer(self, envelope):
        self.asked.append(envelope.body)
        how = self.how.pop(0)
        if how == "hangs":
            await self.over.wait()
            raise Reject("too late")
        if how == "follows":
            return Failure(code="not-leader", reason="negotiator cm is not the active one", retryable=True)
        if how == "is busy":
            return Failure(code="busy", reason="8 others wait for an analysis", retryable=True)
        return {GetPriorities: Priorities(ads=[]), Analyze: Analysis()}.get(type(envelope.body), Ack())


QUESTIONS = [(GetPriorities(), Priorities), (Analyze(machine="slot1@ep"), Analysis)]
CHANGES = [(SetPriority(submitter="ada@x", what="factor", value=2.0, by="root@x"), Ack), (Reschedule(by="ada@x"), Ack)]


@pytest.fixture
async def lead(ask):
    bus = MemoryBus(ask.served.hub, sender="negotiator.cm")
    await bus.start()
    asked = []

    async def lead(*how):
        asked.append(Negotiators(*how))
        await bus.serve("negotiator", asked[-1].answer)
        return asked[-1]

    yield lead
    for one in asked:
        one.over.set()
    await bus.stop()


ANYBODY = Negotiator("", frozenset({"cm"}))


@pytest.mark.parametrize(("question", "kind"), [*QUESTIONS, *CHANGES], ids=lambda one: getattr(one, "type", ""))
async def test_who_has_lost_the_lead_or_does_not_have_it_yet_is_asked_again(ask, lead, question, kind):
    leading = await lead("follows", "follows", "leads")
    assert isinstance(await ask.view.ask_negotiator(ANYBODY, question, kind, timeout=600.0), kind)
    assert leading.asked == [question] * 3


@pytest.mark.parametrize(("question", "kind"), QUESTIONS, ids=lambda one: getattr(one, "type", ""))
async def test_what_a_hung_negotiator_has_taken_is_asked_again(monkeypatch, ask, lead, question, kind):
    monkeypatch.setattr("services.gateway.pool_client.ANALYZE_AGAIN_S", 0.1)
    monkeypatch.setattr("services.gateway.pool_client.AGAIN_S", 0.1)
    leading = await lead("hangs", "leads")
    assert isinstance(await ask.view.ask_negotiator(ANYBODY, question, kind, timeout=600.0), kind)
    assert leading.asked == [question] * 2


@pytest.mark.parametrize(("question", "kind"), CHANGES, ids=lambda one: getattr(one, "type", ""))
async def test_a_change_is_asked_for_once_where_nobody_says_that_it_was_refused(monkeypatch, ask, lead, question, kind):
    monkeypatch.setattr("services.gateway.pool_client.AGAIN_S", 0.01)
    leading = await lead("hangs", "leads")
    with pytest.raises(CallTimeout):
        await ask.view.ask_negotiator(ANYBODY, question, kind, timeout=0.2)
    assert leading.asked[1:] == []


async def test_that_one_is_busy_is_no_answer_while_another_may_come(monkeypatch, ask, lead):
    """An analysis takes long, and the same asked again finds the same negotiator with its hands full."""
    monkeypatch.setattr("services.gateway.pool_client.ANALYZE_AGAIN_S", 0.05)
    leading = await lead("hangs", "is busy", "leads")
    assert await ask.view.ask_negotiator(ANYBODY, Analyze(machine="slot1@ep"), Analysis, timeout=600.0) == Analysis()
    assert len(leading.asked) == 3


async def test_where_nobody_leads_that_is_said_in_the_end(monkeypatch, ask, lead):
    monkeypatch.setattr("services.gateway.pool_client.NOT_LEADER_LONGEST_S", 600.0)
    monkeypatch.setattr("services.gateway.pool_client.NOT_LEADER_S", 600.0)
    leading = await lead("follows")
    with pytest.raises(RemoteFailure, match="is not the active one") as told:
        await ask.view.ask_negotiator(ANYBODY, GetPriorities(), Priorities, timeout=599.0)
    assert (told.value.code, len(leading.asked)) == ("not-leader", 1)


async def test_where_no_schedd_is_known_nobody_says_that_there_is_no_such_job(ask):
    """Whoever asks for certain jobs is told to ask again; who lists what there is gets an empty list."""
    await ask()
    assert await ask.view.who_knows([]) == []
    with pytest.raises(RemoteFailure, match="shows no access point") as told:
        await ask.view.who_knows(["1"])
    assert (told.value.code, told.value.retryable) == ("unavailable", True)
    with pytest.raises(NoSuchDaemon):
        await ask.view.who_knows(["1"], "ap")


async def test_an_ad_that_can_not_be_read_keeps_nobody_from_the_others(monkeypatch):
    client = PoolClient(None, Time())

    async def ads(types, *, constraint="", projection=(), limit=0):
        yield [ClassAd({"Name": "a"}).pack(), b"\x81\xa1a\x91\x01", ClassAd({"Name": "b"}).pack()]

    monkeypatch.setattr(client, "ads", ads)
    assert [ad.plain_string("Name") for ad in await client.read_ads(["Machine"])] == ["a", "b"]


def test_a_name_is_what_stands_there_and_no_expression():
    ad = ClassAd({"Name": "a", "MyAddress": parse_expr('strcat("startd.", "x")'), "Cpus": 1})
    assert [ad.plain_string(name) for name in ("NAME", "MyAddress", "Cpus", "Lacks")] == ["a", "", "", ""]
