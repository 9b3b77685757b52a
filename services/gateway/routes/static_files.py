"""The dashboard's files, served at / and /ui/. They come from the package, are read once, and need no other host.

Our own modules travel as one script (core.module_bundle): a browser asks for six files at a time, so forty of them took
as many turns as there are sixes, and more processor time than the whole page. All files live under one folder that is
named by a digest of all contents: a browser may keep them for ever, and a new version has another folder. Only the page
itself is asked anew.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fastapi import FastAPI, HTTPException, Request
from starlette.responses import RedirectResponse, Response

from services.gateway.core.module_bundle import bundle

WEB: Final = Path(__file__).resolve().parents[1] / "web"
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".txt": "text/plain; charset=utf-8",
}
#: Nothing but what this gateway serves: no other host, no script or style in the page, no frame around it.
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}
FOR_EVER: Final = "public, max-age=31536000, immutable"
#: Smaller files gain nothing by compression.
LEAST_TO_PACK: Final = 600
ROOT_MARK: Final = "{{root}}"
PRELOAD_MARK: Final = "<!-- modules -->"
#: The script of all of our modules, and the one of these that begins.
SCRIPT, ENTRY = "all/app.js", "app.js"
VENDORED: Final = "vendor/"
#: Loaded when a page needs it.
LATER: Final = ("vendor/uplot.js", "vendor/xterm.js", "vendor/xterm-fit.js")


def is_page(path: str) -> bool:
    """Whether a path is one of the dashboard's own. They come from memory and tell nothing: nobody counts how often
    they are asked for, as one look at the page takes some eight of them."""
    return path in ("/", "/favicon.ico") or path.startswith("/ui/")


@dataclass(frozen=True, slots=True)
class StaticFile:
    kind: str
    data: bytes
    packed: bytes  # gzip; empty: not worth it
    tag: str


class StaticFiles:
    """All files by path."""

    def __init__(self, directory: Path = WEB) -> None:
        found = {
            path.relative_to(directory).as_posix(): path.read_bytes()
            for path in sorted(directory.rglob("*"))
            if path.is_file() and path.suffix in TYPES
        }
        index = found.pop("index.html").decode()
        ours = [name for name in found if name.endswith(".js") and not name.startswith(VENDORED)]
        found[SCRIPT] = bundle({name: found.pop(name).decode() for name in ours}, ENTRY).encode()
        digest = hashlib.sha256(index.encode())
        for name, data in found.items():
            digest.update(f"{name}\0{len(data)}\0".encode() + data)
        self.version = digest.hexdigest()[:16]
        self.files = {name: _file(name, data) for name, data in found.items()}
        root = f"/ui/{self.version}"
        modules = [name for name in found if name.endswith(".js") and name not in LATER]
        preload = "\n    ".join(f'<link rel="modulepreload" href="{root}/{name}">' for name in modules)
        self.index = _file("index.html", index.replace(ROOT_MARK, root).replace(PRELOAD_MARK, preload).encode())

    @property
    def icon(self) -> str:
        return f"/ui/{self.version}/icon.svg"


def _file(name: str, data: bytes) -> StaticFile:
    packed = gzip.compress(data, 9, mtime=0) if len(data) >= LEAST_TO_PACK else b""
    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    return StaticFile(TYPES[Path(name).suffix], data, packed if len(packed) < len(data) else b"", tag)


def add_routes(app: FastAPI, site: StaticFiles | None = None) -> None:
    """The page at / and its files below /ui/. They tell nothing of the pool, so they need no token."""
    shown = site or StaticFiles()

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page(request: Request) -> Response:
        return _answer(request, shown.index, "no-cache")

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs() -> Response:
        """Where other APIs show theirs; FastAPI's own page loads its scripts from another host."""
        return RedirectResponse("/#/api", 302)

    @app.api_route("/favicon.ico", methods=["GET", "HEAD"], include_in_schema=False)
    async def icon() -> Response:
        return RedirectResponse(shown.icon, 302)

    @app.api_route("/ui/{version}/{name:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def part(request: Request, version: str, name: str) -> Response:
        found = shown.files.get(name)
        if found is None:
            raise HTTPException(404, f"the dashboard has no file {json.dumps(name[:100])}")
        # A page of another version gets what there is, and must ask again.
        return _answer(request, found, FOR_EVER if version == shown.version else "no-cache")


def _answer(request: Request, file: StaticFile, keep: str) -> Response:
    packs = file.packed and "gzip" in request.headers.get("accept-encoding", "")
    headers = {**HEADERS, "Cache-Control": keep, "ETag": file.tag, "Vary": "Accept-Encoding"}
    if file.tag in request.headers.get("if-none-match", "").replace("W/", "").split(", "):
        return Response(status_code=304, headers=headers)
    if packs:
        headers["Content-Encoding"] = "gzip"
    return Response(file.packed if packs else file.data, headers=headers, media_type=file.kind)
