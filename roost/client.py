"""The pool as a Python object: `Client().submit(...)`, `.jobs(...)`, `.ads(...)`, `.act(...)`, `.events(...)`.

Standard library only on the wire (http.client), because the command imports this and starts often: 20 ms instead of
150 ms with an HTTP framework.
"""

from __future__ import annotations

import http.client
import io
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote, urlencode, urlsplit

import msgpack

from roost.errors import ClientError
from roost.where import find
from shared.classad import ClassAd

if TYPE_CHECKING:
    from roost.visit import Visit

#: Procs in one part of a submit: a part is a few MB at most.
PART = 5000


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a submit gave."""

    cluster: int
    count: int
    schedd: str

    def ids(self) -> list[str]:
        return [f"{self.cluster}.{proc}" for proc in range(self.count)]


@dataclass(frozen=True, slots=True)
class Event:
    """One fact from the event stream."""

    id: str
    type: str
    body: dict[str, Any]


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
        query: dict[str, Any] = {"type": list(types), "constraint": constraint, "projection": ",".join(projection)}
        return self._pages("/v1/ads", {**query, "limit": limit, "absent": str(absent).lower()})

    def jobs(
        self,
        *ids: str,
        constraint: str = "",
        projection: Sequence[str] = (),
        schedd: str = "",
        limit: int = 0,
        history: bool = False,
    ) -> Iterator[ClassAd]:
        """Job ads, by cluster and proc; `history`: jobs that left the queue, newest first."""
        query = {
            "ids": ",".join(ids),
            "constraint": constraint,
            "projection": ",".join(projection),
            "schedd": schedd,
            "limit": limit,
            "history": str(history).lower(),
        }
        return self._pages("/v1/jobs", query)

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
        query = {"negotiator": negotiator, "submitter": list(submitters), "active_since": active_since}
        return list(self._pages("/v1/priorities", query))

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
        query: dict[str, Any] = {"ids": ",".join(ids), "constraint": constraint, "schedd": schedd, "machine": machine}
        return dict(self._json("GET", "/v1/analysis", {**query, "negotiator": negotiator, "limit": limit}))

    def journal(self, what: str, **query: Any) -> dict[str, Any]:
        """What the journal knows (docs/journal.md): `what` is the rest of the path, such as jobs/12.0 or series."""
        return dict(self._json("GET", f"/v1/journal/{quote(what)}", query))

    def dead_letters(self, limit: int = 100) -> list[dict[str, Any]]:
        return list(self._json("GET", "/v1/dead-letters", {"limit": limit}))

    # --- deeds

    def submit(
        self,
        cluster_ad: ClassAd,
        procs: Iterable[ClassAd] | Callable[[int], Iterable[ClassAd]],
        *,
        spool: bool = False,
        schedd: str = "",
    ) -> Cluster:
        """Queue one cluster. `procs`: one ad a job of what differs from `cluster_ad`, or a function that makes them of
        the cluster's number.

        Large clusters go in parts; nothing is visible before the last one is committed, and a part whose answer is lost
        may be sent again without harm.
        """
        submit_id = uuid.uuid4().hex
        common = cluster_ad.pack()
        number = 0

        def send(part: int, ads: list[bytes], *, more: bool) -> dict[str, Any]:
            body = {
                "submit_id": submit_id,
                "cluster_ad": common,
                "procs": ads,
                "spool": spool,
                "more": more,
                "part": part,
            }
            return dict(self._json("POST", "/v1/jobs", {"schedd": schedd}, msgpack.packb(body)))

        if callable(procs):
            procs = procs(int(send(0, [], more=True)["cluster"]))
            number = 1
        packed = [ad.pack() for ad in procs]
        if not packed:
            raise ClientError("nothing to submit: the queue statement gave no job")
        answer: dict[str, Any] = {}
        for start in range(0, len(packed), PART):
            answer = send(number, packed[start : start + PART], more=start + PART < len(packed))
            number += 1
        return Cluster(answer["cluster"], len(packed), answer["schedd"])

    def act(
        self, action: str, ids: Sequence[str] = (), *, constraint: str = "", reason: str = "", schedd: str = ""
    ) -> dict[str, str]:
        """remove, hold, release, ... Returns what became of each job."""
        body = {"action": action, "ids": list(ids), "constraint": constraint, "reason": reason}
        return dict(self._json("POST", "/v1/jobs/action", {"schedd": schedd}, body))

    def set_priority(
        self, submitter: str, what: str, value: float | None = None, *, duration: float = 0.0, negotiator: str = ""
    ) -> None:
        """Change one thing about a submitter (of all, with the name "", `reset-all`). duration: seconds after which the
        old factor, floor or ceiling comes back; 0: never."""
        body = {"what": what, "value": value, "duration_s": duration, "negotiator": negotiator}
        self._json("POST", f"/v1/priorities/{quote(submitter, safe='')}", {}, body)

    def order(self, path: str, order: dict[str, Any]) -> list[dict[str, Any]]:
        """An order to daemons (/v1/daemons/..., /v1/machines/...): what each of them answered."""
        return list(self._json("POST", path, {}, order))

    def reschedule(self) -> None:
        self._json("POST", "/v1/reschedule")

    def dead_letters_requeue(self, ids: Sequence[str]) -> list[str]:
        return list(self._json("POST", "/v1/dead-letters/requeue", {}, {"ids": list(ids)})["done"])

    def dead_letters_discard(self, ids: Sequence[str]) -> list[str]:
        return list(self._json("POST", "/v1/dead-letters/discard", {}, {"ids": list(ids)})["done"])

    def create_token(self, user: str, level: str, *, label: str = "", lifetime_s: float = 0.0) -> str:
        body = {"user": user, "level": level, "label": label, "lifetime_s": lifetime_s}
        return str(self._json("POST", "/v1/tokens", {}, body)["token"])

    def tokens(self) -> list[dict[str, Any]]:
        return list(self._json("GET", "/v1/tokens"))

    def revoke_token(self, prefix: str) -> int:
        return int(self._json("DELETE", f"/v1/tokens/{quote(prefix, safe='')}")["revoked"])

    def upload(self, job_id: str, bundle: Iterable[bytes], schedd: str = "") -> None:
        """Input files of a spooled job or cluster: the bytes of a bundle (shared.transfer)."""
        path = f"/v1/jobs/{job_id}/files?{urlencode({'schedd': schedd})}"
        response = self._request("PUT", path, body=iter(bundle), headers={"Transfer-Encoding": "chunked"})
        response.read()

    def download(self, job_id: str, schedd: str = "") -> BinaryIO:
        """Output files of a spooled job: a bundle to be read to its end."""
        return self._request("GET", f"/v1/jobs/{job_id}/files?{urlencode({'schedd': schedd})}")

    def visit(self, job_id: str, wish: dict[str, Any], schedd: str = "") -> Visit:
        """Run a program beside a running job, or read its files while it runs: see `roost.visit`. wish: kind (run or
        tail), and what shared.messages.visits.Wish has for it."""
        from roost.visit import Visit  # threads: what most commands do without

        name = str(self._json("POST", f"/v1/jobs/{quote(job_id, safe='')}/visits", {"schedd": schedd}, wish)["visit"])
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
        end = None if timeout is None else time.monotonic() + timeout
        states: dict[str, int] = {}
        asked = list(ids)
        while True:
            states |= self.wait_states(asked)
            waiting = [job for job, status in states.items() if status not in (3, 4, 5)]
            if not waiting:
                return states
            left = float("inf") if end is None else end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{len(waiting)} of {len(states)} jobs are not done after {timeout:g} s")
            if len(waiting) <= 100:
                asked = waiting
            time.sleep(min(poll, left))
            poll = min(1.0, poll * 1.3)

    def wait_states(self, ids: Sequence[str]) -> dict[str, int]:
        """JobStatus of each of these jobs, in the queue or out of it."""
        attrs = ("ClusterId", "ProcId", "JobStatus")
        found: dict[str, int] = {}
        for history in (True, False):
            for ad in self.jobs(*ids, projection=attrs, history=history):
                found[f"{ad.eval('ClusterId')}.{ad.eval('ProcId')}"] = int(str(ad.eval("JobStatus")))
        return found

    # --- visits

    def visit_output(self, name: str) -> BinaryIO:
        """The frames of a visit, to be read to their end; closing this client before leaves."""
        # The gateway says at least every 10 s that there is nothing new.
        return self._request("GET", f"/v1/visits/{quote(name)}/output", timeout=90.0)

    def visit_input(self, name: str, start: int, data: bytes, *, eof: bool) -> dict[str, Any]:
        query = urlencode({"start": start, "eof": str(eof).lower()})
        headers = {"Content-Type": "application/octet-stream"}
        response = self._request("POST", f"/v1/visits/{quote(name)}/input?{query}", data, headers)
        return dict(json.loads(response.read()))

    def visit_steer(self, name: str, **what: Any) -> None:
        self._json("POST", f"/v1/visits/{quote(name)}/steer", None, what)

    # --- the wire

    def _json(self, method: str, path: str, query: dict[str, Any] | None = None, body: Any = None) -> Any:
        if query:
            path = f"{path}?{urlencode(query, doseq=True)}"
        if isinstance(body, bytes):
            response = self._request(method, path, body, {"Content-Type": "application/x-msgpack"})
        elif body is not None:
            response = self._request(method, path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        else:
            response = self._request(method, path)
        try:
            return json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> ClientError:
        self.close()
        text = f"the answer of the pool at {self.url} broke off: {error or type(error).__name__}"
        return ClientError(text, "unavailable", retryable=True)

    def _pages(self, path: str, query: dict[str, Any]) -> Iterator[ClassAd]:
        response = self._request(
            "GET", f"{path}?{urlencode(query, doseq=True)}", headers={"Accept": "application/x-msgpack"}
        )
        unpacker = msgpack.Unpacker(io.BufferedReader(response, 1 << 20), max_buffer_size=1 << 30)
        try:
            for page in unpacker:
                for packed in page:
                    yield ClassAd.unpack(packed)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._broken(error) from error
        finally:
            if not response.isclosed():  # its reader stopped early: what is left must not be the next answer
                self.close()

    def _follow(self, path: str, on_open: Callable[[], None]) -> Iterator[Event]:
        # The gateway says at least every 15 s that there is nothing new.
        response = self._request("GET", path, timeout=60.0)
        name = ident = ""
        try:
            response.readline()  # the greeting: we are among the listeners now
            on_open()
            for raw in response:
                line = raw.decode().rstrip("\n")
                if line.startswith("id: "):
                    ident = line[4:]
                elif line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: ") and name not in ("overflow", "gap"):
                    body = json.loads(line[6:])
                    yield Event(ident, str(body.pop("type", name)), body)
        except (OSError, http.client.HTTPException) as error:
            raise ClientError(f"the event stream broke: {error}", "unavailable", retryable=True) from error
        finally:
            self.close()

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | Iterator[bytes] | None = None,
        headers: dict[str, str] | None = None,
        *,
        timeout: float | None = -1.0,
    ) -> http.client.HTTPResponse:
        all_headers = {"Authorization": f"Bearer {self._token}", **(headers or {})}
        chunked = all_headers.get("Transfer-Encoding") == "chunked"
        for fresh in (chunked, True):
            reused = self._connection is not None and self._connection.sock is not None
            connection = self._connect(fresh, timeout)
            try:
                connection.request(method, self._base + path, body, all_headers, encode_chunked=chunked)
                response = connection.getresponse()
                break
            except (OSError, http.client.HTTPException) as error:
                # The gateway closes connections that are not used for some seconds. Every request may be sent again
                # (a submit has its id, an action its outcome) but for a body that has been read.
                stale = not fresh and reused and isinstance(error, (ConnectionError, http.client.BadStatusLine))
                self.close()
                if not stale or chunked:
                    raise ClientError(
                        f"no answer from the pool at {self.url}: {error or type(error).__name__}; is it up?",
                        "unavailable",
                        retryable=True,
                    ) from error
        if response.status >= 400:
            raise self._refused(response)
        return response

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

    def _refused(self, response: http.client.HTTPResponse) -> ClientError:
        text = response.read()
        try:
            error = json.loads(text)["error"]
            return ClientError(error["message"], error["code"], error["retryable"])
        except (ValueError, KeyError, TypeError):
            return ClientError(f"HTTP {response.status} {response.reason} from {self.url}", "error")
