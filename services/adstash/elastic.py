"""Exports documents to Elasticsearch or OpenSearch, over HTTP.

A document's id follows from the job, and documents are created, never overwritten: a document that is sent twice,
because an answer was lost or the exporter was killed, is there once. What the server can not take at the moment is sent
again, with growing pauses; what it refuses for good is sent once more without attributes that only the job's user
knows, as these fail most often, and else left out and counted.
"""

from __future__ import annotations

import base64
import contextlib
import json
import random
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import structlog

from services.adstash.core.bulk import TRANSIENT, BadAnswer, Outcome, bodies, read, reason_of
from services.adstash.core.documents import Document, mappings, settings
from services.adstash.target import Counts, TargetRefuses, TargetUnavailable
from shared.backoff import LEAST_PART, wait_s
from shared.daemon.clock import Clock

#: Times that a request is made, and the longest pause between two, seconds: some two minutes in all.
ATTEMPTS: Final = 9
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
_ANSWER_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Server:
    """The server. url: without a slash at its end; password: with `user`."""

    url: str
    index: str
    user: str = ""
    password: str = ""
    ca_file: str = ""
    timeout_s: float = 120.0


class Elastic:
    """The server as a target."""

    def __init__(self, where: Server, clock: Clock, log: structlog.stdlib.BoundLogger) -> None:
        self.where, self.clock, self.log = where, clock, log
        self.counts = Counts()
        self._http: aiohttp.ClientSession | None = None
        self._ready = False

    async def open(self) -> None:
        """Make the index with its fields, or add those that it lacks (MON-17, MON-18)."""
        if self._ready:
            return
        index = f"/{self.where.index}"
        status, answer = await self._ask("HEAD", index)
        if status == 404:
            body = {"settings": settings(), "mappings": mappings()}
            status, answer = await self._ask("PUT", index, body)
            if status >= 300 and "resource_already_exists" not in reason_of(answer):
                raise TargetRefuses(f"index {self.where.index} can not be made: {self._said(status, answer)}")
            self.log.info("index_made", index=self.where.index)
        elif status >= 300:
            raise TargetRefuses(f"index {self.where.index}: {self._said(status, answer)}")
        else:
            status, answer = await self._ask("PUT", f"{index}/_mapping", mappings())
            if status >= 300:  # somebody's own index: its fields are theirs
                self.log.warning("fields_not_set", index=self.where.index, reason=self._said(status, answer))
        self._ready = True

    async def begin(self, source: str, number: int) -> None:
        pass

    async def put(self, documents: Sequence[Document]) -> None:
        refused: list[tuple[Document, str]] = []
        for body, chosen in bodies(self.where.index, documents):
            refused += await self._put(body, chosen)
        if not refused:
            return
        for one, reason in refused:
            bare = one.bare()
            still = [(one, reason)]
            if bare.fields != one.fields:
                before = self.counts.exported
                for body, chosen in bodies(self.where.index, [bare]):
                    still = await self._put(body, chosen)
                self.counts.bare += self.counts.exported - before
            for _, why in still:
                self.counts.refused += 1
                self.counts.reason = why
                self.log.error("record_refused", document=one.id, reason=why)

    async def _put(self, body: bytes, documents: Sequence[Document]) -> list[tuple[Document, str]]:
        """Send until none is to be sent again; returns what is refused."""
        refused: list[tuple[Document, str]] = []
        sent, reason = list(documents), ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await self._pause(attempt, "")
                body = b"".join(part for part, _ in bodies(self.where.index, sent))
            status, answer = await self._ask("POST", "/_bulk", body)
            if status == 413 and len(sent) > 1:
                half = len(sent) // 2
                for some in (sent[:half], sent[half:]):
                    for part, chosen in bodies(self.where.index, some):
                        refused += await self._put(part, chosen)
                return refused
            if status == 413:
                return [*refused, (sent[0], "the server takes no document as large as this")]
            if status >= 300:
                raise TargetRefuses(f"_bulk: {self._said(status, answer)}")
            try:
                outcome: Outcome = read(answer, sent)
            except BadAnswer as error:
                raise TargetUnavailable(str(error)) from error
            self.counts.exported += outcome.created
            self.counts.there += outcome.there
            refused += outcome.refused
            sent, reason = outcome.again, outcome.reason
            if not sent:
                return refused
        raise TargetUnavailable(f"{self.where.url} does not take {len(sent)} records: {reason}")

    async def commit(self) -> None:
        pass

    async def close(self) -> None:
        if self._http is not None:
            await self._http.close()
            self._http = None

    # --- HTTP

    async def _ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """(status, answer); tried again while the server is away or says that it can not now. Raises
        TargetUnavailable."""
        reason, wait = "", ""
        for attempt in range(ATTEMPTS):
            if attempt:
                await self._pause(attempt, wait)
            wait = ""
            try:
                status, answer, wait = await self._once(method, path, body)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                reason = str(error) or type(error).__name__
                continue
            if status not in TRANSIENT:
                return status, answer
            reason = self._said(status, answer)
        self._ready = False  # who comes back may have lost the index
        raise TargetUnavailable(f"{self.where.url} does not answer: {reason}")

    async def _once(self, method: str, path: str, body: Any) -> tuple[int, Any, str]:
        headers = {"Content-Type": "application/x-ndjson" if isinstance(body, bytes) else "application/json"}
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        async with self._session().request(
            method, f"{self.where.url}{path}", data=data, headers=headers if data is not None else None
        ) as response:
            raw = await response.content.read(_ANSWER_BYTES) if method != "HEAD" else b""
            while chunk := (await response.content.read(1 << 16) if method != "HEAD" else b""):
                raw += chunk
                if len(raw) > _ANSWER_BYTES:
                    break
            answer: Any = raw.decode(errors="replace")
            with contextlib.suppress(ValueError):
                answer = json.loads(raw)
            return response.status, answer, response.headers.get("Retry-After", "")

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            where = self.where
            tls: ssl.SSLContext | bool = True
            if where.ca_file:
                try:
                    tls = ssl.create_default_context(cafile=where.ca_file)
                except (OSError, ssl.SSLError) as error:
                    raise TargetRefuses(f"ADSTASH_SE_CA_CERTS: {where.ca_file}: {error}") from error
            self._http = aiohttp.ClientSession(
                headers={"Authorization": f"Basic {_basic(where)}"} if where.user else None,
                connector=aiohttp.TCPConnector(ssl=tls),
                timeout=aiohttp.ClientTimeout(total=where.timeout_s),
            )
        return self._http

    async def _pause(self, attempt: int, wait: str) -> None:
        pause = wait_s(attempt, _FIRST_PAUSE_S, _LONGEST_PAUSE_S) * random.uniform(LEAST_PART, 1.0)
        if wait.isascii() and wait.isdigit():
            pause = min(_LONGEST_PAUSE_S, max(pause, float(wait)))
        await self.clock.sleep(pause)

    def _said(self, status: int, answer: Any) -> str:
        mend = {
            401: "; set ADSTASH_SE_USERNAME and ADSTASH_SE_PASSWORD_FILE",
            403: f"; {self.where.user or 'the user'} may not do this: grant create_index and write on the index",
        }.get(status, "")
        return f"HTTP {status} {reason_of(answer)}{mend}".strip()


def _basic(where: Server) -> str:
    return base64.b64encode(f"{where.user}:{where.password}".encode()).decode()
