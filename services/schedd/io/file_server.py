"""The schedd's end of file transfer, over HTTP.

    GET  /runs/<job>/<attempt>/input    what the run takes along          (the run's token)
    POST /runs/<job>/<attempt>/progress how far files are that go by URL, as JSON  (the same)
    GET  /runs/<job>/<attempt>/public   names, digests, sizes and modes of public input files, as JSON  (the same)
    GET  /runs/<job>/<attempt>/public/<digest>  one of them, as a bundle; the others: input?without=public  (the same)
    PUT  /runs/<job>/<attempt>/output   what it brings back               (the run's token)
    PUT  /runs/<job>/<attempt>/stream/<out or err>?at=N  a piece of its output, N bytes from the beginning  (the same)
    GET  /runs/<job>/<attempt>/checkpoint  the last whole checkpoint, perhaps of nothing  (the same)
    PUT  /runs/<job>/<attempt>/checkpoint  a new one                  (the same)
    POST /runs/<job>/<attempt>/chirp    what the running job asks of its ad, its log and its files (the same; Chirp)
    POST /runs/<job>/<attempt>/signed   URLs of the job's, signed with its owner's keys, as JSON  (the same)
    PUT  /sandbox/<job or cluster>      input of spooled jobs             (a token of FetchFiles or SubmitJobs)
    GET  /sandbox/<job>                 output of a spooled job           (a token of FetchFiles)
    GET  /sandbox/<job>/files           names, sizes and times of it, as JSON
    GET  /sandbox/<job>/files/<path>    one file of it, or the part that Range asks for
    GET  /sandbox/<job>/log             the log of any job                (a token of FetchFiles)
    GET  /runs/<job>/<attempt>/credentials  what the job asked for, as msgpack: file name to bytes  (the run's token)
    GET  /credentials                   which ones a user has, as JSON    (a token of FetchFiles)
    PUT, DELETE /credentials/<service>  keep one, or delete it            (a token of FetchFiles)

Output is received and verified in the spool first. Then the list of its members and places is committed to the
database, and only then are they moved: a schedd that was killed in between goes on moving when it is back, so the
output of a run is there as a whole or not at all, and a repeated PUT changes nothing twice.

Transfers beyond MAX_CONCURRENT_UPLOADS and MAX_CONCURRENT_DOWNLOADS wait for their turn (transfer_turns).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import json
import os
import secrets
import shutil
import sqlite3
import ssl
import stat
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgpack
from aiohttp import web

from engine.queue.job_table import JobTable
from engine.queue.jobs import Cluster, Job, JobId, JobStatus, Shadow, full_ad
from services.schedd.core.imports import held_once_spooled
from services.schedd.core.job_states import JobEvent
from services.schedd.core.policies import Hold
from services.schedd.io import checkpoint_cleanup, checkpoints, spool
from services.schedd.io.chirp import ChirpRequests
from services.schedd.io.credentials import MAX_BYTES, BadCredential, CredentialStore, services_of
from services.schedd.io.job_updates import JobUpdates
from services.schedd.io.public_files import PublicFiles
from services.schedd.io.queue_db import output_of, rows
from services.schedd.io.transfer_progress import MAX_TOLD, TransferProgress
from services.schedd.io.transfer_turns import Moved, TransferTurns, nothing
from services.schedd.io.url_signing import NotSigned, sign
from shared import private_files
from shared.chirp import MAX_REQUEST
from shared.classad import ClassAd, unparse_old
from shared.transfer.bundle import CHUNK, Entry, Source, check_sources, feed, receiving, write_bundle
from shared.transfer.connections import runner_of
from shared.transfer.counts import TransferCounts
from shared.transfer.errors import NoRoom, OutOfStep, TooLarge, TransferError
from shared.transfer.extraction import Extraction
from shared.transfer.limits import INPUT, OUTPUT, limit_of, lowest, of_mib
from shared.transfer.members import wire_bytes
from shared.transfer.public import PublicFile, listing
from shared.transfer.sandbox import NOWHERE, STDERR, STDOUT, Move, input_sources, output_moves
from shared.transfer.streams import OUT_OF_STEP, PIECE_BYTES, SIZE_HEADER, size_told, write_piece

#: How long a token for a spooled sandbox is good, seconds.
GRANT_S: Final = 3600.0
MIB: Final = 1 << 20
#: Bytes, and seconds, that are read on after a transfer was refused.
MAX_DISCARDED: Final = 64 * MIB
DISCARD_S: Final = 10.0
#: Bytes of a request to sign URLs.
MAX_SIGNED: Final = 4 * MIB


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token for spooled files allows."""

    job: JobId  # proc -1: the whole cluster
    until: float  # monotonic


