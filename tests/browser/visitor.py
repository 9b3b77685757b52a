"""A person with a browser: goes to pages, waits until they show something, and notes what went wrong meanwhile."""

import contextlib
import json
from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Browser, Error, Page, expect

ROOT = Path(__file__).parents[2]
#: Not in git; kept for who wants to look at them.
ARTIFACTS = ROOT / "test-artifacts" / "browser"
AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# What axe costs is the contrast of each text, so of rows that differ in their texts and the lengths of their bars only,
# the first three and the last are looked at.
LOOK = """([only, rules]) => {
  const alike = new Map();
  for (const row of document.querySelectorAll("tbody tr")) {
    const shape = row.outerHTML
      .replace(/>[^<]+/g, ">.")
      .replace(/(href|title|aria-label|data-[a-z-]+)="[^"]+"/g, "$1")
      .replace(/width: [\\d.]+/g, "width");
    const before = alike.get(shape) || 0;
    alike.set(shape, before + 1);
    row.toggleAttribute("data-alike", before >= 3 && row.nextElementSibling !== null);
  }
  const where = {include: [["html"]], exclude: [["[data-alike]"]]};
  return axe.run(where, {runOnly: only, rules, resultTypes: ["violations"]});
}"""
#: Longer than any page takes on a busy machine, milliseconds.
PATIENCE_MS = 45_000
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
expect.set_options(timeout=PATIENCE_MS)


class Visitor:
    """One tab. `problems`: errors of the console and of scripts, requests that failed or went elsewhere."""

    def __init__(self, browser: Browser, url: str, token: str, size="desktop", scheme="light"):
        width, height = SIZES[size]
        self.size, self.scheme, self.url, self.token = size, scheme, url, token
        self.context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            has_touch=size == "phone",
            reduced_motion="reduce",
        )
        self.context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.expected = False  # errors are part of the test
        self.pictures = False
        self.cut = 0  # requests that Chromium gave up because the machine's networks changed
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self._note(f"error in a script: {error}"))
        self.page.on("requestfailed", self._on_failed)
        self.page.on("response", self._on_response)
        self.page.on("request", self._on_request)

    def log_in(self):
        """By a link, as `roost dashboard` prints it."""
        self.open(f"{self.url}/#token={self.token}")
        expect(self.page.locator("main h1")).to_have_text("Overview")
        return self

    def open(self, url: str):
        """A page, with all that it is made of."""

        def go():
            self.page.goto("about:blank")  # or an address that differs in its end only loads nothing
            self.page.goto(url, wait_until="load")

        self._load(go)

    def reload(self):
        self._load(self.page.reload)

    def _load(self, load):
        """Again where the machine's networks changed meanwhile, as Chromium gives up then: containers of other tests
        come and go."""
        for _ in range(5):
            cut = self.cut
            try:
                load()
            except Error as error:
                if "ERR_NETWORK_CHANGED" not in error.message:
                    raise
            else:
                if self.cut == cut:
                    return

    def go(self, path: str):
        """To "jobs?status=Held", say; returns when it shows its content."""
        self.page.evaluate("path => { location.hash = '#/' + path }", path)
        self.settle()
        return self.page

    def settle(self):
        expect(self.page.locator("main h1")).to_be_visible()
        expect(self.page.locator("main [aria-label=Loading]")).to_have_count(0)

    def accessibility(self, *, colours: bool = True) -> list[str]:
        """What axe finds wrong with the page as it is; colours: with the contrast of its texts too."""
        return self._axe({"type": "tag", "values": RULES}, {} if colours else {"color-contrast": {"enabled": False}})

    def contrast(self) -> list[str]:
        """The same of its colours only, which are all that another scheme changes."""
        return self._axe({"type": "rule", "values": ["color-contrast"]})

    def _axe(self, only: dict[str, object], rules: dict[str, object] | None = None) -> list[str]:
        if self.page.evaluate("typeof axe") == "undefined":
            self.page.evaluate(AXE.read_text())
        found = self.page.evaluate(LOOK, [only, rules or {}])
        return [
            f"{one['id']}: {one['help']}: {node['target']} {node['html'][:160]} {_why(node)}"
            for one in found["violations"]
            for node in one["nodes"][:3]
        ]

    def too_wide(self) -> int:
        """By how many pixels one must scroll sideways."""
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def picture(self, name: str, *, whole=False) -> None:
        """Kept where somebody wants to look at them: each takes a third of a second."""
        if not self.pictures:
            return
        ARTIFACTS.mkdir(parents=True, exist_ok=True)
        path = ARTIFACTS / f"{name}-{self.size}-{self.scheme}.png"
        self.page.screenshot(path=path, full_page=whole)

    @contextlib.contextmanager
    def in_colours(self, scheme: str):
        """The page as it is, in another scheme."""
        before, self.scheme = self.scheme, scheme
        self.page.emulate_media(color_scheme=scheme)
        yield
        self.scheme = before
        self.page.emulate_media(color_scheme=before)

    @contextlib.contextmanager
    def in_size(self, size: str):
        """The page as it is, where there is more or less room."""
        before, self.size = self.size, size
        self._resize()
        yield
        self.size = before
        self._resize()

    def _resize(self):
        width, height = SIZES[self.size]
        self.page.set_viewport_size({"width": width, "height": height})

    def close(self):
        self.context.close()

    def _note(self, text: str):
        if not self.expected:
            self.problems.append(text)

    def _on_console(self, message):
        if message.type in ("error", "warning") and "ERR_NETWORK_CHANGED" not in message.text:
            self._note(f"console: {message.text}")

    def _on_failed(self, request):
        # Containers of other tests come and go, with their networks.
        self.cut += "ERR_NETWORK_CHANGED" in (request.failure or "")
        # A page that is left takes back what it asked for.
        if not any(one in (request.failure or "") for one in ("ERR_ABORTED", "ERR_NETWORK_CHANGED")):
            self._note(f"failed: {request.url}: {request.failure}")

    def _on_response(self, response):
        if response.status >= 400:
            self._note(f"{response.status}: {response.url}")

    def _on_request(self, request):
        if not request.url.startswith((f"{self.url}/", "data:", "about:")):
            self._note(f"asked another host: {request.url}")


def _why(node) -> str:
    said = [check.get("message", "") for check in (*node.get("any", ()), *node.get("all", ()), *node.get("none", ()))]
    return json.dumps(said)[:300]
