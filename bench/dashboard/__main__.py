"""Times the dashboard in a real Chromium, on a made-up pool.

    python -m bench.dashboard [--slots 2000] [--jobs 100000] [--pages jobs,machines] [--json FILE]

First content: from the moment the browser begins to load the address, with nothing in its cache, until the page shows
its table or figures and nothing that stands in for them. `again` is the way from another page. Beside both is the
processor time that the pool's process (gateway, collector, schedd) and all of the browser's took for it, as the time on
the clock says little on a machine that others use: `empty tab` is what the browser takes for a tab that loads nothing,
`nothing` a page of the dashboard without any figures. Scrolling: 300 frames of 60 a second through all rows. Latency:
from the time that an event was published on the bus until the browser has drawn a line with it (the clock is the same).
One visitor, one machine for the browser, the gateway, the collector and the schedd. Each line is written as soon as it
is measured, with the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from tests.browser.large import LargePool
from tests.browser.visitor import OPTIONS

PAGES = {
    "nothing": "no-such-page",
    "overview": "",
    "machines": "machines",
    "slots": "machines?by=slot",
    "slots by memory": "machines?by=slot&order=-Memory",
    "slots, searched": "machines?by=slot&search=node0007",
    "machine": "machine/node00007.example.org",
    "batches": "jobs?by=batch",
    "jobs": "jobs",
    "jobs, held": "jobs?status=Held",
    "jobs, searched": "jobs?search=simulate",
    "jobs by memory": "jobs?order=-memory",
    "jobs, 500 rows": "jobs?rows=500",
    "jobs, all rows": "jobs?rows=all",
    "history": "jobs?history=true",
    "job": "job/3.2",
    "shares": "shares",
    "groups": "groups",
    "negotiation": "negotiation",
    "availability": "availability",
    "daemons": "daemons",
    "events": "events",
    "letters": "letters",
}
#: Lists that are scrolled, by what scrolls in them: a long table in itself, the others with the page.
SCROLLED = {
    "jobs, all rows": ".scroll.long",
    "jobs, 500 rows": "",
    "batches": "",
    "machines, 500 rows": "",
    "slots, 500 rows": "",
    "events": "",
}
MORE = {"machines, 500 rows": "machines?rows=500", "slots, 500 rows": "machines?by=slot&rows=500"}
VIEWPORT: ViewportSize = {"width": 1440, "height": 900}
ROUNDS = 3
#: Made-up events a second, and how many of them are timed.
EVENTS = 20.0
AGES = 200
#: A page that was just gone to has drawn what it shows at first, milliseconds.
SETTLE_MS = 500
PATIENCE_MS = 60_000
#: Resolves with the milliseconds since the address was opened, once nothing stands in for content any more.
SHOWN = """() => new Promise((resolve) => {
  const look = () => {
    const main = document.querySelector("main");
    const there = main?.querySelector("h1") && main.querySelector(".card, .stat");
    if (there && !main.querySelector("[aria-label=Loading]")) requestAnimationFrame(() => resolve(performance.now()));
    else requestAnimationFrame(look);
  };
  look();
})"""
AGAIN = """(path) => new Promise((resolve) => {
  const began = performance.now();
  location.hash = "#/" + path;
  const look = () => {
    const main = document.querySelector("main");
    const there = main?.querySelector("h1") && main.querySelector(".card, .stat");
    if (there && !main.querySelector("[aria-label=Loading]")) resolve(performance.now() - began);
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})"""
#: Scrolls through a list, a screenful a frame at last: how long each frame took, milliseconds, and how long after the
#: last one all rows that are seen were there.
SCROLL = """(where) => new Promise((resolve) => {
  const box = where ? document.querySelector(where) : document.scrollingElement;
  const frames = [];
  let before = 0;
  const rest = (began) => {
    if (box.querySelector("[aria-busy]")) requestAnimationFrame(() => rest(began));
    else resolve({frames, rows: performance.now() - began, height: box.scrollHeight});
  };
  const step = (at) => {
    if (before) frames.push(at - before);
    before = at;
    if (frames.length >= 300) return rest(performance.now());
    box.scrollTop += 5 * frames.length;
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""
#: Ages of events, milliseconds, when their lines were drawn.
LATENCY = """(count) => new Promise((resolve) => {
  const ages = [];
  const seen = new Set();
  const begun = Date.now();
  const asked = performance.timeOrigin;
  const take = () => {
    for (const row of document.querySelectorAll("tr[data-event]")) {
      if (seen.has(row.dataset.event)) continue;
      seen.add(row.dataset.event);
      const at = Number(row.dataset.at) * 1000;
      if (at > begun) ages.push(asked + performance.now() - at);
    }
    if (ages.length >= count) resolve(ages.slice(0, count));
    else requestAnimationFrame(take);
  };
  take();
})"""


@dataclass(frozen=True, slots=True)
class Spent:
    """Milliseconds: on the clock of the browser, and of the processors by the pool's process and by the browser's."""

    wall: float
    pool: float
    browser: float


class Meter:
    """Processor time that the pool and the browser have used, seconds."""

    def __init__(self, pool: int, browser: int) -> None:
        self._pool, self._browser = psutil.Process(pool), psutil.Process(browser)

    def read(self) -> tuple[float, float]:
        times = self._pool.cpu_times()
        return times.user + times.system, sum(map(_seconds, self._browser.children(recursive=True)))

    def spent(self, what: Callable[[], float]) -> Spent:
        """What it took to do something that tells how long it took on the clock, milliseconds."""
        before = self.read()
        wall = what()
        pool, browser = self.read()
        return Spent(wall, (pool - before[0]) * 1000, (browser - before[1]) * 1000)


def _seconds(process: psutil.Process) -> float:
    """With that of children that have ended: a tab that is closed takes none with it."""
    try:
        if not process.name().startswith("chrom"):
            return 0.0  # the pool's, or Playwright's own
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def opened(browser: Browser, pool: LargePool, path: str) -> float:
    """Milliseconds until the page at this path shows its content, in a browser that has never been there."""
    context = browser.new_context(viewport=VIEWPORT)
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{pool.url}/#token={pool.token}&to={path.replace('&', '%26')}", wait_until="commit")
        return float(page.evaluate(SHOWN))
    finally:
        context.close()


def opened_empty(browser: Browser) -> float:
    """Milliseconds that a tab of nothing takes, which all others take as well."""
    began = time.monotonic()
    context = browser.new_context(viewport=VIEWPORT)
    context.new_page().goto("about:blank")
    context.close()
    return (time.monotonic() - began) * 1000


def went(page: Page, path: str) -> float:
    """Milliseconds from another page to this one."""
    return float(page.evaluate(AGAIN, path))


def measure(slots: int, jobs: int, pages: Mapping[str, str], tell: Callable[[str, Mapping[str, Any]], None]) -> None:
    """Tells each line as soon as it is known."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as place, sync_playwright() as playwright:
        pool = LargePool(Path(place), slots, events=EVENTS, jobs=jobs)
        try:
            began = time.monotonic()
            pool.start()
            tell("the pool is up", {"s": round(time.monotonic() - began, 1)})
            browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
            meter = Meter(pool.pid, os.getpid())
            opened(browser, pool, "")  # the browser's own first start
            page = browser.new_page(viewport=VIEWPORT)
            page.goto(f"{pool.url}/#token={pool.token}")
            page.evaluate(SHOWN)
            tell(
                "empty tab", _row("first content", [meter.spent(lambda: opened_empty(browser)) for _ in range(ROUNDS)])
            )
            for name, path in pages.items():
                first = [meter.spent(lambda path=path: opened(browser, pool, path)) for _ in range(ROUNDS)]  # type: ignore[misc]
                again = []
                for _ in range(ROUNDS):
                    went(page, "availability" if name != "availability" else "letters")
                    again.append(meter.spent(lambda path=path: went(page, path)))  # type: ignore[misc]
                tell(name, {**_row("first content", first), **_row("again", again)})
            for name, where in SCROLLED.items():
                if name not in pages and name not in MORE:
                    continue
                went(page, {**PAGES, **MORE}[name])
                page.wait_for_timeout(SETTLE_MS)
                tell(f"scrolling {name}", _scrolled(meter, page, where))
            went(page, "events")
            ages = sorted(page.evaluate(LATENCY, AGES))
            tell(
                "event to line",
                {
                    "median": round(statistics.median(ages), 1),
                    "99 %": round(ages[int(len(ages) * 0.99)], 1),
                    "worst": round(ages[-1], 1),
                },
            )
            browser.close()
        finally:
            pool.close()


def _row(what: str, rounds: list[Spent]) -> dict[str, Any]:
    """The median and the worst on the clock, and the least of the processors: others only add to that."""
    return {
        what: round(statistics.median(one.wall for one in rounds)),
        f"{what}, worst": round(max(one.wall for one in rounds)),
        f"{what}, pool cpu": round(min(one.pool for one in rounds)),
        f"{what}, browser cpu": round(min(one.browser for one in rounds)),
    }


def _scrolled(meter: Meter, page: Page, where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def scroll() -> float:
        found.update(page.evaluate(SCROLL, where))
        return float(sum(found["frames"]))

    spent = meter.spent(scroll)
    frames = sorted(found["frames"])
    return {
        "frame, median": round(statistics.median(frames), 1),
        "99 %": round(frames[int(len(frames) * 0.99)], 1),
        "worst": round(frames[-1], 1),
        "rows there after": round(found["rows"]),
        "browser cpu a frame": round(spent.browser / len(frames), 1),
        "pixels": found["height"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=2_000)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--pages", default=",".join(PAGES).replace(", ", "_ "), help="with _ for a comma in a name")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = [name.replace("_ ", ", ") for name in options.pages.split(",") if name]
    unknown = [name for name in names if name not in PAGES]
    if unknown:
        parser.error(f"no page {unknown[0]}: want some of {', '.join(PAGES)}")
    of = {"slots": options.slots, "jobs": options.jobs}
    figures: dict[str, Any] = {}

    def tell(name: str, row: Mapping[str, Any]) -> None:
        figures[name] = {**row, "load": round(os.getloadavg()[0], 1)}
        print(f"{name:28} " + "  ".join(f"{key}: {value}" for key, value in figures[name].items()), flush=True)
        if options.json:
            options.json.write_text(json.dumps({"of": of, "figures": figures}, indent=1) + "\n")

    measure(options.slots, options.jobs, {name: PAGES[name] for name in names}, tell)
    return 0


if __name__ == "__main__":
    sys.exit(main())