class FileServer:
    """Serves the files of this schedd's jobs."""

    def __init__(self, updates: JobUpdates, credentials: CredentialStore) -> None:
        self.updates = updates
        self.credentials = credentials
        self.table: JobTable = updates.table
        self.url = ""
        self.counts = TransferCounts()
        self._progress = TransferProgress(updates)
        self._public = PublicFiles(updates.now)
        self.turns = TransferTurns(updates, self.counts, self._progress)
        self._chirp = ChirpRequests(updates, lambda job: self._limit(job, OUTPUT))
        self._grants: dict[str, Grant] = {}
        self._users: dict[str, tuple[str, float]] = {}  # token -> (user, until): for the user's credentials
        self._receiving: set[tuple[JobId, int]] = set()
        self._runner: web.AppRunner | None = None

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen, with TLS where there is a context for it; returns the port. A port that is taken gives way to any
        other when it was only remembered."""
        app = web.Application(client_max_size=0)
        app.add_routes(
            [
                web.get("/runs/{job}/{attempt}/input", self._input),
                web.get("/runs/{job}/{attempt}/public", self._list_public),
                web.get("/runs/{job}/{attempt}/public/{digest}", self._one_public),
                web.put("/runs/{job}/{attempt}/output", self._output),
                web.put("/runs/{job}/{attempt}/stream/{name}", self._piece),
                web.get("/runs/{job}/{attempt}/checkpoint", self._last_checkpoint),
                web.put("/runs/{job}/{attempt}/checkpoint", self._checkpoint),
                web.post("/runs/{job}/{attempt}/progress", self._on_progress),
                web.post("/runs/{job}/{attempt}/signed", self._sign),
                web.post("/runs/{job}/{attempt}/chirp", self._on_chirp),
                web.put("/sandbox/{job}", self._upload),
                web.get("/sandbox/{job}", self._download),
                web.get("/sandbox/{job}/files", self._list),
                web.get("/sandbox/{job}/files/{path:.*}", self._one_file),
                web.get("/sandbox/{job}/log", self._log),
                web.get("/runs/{job}/{attempt}/credentials", self._credentials_of_run),
                web.get("/credentials", self._list_credentials),
                web.put("/credentials/{service}", self._put_credential),
                web.delete("/credentials/{service}", self._delete_credential),
            ]
        )
        self._runner = runner_of(app)  # what is refused is read on for a while by _discard_rest
        await self._runner.setup()
        try:
            await self._site(host, port, tls)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or self.updates.settings.transfer_port:
                raise
            self.updates.context.log.warning("transfer_port_taken", port=port)
            await self._site(host, 0, tls)
        bound: int = self._runner.addresses[0][1]
        return bound

    async def _site(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        assert self._runner is not None
        try:
            await web.TCPSite(self._runner, host, port, ssl_context=tls).start()
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
            # A name by which others reach us that is no address here: we are behind a translation of addresses.
            self.updates.context.log.info("transfer_listens_everywhere", host=host, reason=str(error))
            await web.TCPSite(self._runner, None, port, ssl_context=tls).start()

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def grant(self, job: JobId) -> tuple[str, str]:
        """(URL, token) for the spooled files of a job, or of a cluster (proc -1)."""
        now = self.updates.context.clock.monotonic()
        self._grants = {token: grant for token, grant in self._grants.items() if grant.until > now}
        token = secrets.token_urlsafe(24)
        self._grants[token] = Grant(job, now + GRANT_S)
        name = str(job) if job.proc >= 0 else str(job.cluster)
        return f"{self.url}/sandbox/{name}", token

    def grant_credentials(self, user: str) -> tuple[str, str]:
        """(URL, token) for the credentials of a user."""
        now = self.updates.context.clock.monotonic()
        self._users = {token: one for token, one in self._users.items() if one[1] > now}
        token = secrets.token_urlsafe(24)
        self._users[token] = (user, now + GRANT_S)
        return f"{self.url}/credentials", token

    # Credentials

    def _user(self, request: web.Request) -> str:
        user, until = self._users.get(_token(request), ("", 0.0))
        if not user or until < self.updates.context.clock.monotonic():
            raise web.HTTPForbidden(text="the token is wrong or too old; ask for a new one")
        return user

    async def _credentials_of_run(self, request: web.Request) -> web.StreamResponse:
        job, _ = self._run(request)
        services = services_of(full_ad(self.updates.name, job, self.updates.now()))
        try:
            found = await asyncio.to_thread(self.credentials.read, job.cluster.user, services)
        except BadCredential as error:
            raise web.HTTPUnprocessableEntity(text=str(error)) from error
        return web.Response(body=msgpack.packb(found), content_type="application/x-msgpack")

    async def _list_credentials(self, request: web.Request) -> web.StreamResponse:
        user = self._user(request)
        return web.json_response(await asyncio.to_thread(self.credentials.listed, user))

    async def _put_credential(self, request: web.Request) -> web.StreamResponse:
        user, service = self._user(request), request.match_info["service"]
        data = bytearray()
        async for chunk in request.content.iter_chunked(CHUNK):
            data += chunk
            if len(data) > MAX_BYTES:
                raise web.HTTPRequestEntityTooLarge(
                    max_size=MAX_BYTES, actual_size=len(data), text=f"a credential has up to {MAX_BYTES} bytes"
                )
        try:
            await asyncio.to_thread(self.credentials.put, user, service, bytes(data))
        except BadCredential as error:
            raise web.HTTPUnprocessableEntity(text=str(error)) from error
        self.updates.context.log.info("credential_stored", user=user, service=service)
        return web.Response()

    async def _delete_credential(self, request: web.Request) -> web.StreamResponse:
        user, service = self._user(request), request.match_info["service"]
        try:
            there = await asyncio.to_thread(self.credentials.delete, user, service)
        except BadCredential as error:
            raise web.HTTPUnprocessableEntity(text=str(error)) from error
        if not there:
            raise web.HTTPNotFound(text=f"{user} has no credential for {service[:80]} here")
        self.updates.context.log.info("credential_deleted", user=user, service=service)
        return web.Response()

    # Runs

    def _run(self, request: web.Request, *, transfer: bool = True) -> tuple[Job, Shadow]:
        """The run that is meant. transfer: one whose files travel. Refuses a wrong token, and an attempt that is over,
        in the same way."""
        token = _token(request)
        try:
            job = self.table.get(JobId.of_run(request.match_info["job"]))
        except ValueError:
            job = None
        run = job.shadow if job is not None else None
        attempt = request.match_info["attempt"]
        if (
            job is None
            or run is None
            or (transfer and not run.transfer)
            or not attempt.isdigit()
            or int(attempt) != run.attempt
            or not hmac.compare_digest(token.encode(), run.token.encode())
        ):
            raise web.HTTPForbidden(text="no such run, or it is over, or its token is wrong")
        return job, run

    async def _input(self, request: web.Request) -> web.StreamResponse:
        job, run = self._run(request)
        limit = self._limit(job, INPUT)
        try:
            sources = await asyncio.to_thread(self._input_sources, job)
            size = await asyncio.to_thread(check_sources, sources, limit_bytes=limit)
            if request.query.get("without") == "public":
                sources = [one for one in sources if one.name not in run.public]
                size = await asyncio.to_thread(check_sources, sources)
        except TooLarge as error:
            raise _too_large(f"{INPUT}: {error}", limit) from error
        except (TransferError, OSError, ValueError) as error:  # ValueError: a zero byte in a path
            raise web.HTTPUnprocessableEntity(text=str(error)) from error
        async with self.turns.going(job, run, "input", size, tell="Input") as moved:
            response = await _stream(request, sources, self.counts, limit, moved)
        self.counts.bytes.add("input", count=size)
        return response

    async def _public_files(self, job: Job) -> list[tuple[PublicFile, Source]]:
        try:
            sources = await asyncio.to_thread(self._input_sources, job)
            return await self._public.listed(full_ad(self.updates.name, job, self.updates.now()), sources)
        except (TransferError, OSError, ValueError) as error:
            raise web.HTTPUnprocessableEntity(text=str(error)) from error

    async def _list_public(self, request: web.Request) -> web.StreamResponse:
        job, run = self._run(request)
        files = [one for one, _ in await self._public_files(job)]
        run.public = frozenset(one.name for one in files)
        return web.json_response(listing(files))

    async def _one_public(self, request: web.Request) -> web.StreamResponse:
        job, run = self._run(request)
        digest = request.match_info["digest"]
        for file, source in await self._public_files(job):
            if file.sha256 == digest and file.name in run.public:
                async with self.turns.going(job, run, "input", file.size, tell="Input") as moved:
                    response = await _stream(request, [replace(source, name=digest)], self.counts, file.size, moved)
                self.counts.bytes.add("input", count=file.size)
                return response
        raise web.HTTPNotFound(text="no public file of this run has this content (any more)")

    async def _on_chirp(self, request: web.Request) -> web.StreamResponse:
        job, run = self._run(request, transfer=False)
        answer = await self._chirp.answer(job, run, await _body(request, "a request of Chirp", MAX_REQUEST))
        return web.Response(body=answer.pack(), content_type="application/x-msgpack")

    async def _on_progress(self, request: web.Request) -> web.StreamResponse:
        job, run = self._run(request)
        self._progress.take(job, run, await _body(request, "what is told of a transfer", MAX_TOLD))
        return web.Response()

    async def _sign(self, request: web.Request) -> web.StreamResponse:
        job, _ = self._run(request)
        body = await _body(request, "a request to sign", MAX_SIGNED)
        now = self.updates.now()
        ad = full_ad(self.updates.name, job, now)
        try:
            if not self.updates.settings.sign_s3_urls:
                raise NotSigned("this access point signs no URLs (SIGN_S3_URLS = False)")
            found = await asyncio.to_thread(_signed, ad, body, now, spooled=bool(job.cluster.spool))
        except NotSigned as error:
            raise web.HTTPUnprocessableEntity(text=str(error)) from error
        return web.json_response({"urls": found})

    def _limit(self, job: Job, attribute: str) -> int | None:
        """Bytes of content that the job may send or bring back; None: no limit."""
        settings, now = self.updates.settings, self.updates.now()
        knob = settings.max_transfer_input_mb if attribute == INPUT else settings.max_transfer_output_mb
        return limit_of(full_ad(self.updates.name, job, now), attribute, knob, now)

    def _input_sources(self, job: Job) -> list[Source]:
        if job.cluster.spool:
            shared, own, _ = spool.spool_dirs(self.updates.spool, job)
            return spool.spooled_sources(shared, own)
        return input_sources(full_ad(self.updates.name, job, self.updates.now()))

    async def _output(self, request: web.Request) -> web.StreamResponse:
        job, run = self._run(request)
        key = (job.id, run.attempt)
        if run.output:
            return web.Response(headers={"X-Roost-Repeated": "1"})
        if key in self._receiving:
            raise web.HTTPServiceUnavailable(text="this output is being received already")
        self._receiving.add(key)
        run.output_began = run.output_began or self.updates.now()
        try:
            async with self.turns.going(job, run, "output", size_told(request.headers), tell="Output") as moved:
                await self._receive(request, job, run, moved)
        except NoRoom as error:
            # Not the job's fault: its output stays where it is until there is room.
            self.updates.context.log.warning("output_waits_for_room", job_id=str(job.id), reason=str(error))
            await _discard_rest(request)
            raise web.HTTPServiceUnavailable(text=str(error)) from error
        except ConnectionResetError as error:
            # Whoever sends broke off; nobody reads this answer.
            raise web.HTTPBadRequest(text="the output broke off") from error
        except TooLarge as error:
            await _discard_rest(request)
            raise _too_large(f"{OUTPUT}: {error}", self._limit(job, OUTPUT)) from error
        except (TransferError, ValueError) as error:  # ValueError: a zero byte in a path
            await _discard_rest(request)
            raise web.HTTPUnprocessableEntity(text=str(error)) from error
        finally:
            self._receiving.discard(key)
        return web.Response()

    async def _receive(self, request: web.Request, job: Job, run: Shadow, moved: Moved) -> None:
        incoming = self.updates.spool / "incoming"
        await asyncio.to_thread(private_files.make_directory, incoming)
        async with self._taking(request, incoming, self._limit(job, OUTPUT), moved) as extraction:
            entries = extraction.finish()
            self.counts.bytes.add("output", count=sum(entry.size for entry in entries))
            moves = await asyncio.to_thread(self._places, job, entries)
            if job.shadow is not run:
                raise TransferError("the run is over; its output is not wanted any more")
            # From here on it is this run's output, whatever happens.
            plan = msgpack.packb([[m.name, m.target, m.directory] for m in moves])
            self.updates.queue.put_output(job.id, run.attempt, msgpack.packb([str(extraction.staging), plan]))
            await self.updates.commit()
            try:
                await asyncio.to_thread(put_in_place, extraction.staging, moves, begun=False)
            except TransferError:
                self.updates.queue.drop_output(job.id)
                raise
            self._arrived(job.id, run)
            await self.updates.commit()

    async def _last_checkpoint(self, request: web.Request) -> web.StreamResponse:
        job, run = self._run(request)
        sources = await asyncio.to_thread(checkpoints.sources, self.updates.spool, job)
        async with self.turns.going(job, run, "input"):
            return await _stream(request, sources, self.counts)

    async def _checkpoint(self, request: web.Request) -> web.StreamResponse:
        """Take a checkpoint: it is the job's once its number is committed, and the one before it goes then."""
        job, run = self._run(request)
        key = (job.id, run.attempt)
        if key in self._receiving:
            raise web.HTTPServiceUnavailable(text="files of this run are being received already")
        self._receiving.add(key)
        try:
            async with self.turns.going(job, run, "output", size_told(request.headers)):
                await self._keep_checkpoint(request, job, run)
        except NoRoom as error:
            self.updates.context.log.warning("checkpoint_waits_for_room", job_id=str(job.id), reason=str(error))
            await _discard_rest(request)
            raise web.HTTPServiceUnavailable(text=str(error)) from error
        except ConnectionResetError as error:
            raise web.HTTPBadRequest(text="the checkpoint broke off") from error
        except TooLarge as error:
            await _discard_rest(request)
            raise _too_large(f"{OUTPUT}: {error}", self._limit(job, OUTPUT)) from error
        except (TransferError, OSError, ValueError) as error:
            await _discard_rest(request)
            raise web.HTTPUnprocessableEntity(text=str(error)) from error
        finally:
            self._receiving.discard(key)
        return web.Response()

    async def _keep_checkpoint(self, request: web.Request, job: Job, run: Shadow) -> None:
        updates, spool_folder = self.updates, self.updates.spool
        incoming = spool_folder / "incoming"
        await asyncio.to_thread(private_files.make_directory, incoming)
        async with self._taking(request, incoming, self._limit(job, OUTPUT)) as extraction:
            entries = extraction.finish()
            ad = unparse_old(full_ad(updates.name, job, updates.now(), updates.settings.rights.private).public())
            number = await asyncio.to_thread(checkpoints.put_by, spool_folder, job.id, extraction.staging, ad)
        if job.shadow is not run or self.table.get(job.id) is not job:
            raise TransferError("the run is over; its checkpoint is not wanted any more")
        await checkpoint_cleanup.keep(updates, job, number)
        self.counts.bytes.add("checkpoint", count=sum(entry.size for entry in entries))
        updates.context.log.info("checkpoint_kept", job_id=str(job.id), attempt=run.attempt, number=number)

    async def _piece(self, request: web.Request) -> web.StreamResponse:
        """A piece of what the job says, for its file. What is refused travels with the other output, and is judged
        then."""
        job, run = self._run(request)
        at = request.query.get("at", "")
        attribute = {"out": "Out", "err": "Err"}.get(request.match_info["name"])
        if attribute is None or run.output or not at.isdigit() or len(at) > 18:
            raise web.HTTPNotFound(text="there is no such stream, or it is over")
        piece = await _body(request, "a piece", PIECE_BYTES)
        limit = self._limit(job, OUTPUT)
        if limit is not None and int(at) + len(piece) > limit:
            raise _too_large(f"{OUTPUT}: {limit} bytes", limit)
        last = request.query.get("last") == "1"
        try:
            await asyncio.to_thread(self._write_piece, job, attribute, int(at), piece, last)
        except OutOfStep as error:
            return web.Response(status=OUT_OF_STEP, headers={SIZE_HEADER: str(error.size)})
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise web.HTTPServiceUnavailable(text=f"the disk has no room: {error.strerror}") from error
            raise web.HTTPUnprocessableEntity(text=str(error)) from error
        except (TransferError, ValueError) as error:  # ValueError: a zero byte in a path
            raise web.HTTPUnprocessableEntity(text=str(error)) from error
        self.counts.bytes.add("output", count=len(piece))
        return web.Response()

    def _write_piece(self, job: Job, attribute: str, at: int, piece: bytes, last: bool) -> None:
        name = {"Out": STDOUT, "Err": STDERR}[attribute]
        moves = self._places(job, [Entry(name, "file", len(piece))])
        if not moves:
            raise TransferError(f"{attribute} of the job names no file")
        write_piece(Path(moves[0].target), at, piece, last=last)

    @contextlib.asynccontextmanager
    async def _taking(
        self, request: web.Request, directory: Path, limit_bytes: int | None, moved: Moved = nothing
    ) -> AsyncIterator[Extraction]:
        """The bundle of a request, received in a directory of its own there: what exceeds the limit, or leaves the disk
        no reserve, is refused as it comes, and removed. Raises TransferError."""
        announced = request.content_length
        if limit_bytes is not None and announced is not None and announced > wire_bytes(limit_bytes):
            raise TooLarge(f"{announced} bytes are announced where the files may have {limit_bytes}")
        counts = self.counts
        async with receiving(directory, limit_bytes=limit_bytes) as extraction:
            began = time.perf_counter()
            async for chunk in request.content.iter_chunked(CHUNK):
                counts.net_read_s += (came := time.perf_counter()) - began
                lack = self.updates.queue.lacks_room(len(chunk))
                if lack:
                    raise NoRoom(f"the spool of the schedd is full: {lack}")
                await feed(extraction, chunk)
                counts.file_write_s += (began := time.perf_counter()) - came
                moved(len(chunk))
            yield extraction

    def _places(self, job: Job, entries: list[Entry]) -> list[Move]:
        ad = full_ad(self.updates.name, job, self.updates.now())
        if not job.cluster.spool:
            return output_moves(ad, entries, iwd=Path(ad.eval_string("Iwd") or "/"))
        # The client that fetches the files puts them to their places; here they keep their names.
        _, _, out = spool.spool_dirs(self.updates.spool, job)
        private_files.make_directory(out)
        for name in ("Out", "Err"):
            place = ad.eval_string(name)
            ad[name] = Path(place).name if place and place != NOWHERE else NOWHERE
        ad["TransferOutputRemaps"] = ""
        return output_moves(ad, entries, iwd=out)

    def _arrived(self, job_id: JobId, run: Shadow) -> None:
        run.output = True
        claim = self.updates.claims.claims.get(run.claim)
        if claim is not None:
            self.updates.queue.put_claim(claim)
        self.updates.queue.drop_output(job_id)

    async def recover(self) -> None:
        """Finish what a killed schedd had begun to put in place; throw away what it had only begun to receive.

        Before the endpoint listens: what comes in from then on must not be thrown away with it."""

        def plans(database: sqlite3.Connection) -> list[tuple[int, int, int, bytes]]:
            return [tuple(row) for row in rows(database, "SELECT cluster, proc, attempt, plan FROM outputs")]

        for cluster, proc, attempt, packed in await self.updates.queue.read(plans):
            staging, plan = msgpack.unpackb(packed)
            moves = [Move(*entry) for entry in msgpack.unpackb(plan)]
            job_id = output_of(cluster, proc)
            job = self.table.get(job_id)
            run = job.shadow if job is not None else None
            if run is not None and run.attempt == attempt:
                try:
                    await asyncio.to_thread(put_in_place, Path(staging), moves, begun=True)
                    self._arrived(job_id, run)
                except TransferError as error:
                    self.updates.context.log.warning("output_not_placed", job_id=str(job_id), reason=str(error))
                    self.updates.queue.drop_output(job_id)
            else:
                self.updates.queue.drop_output(job_id)
        await self.updates.commit()
        await asyncio.to_thread(shutil.rmtree, self.updates.spool / "incoming", True)
        await asyncio.to_thread(
            checkpoints.sweep, self.updates.spool, lambda job_id: self.table.get(job_id) is not None
        )

    # Spooled sandboxes

    def _granted(self, request: web.Request, *, spooled: bool = True) -> tuple[Cluster, JobId]:
        token = _token(request)
        grant = self._grants.get(token)
        name = request.match_info["job"]
        now = self.updates.context.clock.monotonic()
        if grant is None or grant.until < now or name not in (str(grant.job), str(grant.job.cluster)):
            raise web.HTTPForbidden(text="the token is wrong or too old; ask for a new one")
        job_id = JobId.parse(name)
        cluster = self.table.clusters.get(job_id.cluster)
        if cluster is None or (job_id.proc >= 0 and job_id.proc not in cluster.jobs):
            raise web.HTTPNotFound(text=self._no_such_job(cluster, job_id))
        if spooled and not cluster.spool:
            raise web.HTTPConflict(text=f"job {name} was not submitted with spooled files")
        if job_id.proc != grant.job.proc and grant.job.proc >= 0:
            raise web.HTTPForbidden(text="the token is for one job only")
        return cluster, job_id

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        cluster, job_id = self._granted(request)
        later = job_id.proc < 0 and cluster.factory is not None and "StageInFinish" not in cluster.ad
        waiting = _awaiting(cluster, job_id)
        if not waiting and not later:
            return web.Response(headers={"X-Roost-Repeated": "1"})
        target = spool.input_dir(self.updates.spool, job_id)
        limit = self._spool_limit(cluster, waiting)
        try:
            await asyncio.to_thread(target.mkdir, parents=True, exist_ok=True)
            with self.counts.measured("upload"):
                async with self._taking(request, target, limit) as extraction:
                    entries = extraction.finish()
                    await asyncio.to_thread(extraction.move_in)
            self.counts.bytes.add("upload", count=sum(entry.size for entry in entries))
        except TooLarge as error:
            await _discard_rest(request)
            raise _too_large(f"{error} (the job's {INPUT}, or ROOST_SCHEDD_MAX_SPOOLED_MB)", limit) from error
        except NoRoom as error:
            await _discard_rest(request)
            raise web.HTTPServiceUnavailable(text=f"the spool of the schedd is full: {error}") from error
        except (TransferError, OSError) as error:
            await _discard_rest(request)
            raise web.HTTPUnprocessableEntity(text=str(error)) from error
        stamp = int(self.updates.now())
        if later and self.table.clusters.get(cluster.id) is cluster:
            # Jobs that are materialized from now on find their files here.
            cluster.ad["StageInFinish"] = stamp
            cluster.changed()
            self.updates.save_factory(cluster)
            waiting = _awaiting(cluster, job_id)
            self.table.note_due(cluster)
        for job in waiting:
            if job.status == JobStatus.HELD and self.table.get(job.id) is job:
                job.ad["StageInFinish"] = stamp
                self.updates.happen(job, JobEvent.RELEASE, reason="Its input files have arrived")
                if (held := held_once_spooled(job.ad)) is not None:
                    self.updates.happen(job, JobEvent.HOLD, reason=held.reason, code=held.code, subcode=held.subcode)
        await self.updates.commit()
        return web.Response()

    def _spool_limit(self, cluster: Cluster, waiting: list[Job]) -> int | None:
        """Bytes that the input of a spooled submit may have: what its jobs may take along, and what the pool allows.
        waiting: the jobs that it is for; none where they are still to be materialized."""
        settings, now = self.updates.settings, self.updates.now()
        ads = [full_ad(self.updates.name, job, now) for job in waiting[:1]] or [cluster.ad]
        asked = [limit_of(ad, INPUT, settings.max_transfer_input_mb, now) for ad in ads]
        return lowest(of_mib(settings.max_spooled_mb), *asked)

    def _no_such_job(self, cluster: Cluster | None, job_id: JobId) -> str:
        factory = cluster.factory if cluster is not None else None
        if cluster is not None and factory is not None and cluster.next_proc <= job_id.proc < factory.total:
            return f"job {job_id} is not materialized yet; files of such jobs are sent once for the whole cluster"
        return f"job {job_id if job_id.proc >= 0 else job_id.cluster} is not in the queue (any more)"

    def _one_job(self, request: web.Request, *, spooled: bool = True) -> Job:
        cluster, job_id = self._granted(request, spooled=spooled)
        if job_id.proc < 0:
            raise web.HTTPBadRequest(text=f"name one job of the cluster, for instance {job_id.cluster}.0")
        return cluster.jobs[job_id.proc]

    async def _list(self, request: web.Request) -> web.StreamResponse:
        _, _, out = spool.spool_dirs(self.updates.spool, self._one_job(request))
        return web.json_response(await asyncio.to_thread(spool.listing, out))

    async def _one_file(self, request: web.Request) -> web.StreamResponse:
        _, _, out = spool.spool_dirs(self.updates.spool, self._one_job(request))
        return await _file(out, out / request.match_info["path"].lstrip("/"))

    async def _log(self, request: web.Request) -> web.StreamResponse:
        job = self._one_job(request, spooled=False)
        path = self.updates.entries.path(job)
        if not path:
            raise web.HTTPNotFound(text=f"job {job.id} has no log: its submit file names none (log = FILE)")
        return await _file(Path(path).parent, Path(path))

    async def _download(self, request: web.Request) -> web.StreamResponse:
        job = self._one_job(request)
        _, _, out = spool.spool_dirs(self.updates.spool, job)
        try:
            sources = await asyncio.to_thread(spool.spooled_sources, out, out)
            size = await asyncio.to_thread(check_sources, sources)
        except (TransferError, OSError) as error:
            raise web.HTTPUnprocessableEntity(text=str(error)) from error
        with self.counts.measured("download"):
            response = await _stream(request, sources, self.counts)
        self.counts.bytes.add("download", count=size)
        if job.status == JobStatus.COMPLETED and self.table.get(job.id) is job:
            job.ad["StageOutFinish"] = int(self.updates.now())
            self.updates.queue.put(job)
            self.updates.commit()
        return response


