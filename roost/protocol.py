"""The gateway's protocol from the clients' side, without I/O: requests are made here and answers read, for the
synchronous and the asynchronous client. A plan is a generator that yields what is to be done and is sent the answer:

    Call      one request; the answer is its JSON
    Pause     seconds to wait
    Send      a request with a bundle of files as its body; no answer

Pages of ads and events are streams: their calls are made here, and read by `Pages` and `Lines`.
"""

from __future__ import annotations

import json
import math
import os
import struct
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgpack

from roost.errors import ClientError
from roost.late_materialization import goes_on
from shared.classad import ClassAd

if TYPE_CHECKING:
    from shared.transfer.bundle import Source

T = TypeVar("T")
#: Procs in one part of a submit: a part is a few MB at most.
PART: Final = 5000
#: And bytes of their ads. One job alone may have more.
PART_BYTES: Final = 8 << 20
MSGPACK: Final = "application/x-msgpack"
#: Pages in columns; a gateway that does not know them gives packed ads.
COLUMNS: Final = f"{MSGPACK}; columns=1"
#: How the output of a visit comes: kind and length before the bytes.
_FRAME: Final = struct.Struct(">cI")
#: The gateway says more often that a visit goes on, seconds.
VISIT_QUIET_S: Final = 90.0
#: Of a visit's input at a time, bytes.
VISIT_CHUNK: Final = 65536
#: Ids of jobs in one request.
MOST_IDS: Final = 2000
#: Of requests that were turned away for coming too often: tries, and the longest wait between two, seconds.
TRIES, LONGEST_WAIT_S = 6, 30.0


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Send:
    path: str
    sources: Sequence[Source]


Plan = Generator["Call | Pause | Send", Any, T]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a submit gave."""

    cluster: int
    count: int
    schedd: str

    def ids(self) -> list[str]:
        return [f"{self.cluster}.{proc}" for proc in range(self.count)]

    def _repr_html_(self) -> str:
        from roost.notebook import table  # no command needs it

        return table(f"Cluster {self.cluster}", {"jobs": self.count, "access point": self.schedd})


@dataclass(frozen=True, slots=True)
class Event:
    """One fact from the event stream."""

    id: str
    type: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class File:
    """One file of a job's output. mtime: seconds since 1970."""

    name: str
    size: int
    mtime: float


@dataclass(frozen=True, slots=True)
class TokenMade:
    """A new token; it can not be asked for again. id: by which it is listed and revoked."""

    token: str
    id: str


