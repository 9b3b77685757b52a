"""A real Chromium. With --browser-pictures what it shows is kept in test-artifacts/browser."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.visitor import OPTIONS, Visitor


# Of a module and no longer: while Playwright's own loop runs in this thread, no other can.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not program:
        pytest.fail(
            "no Chromium: install Debian's package chromium (bin/install-packages chromium), name another one in "
            "CHROMIUM, or leave these tests out with --without browser",
            pytrace=False,
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tabs() -> Iterator[dict[tuple[str, str], Visitor]]:
    """Tabs that tests have left in order, by size and colours: a page that is loaded anew costs two seconds of the
    processors, one that is gone to a seventh of one."""
    kept: dict[tuple[str, str], Visitor] = {}
    yield kept
    for visitor in kept.values():
        visitor.close()


@pytest.fixture
def visit(chromium: Browser, pool, tabs, request) -> Iterator[object]:
    """visit(size=, scheme=, token=): a Visitor of the module's pool, logged in, at the overview. anew: in a tab of its
    own, as the test changes more than the next would expect. Fails when the page had problems."""
    made: list[Visitor] = []
    lent: list[Visitor] = []
    failed = request.session.testsfailed

    def come(size="desktop", scheme="light", token=None, log_in=True, anew=False) -> Visitor:
        usual = log_in and not anew and token is None
        visitor = tabs.pop((size, scheme), None) if usual else None
        if visitor is None:
            visitor = Visitor(chromium, pool.url, token or pool.token, size, scheme)
            visitor.pictures = request.config.getoption("--browser-pictures")
            made.append(visitor)
            if log_in:
                visitor.log_in()
        else:
            made.append(visitor)
            visitor.go("")
        if usual:
            lent.append(visitor)
        return visitor

    yield come
    problems = [problem for visitor in made for problem in visitor.problems]
    in_order = request.session.testsfailed == failed and not problems
    for visitor in made:
        if in_order and visitor in lent and not visitor.expected and (visitor.size, visitor.scheme) not in tabs:
            tabs[visitor.size, visitor.scheme] = visitor
        else:
            visitor.close()
    assert problems == []