def _signed(ad: ClassAd, body: bytes, now: float, *, spooled: bool) -> dict[str, str]:
    """Raises NotSigned."""
    try:
        asked = json.loads(body)
        method, urls = asked["method"], asked["urls"]
    except (ValueError, KeyError, TypeError):
        raise NotSigned("the request names no method and urls") from None
    if method not in ("GET", "PUT") or not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
        raise NotSigned("the method is GET or PUT, and urls are texts")
    return sign(ad, method, urls, now, spooled=spooled)


def _awaiting(cluster: Cluster, job_id: JobId) -> list[Job]:
    """The job, or the cluster's jobs, that wait on hold for their input files."""
    jobs = cluster.jobs.made() if job_id.proc < 0 else [cluster.jobs[job_id.proc]]  # who is packed waits for no files
    return [
        job for job in jobs if job.status == JobStatus.HELD and job.ad.eval("HoldReasonCode") == Hold.SPOOLING_INPUT
    ]


async def _body(request: web.Request, what: str, most: int) -> bytes:
    """The whole body of a request."""
    body = bytearray()
    async for chunk in request.content.iter_chunked(CHUNK):
        body += chunk
        if len(body) > most:
            raise _too_large(f"{what} has up to {most} bytes", most)
    return bytes(body)


def _token(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


async def _discard_rest(request: web.Request) -> None:
    """Read on for a while after a refusal: a client that is still sending would see a broken connection, and not the
    reason."""
    left = MAX_DISCARDED
    try:
        async with asyncio.timeout(DISCARD_S):
            async for chunk in request.content.iter_chunked(CHUNK):
                left -= len(chunk)
                if left < 0:
                    return
    except TimeoutError:
        return


async def _file(within: Path, path: Path) -> web.StreamResponse:
    """One file, if it is there and really lies in that directory."""
    try:
        found = await asyncio.to_thread(spool.plain_file, within, path)
    except (OSError, ValueError):  # ValueError: a zero byte in a path
        found = None
    if found is None:
        raise web.HTTPNotFound(text=f"there is no file {path.name[:200]} (yet)")
    return web.FileResponse(found, headers={"Content-Type": "application/octet-stream"})


def _too_large(text: str, limit: int | None) -> web.HTTPRequestEntityTooLarge:
    return web.HTTPRequestEntityTooLarge(max_size=limit or 0, actual_size=0, text=text)


async def _stream(
    request: web.Request,
    sources: list[Source],
    counts: TransferCounts,
    limit: int | None = None,
    moved: Moved = nothing,
) -> web.StreamResponse:
    bundle: AsyncIterator[bytes] = write_bundle(sources, limit_bytes=limit)
    response = web.StreamResponse(headers={"Content-Type": "application/x-tar"})
    await response.prepare(request)
    began = time.perf_counter()
    try:
        async for chunk in bundle:
            counts.file_read_s += (read := time.perf_counter()) - began
            await response.write(chunk)
            counts.net_write_s += (began := time.perf_counter()) - read
            moved(len(chunk))
    except TransferError:
        # The header is out: only a connection that breaks tells the other side that this is no whole bundle.
        if request.transport is not None:
            request.transport.abort()
        raise
    await response.write_eof()
    return response


def put_in_place(staging: Path, moves: list[Move], *, begun: bool) -> None:
    """Move received members to their places. `begun`: this was cut off before, so what is no longer in `staging` is in
    place already. Raises TransferError."""
    for move in moves:
        source, target = staging / move.name, Path(move.target)
        try:
            if move.directory:
                target.mkdir(exist_ok=True)
                continue
            if begun and not os.path.lexists(source):
                continue
            if target.exists():
                mode = target.stat().st_mode
                if not stat.S_ISREG(mode):
                    kind = "a directory" if stat.S_ISDIR(mode) else "no regular file"
                    raise TransferError(f"{move.name}: {target} is {kind}; it is not replaced")
            _replace(source, target)
        except OSError as error:
            raise TransferError(f"{move.name}: cannot be written to {target}: {error.strerror}") from error


def _replace(source: Path, target: Path) -> None:
    try:
        os.replace(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # Another file system: copied beside its place first, so that nobody ever sees half a file.
        descriptor, name = tempfile.mkstemp(prefix=".roost-", dir=target.parent)
        os.close(descriptor)
        os.unlink(name)
        shutil.copy2(source, name, follow_symlinks=False)
        os.replace(name, target)
        source.unlink()
