"""The route by which plain curl submits: a submit description and its files in one request.

The description is read by a program of its own (`roost.submit.remote`), which sees the files of the request and
nothing else, within limits; this process only keeps the files for it, queues what it tells, and sends the files on to
the schedd.
"""

# No `from __future__ import annotations` here: FastAPI reads the annotations of the handlers where they stand.
import asyncio
import contextlib
import errno
import json
import os
import shutil
import sys
import tempfile
import uuid
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgpack
from fastapi import Depends, FastAPI, HTTPException, Request
from starlette.requests import ClientDisconnect

from services.gateway.auth.caller import note, person
from services.gateway.auth.guards import caller_of, too_many_requests
from services.gateway.core.authorization import Identity
from services.gateway.core.limits import ByteBudget
from services.gateway.multipart import BadForm, Form
from services.gateway.pool_client import Schedd
from services.gateway.routes.context import MAX_BODY, OneSchedd, RouteContext, example
from services.gateway.routes.files import access, put_bundle
from services.gateway.routes.jobs import Owner, owner_for
from shared import private_files, tracing
from shared.bus.api import RemoteFailure
from shared.errors import RoostError
from shared.messages.queue import ActOnJobs, SubmitJobs, Submitted
from shared.transfer.bundle import Source, write_bundle
from shared.transfer.errors import TransferError

#: Descriptions that are read at the same time, and how long one may take, seconds.
READERS = 2
READ_S = 20.0
#: Forms of the largest size that there is room for at once, one of each token; and bytes that one has besides files.
UPLOADS = 8
BESIDES = 16 << 20
#: Of the processor.
CPU_S = 10
WAIT_S = 20.0
#: Procs in one message to a schedd.
PART = 5000
#: What the program needs of our environment: where the pool's configuration is, and where Python finds itself.
_KEPT = ("ROOST_CONFIG", "CONDOR_CONFIG", "ROOST_POOL_DIR", "PATH", "LANG", "PYTHONPATH", "HOME", "LOGNAME")
#: From where Python finds the program; never the directory with the user's files.
_PROGRAMS = Path(__file__).parents[3]
_TEXTS = ("description", "directory", "submit_id")
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["description"],
                    "properties": {
                        "description": {"type": "string", "description": "the submit file, as text or as a file"},
                        "files": {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                            "description": "what it names; the file name may have directories: data/input.txt",
                        },
                        "directory": {
                            "type": "string",
                            "description": "what Iwd begins with, where transfer-data brings the output; default /",
                        },
                        "submit_id": {
                            "type": "string",
                            "description": "the same id again is the same submit, for who got no answer",
                        },
                    },
                }
            }
        },
    }
}


def add_routes(app: FastAPI, context: RouteContext) -> None:
    base = Path(context.settings.spool) / f"{context.own}-uploads"
    shutil.rmtree(base, ignore_errors=True)  # of a life before
    readers = asyncio.Semaphore(READERS)
    most = context.settings.roost_gateway_upload_mib << 20
    share = most + BESIDES
    uploads = ByteBudget(share, UPLOADS * share)

    @app.post(
        "/v1/jobs/description",
        openapi_extra=_FORM,
        responses=example({"clusters": [{"cluster": 12, "count": 10, "schedd": "ap1"}], "warnings": []}),
        tags=["jobs"],
    )
    async def submit_description(
        request: Request,
        identity: Annotated[Identity, Depends(context.guards.may("jobs.submit"))],
        schedd: OneSchedd = "",
        owner: Owner = "",
    ) -> dict[str, Any]:
        """Submit a submit file with the files it names, as one form: `curl -F description=@job.sub -F files=@in.txt`.
        The jobs are spooled: their output stays at the schedd until it is fetched. Nothing stays of a submit that
        fails. The description sees the files of its request and no others; it runs no commands."""
        user = owner_for(identity, owner, context.settings.uid_domain)
        found = await context.pool.schedd(schedd)
        with contextlib.ExitStack() as stack:
            root = await asyncio.to_thread(_directory, base)
            stack.callback(shutil.rmtree, root, ignore_errors=True)
            held = _Held(uploads, caller_of(request).key)
            stack.callback(held.give_back)
            form = await _receive(request, root, most, held)
            text = form.texts.pop("description", "")
            directory = form.texts.pop("directory", "") or "/"
            submit_id = form.texts.pop("submit_id", "") or uuid.uuid4().hex
            if not text.strip():
                raise HTTPException(400, "the form has no description: curl -F description=@job.sub")
            if form.texts:
                unknown = ", ".join(sorted(form.texts))[:200]
                raise HTTPException(400, f"fields {unknown}: there are description, files, directory, submit_id")
            if not directory.startswith("/") or len(directory) > 4096 or len(submit_id) > 150:
                raise HTTPException(400, "directory: want an absolute path; submit_id: up to 150 characters")
            # Its text may have passwords in it (environment = ...): who has the file finds its record by this.
            digest = sha256(text.encode(errors="surrogateescape")).hexdigest()
            note(owner=owner, schedd=schedd, submit_id=submit_id, files=form.files, description_sha256=digest)
            asked = {"description": text, "file": "<description>", "user": user, "directory": directory}
            work = _Work(context, identity, found, root, readers, asked, user, submit_id)
            with tracing.span("gateway.submit", request.headers.get("traceparent"), user=user, schedd=found.name):
                return await work.queue()


