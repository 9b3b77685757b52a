"""The loops of real daemons under the hostile corpus: whatever is asked of a schedd, a negotiator, a journal or a
gateway, none of them is held for more than 50 ms of its processor time, and each question is answered or refused with
the limit that it met. All daemons here share one loop, so each step counts against it, whoever took it."""

import contextlib
import json
import threading
from urllib.parse import urlencode

import pytest

from shared.bus.api import RemoteFailure
from shared.classad import ParseError, parse_expr
from shared.messages.analysis import Analyze, JobInQuestion
from shared.messages.journal import AskEvents, AskInterval, AskJob, AskSeries
from shared.messages.negotiation import GetRequests
from shared.messages.queue import ActOnJobs, QueryJobs
from tests.integration.inside import InsidePool
from tests.loop_meter import measured
from tests.security.hostile import CORPUS
from tests.waiting import eventually
from tests.wholepool import USER, WholePool

#: Processor seconds for which a loop may be held.
SILENCE_S = 0.05
#: How often something is asked that seemed to hold the loop: what else ran on the machine took its caches away.
TRIES = 4
CODES = {"bad-request", "too-expensive", "busy", "not-leader"}
#: One of each kind: what is dear to evaluate, to plan, to read, and what can not be read.
ASKED = {
    name: CORPUS[name]
    for name in ("strcat", "lists", "eval", "regexps", "numbers", "wide ad", "wide plan", "long texts", "deep", "words")
}


async def held_by(ask):
    """Processor seconds for which the longest step held the loop while this was asked, and what it was."""
    found = []
    for _ in range(TRIES):
        with measured() as held:
            await ask()
        found.append((held.longest_s, held.worst[:2]))
        if held.longest_s < SILENCE_S:
            break
    return min(found)


@contextlib.contextmanager
def refused(codes):
    """Takes a refusal, and its code."""
    try:
        yield
    except RemoteFailure as refusal:
        codes.add(refusal.code)


def readable(text):
    try:
        return parse_expr(text)
    except (ParseError, RecursionError):
        return None


@pytest.fixture
async def pool(tmp_path):
    async with WholePool(tmp_path, cpus=2) as made:
        await made.begin("journal", "cm")
        for _ in range(4):
            await made.submit(made.job(requirements="=TARGET.Cpus > 100"), procs=5)
        yield made


async def test_a_schedd_is_not_held_by_constraints(pool):
    codes, slow = set(), []
    for name, text in ASKED.items():

        async def ask(text=text):
            with refused(codes):
                await pool.call("schedd.ap", QueryJobs(constraint=text, user="a@b"), 120.0, "gateway.x")
            with refused(codes):
                await pool.call(
                    "schedd.ap", ActOnJobs(user=USER, action="hold", constraint=f"false && ({text})"), 120.0
                )

        seconds, worst = await held_by(ask)
        slow += [(name, worst)] if seconds > SILENCE_S else []
    assert slow == []
    assert codes <= CODES
    assert "bad-request" in codes
    assert pool.dead() == {}


async def test_a_schedd_is_not_held_by_jobs_or_by_what_a_negotiator_asks(pool):
    codes, slow = set(), []
    for name, text in ASKED.items():
        expr = readable(text)

        async def ask(text=text, expr=expr):
            if expr is not None:
                ad = pool.job(periodichold=f"={text}", rank=f"={text}", hold="=false")
                ad["JobStatus"] = 5
                with refused(codes):
                    await pool.submit(ad)
            # From another pool's negotiator: its epoch is its own.
            asked = GetRequests(negotiator="x", shard="x", epoch=1, cycle=1, submitters=[USER], job_constraint=text)
            with refused(codes):
                await pool.call("schedd.ap", asked, 120.0, "negotiator.cm")

        seconds, worst = await held_by(ask)
        slow += [(name, worst)] if seconds > SILENCE_S else []
    assert slow == []
    assert codes <= CODES
    assert pool.dead() == {}


async def test_a_negotiator_is_not_held_by_analyses(pool):
    codes, slow, answered = set(), [], 0
    for name, text in ASKED.items():
        if readable(text) is None:
            continue
        job = pool.job(requirements=f"={text}", ClusterId=1, ProcId=0, JobStatus=1)

        async def ask(job=job):
            nonlocal answered
            question = Analyze(jobs=[JobInQuestion(ad=job.pack(), schedd="schedd.ap")])
            with refused(codes):
                found = await pool.call("negotiator.cm", question, timeout=120.0, sender="gateway.x")
                answered += len(found.jobs)

        seconds, worst = await held_by(ask)
        slow += [(name, worst)] if seconds > SILENCE_S else []
    assert slow == []
    assert codes <= CODES
    assert answered or "too-expensive" in codes
    assert pool.dead() == {}


async def test_a_journal_is_not_held_by_questions(pool):
    await eventually(lambda: pool.journal.recorder.recorded.events > 3)

    async def ask():
        for question in (
            AskJob(job_id="1.0"),
            AskEvents(limit=1000),
            AskInterval(start=0.0, end=1e11),
            *(AskSeries(name=name, start=1.0, end=1e11, points=2000) for name in ("waits", "shares", "jobs")),
        ):
            with contextlib.suppress(RemoteFailure):
                await pool.call("journal", question, sender="gateway.x", timeout=120.0)

    seconds, worst = await held_by(ask)
    assert seconds < SILENCE_S, worst
    assert pool.dead() == {}


def test_a_gateway_is_not_held_by_requests(tmp_path):
    """Nor are the daemons behind it; the pool's loop has a thread of its own."""
    inside = InsidePool(tmp_path, ROOST_GATEWAY_RATE="0", ROOST_GATEWAY_SUBMIT_RATE="0")
    try:
        with inside.client() as client:
            client.submit({"executable": "/bin/true", "requirements": "Cpus > 100", "should_transfer_files": "no"}, 3)
        statuses, slow = set(), []
        bodies = {
            "many lists": b'{"constraint": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            "many names": json.dumps({"ids": ["1.0"] * 50_000, "action": "hold"}).encode(),
            "no JSON": b"\xff" * 500_000,
        }

        def ask(path, body=None):
            kind = {"Content-Type": "application/json"}
            method = "GET" if body is None else "POST"
            statuses.add(inside.ask(method, path, body=body, headers=kind, timeout_s=120)[0])

        def asked(path, body=None):
            found = []
            for _ in range(TRIES):
                with measured() as held:
                    ask(path, body)
                found.append((held.longest_s, held.worst[:2]))
                if held.longest_s < SILENCE_S:
                    break
            return min(found)

        for name, text in ASKED.items():
            if len(text) > 20_000:
                continue  # no address is so long
            for path in ("/v1/ads", "/v1/jobs", "/v1/analysis"):
                seconds, worst = asked(f"{path}?{urlencode({'constraint': text})}")
                slow += [(name, path, worst)] if seconds > SILENCE_S else []
        for name, body in bodies.items():
            seconds, worst = asked("/v1/jobs/action", body)
            slow += [(name, worst)] if seconds > SILENCE_S else []
        assert slow == []
        assert not [status for status in statuses if status >= 500 and status != 503], statuses
        assert 200 in statuses
        assert statuses & {400, 422}
    finally:
        inside.close()
    assert threading.active_count() < 50
