"""A registry of images for tests: as much of the protocol as an engine needs to pull, served on this machine.

Engines speak plain HTTP with 127.0.0.0/8. Images are made here, tiny and each with layers that no engine has.
"""

import asyncio
import gzip
import hashlib
import io
import json
import platform
import secrets
import tarfile

from aiohttp import web

_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
#: Bytes of a layer that are sent before the gate.
_HEAD = 1024


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Registry:
    """Within the block: `.name("a:1")` is how an engine calls an image made by `.add("a:1")`.

    gate: while it is cleared, blobs stop after their first bytes. refuse: statuses of the next requests, instead of an
    answer. damaged: blobs do not have the content that their digests promise. asked: paths of requests.
    """

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = asyncio.Event()  # somebody waits at the gate
        self.broken_off = asyncio.Event()  # somebody who waited there hung up
        self.refuse: list[int] = []
        self.damaged = False
        self.asked: list[str] = []
        self._manifests: dict[tuple[str, str], bytes] = {}
        self._blobs: dict[str, bytes] = {}

    async def __aenter__(self) -> "Registry":
        app = web.Application()
        app.add_routes([web.get("/v2/{path:.*}", self._get)])
        self._runner = web.AppRunner(app, shutdown_timeout=1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.gate.set()
        await self._runner.cleanup()

    def name(self, image: str) -> str:
        return f"127.0.0.1:{self.port}/{image}"

    def add(self, image: str) -> str:
        """Make an image with one small file, as nobody has it yet; returns the name that an engine has for it."""
        name, _, tag = image.partition(":")
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            content = secrets.token_hex(4096).encode()
            member = tarfile.TarInfo("made")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        layer = gzip.compress(archive.getvalue())
        config = json.dumps(
            {
                "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
                "os": "linux",
                "config": {},
                "rootfs": {"type": "layers", "diff_ids": [_digest(archive.getvalue())]},
            }
        ).encode()
        parts = {}
        for blob, kind in ((config, _CONFIG), (layer, _LAYER)):
            self._blobs[_digest(blob)] = blob
            parts[kind] = {"mediaType": kind, "size": len(blob), "digest": _digest(blob)}
        manifest = {"schemaVersion": 2, "mediaType": _TYPE, "config": parts[_CONFIG], "layers": [parts[_LAYER]]}
        packed = json.dumps(manifest).encode()
        self._manifests[name, tag or "latest"] = packed
        self._manifests[name, _digest(packed)] = packed
        return self.name(image)

    def pulls(self) -> int:
        """How often an engine asked for a manifest by its tag."""
        return sum("/manifests/" in path and "sha256" not in path for path in self.asked)

    async def _get(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        self.asked.append(f"{request.method} {path}")
        if self.refuse:
            return web.Response(status=self.refuse.pop(0), text="the registry is not itself")
        if not path:
            return web.json_response({}, headers={"Docker-Distribution-Api-Version": "registry/2.0"})
        parts = path.split("/")
        name, kind, reference = "/".join(parts[:-2]), parts[-2], parts[-1]
        if kind == "manifests" and (name, reference) in self._manifests:
            packed = self._manifests[name, reference]
            return web.Response(body=packed, headers={"Content-Type": _TYPE, "Docker-Content-Digest": _digest(packed)})
        if kind == "blobs" and reference in self._blobs:
            return await self._blob(request, self._blobs[reference])
        error = {"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}
        return web.json_response({"errors": [error]}, status=404)

    async def _blob(self, request: web.Request, blob: bytes) -> web.StreamResponse:
        if self.damaged:
            blob = bytes(len(blob))
        answer = web.StreamResponse(headers={"Content-Length": str(len(blob))})
        await answer.prepare(request)
        await answer.write(blob[:_HEAD])
        if not self.gate.is_set():
            self.waiting.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.broken_off.set()
                raise
        await answer.write(blob[_HEAD:])
        return answer