class _Work:
    """One submit."""

    def __init__(
        self,
        context: RouteContext,
        identity: Identity,
        schedd: Schedd,
        root: Path,
        readers: asyncio.Semaphore,
        asked: dict[str, Any],
        user: str,
        submit_id: str,
    ) -> None:
        self._context = context
        self._identity = identity
        self._schedd = schedd
        self._root = root
        self._readers = readers
        self._asked = asked
        self._user = user
        self._submit_id = submit_id
        self._queued: list[int] = []

    async def queue(self) -> dict[str, Any]:
        told = await self._read({})
        if not told["clusters"]:
            raise HTTPException(400, "nothing to submit: the queue statement gave no job")
        done = []
        try:
            for index, cluster in enumerate(told["clusters"]):
                done.append(await self._one(index, cluster, needs_number=told["needs_cluster"]))
        except BaseException:
            await asyncio.shield(self._take_back())
            raise
        note(clusters=self._queued)
        return {"clusters": done, "warnings": told["warnings"]}

    async def _one(self, index: int, cluster: dict[str, Any], *, needs_number: bool) -> dict[str, Any]:
        first = 0
        if needs_number:  # its number is part of what its jobs say
            number = (await self._send(index, cluster["ad"], [], 0, more=True)).cluster
            again = await self._read({"index": index, "cluster": number})
            cluster = {**cluster, **{key: again["clusters"][index][key] for key in ("procs", "inputs")}}
            first = 1
        procs = cluster["procs"]
        for start in range(0, len(procs), PART):
            part = first + start // PART
            more = start + PART < len(procs)
            answer = await self._send(index, cluster["ad"], procs[start : start + PART], part, more=more)
        self._queued.append(answer.cluster)
        inputs = cluster["inputs"]
        names = [str(answer.cluster)] if len(inputs) == 1 else [f"{answer.cluster}.{n}" for n in range(len(inputs))]
        for name, files in zip(names, inputs, strict=True):
            where = await access(self._context, self._identity, name, self._schedd.name)
            sources = [Source(Path(path), wanted, within=self._root) for path, wanted in files]
            try:
                await put_bundle(self._context, where, write_bundle(sources))
            except TransferError as error:
                raise HTTPException(400, str(error)) from error
        return {"cluster": answer.cluster, "count": len(procs), "schedd": self._schedd.name}

    async def _send(self, index: int, ad: bytes, procs: list[bytes], part: int, *, more: bool) -> Submitted:
        if len(ad) + sum(map(len, procs)) > MAX_BODY:
            raise HTTPException(413, "the ads of 5000 jobs have more than 64 MiB: submit fewer at a time")
        message = SubmitJobs(
            user=self._user,
            submit_id=f"{self._submit_id}.{index}",
            cluster_ad=ad,
            procs=procs,
            spool=True,
            more=more,
            part=part,
        )
        return await self._context.pool.ask(self._schedd.inbox, message, Submitted, timeout=60.0)

    async def _take_back(self) -> None:
        if self._queued:
            ids = [str(number) for number in self._queued]
            who = self._identity
            order = ActOnJobs(user=who.user, admin=who.admin, action="remove", ids=ids, reason="the submit failed")
            with contextlib.suppress(RoostError):
                await self._context.bus.call(self._schedd.inbox, order, timeout=30.0, person=person())

    async def _read(self, more: dict[str, Any]) -> dict[str, Any]:
        """What the description queues, as the program tells it. Raises HTTPException, RemoteFailure."""
        try:
            async with asyncio.timeout(WAIT_S):
                await self._readers.acquire()
        except TimeoutError:
            raise RemoteFailure("busy", "other descriptions are being read: ask again", True) from None
        try:
            return await _program(self._root, {**self._asked, **more})
        finally:
            self._readers.release()


def _directory(base: Path) -> Path:
    private_files.make_directory(base)
    return Path(os.path.realpath(tempfile.mkdtemp(prefix="submit-", dir=base)))


class _Held:
    """What one form takes of the room for all of them, bytes."""

    def __init__(self, room: ByteBudget, key: str) -> None:
        self._room = room
        self._key = key
        self._bytes = 0

    def take(self, amount: int) -> None:
        """Raises HTTPException 429."""
        if full := self._room.take(self._key, amount):
            raise too_many_requests(f"there is no room for more files of submits that are under way: {full}", 5.0)
        self._bytes += amount

    def give_back(self) -> None:
        if self._bytes:
            self._room.give(self._key, self._bytes)
            self._bytes = 0


async def _receive(request: Request, root: Path, most: int, held: _Held) -> Form:
    """The form, with its files in `root`. Raises HTTPException."""

    def open_file(name: str) -> BinaryIO:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Whoever sends a program means to run it.
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700), "wb")

    try:
        form = Form(
            request.headers.get("content-type", ""),
            open_file,
            as_text=("description", "directory", "submit_id"),
            most=most,
        )
    except BadForm as error:
        raise HTTPException(400, str(error)) from error
    try:
        async for chunk in request.stream():
            held.take(len(chunk))
            await asyncio.to_thread(form.feed, chunk)
        form.finish()
    except BadForm as error:
        raise HTTPException(413 if error.too_large else 400, str(error)) from error
    except ClientDisconnect as error:
        raise HTTPException(400, "the request broke off") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HTTPException(503, "the gateway has no room for these files now", {"Retry-After": "30"}) from error
        raise HTTPException(400, f"a file of the form can not be kept under its name: {error.strerror}") from error
    finally:
        form.close()
    return form


async def _program(root: Path, asked: dict[str, Any]) -> dict[str, Any]:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "roost.submit.remote",
        str(root),
        str(CPU_S),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
        cwd=_PROGRAMS,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(READ_S):
            out, _ = await process.communicate(json.dumps(asked).encode())
    except TimeoutError:
        out = b""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        told: dict[str, Any] = msgpack.unpackb(out)
    except (ValueError, msgpack.UnpackException):
        text = "the description takes too long or too much memory to read: queue fewer jobs at a time"
        raise HTTPException(400, text) from None
    if "error" in told:
        raise HTTPException(400, told["error"][:4000])
    return told
