"""The pool as a Python object, for asyncio: what `roost.client.Client` does, awaited. Requests and answers are made and
read in `roost.calls`; here they are only carried.

    async with AsyncClient() as client:
        cluster = await client.submit({"executable": "/bin/sleep", "arguments": "60"}, count=10)
        async for ad in client.jobs(str(cluster.cluster)):
            ...

Longer than most modules: as `roost.client`, it is the list of all that can be asked of a pool.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp

from roost import calls
from roost.calls import Call, Cluster, Event, File, Lines, Pages, Pause, Plan, Send, T, TokenMade
from roost.errors import ClientError
from roost.job import AsyncJob
from roost.where import find
from shared.classad import ClassAd

if TYPE_CHECKING:
    from roost.aiovisit import AsyncVisit
    from roost.functions import AsyncFunctionJob
    from shared.classad.sheet import Sheet


class AsyncClient:
    """Asynchronous client of one gateway; any number of requests at a time. Raises ClientError for everything that goes
    wrong. To be closed, or used with `async with`."""

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout: float = 60.0) -> None:
        where = find(url, token)
        self.url = where.url
        self._token = where.token
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    # --- questions

    async def pool(self) -> dict[str, Any]:
        return dict(await self._json("GET", "/v1/pool"))

    async def whoami(self) -> dict[str, Any]:
        return dict(await self._json("GET", "/v1/whoami"))

    async def schedd(self, name: str = "") -> dict[str, Any]:
        return dict(await self._json("GET", "/v1/schedd", {"name": name}))

    def ads(
        self,
        *types: str,
        constraint: str = "",
        projection: Sequence[str] = (),
        limit: int = 0,
        absent: bool = False,
    ) -> AsyncIterator[ClassAd]:
        """Ads from the collector."""
        return self._pages(calls.ads(types, constraint, projection, limit, absent))

    async def sheet(
        self, *types: str, projection: Sequence[str], constraint: str = "", limit: int = 0, absent: bool = False
    ) -> Sheet:
        """The same as `ads` with few attributes of very many ads, in columns: see Client.sheet."""
        return await self._sheet([calls.ads(types, constraint, projection, limit, absent, columns=True)])

    async def job_sheet(
        self, *ids: str, projection: Sequence[str], constraint: str = "", schedd: str = "", limit: int = 0
    ) -> Sheet:
        """The same as `jobs` with few attributes of very many jobs of the queue, in columns: see Client.job_sheet."""
        found = await self._sheet(
            calls.jobs(some, constraint, projection, schedd, limit, False, columns=True) for some in calls.some_ids(ids)
        )
        return found.taken(range(limit)) if 0 < limit < len(found) else found

    async def jobs(
        self,
        *ids: str,
        constraint: str = "",
        projection: Sequence[str] = (),
        schedd: str = "",
        limit: int = 0,
        history: bool = False,
    ) -> AsyncIterator[ClassAd]:
        """Job ads, by cluster and proc: see Client.jobs."""
        left = limit
        for some in calls.some_ids(ids):
            async with aclosing(self._pages(calls.jobs(some, constraint, projection, schedd, left, history))) as pages:
                async for ad in pages:
                    yield ad
                    left -= 1 if limit else 0
            if limit and left <= 0:
                return

    async def factories(
        self,
        *ids: str,
        constraint: str = "",
        projection: Sequence[str] = (),
        schedd: str = "",
        limit: int = 0,
    ) -> AsyncIterator[ClassAd]:
        """Clusters whose jobs come into the queue some at a time: see Client.factories."""
        for some in calls.some_ids(ids):
            asked = calls.jobs(some, constraint, projection, schedd, limit, False, factories=True)
            async with aclosing(self._pages(asked)) as pages:
                async for ad in pages:
                    if "ProcId" not in ad:
                        yield ad

    def job(self, job_id: str, schedd: str = "") -> AsyncJob:
        """One job, "12.3", to be asked and acted on. Nothing is asked yet."""
        return AsyncJob(self, job_id, schedd)

    async def hads(self) -> list[dict[str, Any]]:
        return list((await self._json("GET", "/v1/had"))["hads"])

    async def job_totals(self, schedd: str = "") -> dict[str, int]:
        """Jobs in the queue by status name."""
        return dict(await self._json("GET", "/v1/jobs/totals", {"schedd": schedd}))

    async def priorities(
        self, negotiator: str = "", *, submitters: Sequence[str] = (), active_since: float = 0.0
    ) -> list[ClassAd]:
        """Accounting ads of groups and submitters."""
        return [ad async for ad in self._pages(calls.priorities(negotiator, submitters, active_since))]

    async def groups(self, negotiator: str = "") -> list[dict[str, Any]]:
        """The tree of accounting groups."""
        return list((await self._json("GET", "/v1/groups", {"negotiator": negotiator}))["groups"])

    async def config(
        self, *names: str, daemons: Sequence[str] = (), subsystems: Sequence[str] = (), pattern: str = ""
    ) -> list[dict[str, Any]]:
        """What running daemons go by."""
        return await self._do(calls.config(daemons, subsystems, names, pattern))

    async def analysis(
        self,
        *ids: str,
        constraint: str = "",
        schedd: str = "",
        machine: str = "",
        negotiator: str = "",
        limit: int = 20,
    ) -> dict[str, Any]:
        """Why jobs do not run and what would help."""
        return await self._do(calls.analysis(ids, constraint, schedd, machine, negotiator, limit))

    async def overview(self, part: str = "", **query: Any) -> dict[str, Any]:
        """What the pool's pages show (docs/api.md): `part` is the rest of the path, such as jobs or slots; none: the
        pool at a glance."""
        path = f"/v1/overview/{quote(part)}" if part else "/v1/overview"
        return dict(await self._json("GET", path, query))

    async def ad_totals(self, my_type: str, *by: str, constraint: str = "") -> list[dict[str, Any]]:
        """How many ads there are of each combination of values of some attributes: {"values": {name: value}, "ads": n},
        counted by the collector."""
        query = {"type": my_type, "by": ",".join(by), "constraint": constraint}
        return list((await self._json("GET", "/v1/ads/totals", query))["totals"])

    async def journal(self, what: str, **query: Any) -> dict[str, Any]:
        """What the journal knows (docs/journal.md)."""
        return dict(await self._json("GET", f"/v1/journal/{quote(what)}", query))

    async def pool_history(self, kind: str, **query: Any) -> dict[str, Any]:
        """How the pool stood: see Client.pool_history."""
        return dict(await self._json("GET", f"/v1/pool-history/{quote(kind)}", query))

    async def audit(self, limit: int = 100, *, user: str = "", operation: str = "") -> list[dict[str, Any]]:
        query = {"limit": limit, "user": user, "operation": operation}
        return list((await self._json("GET", "/v1/audit", query))["records"])

    async def dead_letters(self, limit: int = 100) -> list[dict[str, Any]]:
        return list(await self._json("GET", "/v1/dead-letters", {"limit": limit}))

    # --- deeds

    async def submit(
        self,
        what: ClassAd | Mapping[str, Any] | str | Path,
        procs: Iterable[ClassAd] | Callable[[int], Iterable[ClassAd]] | None = None,
        *,
        count: int | None = None,
        itemdata: Iterable[Mapping[str, Any]] | None = None,
        directory: str | Path | None = None,
        spool: bool | None = None,
        schedd: str = "",
        owner: str = "",
    ) -> Cluster:
        """Queue one cluster: see Client.submit."""
        if isinstance(what, ClassAd):
            if procs is None:
                raise ClientError("submit of a ClassAd takes the ads of its jobs too: submit(ad, [ClassAd()])")
            return await self._do(calls.submit(what, procs, bool(spool), schedd, owner))
        from roost import submitting

        description = submitting.read(what, count, itemdata, directory)
        return await self._do(submitting.submit(description, spool, schedd, owner))

    async def submit_function(
        self, function: Callable[..., Any], *args: Any, submit: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> AsyncFunctionJob:
        """Run a function of a module as a job, see roost.functions."""
        from roost import functions

        with functions.packed(function, args, kwargs, submit or {}) as (commands, directory):
            cluster = await self.submit(commands, directory=directory, spool=True)
        return functions.AsyncFunctionJob(self.job(f"{cluster.cluster}.0", cluster.schedd))

    async def act(
        self, action: str, ids: Sequence[str] = (), *, constraint: str = "", reason: str = "", schedd: str = ""
    ) -> dict[str, str]:
        """remove, hold, release, ... Returns what became of each job."""
        return await self._do(calls.act(action, ids, constraint, reason, schedd))

    async def edit(
        self, ids: Sequence[str], attributes: Mapping[str, str], *, constraint: str = "", schedd: str = ""
    ) -> dict[str, str]:
        """Change attributes of queued jobs: name -> ClassAd expression."""
        return await self._do(calls.edit(ids, attributes, constraint, schedd))

    async def set_priority(
        self, submitter: str, what: str, value: float | None = None, *, duration: float = 0.0, negotiator: str = ""
    ) -> None:
        await self._do(calls.set_priority(submitter, what, value, duration, negotiator))

    async def set_quota(
        self, group: str, quota: float | None = None, *, dynamic: float | None = None, negotiator: str = ""
    ) -> None:
        """Give an accounting group another quota than the configuration's: weighted slots, or with `dynamic` a part of
        the quota of the group above, 0 to 1. The next cycle goes by it."""
        await self._do(calls.set_quota(group, quota, dynamic, negotiator))

    async def unset_quota(self, group: str, *, negotiator: str = "") -> None:
        """Give an accounting group the configuration's quota again."""
        await self._do(calls.unset_quota(group, negotiator))

    async def set_config(
        self,
        macros: Mapping[str, str],
        *,
        unset: Sequence[str] = (),
        daemons: Sequence[str] = (),
        subsystems: Sequence[str] = (),
        everybody: bool = False,
        persistent: bool = False,
    ) -> list[dict[str, Any]]:
        """Set and unset macros of running daemons: see Client.set_config."""
        return await self._do(calls.set_config(macros, unset, daemons, subsystems, everybody, persistent))

    async def order(self, path: str, order: dict[str, Any]) -> list[dict[str, Any]]:
        """An order to daemons (/v1/daemons/..., /v1/machines/...): what each of them answered."""
        return list(await self._json("POST", path, {}, order))

    async def reschedule(self, negotiator: str = "") -> None:
        """Negotiate soon: all negotiators, or the one of that name."""
        await self._json("POST", "/v1/reschedule", {"negotiator": negotiator} if negotiator else None)

    async def dead_letters_requeue(self, ids: Sequence[str]) -> list[str]:
        return list((await self._json("POST", "/v1/dead-letters/requeue", {}, {"ids": list(ids)}))["done"])

    async def dead_letters_discard(self, ids: Sequence[str]) -> list[str]:
        return list((await self._json("POST", "/v1/dead-letters/discard", {}, {"ids": list(ids)}))["done"])

    async def create_token(
        self, user: str, level: str, *, label: str = "", lifetime_s: float = 0.0, scopes: Sequence[str] = ()
    ) -> str:
        return (await self.make_token(user, level, label=label, lifetime_s=lifetime_s, scopes=scopes)).token

    async def make_token(
        self, user: str, level: str, *, label: str = "", lifetime_s: float = 0.0, scopes: Sequence[str] = ()
    ) -> TokenMade:
        return await self._do(calls.create_token(user, level, label, lifetime_s, scopes))

    async def tokens(self, *, all: bool = False) -> list[dict[str, Any]]:
        return list(await self._json("GET", "/v1/tokens", {"all": str(all).lower()}))

    async def revoke_token(self, prefix: str) -> int:
        return int((await self._json("DELETE", f"/v1/tokens/{calls.part(prefix)}"))["revoked"])

    # --- files of spooled jobs

    async def upload(self, job_id: str, bundle: AsyncIterator[bytes] | Iterable[bytes], schedd: str = "") -> None:
        """Input files of a spooled job or cluster: the bytes of a bundle (shared.transfer)."""
        parts = bundle if isinstance(bundle, AsyncIterator) else _one_by_one(bundle)
        await self._bytes(Call("PUT", calls.files_path(job_id, schedd)), parts)

    def download(self, job_id: str, schedd: str = "") -> AsyncIterator[bytes]:
        """Output files of a spooled job: a bundle, to be read to its end."""
        return self._data(Call("GET", calls.files_path(job_id, schedd)))

    async def output_files(self, job_id: str, schedd: str = "") -> list[File]:
        return await self._do(calls.output_files(job_id, schedd))

    async def output(self, job_id: str, name: str, schedd: str = "") -> bytes:
        """One file of a spooled job's output."""
        return await self._bytes(Call("GET", calls.output_path(job_id, name, schedd)))

    async def log(self, job_id: str, schedd: str = "") -> bytes:
        """The log of a job, as its submit file named it."""
        return await self._bytes(Call("GET", calls.log_path(job_id, schedd)))

    # --- visits

    async def visit(self, job_id: str, wish: Mapping[str, Any], schedd: str = "") -> AsyncVisit:
        """Run a program beside a running job, or read its files while it runs: see `roost.aiovisit`. wish: kind (run or
        tail), and what shared.messages.visits.Wish has for it."""
        from roost.aiovisit import AsyncVisit

        return AsyncVisit(self, await self._do(calls.visit(job_id, wish, schedd)))

    def visit_output(self, name: str) -> AsyncIterator[bytes]:
        """The frames of a visit, to be read to their end (calls.Frames); who stops before leaves."""
        return self._data(calls.visit_output(name), read_s=calls.VISIT_QUIET_S)

    async def visit_input(self, name: str, start: int, data: bytes, *, eof: bool) -> dict[str, Any]:
        return dict(json.loads(await self._bytes(calls.visit_input(name, start, data, eof=eof))))

    async def visit_steer(self, name: str, **what: Any) -> None:
        await self._bytes(calls.visit_steer(name, what))

    # --- waiting

    async def wait(self, ids: Sequence[str], *, timeout: float | None = None, poll: float = 0.1) -> dict[str, int]:
        """Wait until these jobs have left the queue or are on hold: see Client.wait."""
        return await self._do(calls.wait(ids, timeout, poll))

    async def wait_states(self, ids: Sequence[str]) -> dict[str, int]:
        """JobStatus of each of these jobs, in the queue or out of it."""
        return await self._do(calls.wait_states(ids))

    async def events(
        self, *types: str, after: str = "", on_open: Callable[[], None] = lambda: None
    ) -> AsyncIterator[Event]:
        """Live events, for ever; once it has been open it reconnects by itself and goes on after the last event.
        `on_open` is called whenever the stream is open: from then on nothing is missed."""
        opened = False
        while True:
            lines, told = Lines(), False
            try:
                # The gateway says at least every 15 s that there is nothing new.
                async with self._asked(calls.events(types, after), read_s=60.0) as answer:
                    async for raw in answer.content:
                        if not told:  # the greeting: we are among the listeners now
                            opened = told = True
                            on_open()
                        event = lines.feed(raw)
                        if event is not None:
                            after = event.id
                            yield event
            except ClientError as error:
                if not (error.retryable and opened):
                    raise
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                if not opened:
                    raise calls.away(self.url, error) from error
            await asyncio.sleep(0.5)

    # --- the wire

    async def _do(self, plan: Plan[T]) -> T:
        """Carry out a plan of roost.calls, one step after the other."""
        try:
            step = next(plan)
            while True:
                try:
                    answer = await self._step(step)
                except ClientError as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _step(self, step: Call | Pause | Send) -> Any:
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Send):
            from shared.transfer.bundle import write_bundle

            return await self._bytes(Call("PUT", step.path), write_bundle(step.sources))
        if step.headers.get("Accept") == calls.MSGPACK:
            return [ad async for ad in self._pages(step)]
        return json.loads(await self._bytes(step))

    async def _json(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        return json.loads(await self._bytes(calls.call(method, path, query, body)))

    async def _bytes(self, call: Call, bundle: AsyncIterator[bytes] | None = None) -> bytes:
        async with self._asked(call, bundle) as answer:
            try:
                return await answer.read()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise calls.broken(self.url, error) from error

    async def _pages(self, call: Call) -> AsyncGenerator[ClassAd, None]:
        pages = Pages()
        async with aclosing(self._data(call)) as coming:
            async for data in coming:
                try:
                    for ad in pages.feed(data):
                        yield ad
                except ValueError as error:
                    raise calls.broken(self.url, error) from error

    async def _sheet(self, requests: Iterable[Call]) -> Sheet:
        from shared.classad.sheet import Sheet, reader

        found = Sheet()
        for call in requests:
            pages = reader()
            async for data in self._data(call):
                try:
                    pages.feed(data)
                    for page in pages:
                        found.add(page)
                except ValueError as error:
                    raise calls.broken(self.url, error) from error
        return found

    async def _data(self, call: Call, *, read_s: float | None = None) -> AsyncGenerator[bytes, None]:
        """The answer as it comes."""
        async with self._asked(call, read_s=read_s) as answer:
            try:
                async for data in answer.content.iter_any():
                    yield data
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise calls.broken(self.url, error) from error

    def _asked(self, call: Call, bundle: AsyncIterator[bytes] | None = None, *, read_s: float | None = None) -> _Answer:
        return _Answer(self, call, bundle, read_s or self._timeout)

    def _connections(self) -> aiohttp.ClientSession:
        """The connections, made in the loop that uses them first."""
        if self._session is None:
            self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {self._token}"})
        return self._session


async def _one_by_one(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for one in parts:
        yield one


class _Answer:
    """`async with` it: an answer that is no refusal. Who is told to come later does, for a while."""

    def __init__(self, client: AsyncClient, call: Call, bundle: AsyncIterator[bytes] | None, read_s: float) -> None:
        self._client = client
        self._call = call
        self._bundle = bundle
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=read_s, sock_read=read_s)
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> aiohttp.ClientResponse:
        call, url = self._call, self._client.url
        for tried in range(calls.TRIES + 1):
            try:
                response = await self._client._connections().request(
                    call.method,
                    url + call.path,
                    data=self._bundle if self._bundle is not None else call.body,
                    headers=dict(call.headers),
                    timeout=self._timeout,
                    allow_redirects=False,
                )
                text = b"" if response.status < 400 else await response.read()
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise calls.away(url, error) from error
            if response.status < 400:
                self._response = response
                return response
            retry_after = response.headers.get("Retry-After")
            wait = calls.patience(response.status, retry_after, tried) if self._bundle is None else 0.0
            if not wait:
                break
            await asyncio.sleep(wait)
        raise calls.refused(url, response.status, response.reason or "", text)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._response is not None
        if kind is None and self._response.content.at_eof():
            self._response.release()
        else:
            self._response.close()  # its reader stopped early: what is left must not be the next answer
