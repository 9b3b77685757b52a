"""The pool as a Python object: `Client().submit(...)`, `.jobs(...)`, `.ads(...)`, `.act(...)`, `.events(...)`.

Standard library only on the wire (http.client), because the command imports this and starts often: 20 ms instead of
150 ms with an HTTP framework.

Longer than most modules: it is the list of all that can be asked of a pool, a few lines each, and the connection below.
"""

from __future__ import annotations

import http.client
import io
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, overload
from urllib.parse import quote, urlencode, urlsplit

from roost import calls
from roost.calls import Call, Cluster, Event, File, Lines, Pages, Pause, Plan, Send, T, TokenMade
from roost.errors import ClientError
from roost.where import find
from shared.classad import ClassAd

if TYPE_CHECKING:
    from roost.functions import FunctionJob
    from roost.job import Job
    from roost.visit import Visit
    from shared.classad.sheet import Sheet

__all__ = ["Client", "Cluster", "Event", "File", "TokenMade"]


class Client:
    """Synchronous client of one gateway. Raises ClientError for everything that goes wrong."""

    def __init__(self, url: str | None = None, token: str | None = None, *, timeout: float = 60.0) -> None:
        where = find(url, token)
        parts = urlsplit(where.url)
        self._secure = parts.scheme == "https"
        self._host = parts.netloc
        self._base = parts.path.rstrip("/")
        self._token = where.token
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None
        self.url = where.url

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- questions

    def pool(self) -> dict[str, Any]:
        return dict(self._json("GET", "/v1/pool"))

    def whoami(self) -> dict[str, str]:
        return dict(self._json("GET", "/v1/whoami"))

    def schedd(self, name: str = "") -> dict[str, Any]:
        """What a client must know of a schedd before submitting: name, host_id, uid, release."""
        return dict(self._json("GET", "/v1/schedd", {"name": name}))

    def ads(
        self,
        *types: str,
        constraint: str = "",
        projection: Sequence[str] = (),
        limit: int = 0,
        absent: bool = False,
    ) -> Iterator[ClassAd]:
        """Ads from the collector."""
        return self._pages(calls.ads(types, constraint, projection, limit, absent))

    def sheet(
        self, *types: str, projection: Sequence[str], constraint: str = "", limit: int = 0, absent: bool = False
    ) -> Sheet:
        """The same as `ads` with few attributes of very many ads: they come and stay in columns, and can be read as
        ads too."""
        return self._sheet([calls.ads(types, constraint, projection, limit, absent, columns=True)])

    def jobs(
        self,
        *ids: str,
        constraint: str = "",
        projection: Sequence[str] = (),
        schedd: str = "",
        limit: int = 0,
        history: bool = False,
    ) -> Iterator[ClassAd]:
        """Job ads, by cluster and proc; `history`: jobs that left the queue, newest first. Very many ids are asked for
        in several requests, and come in the order of these."""
        left = limit
        for some in calls.some_ids(ids):
            for ad in self._pages(calls.jobs(some, constraint, projection, schedd, left, history)):
                yield ad
                left -= 1 if limit else 0
            if limit and left <= 0:
                return

    def factories(
        self,
        *ids: str,
        constraint: str = "",
        projection: Sequence[str] = (),
        schedd: str = "",
        limit: int = 0,
    ) -> Iterator[ClassAd]:
        """Clusters whose jobs come into the queue some at a time (late materialization), with how far they are: ads
        without ProcId. ids: "12"."""
        for some in calls.some_ids(ids):
            for ad in self._pages(calls.jobs(some, constraint, projection, schedd, limit, False, factories=True)):
                if "ProcId" not in ad:  # a gateway that does not know of them gives jobs
                    yield ad

    def job_sheet(
        self, *ids: str, projection: Sequence[str], constraint: str = "", schedd: str = "", limit: int = 0
    ) -> Sheet:
        """The same as `jobs` with few attributes of very many jobs of the queue: they come and stay in columns, and can
        be read as ads too."""
        found = self._sheet(
            calls.jobs(some, constraint, projection, schedd, limit, False, columns=True) for some in calls.some_ids(ids)
        )
        return found.taken(range(limit)) if 0 < limit < len(found) else found

    def job(self, job_id: str, schedd: str = "") -> Job:
        """One job, "12.3", to be asked and acted on: see roost.job. Nothing is asked yet."""
        from roost.job import Job

        return Job(self, job_id, schedd)

    def hads(self) -> list[dict[str, Any]]:
        """How each HAD stands: shared.messages.had.HadStanding, and `silent`: why one does not answer."""
        return list(self._json("GET", "/v1/had")["hads"])

    def job_totals(self, schedd: str = "") -> dict[str, int]:
        """Jobs in the queue by status name."""
        return dict(self._json("GET", "/v1/jobs/totals", {"schedd": schedd}))

    def priorities(
        self, negotiator: str = "", *, submitters: Sequence[str] = (), active_since: float = 0.0
    ) -> list[ClassAd]:
        """Accounting ads of groups and submitters. submitters: only these, in full or without their domain;
        active_since: only those who used something since then (seconds since 1970)."""
        return list(self._pages(calls.priorities(negotiator, submitters, active_since)))

    def groups(self, negotiator: str = "") -> list[dict[str, Any]]:
        """The tree of accounting groups: quotas, use and submitters of each."""
        return list(self._json("GET", "/v1/groups", {"negotiator": negotiator})["groups"])

    def config(
        self, *names: str, daemons: Sequence[str] = (), subsystems: Sequence[str] = (), pattern: str = ""
    ) -> list[dict[str, Any]]:
        """What running daemons go by: one map for each daemon, with its `macros`. daemons: names or machines;
        subsystems: kinds such as SCHEDD. Without names what is set and fits the shell pattern."""
        return self._do(calls.config(daemons, subsystems, names, pattern))

    def analysis(
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
        return self._do(calls.analysis(ids, constraint, schedd, machine, negotiator, limit))

    def overview(self, part: str = "", **query: Any) -> dict[str, Any]:
        """What the pool's pages show (docs/api.md): `part` is the rest of the path, such as jobs or slots; none: the
        pool at a glance."""
        path = f"/v1/overview/{quote(part)}" if part else "/v1/overview"
        return dict(self._json("GET", path, query))

    def ad_totals(self, my_type: str, *by: str, constraint: str = "") -> list[dict[str, Any]]:
        """How many ads there are of each combination of values of some attributes: {"values": {name: value}, "ads": n},
        counted by the collector."""
        query = {"type": my_type, "by": ",".join(by), "constraint": constraint}
        return list(self._json("GET", "/v1/ads/totals", query)["totals"])

    def journal(self, what: str, **query: Any) -> dict[str, Any]:
        """What the journal knows (docs/journal.md): `what` is the rest of the path, such as jobs/12.0 or series."""
        return dict(self._json("GET", f"/v1/journal/{quote(what)}", query))

    def pool_history(self, kind: str, **query: Any) -> dict[str, Any]:
        """How the pool stood, as its view server keeps it (docs/pool-history.md): kind is resources, platforms,
        submitters or users; name, from, to (seconds since 1970) and collector as the door takes them."""
        return dict(self._json("GET", f"/v1/pool-history/{quote(kind)}", query))

    def audit(self, limit: int = 100, *, user: str = "", operation: str = "") -> list[dict[str, Any]]:
        """Who changed what and who was refused, newest first."""
        query = {"limit": limit, "user": user, "operation": operation}
        return list(self._json("GET", "/v1/audit", query)["records"])

    def dead_letters(self, limit: int = 100) -> list[dict[str, Any]]:
        return list(self._json("GET", "/v1/dead-letters", {"limit": limit}))

    # --- deeds

    @overload
    def submit(
        self,
        what: ClassAd,
        procs: Iterable[ClassAd] | Callable[[int], Iterable[ClassAd]],
        *,
        spool: bool = False,
        schedd: str = "",
        owner: str = "",
    ) -> Cluster: ...

    @overload
    def submit(
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

    def submit(
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
            return self._do(calls.submit(what, procs, bool(spool), schedd, owner))
        from roost import submitting  # the submit language: 30 ms that most commands do without

        description = submitting.read(what, count, itemdata, directory)
        return self._do(submitting.submit(description, spool, schedd, owner))

    def submit_function(
        self, function: Callable[..., Any], *args: Any, submit: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> FunctionJob:
        """Run a function of a module as a job, see roost.functions. submit: further commands for its job."""
        from roost import functions

        with functions.packed(function, args, kwargs, submit or {}) as (commands, directory):
            cluster = self.submit(commands, directory=directory, spool=True)
        return functions.FunctionJob(self.job(f"{cluster.cluster}.0", cluster.schedd))

    def act(
        self, action: str, ids: Sequence[str] = (), *, constraint: str = "", reason: str = "", schedd: str = ""
    ) -> dict[str, str]:
        """remove, hold, release, ... Returns what became of each job."""
        return self._do(calls.act(action, ids, constraint, reason, schedd))

    def edit(
        self, ids: Sequence[str], attributes: Mapping[str, str], *, constraint: str = "", schedd: str = ""
    ) -> dict[str, str]:
        """Change attributes of queued jobs: name -> ClassAd expression (a text with its quotes: '"urgent"'). Returns
        what became of each job."""
        return self._do(calls.edit(ids, attributes, constraint, schedd))

    def set_priority(
        self, submitter: str, what: str, value: float | None = None, *, duration: float = 0.0, negotiator: str = ""
    ) -> None:
        """Change one thing about a submitter (of all, with the name "", `reset-all`). duration: seconds after which the
        old factor, floor or ceiling comes back; 0: never."""
        self._do(calls.set_priority(submitter, what, value, duration, negotiator))

    def set_quota(
        self, group: str, quota: float | None = None, *, dynamic: float | None = None, negotiator: str = ""
    ) -> None:
        """Give an accounting group another quota than the configuration's: weighted slots, or with `dynamic` a part of
        the quota of the group above, 0 to 1. The next cycle goes by it."""
        self._do(calls.set_quota(group, quota, dynamic, negotiator))

    def unset_quota(self, group: str, *, negotiator: str = "") -> None:
        """Give an accounting group the configuration's quota again."""
        self._do(calls.unset_quota(group, negotiator))

    def set_config(
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
        return self._do(calls.set_config(macros, unset, daemons, subsystems, everybody, persistent))

    def order(self, path: str, order: dict[str, Any]) -> list[dict[str, Any]]:
        """An order to daemons (/v1/daemons/..., /v1/machines/...): what each of them answered."""
        return list(self._json("POST", path, {}, order))

    def reschedule(self, negotiator: str = "") -> None:
        """Negotiate soon: all negotiators, or the one of that name."""
        self._json("POST", "/v1/reschedule", {"negotiator": negotiator} if negotiator else None)

    def dead_letters_requeue(self, ids: Sequence[str]) -> list[str]:
        return list(self._json("POST", "/v1/dead-letters/requeue", {}, {"ids": list(ids)})["done"])

    def dead_letters_discard(self, ids: Sequence[str]) -> list[str]:
        return list(self._json("POST", "/v1/dead-letters/discard", {}, {"ids": list(ids)})["done"])

    def create_token(
        self, user: str, level: str, *, label: str = "", lifetime_s: float = 0.0, scopes: Sequence[str] = ()
    ) -> str:
        return self.make_token(user, level, label=label, lifetime_s=lifetime_s, scopes=scopes).token

    def make_token(
        self, user: str, level: str, *, label: str = "", lifetime_s: float = 0.0, scopes: Sequence[str] = ()
    ) -> TokenMade:
        """A token for a user at a level. lifetime_s: 0 for ever; scopes: patterns of the operations that it opens
        (docs/api.md), none: all of its level."""
        return self._do(calls.create_token(user, level, label, lifetime_s, scopes))

    def tokens(self, *, all: bool = False) -> list[dict[str, Any]]:
        """all: also those that were revoked."""
        return list(self._json("GET", "/v1/tokens", {"all": str(all).lower()}))

    def revoke_token(self, prefix: str) -> int:
        return int(self._json("DELETE", f"/v1/tokens/{quote(prefix, safe='')}")["revoked"])

    # --- files of spooled jobs

    def upload(self, job_id: str, bundle: Iterable[bytes], schedd: str = "") -> None:
        """Input files of a spooled job or cluster: the bytes of a bundle (shared.transfer)."""
        path = calls.files_path(job_id, schedd)
        response = self._request("PUT", path, body=iter(bundle), headers={"Transfer-Encoding": "chunked"})
        response.read()

    def download(self, job_id: str, schedd: str = "") -> BinaryIO:
        """Output files of a spooled job: a bundle to be read to its end."""
        return self._request("GET", calls.files_path(job_id, schedd))

    def output_files(self, job_id: str, schedd: str = "") -> list[File]:
        """Which files a spooled job has brought back."""
        return self._do(calls.output_files(job_id, schedd))

    def output(self, job_id: str, name: str, schedd: str = "") -> BinaryIO:
        """One file of a spooled job's output, to be read to its end."""
        return self._request("GET", calls.output_path(job_id, name, schedd))

    def log(self, job_id: str, schedd: str = "") -> bytes:
        """The log of a job, as its submit file named it."""
        return self._request("GET", calls.log_path(job_id, schedd)).read()

    def visit(self, job_id: str, wish: Mapping[str, Any], schedd: str = "") -> Visit:
        """Run a program beside a running job, or read its files while it runs: see `roost.visit`. wish: kind (run or
        tail), and what shared.messages.visits.Wish has for it."""
        from roost.visit import Visit  # threads: what most commands do without

        name = self._do(calls.visit(job_id, wish, schedd))
        return Visit(lambda: Client(self.url, self._token, timeout=self._timeout), name)

    def events(self, *types: str, after: str = "", on_open: Callable[[], None] = lambda: None) -> Iterator[Event]:
        """Live events, for ever; once it has been open it reconnects by itself and goes on after the last event seen.
        `on_open` is called whenever the stream is open: from then on nothing is missed."""
        opened = False

        def is_open() -> None:
            nonlocal opened
            opened = True
            on_open()

        while True:
            query = urlencode({"type": list(types), "after": after}, doseq=True)
            try:
                for event in self._follow(f"/v1/events?{query}", is_open):
                    after = event.id
                    yield event
            except ClientError as error:
                if not (error.retryable and opened):
                    raise
            self.close()
            time.sleep(0.5)

    def wait(self, ids: Sequence[str], *, timeout: float | None = None, poll: float = 0.1) -> dict[str, int]:
        """Wait until these jobs have left the queue or are on hold. Returns job id -> JobStatus (3 removed, 4
        completed, 5 held). Raises TimeoutError. A job that is at rest is not asked about again; who waits long looks
        less often, every second in the end."""
        return self._do(calls.wait(ids, timeout, poll))

    def wait_states(self, ids: Sequence[str]) -> dict[str, int]:
        """JobStatus of each of these jobs, in the queue or out of it."""
        return self._do(calls.wait_states(ids))

    # --- visits

    def visit_output(self, name: str) -> http.client.HTTPResponse:
        """The frames of a visit, to be read to their end; closing this client before leaves."""
        # The gateway says at least every 10 s that there is nothing new.
        return self._request("GET", calls.visit_output(name).path, timeout=calls.VISIT_QUIET_S)

    def visit_input(self, name: str, start: int, data: bytes, *, eof: bool) -> dict[str, Any]:
        return dict(self._answer(calls.visit_input(name, start, data, eof=eof)))

    def visit_steer(self, name: str, **what: Any) -> None:
        self._answer(calls.visit_steer(name, what))

    # --- the wire

    def _do(self, plan: Plan[T]) -> T:
        """Carry out a plan of roost.calls, one step after the other."""
        try:
            step = next(plan)
            while True:
                try:
                    answer = self._step(step)
                except ClientError as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _step(self, step: Call | Pause | Send) -> Any:
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        if isinstance(step, Send):
            from roost.submit.spool import chunks
            from shared.transfer.bundle import write_bundle

            bundle = chunks(write_bundle(step.sources))
            return self._request("PUT", step.path, body=bundle, headers={"Transfer-Encoding": "chunked"}).read()
        if step.headers.get("Accept") == calls.MSGPACK:
            return list(self._pages(step))
        return self._answer(step)

    def _json(self, method: str, path: str, query: dict[str, Any] | None = None, body: Any = None) -> Any:
        return self._answer(calls.call(method, path, query, body))

    def _answer(self, call: Call) -> Any:
        response = self._request(call.method, call.path, call.body, call.headers)
        try:
            return json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> ClientError:
        self.close()
        return calls.broken(self.url, error)

    def _pages(self, call: Call) -> Iterator[ClassAd]:
        pages = Pages()
        for data in self._data(call):
            try:
                yield from pages.feed(data)
            except ValueError as error:
                raise self._broken(error) from error

    def _sheet(self, requests: Iterable[Call]) -> Sheet:
        from shared.classad.sheet import Sheet, reader

        found = Sheet()
        for call in requests:
            pages = reader()
            for data in self._data(call):
                try:
                    pages.feed(data)
                    for page in pages:
                        found.add(page)
                except ValueError as error:
                    raise self._broken(error) from error
        return found

    def _data(self, call: Call) -> Iterator[bytes]:
        """The answer as it comes."""
        response = self._request(call.method, call.path, headers=call.headers)
        try:
            reader = io.BufferedReader(response, 1 << 20)
            while data := reader.read1(1 << 20):
                yield data
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._broken(error) from error
        finally:
            if not response.isclosed():  # its reader stopped early: what is left must not be the next answer
                self.close()

    def _follow(self, path: str, on_open: Callable[[], None]) -> Iterator[Event]:
        # The gateway says at least every 15 s that there is nothing new.
        response = self._request("GET", path, timeout=60.0)
        lines = Lines()
        try:
            response.readline()  # the greeting: we are among the listeners now
            on_open()
            for raw in response:
                event = lines.feed(raw)
                if event is not None:
                    yield event
        except (OSError, http.client.HTTPException) as error:
            raise ClientError(f"the event stream broke: {error}", "unavailable", retryable=True) from error
        finally:
            self.close()

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float | None = -1.0,
    ) -> http.client.HTTPResponse:
        """Raises ClientError for every answer that is a refusal. Who is told to come later does, for a while."""
        for tried in range(calls.TRIES + 1):
            response = self._ask(method, path, body, headers, timeout)
            if response.status < 400:
                return response
            text = response.read()
            again = isinstance(body, bytes | None)
            wait = calls.patience(response.status, response.headers.get("Retry-After"), tried) if again else 0.0
            if not wait:
                break
            time.sleep(wait)
        raise calls.refused(self.url, response.status, response.reason, text)

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None,
        headers: Mapping[str, str] | None,
        timeout: float | None,
    ) -> http.client.HTTPResponse:
        all_headers = {"Authorization": f"Bearer {self._token}", **(headers or {})}
        chunked = all_headers.get("Transfer-Encoding") == "chunked"
        for fresh in (chunked, True):
            reused = self._connection is not None and self._connection.sock is not None
            connection = self._connect(fresh, timeout)
            try:
                connection.request(method, self._base + path, body, all_headers, encode_chunked=chunked)
                return connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                # The gateway closes connections that are not used for some seconds. Every request may be sent again
                # (a submit has its id, an action its outcome) but for a body that has been read.
                stale = not fresh and reused and isinstance(error, (ConnectionError, http.client.BadStatusLine))
                self.close()
                if not stale or chunked:
                    raise calls.away(self.url, error) from error
        raise AssertionError("the second try returns or raises")

    def _connect(self, fresh: bool, timeout: float | None) -> http.client.HTTPConnection:
        seconds = self._timeout if timeout == -1.0 else timeout
        if fresh:
            self.close()
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            self._connection = kind(self._host, timeout=seconds)
        elif self._connection.sock is not None:
            self._connection.sock.settimeout(seconds)
        return self._connection
