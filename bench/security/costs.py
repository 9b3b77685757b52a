"""What the walls cost, each by itself, in processor time: `python -m bench.security.costs [--json FILE]`.

- statements: a gateway signs a message for a person, and a daemon checks that, replays included.
- senders: a daemon holds a message to the table of senders.
- budgets: evaluations with their meter against the same evaluator without it (the lines that count are taken out of its
  text), and inside of a budget against without; matches of ads as long as a pool's. Compiled policies count no steps.
- callers: a daemon watches for a caller who goes, in each call of a gateway.
- TLS: requests to a personal pool's gateway, and transfers of a small file from its access point, over a connection
  that is kept and over a new one each, against the same without TLS. Both ends are counted.

A figure is the least of several rounds, as what else runs on the machine takes caches away.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import http.client
import importlib
import itertools
import json
import logging
import os
import ssl
import tempfile
import time
import types
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import structlog

from bench.classad import ads
from engine.queue.jobs import JobId
from roost.submit import Description, here
from services.schedd.io.spool import spool_dirs
from shared.bus.amqp.callers import Callers
from shared.bus.amqp.delivery import Delivery
from shared.bus.amqp.publisher import Publisher
from shared.bus.api import BusHealth, Exchange
from shared.bus.handling import Saying, packed, packed_for, unpack_checked
from shared.bus.senders import TABLE, Arrival, Senders
from shared.bus.statements import Believer, Keys, Signer
from shared.classad import ClassAd, parse_ad
from shared.classad.budget import Budget
from shared.messages import Envelope, Message
from shared.messages.base import Person
from shared.messages.claims import JobReport
from shared.messages.queue import ActOnJobs, SubmitJobs
from shared.tls import ClientTls
from shared.transfer.client import fetch
from shared.transfer.tls import TransferTls
from tests.integration.inside import InsidePool

#: Rounds of each measurement, and how often its work is done in one.
ROUNDS: Final = 7
TIMES: Final = 2000
REQUESTS: Final = 200
#: What of a walk through an expression counts: old text, and new.
METER: Final = (
    ("        self.steps += 1\n        self._frames += 1\n", "        self._frames += 1\n"),
    ("        if self.steps > self._look:\n            self._check()\n        if self._fr", "        if self._fr"),
)
PERSON: Final = Person("alice@pool.example.org", "WRITE", ())
SUBMIT: Final = "executable = /bin/true\narguments = 1\noutput = out\nerror = err\nlog = log\nqueue\n"


def least(work: Callable[[], object], times: int = TIMES) -> float:
    """Processor time of one call, in microseconds."""
    found = []
    for _ in range(ROUNDS):
        gc.collect()
        began = time.process_time()
        for _ in range(times):
            work()
        found.append(time.process_time() - began)
    return min(found) / times * 1e6


async def least_awaited(work: Callable[[], Awaitable[object]], times: int = TIMES) -> float:
    """The same of what is awaited."""
    found = []
    for _ in range(ROUNDS):
        gc.collect()
        began = time.process_time()
        for _ in range(times):
            await work()
        found.append(time.process_time() - began)
    return min(found) / times * 1e6


# ---------------------------------------------------------------- the bus


def _submit() -> SubmitJobs:
    cluster = next(Description(SUBMIT, here("bench.sub", Path("/home/alice")), now=time.time()).clusters())
    return SubmitJobs(user=PERSON.user, submit_id="x", cluster_ad=cluster.ad.pack(), procs=[ClassAd().pack()])


def _report() -> JobReport:
    return JobReport(
        startd="ep1.example.org",
        slot="slot1_1@ep1.example.org",
        claim_id="c" * 60,
        job_id="1.0",
        attempt=1,
        sequence=2,
        phase="running",
        at=time.time(),
    )


async def _next_unpacked(messages: Iterator[bytes], arrival: Arrival, senders: Senders) -> Envelope:
    return await unpack_checked(next(messages), arrival, senders)


async def statements() -> dict[str, float]:
    signer, inbox = Signer.new(), "schedd.ap"
    arrival = Arrival(Exchange.RPC, "gateway.gw", inbox=inbox)
    log = structlog.get_logger()
    believing = Senders(BusHealth(), log, TABLE, Believer(Keys(given=(signer.public,)), time.time))
    trusting = Senders(BusHealth(), log, TABLE)
    figures, numbers = {}, itertools.count()
    order = ActOnJobs(user=PERSON.user, action="hold", ids=["1.0"])
    for name, body in (("submit", _submit()), ("order", order)):
        saying = Saying(signer, PERSON, inbox)

        def envelope(body: Message = body) -> Envelope:
            return Envelope(body, "gateway.gw", id=f"message{next(numbers)}", ts=time.time())

        async def plain(envelope: Callable[[], Envelope] = envelope) -> bytes:
            return packed(envelope())

        async def signed(envelope: Callable[[], Envelope] = envelope, saying: Saying = saying) -> bytes:
            return await packed_for(envelope(), saying)

        figures[f"statement, {name}: sign"] = await least_awaited(signed) - await least_awaited(plain)
        # Each message once: the second time it would be refused.
        sent = [await signed() for _ in range(ROUNDS * TIMES)]
        checked = await least_awaited(partial(_next_unpacked, iter(sent), arrival, believing))
        unchecked = await least_awaited(partial(_next_unpacked, iter(sent), arrival, trusting))
        figures[f"statement, {name}: check"] = checked - unchecked
    return figures


def senders() -> dict[str, float]:
    arrival = Arrival(Exchange.RPC, "startd.ep1.example.org", inbox="schedd.ap")
    table = Senders(BusHealth(), structlog.get_logger(), TABLE)
    envelope = Envelope.unpack(Envelope(_report(), "startd.ep1.example.org").pack())
    nothing = least(lambda: None)
    return {"senders, a report of a job: check": least(lambda: table.admit(envelope, arrival)) - nothing}


async def callers() -> dict[str, float]:
    publisher = Publisher(
        sender="schedd.ap", user="schedd.ap", publish_wait_s=1.0, now=time.time, new_id=lambda: "x", spool=None
    )
    watching = Callers(publisher)

    def delivery(*, tells_end: bool) -> Delivery:
        return Delivery(
            data=b"",
            tag=1,
            exchange="roost.rpc",
            key="schedd.ap",
            queue="roost.inbox.schedd.ap",
            message_id="x",
            kind="queue.query",
            reply_to="amq.rabbitmq.reply-to.g1h3AA5yZXBseUA5NzQ1NjM1MQAAAAAAAAAAAAAAAA==.x",
            correlation_id="x",
            user_id="gateway.gw",
            deliveries=0,
            again=False,
            uncounted=False,
            expiration="30000",
            seal="",
            publisher="",
            came_to="",
            buried_by="",
            tells_end=tells_end,
            odd="",
        )

    async def answered(one: Delivery) -> None:
        with watching.answering(one):
            await asyncio.sleep(0)

    async def nothing() -> None:
        await asyncio.sleep(0)

    idle = await least_awaited(nothing)
    gateways, daemons = delivery(tells_end=True), delivery(tells_end=False)
    return {
        "callers, a call of a gateway: watch": await least_awaited(lambda: answered(gateways)) - idle,
        "callers, a call of a daemon: watch": await least_awaited(lambda: answered(daemons)) - idle,
    }


# ---------------------------------------------------------------- expressions


EVALUATOR: Final = importlib.import_module("shared.classad.evaluate")


def _without_meter() -> types.ModuleType:
    """The evaluator, counting nothing."""
    path = Path(EVALUATOR.__file__ or "")
    text = path.read_text()
    for old, new in METER:
        if text.count(old) != 1:
            raise SystemExit(f"{path}: {old!r} stands {text.count(old)} times in it: mend METER")
        text = text.replace(old, new)
    module = types.ModuleType("bench.security.without_meter")
    exec(compile(text, "evaluate without a meter", "exec"), module.__dict__)
    return module


def budgets() -> dict[str, float]:
    machines = [parse_ad(ads.machine(number), "old") for number in range(60)]
    jobs = [parse_ad(ads.job(number), "old") for number in range(12)]
    pairs = [(machine, job) for machine in machines for job in jobs]
    now = time.time()

    def half(module: types.ModuleType) -> Callable[[], None]:
        attribute = module.evaluate_attribute

        def work() -> None:
            for machine, job in pairs:
                attribute(machine, "requirements", job, now)
                attribute(job, "requirements", machine, now)

        return work

    metered, bare = half(EVALUATOR), half(_without_meter())
    metered()  # what is parsed when it is needed first
    bare()
    found: dict[str, list[float]] = {"with": [], "without": [], "inside": []}
    for _ in range(ROUNDS):  # in turns: they differ by little
        found["without"].append(least(bare, 1))
        found["with"].append(least(metered, 1))
        with Budget("a question", steps=1 << 62, made=1 << 62, seconds=1e9).open():
            found["inside"].append(least(metered, 1))
    one = {name: min(values) / len(pairs) / 2 for name, values in found.items()}
    return {
        "budgets, one Requirements: evaluate": one["with"],
        "budgets, one Requirements: meter": one["with"] - one["without"],
        "budgets, one Requirements: charged to a question": one["inside"] - one["with"],
    }


# ---------------------------------------------------------------- TLS


@contextmanager
def _pool(folder: Path, *, tls: bool) -> Iterator[tuple[InsidePool, str]]:
    """A personal pool, and the file of its authority (empty: it speaks no TLS)."""
    ca = str(folder / "spool" / "tls" / "ca.pem") if tls else ""
    before = os.environ.pop("ROOST_CA_FILE", None)
    if ca:
        os.environ["ROOST_CA_FILE"] = ca
    pool = InsidePool(folder, **({"ROOST_OWN_AUTHORITY": "true"} if tls else {}))
    try:
        yield pool, ca
    finally:
        pool.close()
        os.environ.pop("ROOST_CA_FILE", None)
        if before is not None:
            os.environ["ROOST_CA_FILE"] = before


def _requests(pool: InsidePool, ca: str) -> dict[str, float]:
    context = ssl.create_default_context(cafile=ca) if ca else None
    place, headers = urlsplit(pool.url).netloc, {"Authorization": f"Bearer {pool.token}"}

    def connection() -> http.client.HTTPConnection:
        if context is None:
            return http.client.HTTPConnection(place, timeout=30)
        return http.client.HTTPSConnection(place, timeout=30, context=context)

    def ask(over: http.client.HTTPConnection) -> None:
        over.request("GET", "/v1/whoami", headers=headers)
        answer = over.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"{pool.url}/v1/whoami: {answer.status}")

    def new() -> None:
        over = connection()
        ask(over)
        over.close()

    kept = connection()
    try:
        return {"kept": least(lambda: ask(kept), REQUESTS), "new": least(new, REQUESTS)}
    finally:
        kept.close()


async def _fetches(pool: InsidePool, ca: str, folder: Path) -> dict[str, float]:
    """Of the output of a job, a file of 10 kB, which lies in the access point's spool."""
    (folder / "x.sub").write_text("executable = /bin/true\nrequirements = false\nqueue\n")
    with pool.client() as client:
        job = JobId((await asyncio.to_thread(client.submit, folder / "x.sub", directory=folder, spool=True)).cluster, 0)
    server = pool.runner("schedd").daemon.file_server  # type: ignore[union-attr]
    out = spool_dirs(server.updates.spool, server.table.get(job))[2]
    out.mkdir(parents=True, exist_ok=True)
    (out / "result").write_bytes(b"x" * 10_000)
    url, token = server.grant(job)
    base, _, what = url.rpartition("/")
    tls = TransferTls(ClientTls(ca_file=ca))

    def session() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    async def get(over: aiohttp.ClientSession) -> None:
        await fetch(over, base, token, folder / "got", what=what, tls=tls)

    async def new() -> None:
        async with session() as over:
            await get(over)

    async with session() as kept:
        return {
            "kept": await least_awaited(lambda: get(kept), REQUESTS),
            "new": await least_awaited(new, REQUESTS),
        }


def tls(folder: Path) -> dict[str, float]:
    found: dict[bool, dict[str, dict[str, float]]] = {}
    for secure in (False, True):
        work = folder / f"work-{secure}"
        (work / "got").mkdir(parents=True)
        with _pool(folder / f"pool-{secure}", tls=secure) as (pool, ca):
            fetches = asyncio.run(_fetches(pool, ca, work))
            found[secure] = {"a request to the gateway": _requests(pool, ca), "a transfer of 10 kB": fetches}
    figures = {}
    for what, without in found[False].items():
        for over, plain in without.items():
            figures[f"TLS, {what}, {over} connection: without"] = plain
            figures[f"TLS, {what}, {over} connection: more"] = found[True][what][over] - plain
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="What the walls cost in processor time.")
    parser.add_argument("--json", type=Path, help="write the figures there, in microseconds")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    figures = asyncio.run(statements()) | senders() | asyncio.run(callers()) | budgets()
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as folder:
        figures |= tls(Path(folder))
    for name, value in figures.items():
        print(f"{name:<60}{value:>10,.2f} us")
    print(f"load average {', '.join(f'{one:.1f}' for one in os.getloadavg())}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
