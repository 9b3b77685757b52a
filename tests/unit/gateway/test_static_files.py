"""The dashboard's files as they are served: policy, caching, compression, nothing of another host."""

import asyncio
import gzip
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from fastapi import FastAPI

from engine import attention
from services.gateway.routes.static_files import FOR_EVER, WEB, StaticFiles, add_routes, is_page

ROOT = Path(__file__).parents[3]
OURS = sorted(path for path in WEB.rglob("*.js") if "vendor" not in path.parts)


class Answer:
    def __init__(self, status_code, headers, content):
        self.status_code, self.headers, self.content = status_code, headers, content

    @property
    def text(self):
        return self.content.decode()


class Client:
    """Asks an application without a server."""

    def __init__(self, app):
        self.app = app

    def get(self, path, headers=None, method="GET"):
        sent = []

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http", "method": method, "path": unquote(path), "raw_path": path.encode(), "query_string": b"",
            "headers": [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()], "http_version": "1.1",
            "scheme": "http", "server": ("test", 80), "client": ("test", 1), "root_path": "",
            "asgi": {"version": "3.0"},
        }  # fmt: skip
        asyncio.run(self.app(scope, receive, send))
        told = {key.decode(): value.decode() for key, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], told, b"".join(one.get("body", b"") for one in sent[1:]))


@pytest.fixture(scope="module")
def served():
    app = FastAPI()
    site = StaticFiles()
    add_routes(app, site)
    return site, Client(app)


def test_the_page_names_files_that_are_there(served):
    site, client = served
    page = client.get("/")
    assert page.headers["cache-control"] == "no-cache"
    named = re.findall(r'(?:href|src)="([^"]+)"', page.text)
    assert 5 < len(named) < 10  # a browser asks for six at a time
    for path in named:
        found = client.get(path)
        assert found.status_code == 200, path
        assert found.headers["cache-control"] == FOR_EVER
        assert path.startswith(f"/ui/{site.version}/")


def test_nothing_comes_from_elsewhere_or_stands_in_the_page(served):
    """A strict policy, and a page that needs no exception from it."""
    _, client = served
    page = client.get("/")
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in page.headers["content-security-policy"]
    assert not re.search(r"<script(?![^>]*src=)|style=|\son\w+=", page.text)
    for path in OURS:
        text = path.read_text()
        assert not re.findall(r"https?://(?!www\.w3\.org)", text), path
        assert "innerHTML" not in text, path  # what the pool says never becomes markup
        assert "eval(" not in text, path


def test_every_import_is_there():
    for path in OURS:
        for name in re.findall(r'(?:from|import)\s*\(?"(\.[^"]+)"', path.read_text()):
            assert (path.parent / name).resolve().is_file(), f"{path.name} imports {name}"


def test_kept_copies_and_compression(served):
    _, client = served
    path = re.search(r'src="([^"]+app\.js)"', client.get("/").text)[1]
    packed = client.get(path, headers={"Accept-Encoding": "gzip"})
    plain = client.get(path, headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(packed.content) == plain.content
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 2
    again = client.get(path, headers={"If-None-Match": f'W/"x", {plain.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get(path, method="HEAD").status_code == 200


def test_another_version_is_served_but_not_kept(served):
    _, client = served
    old = client.get("/ui/0123456789abcdef/all/app.js")
    assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")


@pytest.mark.parametrize(
    "name", ["nothing.js", "../web.py", "..%2f..%2fapi%2fweb.py", "__init__.py", "lib/", "index.html"]
)
def test_other_files_are_not_served(served, name):
    site, client = served
    assert client.get(f"/ui/{site.version}/{name}").status_code == 404


def test_the_version_changes_with_any_file(tmp_path):
    for name in ("index.html", "app.js", "icon.svg"):
        (tmp_path / name).write_text("x" * 2000)
    first = StaticFiles(tmp_path)
    (tmp_path / "app.js").write_text("y" * 2000)
    second = StaticFiles(tmp_path)
    assert first.version != second.version
    assert b"y" * 2000 in gzip.decompress(second.files["all/app.js"].packed)


def test_vendored_files_are_what_they_should_be():
    done = subprocess.run([sys.executable, ROOT / "bin" / "vendor-web", "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_which_paths_are_the_pages_own():
    assert is_page("/")
    assert is_page("/ui/1/app.js")
    assert not is_page("/v1/pool")
    assert not is_page("/docs")


def test_the_answers_of_the_dashboard_are_those_of_the_documentation():
    """And every page that a finding names is there, with its section."""
    docs = ROOT / "docs"
    mend = "cp docs/how-to.md services/gateway/web/how-to.txt"
    assert (WEB / "how-to.txt").read_text() == (docs / "how-to.md").read_text(), mend
    source = Path(attention.__file__).read_text()
    named = set(re.findall(r'"([a-z-]+\.md(?:#[a-z-]+)?)"', source))
    assert len(named) > 5
    for name in named:
        page, _, section = name.partition("#")
        headings = re.findall(r"^#+ (.*)$", (docs / page).read_text(), re.M)
        slugs = {re.sub(r"[^a-z0-9_-]", "", heading.lower().replace(" ", "-")) for heading in headings}
        assert not section or section in slugs, name
