"""Times the dashboard in a real Chromium, on a made-up pool.

    python -m bench.dashboard [--slots 100000] [--jobs 10000] [--json FILE]

First content: from the moment the browser begins to load the address, with nothing in its cache, until the page shows
its table or figures and nothing that stands in for them. `again` is the way from another page. Latency: from the time
that an event was published on the bus until the browser has drawn a line with it (the clock is the same). One visitor,
one machine for the browser, the gateway, the collector and the schedd; its load is told beside the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.large import LargePool
from tests.browser.visitor import OPTIONS

PAGES = {
    "overview": "",
    "machines": "machines",
    "slots": "machines?by=slot&order=-Memory",
    "slots, searched": "machines?by=slot&search=user07",
    "machine": "machine/node00007.example.org",
    "jobs": "jobs",
    "jobs by memory": "jobs?order=-memory",
    "jobs, 500 rows": "jobs?rows=500",
    "jobs, all rows": "jobs?rows=all",
    "job": "job/3.2",
    "shares": "shares",
    "groups": "groups",
    "negotiation": "negotiation",
    "availability": "availability",
    "events": "events",
    "letters": "letters",
}
ROUNDS = 3
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
#: Scrolls through a long table, a screenful a frame at last: how long each frame took, milliseconds, and how long after
#: the last one all rows that are seen were there.
SCROLL = """() => new Promise((resolve) => {
  const box = document.querySelector(".scroll.long");
  const frames = [];
  let before = 0;
  const rest = (began) => {
    if (box.querySelector("[aria-busy]")) requestAnimationFrame(() => rest(began));
    else resolve({frames, rows: performance.now() - began});
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


def opened(browser: Browser, pool: LargePool, path: str) -> float:
    """Milliseconds until the page at this path shows its content, in a browser that has never been there."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(f"{pool.url}/#token={pool.token}&to={path.replace('&', '%26')}", wait_until="commit")
        return float(page.evaluate(SHOWN))
    finally:
        context.close()


def went(page: Page, path: str) -> float:
    """Milliseconds from another page to this one."""
    return float(page.evaluate(AGAIN, path))


def measure(slots: int, jobs: int) -> dict[str, Any]:
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
    figures: dict[str, Any] = {"slots": slots, "jobs": jobs, "load at the start": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="roost-bench-") as place, sync_playwright() as playwright:
        pool = LargePool(Path(place), slots, events=100.0, jobs=jobs)
        try:
            pool.start()
            browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
            opened(browser, pool, "")  # the browser's own first start
            rows = {}
            for name, path in PAGES.items():
                first = [opened(browser, pool, path) for _ in range(ROUNDS)]
                rows[name] = {"first content, ms": round(statistics.median(first)), "worst": round(max(first))}
            page = browser.new_page()
            page.goto(f"{pool.url}/#token={pool.token}")
            page.evaluate(SHOWN)
            for name, path in PAGES.items():
                again = []
                for _ in range(ROUNDS):
                    went(page, "availability" if name != "availability" else "letters")
                    again.append(went(page, path))
                rows[name]["again, ms"] = round(statistics.median(again))
            figures["pages"] = rows
            went(page, PAGES["jobs, all rows"])
            scrolled = page.evaluate(SCROLL)
            frames = sorted(scrolled["frames"])
            figures["scrolling, ms"] = {
                "frame, median": round(statistics.median(frames), 1),
                "99 %": round(frames[int(len(frames) * 0.99)], 1),
                "worst": round(frames[-1], 1),
                "rows there after": round(scrolled["rows"]),
            }
            went(page, "events")
            ages = sorted(page.evaluate(LATENCY, 1000))
            figures["event to line, ms"] = {
                "median": round(statistics.median(ages), 1),
                "99 %": round(ages[int(len(ages) * 0.99)], 1),
                "worst": round(ages[-1], 1),
            }
            browser.close()
        finally:
            pool.close()
    figures["load at the end"] = os.getloadavg()[0]
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = measure(options.slots, options.jobs)
    for name, row in figures["pages"].items():
        print(f"{name:18} " + "   ".join(f"{key}: {value:5}" for key, value in row.items()))
    print(json.dumps({key: value for key, value in figures.items() if key != "pages"}))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
