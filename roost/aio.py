"""The pool as a Python object, for asyncio: everything that can be asked of a pool.

    async with AsyncClient() as client:
        cluster = await client.submit({"executable": "/bin/sleep", "arguments": "60"}, count=10)
        async for ad in client.jobs(str(cluster.cluster)):
            ...

This is the one source of both clients: `roost.client` is made of it, without asyncio, by
`python -m tests.infrastructure.synchronous_client --write`, and a test holds that it is up to date. Lines that begin
with `# sync:` are for the synchronous client only. Requests and answers are made and read in `roost.protocol`, and
carried by `roost.aio_transport` and `roost.transport`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload
from urllib.parse import quote

from roost import protocol
from roost.aio_transport import AsyncBody, AsyncBundle, AsyncContent, AsyncTransport
from roost.dag_state import DagState, dag_state
from roost.errors import ClientError
from roost.job import JobHandle, Outcome, standard_output, tail_wish
from roost.locate import locate_gateway
from roost.protocol import Call, Cluster, Event, File, JoinToken, Lines, Pages, Pause, Plan, Send, T, TokenMade
from shared.classad import ClassAd

if TYPE_CHECKING:  # loaded where they are needed: most programs do without
    from roost.aio_visit import AsyncVisit
    from roost.submit import Description
    from shared.classad.column_page import Sheet

__all__ = ["AsyncClient", "AsyncFunctionJob", "AsyncJob", "Cluster", "Event", "File", "JoinToken", "TokenMade"]


class AsyncClient:
    """Asynchronous client of one gateway; any number of requests at a time. Raises ClientError for everything that goes
    wrong. To be closed, or used with `async with`. ca_file: the authority that vouches for a gateway with https, unless
    ROOST_CA_FILE names one. url: several, with commas between them, are gateways of one pool: when the one in use dies
    or hangs, requests go to the next one that answers, within 2 s."""

    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout: float = 60.0, ca_file: str = ""
    ) -> None:
        where = locate_gateway(url, token)
        self.url = where.url
        self._transport = AsyncTransport(
            where.url, where.token, timeout, where.socket, ca_file or where.ca_file, where.others
        )

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    # --- questions

    async def pool(self) -> dict[str, Any]:
        return dict(await self._json("GET", "/v1/pool"))

    async def whoami(self) -> dict[str, Any]:
        return dict(await self._json("GET", "/v1/whoami"))

    async def schedd(self, name: str = "") -> dict[str, Any]:
        """What a client must know of a schedd before submitting: name, host_id, uid, release."""
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
        return self._pages(protocol.ads(types, constraint, projection, limit, absent))

    async def sheet(
        self, *types: str, projection: Sequence[str], constraint: str = "", limit: int = 0, absent: bool = False
    ) -> Sheet:
        """The same as `ads` with few attributes of very many ads: they come and stay in columns, and can be read as
        ads too."""
        return await self._sheet([protocol.ads(types, constraint, projection, limit, absent, columns=True)])

    async def job_sheet(
        self, *ids: str, projection: Sequence[str], constraint: str = "", schedd: str = "", limit: int = 0
    ) -> Sheet:
        """The same as `jobs` with few attributes of very many jobs of the queue: they come and stay in columns, and can
        be read as ads too."""
        found = await self._sheet(
            protocol.jobs(some, constraint, projection, schedd, limit, False, columns=True)
            for some in protocol.some_ids(ids)
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
        epochs: bool = False,
    ) -> AsyncIterator[ClassAd]:
        """Job ads, by cluster and proc; `history`: jobs that left the queue, newest first; `epochs`: in place of jobs
        an ad for each of their runs that is over, newest first, with RunInstanceId and EpochWriteDate. Very many ids
        are asked for in several requests, and come in the order of these."""
        left = limit
        for some in protocol.some_ids(ids):
            async with aclosing(
                self._pages(protocol.jobs(some, constraint, projection, schedd, left, history, epochs=epochs))
            ) as pages:
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
        """Clusters whose jobs come into the queue some at a time (late materialization), with how far they are: ads
        without ProcId. ids: "12"."""
        for some in protocol.some_ids(ids):
            asked = protocol.jobs(some, constraint, projection, schedd, limit, False, factories=True)
            async with aclosing(self._pages(asked)) as pages:
                async for ad in pages:
                    if "ProcId" not in ad:
                        yield ad

    def job(self, job_id: str, schedd: str = "") -> AsyncJob:
        """One job, "12.3", to be asked and acted on: see AsyncJob. Nothing is asked yet."""
        return AsyncJob(self, job_id, schedd)

    async def pools(self) -> list[dict[str, Any]]:
        """This pool, which has no name here, and those that its gateway is told to ask, a line each: GET /v1/pools."""
        return list((await self._json("GET", "/v1/pools"))["pools"])

    async def hads(self) -> list[dict[str, Any]]:
        """How each HAD stands: shared.messages.had.HadStanding, and `silent`: why one does not answer."""
        return list((await self._json("GET", "/v1/had"))["hads"])

    async def daemons_health(self) -> dict[str, Any]:
        """How daemons do and what waits in their queues: docs/api.md, /v1/daemons/health."""
        return dict(await self._json("GET", "/v1/daemons/health"))

    async def attention(self) -> dict[str, Any]:
        """What needs attention, as the dashboard's overview shows it: `findings`, and `hidden`, the parts that you may
        not see."""
        return dict(await self._json("GET", "/v1/attention"))

    async def job_totals(self, schedd: str = "", *, managers: bool = True) -> dict[str, int]:
        """Jobs in the queue by status name. managers: also those of the scheduler universe, which manage DAGs."""
        return dict(await self._json("GET", "/v1/jobs/totals", protocol.totals_query(schedd, managers)))

    async def priorities(
        self, negotiator: str = "", *, submitters: Sequence[str] = (), active_since: float = 0.0
    ) -> list[ClassAd]:
        """Accounting ads of groups and submitters. submitters: only these, in full or without their domain;
        active_since: only those who used something since then (seconds since 1970)."""
        return [ad async for ad in self._pages(protocol.priorities(negotiator, submitters, active_since))]

    async def groups(self, negotiator: str = "") -> list[dict[str, Any]]:
        """The tree of accounting groups: quotas, use and submitters of each."""
        return list((await self._json("GET", "/v1/groups", {"negotiator": negotiator}))["groups"])

    async def config(
        self, *names: str, daemons: Sequence[str] = (), subsystems: Sequence[str] = (), pattern: str = ""
    ) -> list[dict[str, Any]]:
        """What running daemons go by: one map for each daemon, with its `macros`. daemons: names or machines;
        subsystems: kinds such as SCHEDD. Without names what is set and fits the shell pattern."""
        return await self._do(protocol.config(daemons, subsystems, names, pattern))

    async def analysis(
        self,
        *ids: str,
        constraint: str = "",
        schedd: str = "",
        machine: str = "",
        negotiator: str = "",
        limit: int = 20,
    ) -> dict[str, Any]:
        """Why jobs do not run and what would help: {"jobs": reports, "slots": reports, "more": kinds of jobs left out}.
        Without ids and constraint idle jobs; with a slot or machine and no jobs what it would take of what waits."""
        return await self._do(protocol.analysis(ids, constraint, schedd, machine, negotiator, limit))

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
        """What the journal knows (docs/journal.md): `what` is the rest of the path, such as jobs/12.0 or series."""
        return dict(await self._json("GET", f"/v1/journal/{quote(what)}", query))

    async def pool_history(self, kind: str, **query: Any) -> dict[str, Any]:
        """How the pool stood, as its view server keeps it (docs/pool-history.md): kind is resources, platforms,
        submitters or users; name, from, to (seconds since 1970) and collector as the route takes them."""
        return dict(await self._json("GET", f"/v1/pool-history/{quote(kind)}", query))

    async def audit(self, limit: int = 100, *, user: str = "", operation: str = "") -> list[dict[str, Any]]:
        """Who changed what and who was refused, newest first."""
        query = {"limit": limit, "user": user, "operation": operation}
        return list((await self._json("GET", "/v1/audit", query))["records"])

    async def dead_letters(self, limit: int = 100) -> list[dict[str, Any]]:
        return list(await self._json("GET", "/v1/dead-letters", {"limit": limit}))

    # --- deeds

    @overload
    async def submit(
        self,
        what: ClassAd,
        procs: Iterable[ClassAd] | Callable[[int], Iterable[ClassAd]],
        *,
        spool: bool = False,
        schedd: str = "",
        owner: str = "",
    ) -> Cluster: ...

    @overload
    async def submit(
        self,
        what: Mapping[str, Any] | str | Path,
        procs: None = None,
        *,
        count: int | None = None,
        itemdata: Iterable[Mapping[str, Any]] | None = None,
        directory: str | Path | None = None,
        spool: bool | None = None,
        schedd: str = "",
        owner: str = "",
    ) -> Cluster: ...

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
        """Queue one cluster.

        what: commands of the submit language as a mapping ({"executable": "/bin/sleep", "arguments": "60"}), or as
        text, or the path of a submit file. count: jobs, for each of `itemdata` where there is one, whose values
        the commands name ($(name)). directory: what its file names are relative to; the working directory. spool: send
        the files and keep the output at the schedd; None: where schedd and client do not share their files. owner:
        whose jobs they are, for administrators.

        Or, lower down, the ClassAd that its jobs share, and `procs`: one ad a job of what differs, or a function that
        makes them of the cluster's number. Large clusters go in parts; nothing is visible before the last one is
        committed, and a part whose answer is lost may be sent again without harm.
        """
        if isinstance(what, ClassAd):
            if procs is None:
                raise ClientError("submit of a ClassAd takes the ads of its jobs too: submit(ad, [ClassAd()])")
            return await self._do(protocol.submit(what, procs, bool(spool), schedd, owner))
        from roost import submission  # the submit language: 30 ms that most commands do without

        description = submission.read(what, count, itemdata, directory)
        return await self._do(submission.submit(description, spool, schedd, owner))

    async def submit_once(self, what: ClassAd | Description, submit_id: str, *, schedd: str = "") -> Cluster:
        """Queue one cluster whose files are used where they lie, unless the schedd has had a submit of this id within a
        day: then the cluster is that one's. what: a description, or the ad of a single job."""
        if isinstance(what, ClassAd):
            return await self._do(protocol.submit(what, [ClassAd()], False, schedd, "", submit_id))
        from roost import submission

        cluster = submission.described(what)
        queued, _ = await self._do(submission.queue(what, cluster, False, schedd, submit_id=submit_id))
        return queued

    async def submit_function(
        self, function: Callable[..., Any], *args: Any, submit: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> AsyncFunctionJob:
        """Run a function of a module as a job, see roost.functions. submit: further commands for its job."""
        from roost import functions

        with functions.packed(function, args, kwargs, submit or {}) as (commands, directory):
            cluster = await self.submit(commands, directory=directory, spool=True)
        return AsyncFunctionJob(self.job(f"{cluster.cluster}.0", cluster.schedd))

    async def import_jobs(
        self,
        user: str,
        origin: str,
        cluster: int,
        cluster_ad: ClassAd,
        procs: Mapping[int, ClassAd],
        *,
        spool: bool = False,
        dry_run: bool = False,
        schedd: str = "",
    ) -> dict[str, Any]:
        """Take in jobs of one cluster of another access point's queue, all or none, for administrators. origin: names
        the cluster for good; procs: by ProcId, growing. `cluster`: its number here (0 in a dry run: the next one);
        `known`: jobs that came before; `direct`: whether jobs of this user use their files where they lie."""
        return await self._do(protocol.import_jobs(user, origin, cluster, cluster_ad, procs, spool, dry_run, schedd))

    async def act(
        self, action: str, ids: Sequence[str] = (), *, constraint: str = "", reason: str = "", schedd: str = ""
    ) -> dict[str, str]:
        """remove, hold, release, ... Returns what became of each job."""
        return await self._do(protocol.act(action, ids, constraint, reason, schedd))

    async def rerun(self, job_id: str, schedd: str = "") -> str:
        """Submit a job that left the queue once more, as it was. Returns the new job's id."""
        return await self._do(protocol.rerun(job_id, schedd))

    async def edit(
        self, ids: Sequence[str], attributes: Mapping[str, str], *, constraint: str = "", schedd: str = ""
    ) -> dict[str, str]:
        """Change attributes of queued jobs: name -> ClassAd expression (a text with its quotes: '"urgent"'). Returns
        what became of each job."""
        return await self._do(protocol.edit(ids, attributes, constraint, schedd))

    async def set_priority(
        self, submitter: str, what: str, value: float | None = None, *, duration: float = 0.0, negotiator: str = ""
    ) -> None:
        """Change one thing about a submitter (of all, with the name "", `reset-all`). duration: seconds after which the
        old factor, floor or ceiling comes back; 0: never."""
        await self._do(protocol.set_priority(submitter, what, value, duration, negotiator))

    async def import_accounts(
        self,
        accounts: Sequence[Mapping[str, Any]],
        *,
        until: float = 0.0,
        replacing: bool = False,
        dry_run: bool = False,
        negotiator: str = "",
    ) -> dict[str, Any]:
        """Take in whole records of another pool's accountant, all or none: name, priority, factor, usage,
        weighted_usage, begin, last, floor, ceiling. until: when they were charged last (s since 1970). Names by what
        became of them: taken, known, usual, and left with the reason."""
        return await self._do(protocol.import_accounts(accounts, until, replacing, dry_run, negotiator))

    async def set_quota(
        self, group: str, quota: float | None = None, *, dynamic: float | None = None, negotiator: str = ""
    ) -> None:
        """Give an accounting group another quota than the configuration's: weighted slots, or with `dynamic` a part of
        the quota of the group above, 0 to 1. The next cycle goes by it."""
        await self._do(protocol.set_quota(group, quota, dynamic, negotiator))

    async def unset_quota(self, group: str, *, negotiator: str = "") -> None:
        """Give an accounting group the configuration's quota again."""
        await self._do(protocol.unset_quota(group, negotiator))

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
        """Set and unset macros of running daemons, until they restart or for good: what each of them answered. It takes
        effect with `order("/v1/daemons/reconfig", ...)`. daemons: names or machines; subsystems: kinds; everybody: all
        of these kinds."""
        return await self._do(protocol.set_config(macros, unset, daemons, subsystems, everybody, persistent))

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

    async def credentials(self, schedd: str = "") -> list[dict[str, Any]]:
        """The services for which an access point keeps a token of this user, and since when (s since 1970)."""
        return list(await self._json("GET", "/v1/credentials", {"schedd": schedd}))

    async def store_credential(self, service: str, data: bytes, schedd: str = "") -> None:
        """Keep a token for jobs with use_oauth_services, in place of the one before."""
        await self._answer(protocol.store_credential(service, data, schedd))

    async def delete_credential(self, service: str, schedd: str = "") -> None:
        await self._json("DELETE", f"/v1/credentials/{protocol.part(service)}", {"schedd": schedd})

    async def create_token(
        self, user: str, level: str, *, label: str = "", lifetime_s: float = 0.0, scopes: Sequence[str] = ()
    ) -> str:
        return (await self.make_token(user, level, label=label, lifetime_s=lifetime_s, scopes=scopes)).token

    async def make_token(
        self, user: str, level: str, *, label: str = "", lifetime_s: float = 0.0, scopes: Sequence[str] = ()
    ) -> TokenMade:
        """A token for a user at a level. lifetime_s: 0 for ever; scopes: patterns of the operations that it opens
        (docs/api.md), none: all of its level."""
        return await self._do(protocol.create_token(user, level, label, lifetime_s, scopes))

    async def tokens(self, *, all: bool = False) -> list[dict[str, Any]]:
        """all: also those that were revoked."""
        return list(await self._json("GET", "/v1/tokens", {"all": str(all).lower()}))

    async def fetch_token(self, *, key: str = "", authorizations: Sequence[str] = (), lifetime_s: float = 0.0) -> str:
        """An IDTOKEN for yourself, signed with the pool's key. authorizations: READ, WRITE, ..., none: all that you
        have; lifetime_s 0: it does not expire."""
        asked = {"key": key, "authorizations": list(authorizations), "lifetime_s": lifetime_s}
        return str((await self._json("POST", "/v1/tokens/fetch", body=asked))["token"])

    async def revoke_token(self, prefix: str) -> int:
        return int((await self._json("DELETE", f"/v1/tokens/{protocol.part(prefix)}"))["revoked"])

    # --- identities of daemons

    async def create_join_token(
        self, roles: Sequence[str], names: str, *, uses: int = 1, lifetime_s: float = 3600.0
    ) -> JoinToken:
        """A join token: with it so many daemons of these roles, with names that fit a shell pattern, get users of the
        broker. lifetime_s: 0 for ever."""
        return await self._do(protocol.create_join_token(roles, names, uses, lifetime_s))

    async def enroll(self, token: str, role: str, name: str, password_hash: str) -> dict[str, Any]:
        """A user of the broker for a daemon, by a join token: `user`, and `amqp`, a list of URLs without user and
        password. password_hash: of a password that the caller made (shared.bus.definitions.password_hash)."""
        return await self._do(protocol.enroll(token, role, name, password_hash))

    async def identities(self) -> dict[str, list[dict[str, Any]]]:
        """Daemons with users of the broker (`identities`), and join tokens (`tokens`)."""
        return dict(await self._json("GET", "/v1/identities"))

    async def revoke_identity(self, name: str) -> dict[str, Any]:
        """Take away a user (`startd.node1`), those of all daemons of a name (`node1`), or a join token by its id: the
        `users` and the number of `tokens` that are gone."""
        return dict(await self._json("DELETE", f"/v1/identities/{protocol.part(name)}"))

    # --- files of spooled jobs

    async def upload(self, job_id: str, bundle: AsyncBundle, schedd: str = "") -> None:
        """Input files of a spooled job or cluster: the bytes of a bundle (shared.transfer)."""
        await self._transport.read(Call("PUT", protocol.files_path(job_id, schedd)), bundle)

    def download(self, job_id: str, schedd: str = "") -> AsyncBody:
        """Output files of a spooled job: a bundle to be read to its end."""
        return self._transport.body(Call("GET", protocol.files_path(job_id, schedd)))

    async def output_files(self, job_id: str, schedd: str = "") -> list[File]:
        """Which files a spooled job has brought back."""
        return await self._do(protocol.output_files(job_id, schedd))

    async def output(self, job_id: str, name: str, schedd: str = "") -> AsyncContent:
        """One file of a spooled job's output, to be read to its end."""
        return await self._transport.content(Call("GET", protocol.output_path(job_id, name, schedd)))

    async def log(self, job_id: str, schedd: str = "") -> bytes:
        """The log of a job, as its submit file named it."""
        return await self._transport.read(Call("GET", protocol.log_path(job_id, schedd)))

    # --- visits

    async def visit(self, job_id: str, wish: Mapping[str, Any], schedd: str = "") -> AsyncVisit:
        """Run a program beside a running job, or read its files while it runs: see AsyncVisit. wish: kind (run or
        tail), and what shared.messages.visits.Wish has for it."""
        from roost.aio_visit import AsyncVisit  # what most programs do without

        return AsyncVisit(self._transport, await self._do(protocol.visit(job_id, wish, schedd)))

    def visit_output(self, name: str) -> AsyncBody:
        """The frames of a visit (protocol.Frames), to be read to their end; who stops before leaves."""
        # The gateway says at least every 10 s that there is nothing new.
        return self._transport.body(protocol.visit_output(name), protocol.VISIT_QUIET_S)

    async def visit_input(self, name: str, start: int, data: bytes, *, eof: bool) -> dict[str, Any]:
        return dict(await self._answer(protocol.visit_input(name, start, data, eof=eof)))

    async def visit_steer(self, name: str, **what: Any) -> None:
        await self._transport.read(protocol.visit_steer(name, what))

    # --- waiting

    async def wait(
        self,
        ids: Sequence[str],
        *,
        timeout: float | None = None,
        poll: float = 0.1,
        tell: Callable[[Mapping[str, int]], None] = lambda states: None,
    ) -> dict[str, int]:
        """Wait until these jobs have left the queue or are on hold. Returns job id -> JobStatus (3 removed, 4
        completed, 5 held). Raises TimeoutError. A job that is at rest is not asked about again; who waits long looks
        less often, every second in the end. tell: called with what is known after each look."""
        return await self._do(protocol.wait(ids, timeout, poll, tell))

    async def wait_states(self, ids: Sequence[str]) -> dict[str, int]:
        """JobStatus of each of these jobs, in the queue or out of it."""
        return await self._do(protocol.wait_states(ids))

    async def events(
        self, *types: str, after: str = "", on_open: Callable[[], None] = lambda: None
    ) -> AsyncIterator[Event]:
        """Live events, for ever; once it has been open it reconnects by itself and goes on after the last event seen.
        `on_open` is called whenever the stream is open: from then on nothing is missed."""
        opened = False
        while True:
            lines, told = Lines(), False
            # The gateway says at least every 15 s that there is nothing new.
            stream = self._transport.lines(protocol.events(types, after), read_s=60.0)
            try:
                async with aclosing(stream) as coming:
                    async for raw in coming:
                        if not told:  # the greeting: this client is among the listeners now
                            opened = told = True
                            on_open()
                        event = lines.feed(raw)
                        if event is not None:
                            after = event.id
                            for one in protocol.each(event):
                                yield one
            except ClientError as error:
                if not (error.retryable and opened):
                    raise
            await asyncio.sleep(0.5)

    # --- the wire

    async def _do(self, plan: Plan[T]) -> T:
        """Carry out a plan of roost.protocol, one step after the other."""
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

            return await self._transport.read(Call("PUT", step.path), write_bundle(step.sources))
        if step.headers.get("Accept") == protocol.MSGPACK:
            return [ad async for ad in self._pages(step)]
        return await self._answer(step)

    async def _json(self, method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        return await self._answer(protocol.call(method, path, query, body))

    async def _answer(self, call: Call) -> Any:
        return protocol.decoded(self.url, await self._transport.read(call))

    async def _pages(self, call: Call) -> AsyncGenerator[ClassAd, None]:
        pages = Pages()
        async with aclosing(self._transport.stream(call)) as coming:
            async for data in coming:
                try:
                    for ad in pages.feed(data):
                        yield ad
                except ValueError as error:
                    raise protocol.broken(self.url, error) from error

    async def _sheet(self, requests: Iterable[Call]) -> Sheet:
        from shared.classad.column_page import Sheet, reader

        found = Sheet()
        for call in requests:
            pages = reader()
            async with aclosing(self._transport.stream(call)) as coming:
                async for data in coming:
                    try:
                        pages.feed(data)
                        for page in pages:
                            found.add(page)
                    except ValueError as error:
                        raise protocol.broken(self.url, error) from error
        return found


class AsyncJob(JobHandle):
    """A job of the pool. Nothing is remembered: each question is asked anew. Raises ClientError."""

    def __init__(self, client: AsyncClient, job_id: str, schedd: str = "") -> None:
        super().__init__(job_id, schedd)
        self._client = client

    # sync: @property
    async def ad(self) -> ClassAd:
        """Its ad, as it is now; of a job that left the queue as it was then."""
        for history in (False, True):
            async for ad in self._client.jobs(self.id, schedd=self.schedd, history=history):
                return ad
        raise self._missing()

    # sync: @property
    async def status(self) -> str:
        """idle, running, held, completed, removed, transferring output or suspended."""
        return self._status(await self.ad())

    async def dag(self) -> DagState:
        """How the DAG stands that it manages: counts and nodes, which notebooks show as a table and a picture."""
        return dag_state(self.id, await self.ad())

    async def wait(self, timeout: float | None = None) -> Outcome:
        """Until it has left the queue or is on hold. Raises TimeoutError after `timeout` seconds."""
        await self._client.wait([self.id], timeout=timeout)
        return self._outcome(await self.ad())

    async def hold(self, reason: str = "") -> None:
        await self._act("hold", reason)

    async def release(self, reason: str = "") -> None:
        await self._act("release", reason)

    async def remove(self, reason: str = "") -> None:
        await self._act("remove", reason)

    async def suspend(self) -> None:
        """Have it stand still on its machine, until `continue_`."""
        await self._act("suspend", "")

    async def continue_(self) -> None:
        await self._act("continue", "")

    async def vacate(self) -> None:
        """End its run; it starts again elsewhere."""
        await self._act("vacate", "")

    async def edit(self, **attributes: str) -> None:
        """Change attributes: ClassAd expressions."""
        self._check(await self._client.edit([self.id], attributes, schedd=self.schedd))

    async def files(self) -> list[File]:
        """What a spooled job has brought back."""
        return await self._client.output_files(self.id, self.schedd)

    async def output(self, name: str = "") -> bytes:
        """One file of a spooled job's output; without a name its standard output."""
        name = name or standard_output(await self.ad())
        return await self._client._transport.read(Call("GET", protocol.output_path(self.id, name, self.schedd)))

    async def log(self) -> str:
        """The events of its log."""
        return (await self._client.log(self.id, self.schedd)).decode(errors="replace")

    async def tail(self, name: str = "", *, follow: bool = False) -> AsyncIterator[bytes]:
        """What a running job has written: its standard output, or a file in its directory. follow: until it ends."""
        visit = await self._client.visit(self.id, tail_wish(name, follow=follow), self.schedd)
        async with visit, aclosing(visit.output()) as coming:
            async for _, data in coming:
                yield data

    async def _act(self, action: str, reason: str) -> None:
        self._check(await self._client.act(action, [self.id], reason=reason, schedd=self.schedd))


class AsyncFunctionJob:
    """A function that runs as a job. job: the job itself."""

    def __init__(self, job: AsyncJob) -> None:
        self.job = job

    async def result(self, timeout: float | None = None) -> Any:
        """What it returned, once it has. Raises FunctionFailed, and TimeoutError after `timeout` seconds."""
        from roost.functions import RESULT, read_result

        outcome = await self.job.wait(timeout)
        text = await self.job.output(RESULT) if outcome.ok else b""
        return read_result(outcome, lambda: text)
