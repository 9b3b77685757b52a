"""The dashboard over TLS, with the certificate that a compose pool makes for its gateway: in a browser that was given
the pool's authority, and in one that was not."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, sync_playwright

from roost.client import Client
from tests.browser.visitor import OPTIONS, Visitor
from tests.compose_set_up import knobs, load
from tests.integration.pools import EmbeddedPool

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(300)]


class PoolWithTls(EmbeddedPool):
    """A personal pool whose gateway shows the certificate of a compose pool's."""

    def __init__(self, directory: Path, volumes: Path) -> None:
        super().__init__(directory)
        with pytest.MonkeyPatch.context() as patch:
            load(volumes, patch).main()
        self.ca = volumes / "gateway" / "ca.pem"
        names = ("AUTH_SSL_SERVER_CERTFILE", "AUTH_SSL_CLIENT_CAFILE")
        lines = [f"{name} = {value}\n" for name, value in knobs(volumes / "gateway").items() if name in names]
        (directory / "config").write_text("".join([*lines, "NUM_CPUS = 1\nMEMORY = 512\n"]))

    def client(self) -> Client:
        made = super().client()
        made.close()
        self.url, self.token = made.url, (self.directory / "token").read_text().strip()
        return Client(self.url, self.token, ca_file=str(self.ca))


@pytest.fixture(scope="module")
def pool(tmp_path_factory) -> Iterator[PoolWithTls]:
    made = PoolWithTls(tmp_path_factory.mktemp("pool"), tmp_path_factory.mktemp("volumes"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def browsers(pool, tmp_path_factory) -> Iterator[tuple[Browser, Browser]]:
    """One that believes the pool's authority, and one that knows none but its own."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not program or shutil.which("certutil") is None:
        pytest.fail(
            "no Chromium, or no certutil: install Debian's packages chromium and libnss3-tools (bin/install-packages "
            "chromium libnss3-tools), or leave these tests out with --without browser",
            pytrace=False,
        )
    homes = [tmp_path_factory.mktemp(name) for name in ("believing", "stranger")]
    store = homes[0] / ".pki" / "nssdb"
    store.mkdir(parents=True)
    for words in (("-N", "--empty-password"), ("-A", "-n", "pool", "-t", "C,,", "-i", str(pool.ca))):
        subprocess.run(["certutil", "-d", f"sql:{store}", *words], check=True, timeout=60)
    with sync_playwright() as playwright:
        launched = [
            playwright.chromium.launch(executable_path=program, args=OPTIONS, env={**os.environ, "HOME": str(home)})
            for home in homes
        ]
        yield launched[0], launched[1]
        for browser in launched:
            browser.close()


def test_who_was_given_the_authority_sees_the_dashboard(pool, browsers):
    visitor = Visitor(browsers[0], pool.url, pool.token)
    try:
        visitor.log_in()
        visitor.go("machines")  # and is told what happens, over the same connections
        assert visitor.page.evaluate("isSecureContext")
        assert visitor.problems == []
    finally:
        visitor.close()


def test_who_was_not_is_warned(pool, browsers):
    visitor = Visitor(browsers[1], pool.url, pool.token)
    try:
        with pytest.raises(Error, match="ERR_CERT_AUTHORITY_INVALID"):
            visitor.open(pool.url)
    finally:
        visitor.close()
