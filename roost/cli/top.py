"""`roost top`: the pool in a terminal, live. The gateway counts (GET /v1/overview, good for a second for all who ask),
so a pool of 100,000 slots costs what a small one does; events tell the pace."""

from __future__ import annotations

import contextlib
import curses
import json
import os
import queue
import sys
import threading
import time
from typing import Any, Final

from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say, terminal_width
from roost.cli.top_screen import SORTS, STATUSES, JobAction, Rates, View, screen
from roost.client import Client
from roost.errors import ClientError, UsageError

OPTIONS: Final[tuple[Option, ...]] = (
    flag("once", "batch", "b", help="print it once, and end; so where output is no terminal, and in whole lines there"),
    value("interval", "d", help="between looks, seconds; 2", metavar="SECONDS"),
    value("sort", help=f"jobs by {', '.join(SORTS)}", metavar="WHAT"),
    value("status", help="only jobs that are Running, Idle or Held", metavar="STATUS"),
    value("user", "u", help="only jobs of this user", metavar="USER"),
    value("limit", help="at most so many jobs; 50, at most 500", metavar="N"),
    flag("json", help="with -once: the numbers as JSON"),
    *COMMON,
)
_LINES: Final = 1000  # of -once: more than there can be
_WHOLE: Final = 500  # characters of a line, where no terminal says how many it shows
_KEYS: Final = {
    curses.KEY_UP: "up", curses.KEY_DOWN: "down", curses.KEY_ENTER: "enter", 10: "enter", 13: "enter", 27: "escape",
    curses.KEY_BACKSPACE: "backspace", 127: "backspace", 8: "backspace",
}  # fmt: skip


def _page(client: Client, view: View, limit: int) -> list[dict[str, Any]]:
    """The jobs to show, a line each."""
    found = client.overview("jobs", status=view.status, user=view.user, search=view.search, limit=limit)
    return list(found["rows"])


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        text = (
            "The pool, live: leader, slots, jobs, users, pace, and a page of jobs. Keys: q quits, p pauses, s sorts,\n"
            "t and u and / choose jobs; arrows go to one, h holds, r releases, x removes it, each after a question."
        )
        say(usage(command, "", text, OPTIONS))
        return 0
    view, limit = _chosen(parsed)
    interval = parsed.seconds("interval")
    if interval is not None and not 0.2 <= interval <= 3600:
        raise UsageError("-interval wants 0.2 to 3600 seconds")
    if parsed.has("once") or parsed.has("json") or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _once(parsed, view, limit)
    os.environ.setdefault("ESCDELAY", "50")
    return curses.wrapper(lambda window: _Live(window, parsed, view, limit, interval or 2.0).run())


def _chosen(parsed: Parsed) -> tuple[View, int]:
    if parsed.arguments:
        raise UsageError(f"{parsed.arguments[0]!r} does not belong here; see roost top -help")
    sort, status = parsed.one("sort", SORTS[0]).lower(), parsed.one("status").capitalize()
    if sort not in SORTS:
        raise UsageError(f"-sort {sort}: there are {', '.join(SORTS)}")
    if status not in STATUSES:
        raise UsageError(f"-status {status}: there are {', '.join(STATUSES[1:])}")
    limit = parsed.integer("limit", 50)
    if not 1 <= limit <= 500:
        raise UsageError(f"-limit {limit}: want 1 to 500")
    return View(sort=sort, status=status, user=parsed.one("user")), limit


def _once(parsed: Parsed, view: View, limit: int) -> int:
    with contextlib.closing(Client(parsed.one("pool") or None)) as client:
        pool, jobs = client.overview(), _page(client, view, limit)
    if parsed.has("json"):
        say(json.dumps({"pool": pool, "jobs": jobs}, indent=1))
        return 0
    width = terminal_width() or _WHOLE
    lines = screen(view, pool, jobs, None, float(pool["at"]), width, _LINES)[:-1]
    say("\n".join(line.rstrip() for line in lines).rstrip())
    return 0


class _Live:
    """The terminal. One thread asks the pool, one follows events; this one draws, reads keys, waits for nobody."""

    def __init__(self, window: Any, parsed: Parsed, view: View, limit: int, interval: float) -> None:
        self.window, self.view, self.limit, self.interval = window, view, limit, interval
        self.address = parsed.one("pool") or None
        self.pool: dict[str, Any] = {}
        self.jobs: list[dict[str, Any]] = []
        self.rates = Rates()
        self.todo: queue.Queue[JobAction] = queue.Queue()
        self.over = threading.Event()

    def run(self) -> int:
        with contextlib.suppress(curses.error):
            curses.curs_set(0)
        self.window.timeout(200)
        with contextlib.closing(
            Client(self.address)
        ) as client:  # what is wrong at the beginning ends it, with its reason
            self._fetch(client)
        for work in (self._ask, self._listen):
            threading.Thread(target=work, daemon=True).start()
        try:
            while True:
                self._draw()
                if (deed := self._key()) is not None:
                    if deed.what == "quit":
                        return 0
                    self.todo.put(deed)
        except KeyboardInterrupt:
            return 0
        finally:
            self.over.set()

    def _draw(self) -> None:
        height, width = self.window.getmaxyx()
        lines = screen(self.view, self.pool, self.jobs, self.rates, time.time(), max(1, width - 1), height)
        self.window.erase()
        for number, line in enumerate(lines):
            look = curses.A_REVERSE if number == len(lines) - 1 or line.startswith("> ") else curses.A_NORMAL
            with contextlib.suppress(curses.error):  # it became smaller meanwhile
                self.window.addstr(number, 0, line, look)
        self.window.refresh()

    def _key(self) -> JobAction | None:
        code = self.window.getch()
        if code == -1 or code == curses.KEY_RESIZE:
            return None
        key = _KEYS.get(code) or (chr(code) if 32 <= code < 127 else "")
        return self.view.press(key, self.jobs, time.time()) if key else None

    def _ask(self) -> None:
        with contextlib.closing(Client(self.address)) as client:
            while not self.over.is_set():
                deed = None
                with contextlib.suppress(queue.Empty):
                    deed = self.todo.get(timeout=self.interval)
                try:
                    if deed is not None and deed.what != "fetch":
                        outcome = client.act(deed.what, [deed.job], schedd=deed.schedd)
                        self.view.said = f"{deed.what} {deed.job}: {outcome.get(deed.job, 'not found')}"
                    if deed is not None or not self.view.paused:
                        self._fetch(client)
                except ClientError as error:
                    self.view.said = str(error)

    def _fetch(self, client: Client) -> None:
        pool, jobs = client.overview(), _page(client, self.view, self.limit)
        self.pool, self.jobs = pool, jobs

    def _listen(self) -> None:
        with (
            contextlib.suppress(ClientError),
            contextlib.closing(Client(self.address)) as client,
        ):  # without events there is no pace
            for event in client.events("job.started", "job.ended"):
                if self.over.is_set():
                    return
                self.rates.add(event.type, time.time())
