#!/usr/bin/env python3
"""Tell a chat room what goes wrong in a pool: jobs on hold, jobs that fail, daemons that stop, negotiators that change.

    python examples/chat.py https://chat.example.org/hooks/abc               (Slack, Mattermost, Rocket.Chat, ...)
    CHAT_TOKEN=... python examples/chat.py --matrix '!room:example.org' https://matrix.example.org
    python examples/chat.py --owner alice --also job.ended --every 60 URL

What is told is first written down (an outbox, in the file --state), in the same transaction in which the event is
taken. So nothing is told twice or forgotten when this program is stopped, killed, or started again; what it missed
while it was off is told when it is back. Messages go out every --every seconds at most, many events in one; a room
that does not answer is asked again, ever less often. Without URL the messages are printed. Runs against `roost up` as
it is.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import sys
from pathlib import Path
from urllib.parse import quote

import aiohttp
from yarl import URL

from roost import ClientError, Consumer, Gap, Once
from roost.events import (
    DaemonStopped,
    JobEnded,
    JobHeld,
    JobsSubmitted,
    JobStarted,
    LeaderChanged,
    PreemptionLoop,
    UnknownEvent,
)
from roost.pool_directory import pool_dir

OUTBOX = "CREATE TABLE IF NOT EXISTS outbox (number INTEGER PRIMARY KEY AUTOINCREMENT, line TEXT NOT NULL)"
ALWAYS = ("job.held", "job.ended", "daemon.stopped", "had.leader", "negotiation.preemption-loop")
#: Lines in one message; of more it says how many there are.
LINES = 20
LONGEST_PAUSE_S = 300.0


def line_of(event: object, *, also: tuple[str, ...] = ()) -> str:
    """What to tell of an event; empty: nothing."""
    match event:
        case JobHeld(job_id=job, owner=owner, reason=reason):
            return f"job {job} of {owner} is on hold: {reason}"
        case JobEnded(job_id=job, owner=owner, exit_signal=int(signal)):
            return f"job {job} of {owner} was ended by signal {signal}"
        case JobEnded(job_id=job, owner=owner, exit_code=code, ran_s=ran) if code or "job.ended" in also:
            return f"job {job} of {owner} ended with {code} after {ran:.0f} s"
        case DaemonStopped(subsystem=what, daemon=name, reason=reason):
            return f"{what.lower()} {name} stopped: {reason}"
        case LeaderChanged(negotiator=name, state="leader"):
            return f"negotiator {name} leads now"
        case PreemptionLoop(slot=slot, users=users, times=times):
            return f"slot {slot} went to and fro {times} times between {', '.join(users)}"
        case JobsSubmitted(owner=owner, cluster=cluster, count=count) if "job.submitted" in also:
            return f"{owner} submitted cluster {cluster}: {count} jobs"
        case JobStarted(job_id=job, owner=owner, slot=slot, waited_s=waited) if "job.started" in also:
            return f"job {job} of {owner} started on {slot} after {waited:.0f} s"
        case Gap(reason=reason):
            return f"some events may be missing here: {reason}"
        case UnknownEvent(type=name, body=body) if name in also:
            return f"{name}: {json.dumps(dict(body), default=str)}"
        case _ if getattr(event, "type", "") in also:
            return f"{event.type}: {event.model_dump_json()}"  # type: ignore[attr-defined]
    return ""


class Room:
    """Where messages go. Raises Later, with how long to wait, when the room does not take one now, Refused when it
    never will."""

    def __init__(self, url: str, matrix_room: str, token: str) -> None:
        self.url, self.room, self.token = url.rstrip("/"), matrix_room, token

    async def post(self, text: str, key: str) -> None:
        """key: the same for the same message, however often it is sent (Matrix tells it once)."""
        if not self.url:
            print(text, flush=True)
            return
        method, url, body = "POST", self.url, {"text": text}
        if self.room:
            method, body = "PUT", {"msgtype": "m.notice", "body": text}
            url += f"/_matrix/client/v3/rooms/{quote(self.room, safe='')}/send/m.room.message/{key}"
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30), headers=headers) as session,
                session.request(method, URL(url, encoded=True), json=body) as answer,
            ):
                if answer.status == 429 or answer.status >= 500:
                    raise Later(f"it answered {answer.status}", _seconds(answer.headers.get("Retry-After")))
                if answer.status >= 400:
                    raise Refused(f"{answer.status} {(await answer.text())[:200]}")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Later(str(error) or type(error).__name__) from error


class Later(Exception):
    def __init__(self, why: str, after_s: float = 0.0) -> None:
        super().__init__(why)
        self.after_s = after_s


class Refused(Exception):
    pass


def _seconds(text: str | None) -> float:
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, float(text))  # type: ignore[arg-type]
    return 0.0


class Teller:
    """Sends what is in the outbox."""

    def __init__(self, store: Once, room: Room, every_s: float) -> None:
        self.store, self.room, self.every_s = store, room, every_s
        self.news = asyncio.Event()

    async def run(self) -> None:
        pause = self.every_s
        while True:
            self.news.clear()
            rows = self.store.query("SELECT number, line FROM outbox ORDER BY number")
            if not rows:
                await self.news.wait()
                await asyncio.sleep(min(1.0, self.every_s))  # what happens together is told together
                continue
            try:
                await self.tell(rows)
                pause = self.every_s
            except Later as error:
                pause = min(LONGEST_PAUSE_S, max(pause * 2, 1.0, error.after_s))
                print(f"chat.py: the room does not take a message: {error}; again in {pause:.0f} s", file=sys.stderr)
            await asyncio.sleep(pause)

    async def tell(self, rows: list[tuple[int, str]]) -> None:
        last = rows[-1][0]
        lines = [line for _, line in rows[:LINES]]
        if len(rows) > LINES:
            lines.append(f"... and {len(rows) - LINES} more")
        text = "\n".join(lines)
        await self.room.post(text, hashlib.sha256(f"{rows[0][0]} {last} {text}".encode()).hexdigest()[:32])
        with self.store.writing() as db:
            db.execute("DELETE FROM outbox WHERE number <= ?", (last,))


async def main(options: argparse.Namespace) -> None:
    also = tuple(options.also)
    state = Path(options.state or pool_dir() / "consumers" / "chat.sqlite")
    state.parent.mkdir(parents=True, exist_ok=True)
    store = Once(state, OUTBOX)
    room = Room(options.url, options.matrix, os.environ.get("CHAT_TOKEN", ""))
    teller = Teller(store, room, options.every)
    consumer = Consumer(
        options.pool, types=[*ALWAYS, *also], name="chat", durable=True, state=state.with_suffix(".position")
    )

    @consumer.on(*ALWAYS, *also, owner=options.owner, group=options.group, once=store)
    async def write(event, db):  # type: ignore[no-untyped-def]
        if line := line_of(event, also=also):
            db.execute("INSERT INTO outbox (line) VALUES (?)", (line,))
            teller.news.set()

    @consumer.on(Gap)
    async def gap(gap):  # type: ignore[no-untyped-def]
        print(f"chat.py: {gap.reason}", file=sys.stderr)

    telling = asyncio.create_task(teller.run())
    following = asyncio.create_task(consumer.run_async(signals=True))
    try:
        done, _ = await asyncio.wait({telling, following}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (telling, following):
            task.cancel()
        await asyncio.gather(telling, following, return_exceptions=True)
        store.close()


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("url", nargs="?", default="", help="webhook, or Matrix home server; none: print")
    made.add_argument("--matrix", metavar="ROOM", default="", help="post to this Matrix room (token in CHAT_TOKEN)")
    made.add_argument("--owner", default="", help="only what is about this user's jobs")
    made.add_argument("--group", default="", help="only what is about this accounting group")
    made.add_argument("--also", action="append", default=[], metavar="TYPE", help="tell of these events too; repeat")
    made.add_argument("--every", type=float, default=5.0, metavar="S", help="one message in so long (%(default)g s)")
    made.add_argument("--state", default="", help="where it keeps what is to be told (default: with the pool)")
    made.add_argument("--pool", default=None, help="URL of the pool's gateway or broker (default: what roost finds)")
    return made


if __name__ == "__main__":
    try:
        asyncio.run(main(parser().parse_args()))
    except (ClientError, Refused) as error:
        sys.exit(f"chat.py: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
