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


@pytest.fixture
def visit(chromium: Browser, pool, request) -> Iterator[object]:
    """visit(size=, scheme=, token=): a Visitor of the module's pool, logged in. Fails when the page had problems."""
    made: list[Visitor] = []

    def come(size="desktop", scheme="light", token=None, log_in=True) -> Visitor:
        visitor = Visitor(chromium, pool.url, token or pool.token, size, scheme)
        visitor.pictures = request.config.getoption("--browser-pictures")
        made.append(visitor)
        return visitor.log_in() if log_in else visitor

    yield come
    problems = [problem for visitor in made for problem in visitor.problems]
    for visitor in made:
        visitor.close()
    assert problems == []