def call(method: str, path: str, query: Mapping[str, Any] | None = None, body: Any = None) -> Call:
    """A request. body: bytes are msgpack, anything else goes as JSON."""
    if query:
        path = f"{path}?{urlencode(query, doseq=True)}"
    if isinstance(body, bytes):
        return Call(method, path, body, {"Content-Type": MSGPACK})
    if body is not None:
        return Call(method, path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return Call(method, path)


def part(text: str) -> str:
    """Text as one part of a path."""
    return quote(text, safe="")


def totals_query(schedd: str, managers: bool) -> dict[str, Any]:
    return {"schedd": schedd, **({} if managers else {"managers": "false"})}


# --- streams


def ads(
    types: Sequence[str],
    constraint: str,
    projection: Sequence[str],
    limit: int,
    absent: bool,
    *,
    columns: bool = False,
) -> Call:
    """columns: pages may be in columns (shared.classad.column_page)."""
    query = {"type": list(types), "constraint": constraint, "projection": ",".join(projection)}
    call = _pages("/v1/ads", {**query, "limit": limit, "absent": _bool(absent)})
    return replace(call, headers={"Accept": COLUMNS}) if columns else call


def jobs(
    ids: Sequence[str],
    constraint: str,
    projection: Sequence[str],
    schedd: str,
    limit: int,
    history: bool,
    *,
    columns: bool = False,
    factories: bool = False,
    epochs: bool = False,
) -> Call:
    """columns: as in `ads`. factories: clusters of late materialization in place of jobs; epochs: their runs."""
    query = {
        "ids": ",".join(ids),
        "constraint": constraint,
        "projection": ",".join(projection),
        "schedd": schedd,
        "limit": limit,
        "history": _bool(history),
        **({"factories": "true"} if factories else {}),
        **({"epochs": "true"} if epochs else {}),
    }
    call = _pages("/v1/jobs", query)
    return replace(call, headers={"Accept": COLUMNS}) if columns else call


def some_ids(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Ids as many at a time as an address holds; none is all jobs, asked for at once."""
    for start in range(0, len(ids) or 1, MOST_IDS):
        yield ids[start : start + MOST_IDS]


def priorities(negotiator: str, submitters: Sequence[str], active_since: float) -> Call:
    query = {"negotiator": negotiator, "submitter": list(submitters), "active_since": active_since}
    return _pages("/v1/priorities", query)


def _pages(path: str, query: Mapping[str, Any]) -> Call:
    return Call("GET", f"{path}?{urlencode(query, doseq=True)}", None, {"Accept": MSGPACK})


def events(types: Sequence[str], after: str) -> Call:
    return call("GET", "/v1/events", {"type": list(types), "after": place_of(after)})


def each(event: Event) -> Iterator[Event]:
    """One event for each job, of one that tells of many."""
    jobs = event.body.get("jobs")
    if event.type not in ("job.held", "job.released", "job.removed") or not jobs:
        yield event
        return
    cluster = str(event.body.get("job_id", "")).partition(".")[0]
    for first, last in jobs:
        for proc in range(first, last + 1):
            body = {**event.body, "job_id": f"{cluster}.{proc}", "jobs": []}
            yield Event(part_id(event.id, proc), event.type, body)


def part_id(ident: str, proc: int) -> str:
    """Of an event that tells of many jobs, what it tells of one."""
    return f"{ident}/{proc}"


def place_of(ident: str) -> str:
    """Where the stream is after this event."""
    return ident.partition("/")[0]


class Pages:
    """Ads out of an answer, fed as it comes."""

    def __init__(self) -> None:
        self._unpacker = msgpack.Unpacker(max_buffer_size=1 << 30)

    def feed(self, data: bytes) -> Iterator[ClassAd]:
        self._unpacker.feed(data)
        for page in self._unpacker:
            for packed in page:
                yield ClassAd.unpack(packed)


class Lines:
    """Events out of the lines of a stream."""

    def __init__(self) -> None:
        self._name = self._id = ""

    def feed(self, raw: bytes) -> Event | None:
        """The event that a line completes. Raises ClientError where the stream has ended for good."""
        line = raw.decode().rstrip("\r\n")
        if line.startswith("id: "):
            self._id = line[4:]
        elif line.startswith("event: "):
            self._name = line[7:]
        elif line.startswith("data: "):
            if self._name == "ended":
                raise ClientError(str(json.loads(line[6:])), "unauthenticated")
            if self._name not in ("overflow", "gap"):
                body = json.loads(line[6:])
                return Event(self._id, str(body.pop("type", self._name)), body)
        return None


class Frames:
    """What a program beside a job prints, out of an answer, fed as it comes: ("out" or "err", bytes). After the last
    frame `end` says how it ended: exit_code, exit_signal, reason."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.end: dict[str, Any] | None = None

    def feed(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        """Raises ValueError for what is no frame."""
        self._data += data
        while self.end is None and len(self._data) >= _FRAME.size:
            kind, length = _FRAME.unpack_from(self._data)
            if len(self._data) < _FRAME.size + length:
                return
            body = bytes(self._data[_FRAME.size : _FRAME.size + length])
            del self._data[: _FRAME.size + length]
            if kind == b"x":
                self.end = dict(json.loads(body))
            elif body:
                yield "out" if kind == b"o" else "err", body


class VisitInput:
    """The input of a visit, in order: what is given to it is sent until the other side has taken all of it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._data = b""
        self._eof = False
        self._taken = 0  # of all input
        self._done = True

    def give(self, data: bytes, *, eof: bool = False) -> None:
        """At most VISIT_CHUNK bytes, once everything before has been taken. eof: nothing follows."""
        self._data, self._eof, self._done = data, eof, False

    def request(self) -> Call | None:
        """What is to be sent next; None: nothing. The other side waits a while for room."""
        return None if self._done else visit_input(self._name, self._taken, self._data, eof=self._eof)

    def answered(self, answer: Mapping[str, Any]) -> None:
        """The other side says how much of all input it has."""
        taken = max(self._taken, int(answer["taken"]))
        self._data = self._data[taken - self._taken :]
        self._taken = taken
        self._done = bool(answer["ended"]) or not self._data


# --- questions


def single(request: Call) -> Plan[Any]:
    """A plan of a single request."""
    return (yield request)


def analysis(
    ids: Sequence[str], constraint: str, schedd: str, machine: str, negotiator: str, limit: int
) -> Plan[dict[str, Any]]:
    query: dict[str, Any] = {"ids": ",".join(ids), "constraint": constraint, "schedd": schedd, "machine": machine}
    return dict((yield call("GET", "/v1/analysis", {**query, "negotiator": negotiator, "limit": limit})))


def config(
    daemons: Sequence[str], subsystems: Sequence[str], names: Sequence[str], pattern: str
) -> Plan[list[dict[str, Any]]]:
    query = {"daemon": list(daemons), "subsystem": list(subsystems), "name": list(names), "pattern": pattern}
    return list((yield call("GET", "/v1/config", query)))


def output_files(job_id: str, schedd: str) -> Plan[list[File]]:
    found = yield call("GET", f"/v1/jobs/{part(job_id)}/output", {"schedd": schedd})
    return [File(**entry) for entry in found["files"]]


def output_path(job_id: str, name: str, schedd: str) -> str:
    return f"/v1/jobs/{part(job_id)}/output/{quote(name)}?{urlencode({'schedd': schedd})}"


def log_path(job_id: str, schedd: str) -> str:
    return f"/v1/jobs/{part(job_id)}/log?{urlencode({'schedd': schedd})}"


def files_path(job_id: str, schedd: str) -> str:
    return f"/v1/jobs/{part(job_id)}/files?{urlencode({'schedd': schedd})}"


# --- deeds


def submit(
    cluster_ad: ClassAd,
    procs: Iterable[ClassAd] | Callable[[int], Iterable[ClassAd]],
    spool: bool,
    schedd: str,
    owner: str = "",
    submit_id: str = "",
) -> Plan[Cluster]:
    """Queue one cluster, in parts where it is large. A part whose answer is lost may be sent again without harm.
    submit_id: by which the schedd knows a submit that it has had already; empty: a new one."""
    submit_id = submit_id or os.urandom(16).hex()
    common = cluster_ad.pack()
    query = {"schedd": schedd, **({"owner": owner} if owner else {})}

    def send(number: int, packed: list[bytes], *, more: bool) -> Call:
        body = {
            "submit_id": submit_id,
            "cluster_ad": common,
            "procs": packed,
            "spool": spool,
            "more": more,
            "part": number,
        }
        return call("POST", "/v1/jobs", query, msgpack.packb(body))

    number = 0
    if callable(procs):
        procs = procs(int((yield send(0, [], more=True))["cluster"]))
        number = 1
    parts = _parts(ad.pack() for ad in procs)
    part = next(parts, None)
    if part is None:
        raise ClientError("nothing to submit: the queue statement gave no job")
    count = 0
    while part is not None:
        count += len(part)
        following = next(parts, None)
        answer = yield send(number, part, more=following is not None)
        number, part = number + 1, following
    return Cluster(answer["cluster"], count, answer["schedd"])


def _parts(packed: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Jobs in parts of which each fits into a message."""
    part: list[bytes] = []
    size = 0
    for ad in packed:
        if part and (len(part) == PART or size + len(ad) > PART_BYTES):
            yield part
            part, size = [], 0
        part.append(ad)
        size += len(ad)
    if part:
        yield part


def import_jobs(
    user: str,
    origin: str,
    cluster: int,
    cluster_ad: ClassAd,
    procs: Mapping[int, ClassAd],
    spool: bool,
    dry_run: bool,
    schedd: str,
) -> Plan[dict[str, Any]]:
    body = {
        "user": user,
        "origin": origin,
        "cluster": cluster,
        "cluster_ad": cluster_ad.pack(),
        "numbers": list(procs),
        "procs": [ad.pack() for ad in procs.values()],
        "spool": spool,
        "dry_run": dry_run,
    }
    return dict((yield call("POST", "/v1/jobs/import", {"schedd": schedd}, msgpack.packb(body))))


def act(action: str, ids: Sequence[str], constraint: str, reason: str, schedd: str) -> Plan[dict[str, str]]:
    body = {"action": action, "ids": list(ids), "constraint": constraint, "reason": reason, "ranges": True}
    outcomes: dict[str, str] = {}
    for jobs, outcome in (yield call("POST", "/v1/jobs/action", {"schedd": schedd}, body)).items():
        first, dash, last = jobs.partition("-")
        if not dash:
            outcomes.setdefault(jobs, outcome)
            continue
        cluster, _, proc = first.partition(".")
        for number in range(int(proc), int(last.partition(".")[2]) + 1):
            outcomes.setdefault(f"{cluster}.{number}", outcome)
    return outcomes


def rerun(job_id: str, schedd: str) -> Plan[str]:
    found = yield call("POST", f"/v1/jobs/{part(job_id)}/rerun", {"schedd": schedd}, {})
    return f"{found['cluster']}.{found['first_proc']}"


def edit(ids: Sequence[str], attributes: Mapping[str, str], constraint: str, schedd: str) -> Plan[dict[str, str]]:
    body = {"ids": list(ids), "attributes": dict(attributes), "constraint": constraint}
    return dict((yield call("POST", "/v1/jobs/edit", {"schedd": schedd}, body)))


def set_priority(submitter: str, what: str, value: float | None, duration: float, negotiator: str) -> Plan[None]:
    body = {"what": what, "value": value, "duration_s": duration, "negotiator": negotiator}
    yield call("POST", f"/v1/priorities/{part(submitter)}", {}, body)


def import_accounts(
    accounts: Sequence[Mapping[str, Any]], until: float, replacing: bool, dry_run: bool, negotiator: str
) -> Plan[dict[str, Any]]:
    body = {
        "accounts": [dict(one) for one in accounts],
        "until": until,
        "replacing": replacing,
        "dry_run": dry_run,
        "negotiator": negotiator,
    }
    return dict((yield call("POST", "/v1/accounts/import", {}, body)))


def store_credential(service: str, data: bytes, schedd: str) -> Call:
    request = call("PUT", f"/v1/credentials/{part(service)}", {"schedd": schedd}, data)
    return replace(request, headers={"Content-Type": "application/octet-stream"})


def set_quota(group: str, quota: float | None, dynamic: float | None, negotiator: str) -> Plan[None]:
    body = {"quota": quota, "dynamic_quota": dynamic, "negotiator": negotiator}
    yield call("PUT", f"/v1/groups/{part(group)}/quota", {}, body)


def unset_quota(group: str, negotiator: str) -> Plan[None]:
    yield call("DELETE", f"/v1/groups/{part(group)}/quota", {"negotiator": negotiator})


def set_config(
    macros: Mapping[str, str],
    unset: Sequence[str],
    daemons: Sequence[str],
    subsystems: Sequence[str],
    everybody: bool,
    persistent: bool,
) -> Plan[list[dict[str, Any]]]:
    whom = {"names": list(daemons), "subsystems": list(subsystems), "all": everybody}
    body = {**whom, "set": dict(macros), "unset": list(unset), "persistent": persistent}
    return list((yield call("POST", "/v1/config", {}, body)))


def visit(job_id: str, wish: Mapping[str, Any], schedd: str) -> Plan[str]:
    """Begin one: its name."""
    return str((yield call("POST", f"/v1/jobs/{part(job_id)}/visits", {"schedd": schedd}, dict(wish)))["visit"])


def visit_output(name: str) -> Call:
    return call("GET", f"/v1/visits/{part(name)}/output")


def visit_input(name: str, start: int, data: bytes, *, eof: bool) -> Call:
    request = call("POST", f"/v1/visits/{part(name)}/input", {"start": start, "eof": _bool(eof)}, data)
    return replace(request, headers={"Content-Type": "application/octet-stream"})


def visit_steer(name: str, what: Mapping[str, Any]) -> Call:
    return call("POST", f"/v1/visits/{part(name)}/steer", None, dict(what))


def create_token(user: str, level: str, label: str, lifetime_s: float, scopes: Sequence[str]) -> Plan[TokenMade]:
    body = {"user": user, "level": level, "label": label, "lifetime_s": lifetime_s, "scopes": list(scopes)}
    made = yield call("POST", "/v1/tokens", {}, body)
    return TokenMade(made["token"], made["id"])


@dataclass(frozen=True, slots=True)
class JoinToken:
    """A new join token; it can not be asked for again. id: by which it is listed and revoked. expires: 0: never."""

    token: str
    id: str
    expires: float


def create_join_token(roles: Sequence[str], names: str, uses: int, lifetime_s: float) -> Plan[JoinToken]:
    body = {"roles": list(roles), "names": names, "uses": uses, "lifetime_s": lifetime_s}
    made = yield call("POST", "/v1/join-tokens", {}, body)
    return JoinToken(made["token"], made["id"], float(made["expires"]))


def enroll(token: str, role: str, name: str, password_hash: str) -> Plan[dict[str, Any]]:
    request = call("POST", "/v1/enroll", {"role": role, "name": name, "broker": password_hash})
    return dict((yield replace(request, headers={"Roost-Join-Token": token})))


# --- waiting

_AT_REST: Final = (3, 4, 5)


def wait(
    ids: Sequence[str],
    timeout: float | None,
    poll: float,
    tell: Callable[[Mapping[str, int]], None] = lambda states: None,
) -> Plan[dict[str, int]]:
    """See Client.wait."""
    end = None if timeout is None else time.monotonic() + timeout
    states: dict[str, int] = {}
    asked = list(ids)
    more = yield from _more_to_come(ids)
    while True:
        states |= yield from wait_states(asked)
        tell(states)
        waiting = [job for job, status in states.items() if status not in _AT_REST]
        if waiting:
            asked = waiting if len(waiting) <= 100 else asked
        elif more:
            # Asked before the states are: what is materialized in between is among these then.
            more = yield from _more_to_come(ids)
            asked = list(ids)
        else:
            return states
        left = math.inf if end is None else end - time.monotonic()
        if left <= 0:
            others = ", and more are not materialized yet" if more else ""
            raise TimeoutError(f"{len(waiting)} of {len(states)} jobs are not done after {timeout:g} s{others}")
        yield Pause(min(poll, left))
        poll = min(1.0, poll * 1.3)


def _more_to_come(ids: Sequence[str]) -> Plan[list[str]]:
    """Those of the clusters that will have further jobs in the queue (late materialization)."""
    found = []
    for some in some_ids([single for single in ids if "." not in single]) if ids else ():
        for ad in (yield jobs(some, "", (), "", 0, False, factories=True)) if some else ():
            if goes_on(ad):
                found.append(str(ad.eval("ClusterId")))
    return found


def wait_states(ids: Sequence[str]) -> Plan[dict[str, int]]:
    """JobStatus of each of these jobs, in the queue or out of it. The queue is asked first: who leaves it in between is
    found in the history."""
    attributes = ("ClusterId", "ProcId", "JobStatus")
    found: dict[str, int] = {}
    for history in (False, True):
        for some in some_ids(ids):
            for ad in (yield jobs(some, "", attributes, "", 0, history)):
                found[f"{ad.eval('ClusterId')}.{ad.eval('ProcId')}"] = int(str(ad.eval("JobStatus")))
    return found


def _bool(value: bool) -> str:
    return str(value).lower()


# --- what goes wrong


def decoded(url: str, data: bytes) -> Any:
    """An answer in JSON. Raises ClientError for what is none."""
    try:
        return json.loads(data)
    except ValueError as error:
        raise broken(url, error) from error


def refused(url: str, status: int, reason: str, text: bytes) -> ClientError:
    """The gateway said no."""
    try:
        error = json.loads(text)["error"]
        return ClientError(error["message"], error["code"], error["retryable"])
    except (ValueError, KeyError, TypeError):
        return ClientError(f"HTTP {status} {reason} from {url}", "error")


def credentials(token: str) -> dict[str, str]:
    """The header that says who asks; none where the way does."""
    return {"Authorization": f"Bearer {token}"} if token else {}


#: What http.client and aiohttp say of a server that ends a connection, or answers with what is no HTTP.
_CLOSED_ON: Final = frozenset(
    (
        "RemoteDisconnected",
        "BadStatusLine",
        "ConnectionResetError",
        "ServerDisconnectedError",
        "ClientOSError",
        "ClientResponseError",
    )
)


def why(url: str, error: Exception) -> str:
    """What went wrong with a connection, with the mend where TLS is what failed."""
    if url.startswith("https:"):
        from shared.tls import explained_to_people

        return explained_to_people(error) or str(error) or type(error).__name__
    said = str(error) or type(error).__name__
    if type(error).__name__ in _CLOSED_ON:
        said += " (where its port speaks TLS, the URL begins with https://)"
    return said


#: Where several gateways serve a pool: seconds without the beginning of an answer until the one that was asked is
#: looked at, seconds in which a gateway that lives answers such a look, and seconds for a connection to it.
LOOK_AFTER_S, LOOK_S, CONNECT_S = 0.8, 0.6, 1.5
#: What a look asks for. It needs no token, and any answer will do.
LOOK: Final = Call("HEAD", "/")


def away(url: str, error: Exception) -> ClientError:
    """The gateway does not answer."""
    said = why(url, error)
    text = f"no answer from the pool at {url}: {said}" + ("" if said.startswith("TLS") else "; is it up?")
    return ClientError(text, "unavailable", retryable=True)


def broken(url: str, error: Exception) -> ClientError:
    """An answer that ended too early."""
    text = f"the answer of the pool at {url} broke off: {error or type(error).__name__}"
    return ClientError(text, "unavailable", retryable=True)


def patience(status: int, retry_after: str | None, tried: int) -> float:
    """Seconds to wait before the same is asked again; 0: it is not."""
    if status != 429 or tried >= TRIES:
        return 0.0
    try:
        told = float(retry_after or 1)
    except ValueError:
        told = 1.0
    return min(LONGEST_WAIT_S, max(0.1, told))
