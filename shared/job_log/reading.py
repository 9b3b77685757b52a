"""Reads logs of jobs, ours and HTCondor's, as text, XML or JSON, in pieces as they grow."""

from __future__ import annotations

import json
import re
import time
from calendar import isleap, timegm
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from xml.etree import ElementTree

from shared.classad import ERROR, UNDEFINED, ClassAd, ParseError, parse_ad, parse_expr
from shared.classad.lexer import unescape
from shared.job_log.event import Event
from shared.job_log.writing import TRANSFERS

#: An event whose end has not come after so many characters is none: the log is something else.
LONGEST: Final = 1_000_000
_HEAD: Final = re.compile(
    r"(\d{3}) \((-?\d+)\.(-?\d+)\.(-?\d+)\) "
    r"(?:(\d{4})-(\d\d)-(\d\d)[ T]|(\d\d)/(\d\d) )(\d\d):(\d\d):(\d\d)(\.\d+)?(Z|[+-]\d\d:?\d\d)? ?(.*)"
)
_TYPES: Final = {title: number for number, title in TRANSFERS.items()}
_NUMBER: Final = r"(-?\d+(?:\.\d+)?)"


class BadEvent(ValueError):
    """Text in a log that is no event. Says where it begins."""


def _skip(bad: BadEvent) -> None:
    """What is no event is passed over."""


class LogReader:
    """Takes a log in pieces as they come. A last event that is not complete yet waits for its rest. bad: is told of
    what can not be read, which is passed over; it may raise. now: of times that have no year."""

    def __init__(self, bad: Callable[[BadEvent], None] = _skip, now: Callable[[], float] = time.time) -> None:
        self._rest = ""
        self._bad = bad
        self._now = now

    def feed(self, text: str) -> Iterator[Event]:
        """The events that are complete now."""
        held = self._rest + text
        cut = len(held) - held.endswith("\r")  # its \n may come with the next piece
        self._rest = held[:cut].replace("\r\n", "\n") + held[cut:]
        while (found := self._cut()) is not None:
            whole, self._rest = found
            if not whole.strip():
                continue
            try:
                event = _read(whole, self._now())
            except (BadEvent, ValueError, OverflowError) as error:
                self._bad(BadEvent(f"{whole.strip().splitlines()[0][:100]!r} is no event of a job: {error}"))
                continue
            yield event

    def _cut(self) -> tuple[str, str] | None:
        """The first event that is complete, and what follows it."""
        rest = self._rest.lstrip()
        if rest.startswith("{"):
            try:
                _, end = json.JSONDecoder().raw_decode(rest)
            except ValueError:
                return self._too_long(rest)
            return rest[:end], rest[end:]
        if rest.startswith("<"):
            if not rest.startswith("<c>"):  # the head of a document, or its end
                line, end_of_line, after = rest.partition("\n")
                return ("", after) if end_of_line and "<c>" not in line else self._xml(rest)
            return self._xml(rest)
        if self._rest.startswith("...\n"):
            return "", self._rest[4:]
        whole, end_of_event, after = self._rest.partition("\n...\n")
        return (whole, after) if end_of_event else self._too_long(self._rest)

    def _xml(self, rest: str) -> tuple[str, str] | None:
        depth = 0
        for tag in re.finditer(r"<(/?)c>", rest):
            depth += -1 if tag[1] else 1
            if depth <= 0:
                return rest[: tag.end()], rest[tag.end() :].lstrip("\n")
        return self._too_long(rest)

    def _too_long(self, rest: str) -> tuple[str, str] | None:
        """None: wait for more."""
        return (rest, "") if len(rest) > LONGEST else None


def _read(text: str, now: float) -> Event:
    begins = text.lstrip()[:1]
    if begins in "<{":
        return _of_ad(_of_xml(text) if begins == "<" else _plain(json.loads(text)))
    lines = text.strip("\n").split("\n")
    head = _HEAD.match(lines[0])
    if head is None:
        raise BadEvent("its first line has no number, job and time")
    number = int(head[1])
    told = _BODIES.get(number, _future)(head[15], lines[1:])
    found = {name: value for name, value in told.items() if value is not None}
    return Event(number, int(head[2]), int(head[3]), _when(head, now), found, int(head[4]), head[15])


def _when(head: re.Match[str], now: float) -> float:
    """Seconds since 1970. A time without a zone is local; one without a year is of this year, or of the one before."""
    clock = [int(head[n]) for n in (10, 11, 12)]
    fraction = float(head[13] or 0)
    if head[5]:
        return _moment([int(head[5]), int(head[6]), int(head[7]), *clock], head[14]) + fraction
    year, month, day = time.localtime(now).tm_year, int(head[8]), int(head[9])
    while (month, day) == (2, 29) and not isleap(year):
        year -= 1
    at = _moment([year, month, day, *clock], head[14])
    if at > now + 86400:
        at = _moment([year - (4 if (month, day) == (2, 29) else 1), month, day, *clock], head[14])
    return at + fraction


def _moment(parts: Sequence[int], zone: str | None) -> float:
    year, month, day, hour, minute, second = parts
    moment = datetime(year, month, day, hour, minute, second)  # raises ValueError for what is no time
    if zone is None:
        return moment.timestamp()
    east = 0 if zone == "Z" else int(f"{zone[0]}1") * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
    return timegm(moment.timetuple()) - east


# Ads


def _of_ad(ad: Mapping[str, Any]) -> Event:
    told = dict(ad)
    folded = {name.lower(): name for name in told}

    def taken(name: str, other: int | None = None) -> int:
        value = told.pop(folded.get(name.lower(), name), other)
        if not isinstance(value, int):
            raise BadEvent(f"it has no {name}")
        return value

    stamp = told.pop(folded.get("eventtime", ""), None)
    told.pop(folded.get("mytype", ""), None)
    if not isinstance(stamp, str):
        raise BadEvent("it has no EventTime")
    at = datetime.fromisoformat(stamp).timestamp()
    number, cluster = taken("EventTypeNumber"), taken("Cluster")
    proc = taken("Proc", -1)
    return Event(number, cluster, proc, at, told, taken("Subproc", 0 if proc >= 0 else -1))


def _plain(value: Any) -> Any:
    """A value of JSON; what is an expression there is one here."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, str) and value.startswith("/Expr(") and value.endswith(")/"):
        try:
            return parse_expr(value[6:-2].replace("\\\\", "\\"))
        except ParseError:
            return value
    return UNDEFINED if value is None else value


def _of_xml(text: str) -> dict[str, Any]:
    try:
        found = _element(ElementTree.fromstring(text[text.index("<c>") :]))
    except ElementTree.ParseError as error:
        raise BadEvent(str(error)) from None
    assert isinstance(found, dict)
    return found


def _element(element: ElementTree.Element) -> Any:
    text = element.text or ""
    match element.tag:
        case "c":
            return {a.get("n", ""): _element(a[0]) for a in element if a.tag == "a" and len(a)}
        case "l":
            return [_element(one) for one in element]
        case "s":
            return text if (plain := unescape(text)) is None else plain  # in XML too strings are escaped as in ads
        case "at" | "rt":
            return text
        case "i":
            return int(text)
        case "r":
            return float(text)
        case "b":
            return element.get("v", text).startswith(("t", "1"))
        case "e":
            try:
                return parse_expr(text)
            except ParseError as error:
                raise BadEvent(str(error)) from None
        case "un":
            return UNDEFINED
    return ERROR


# Text. Each takes the rest of the first line and the lines below it.


class _Lines:
    """Lines that are taken one after the other."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._next = 0

    def take(self, pattern: str) -> re.Match[str] | None:
        """The next line, if it is of this pattern; then it is taken."""
        found = re.fullmatch(rf"\s*+{pattern}\s*", self._lines[self._next]) if self._next < len(self._lines) else None
        self._next += found is not None
        return found

    def text(self, pattern: str = "(.*?)") -> str | None:
        found = self.take(pattern)
        return found[1].strip() or None if found else None

    def number(self, pattern: str) -> int | None:
        found = self.take(pattern)
        return int(found[1]) if found else None

    def rest(self) -> Sequence[str]:
        return self._lines[self._next :]


def _after(title: str, what: str) -> str:
    begins, found, rest = title.partition(what)
    if begins or not found:
        raise BadEvent(f"its first line does not say {what.strip()!r}")
    return rest.strip()


def _submitted(title: str, body: Sequence[str], *, what: str = "Job") -> dict[str, Any]:
    told: dict[str, Any] = {"SubmitHost": _after(title, f"{what} submitted from host:")}
    for name, line in zip(("LogNotes", "UserNotes", ""), body, strict=False):
        if line.strip().startswith("WARNING: Committed job submission"):
            told["Warnings"] = line.strip()
        elif name:
            told[name] = line.strip() or None
    notes = told.get("LogNotes") or ""
    if notes.startswith("DAG Node: "):
        told["StructuredNotes"] = {"DAGNodeName": notes.removeprefix("DAG Node: ")}
    return told


def _cluster_submitted(title: str, body: Sequence[str]) -> dict[str, Any]:
    return _submitted(title, body, what="Cluster")


def _executing(title: str, body: Sequence[str]) -> dict[str, Any]:
    lines = _Lines(body)
    told = {"ExecuteHost": _after(title, "Job executing on host:"), "SlotName": lines.text(r"SlotName:(.*?)")}
    return {**told, "ExecuteProps": _assignments(lines.rest()) or None}


def _assignments(lines: Sequence[str]) -> dict[str, Any]:
    """Lines such as `Cpus = 1`, up to the first that is none."""
    found: dict[str, Any] = {}
    for line in lines:
        try:
            ad = parse_ad(line.strip(), "old")
        except ParseError:
            break
        found |= _values(ad)
    return found


def _values(ad: ClassAd) -> dict[str, Any]:
    """The attributes of an ad: plain values; mappings for nested ads; expressions as they are."""
    return {name: _value(ad[name]) for name in ad}


def _value(value: Any) -> Any:
    return _values(value) if isinstance(value, ClassAd) else value


def _executable_error(title: str, body: Sequence[str]) -> dict[str, Any]:
    found = re.match(r"\((\d+)\)", title)
    return {"ExecuteErrorType": int(found[1]) if found else None}


def _usages(lines: _Lines, what: str) -> dict[str, Any]:
    told = {}
    for where in ("Remote", "Local"):
        told[f"{what}{where}Usage"] = lines.text(rf"(Usr .*?)\s+-\s+{what} {where} Usage")
    return told


def _bytes(lines: _Lines, what: str, prefix: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for verb, name in (("Sent", "SentBytes"), ("Received", "ReceivedBytes")):
        found = lines.take(rf"{_NUMBER}\s+-\s+{what} Bytes {verb} By \w+")
        told[f"{prefix}{name}"] = float(found[1]) if found else None
    return told


def _checkpointed(title: str, body: Sequence[str]) -> dict[str, Any]:
    lines = _Lines(body)
    told = _usages(lines, "Run")
    sent = lines.take(rf"{_NUMBER}\s+-\s+Run Bytes Sent By Job For Checkpoint")
    return {**told, "SentBytes": float(sent[1]) if sent else None}


def _end(lines: _Lines) -> dict[str, Any]:
    normal = lines.number(r"\(1\) Normal termination \(return value (-?\d+)\)")
    if normal is not None:
        return {"TerminatedNormally": True, "ReturnValue": normal}
    told: dict[str, Any] = {"TerminatedNormally": False}
    told["TerminatedBySignal"] = lines.number(r"\(0\) Abnormal termination \(signal (-?\d+)\)")
    told["CoreFile"] = lines.text(r"\(1\) Corefile in: (.*?)")
    lines.take(r"\(0\) No core file")
    return told


def _evicted(title: str, body: Sequence[str]) -> dict[str, Any]:
    codes = re.search(r"Code (-?\d+) Subcode (-?\d+)", title)
    lines = _Lines(body)
    how = lines.take(r"\((\d)\) (.*?)")
    told: dict[str, Any] = {
        "Checkpointed": bool(how and how[1] == "1"),
        "TerminatedAndRequeued": bool(how and "requeued" in how[2]),
        **_usages(lines, "Run"),
        **_bytes(lines, "Run", ""),
        "TerminatedNormally": False,
    }
    if told["TerminatedAndRequeued"]:
        told |= _end(lines)
    told["Reason"] = lines.text(r"(?!Partitionable Resources)(.+?)")
    if codes:
        told |= {"ReasonCode": int(codes[1]), "ReasonSubCode": int(codes[2])}
    return {**told, **_table(lines.rest())}


def _terminated(title: str, body: Sequence[str]) -> dict[str, Any]:
    lines = _Lines(body)
    told = {**_end(lines), **_usages(lines, "Run"), **_usages(lines, "Total")}
    told |= {**_bytes(lines, "Run", ""), **_bytes(lines, "Total", "Total")}
    return {**told, **_table(lines.rest())}


def _node_terminated(title: str, body: Sequence[str]) -> dict[str, Any]:
    node = re.match(r"Node (\d+)", title)
    return {"Node": int(node[1]) if node else None, **_terminated(title, body)}


def _table(lines: Sequence[str]) -> dict[str, Any]:
    """The table of resources. Its columns end where their titles end."""
    if not lines or "Partitionable Resources" not in lines[0] or ":" not in lines[0]:
        return {}
    start = lines[0].index(":") + 1
    columns: list[tuple[str, int, int]] = []
    for title in re.finditer(r"\S+", lines[0][start:]):
        columns.append((title[0], columns[-1][2] if columns else start, start + title.end()))
    told: dict[str, Any] = {}
    for line in lines[1:]:
        name, colon, _ = line.partition(":")
        name = name.partition("(")[0].strip()
        if not colon or not re.fullmatch(r"\w+", name):
            break
        told |= _row(name, line, columns)
    return told


def _row(name: str, line: str, columns: Sequence[tuple[str, int, int]]) -> dict[str, Any]:
    names = {"Usage": f"{name}Usage", "Request": f"Request{name}", "Allocated": name, "Assigned": f"Assigned{name}"}
    told: dict[str, Any] = {}
    for title, begins, ends in columns:
        text = (line[begins:] if title == "Assigned" else line[begins:ends]).strip()
        if text and title in names:
            told[names[title]] = _read_value(text)
    return told


def _read_value(text: str) -> Any:
    try:
        return _value(parse_ad(f"X = {text}", "old")["X"])
    except ParseError:
        return text


def _image_size(title: str, body: Sequence[str]) -> dict[str, Any]:
    lines = _Lines(body)
    told: dict[str, Any] = {"Size": _integer(_after(title, "Image size of job updated:"))}
    for name, unit in (("MemoryUsage", "MB"), ("ResidentSetSize", "KB"), ("ProportionalSetSize", "KB")):
        told[name] = lines.number(rf"(-?\d+)\s+-\s+{name} of job \({unit}\)")
    if told["ResidentSetSize"] is None:
        told["ResidentSetSize"] = 0
    return told


def _integer(text: str) -> int:
    if not re.fullmatch(r"-?\d+", text):
        raise BadEvent(f"{text!r} is no number")
    return int(text)


def _shadow_exception(title: str, body: Sequence[str]) -> dict[str, Any]:
    lines = _Lines(body)
    return {"Message": lines.text(), **_bytes(lines, "Run", "")}


def _reason(title: str, body: Sequence[str]) -> dict[str, Any]:
    return {"Reason": _Lines(body).text()}


def _suspended(title: str, body: Sequence[str]) -> dict[str, Any]:
    return {"NumberOfPIDs": _Lines(body).number(r"Number of processes actually suspended: (-?\d+)")}


def _held(title: str, body: Sequence[str]) -> dict[str, Any]:
    lines = _Lines(body)
    reason = lines.text()
    return {"HoldReason": None if reason == "Reason unspecified" else reason, **_codes(lines)}


def _codes(lines: _Lines) -> dict[str, Any]:
    codes = lines.take(r"Code (-?\d+) Subcode (-?\d+)")
    return {"HoldReasonCode": int(codes[1]) if codes else 0, "HoldReasonSubCode": int(codes[2]) if codes else 0}


def _node_executing(title: str, body: Sequence[str]) -> dict[str, Any]:
    found = re.fullmatch(r"Node (\d+) executing on host: (.*)", title)
    if found is None:
        raise BadEvent("its first line names no node")
    return {"Node": int(found[1]), "ExecuteHost": found[2].strip()}


def _post_script(title: str, body: Sequence[str]) -> dict[str, Any]:
    lines = _Lines(body)
    return {**_end(lines), "DAGNodeName": lines.text(r"DAG Node: (.*?)")}


def _remote_error(title: str, body: Sequence[str]) -> dict[str, Any]:
    found = re.fullmatch(r"(Error|Warning) from (\S+) on (.*?):", title.strip())
    if found is None:
        raise BadEvent("its first line names no daemon")
    lines, said = _Lines(body), []
    codes = None
    while lines.rest():
        if (codes := lines.take(r"Code (-?\d+) Subcode (-?\d+)")) is not None:
            break
        said.append(lines.text() or "")
    told: dict[str, Any] = {"Daemon": found[2], "ExecuteHost": found[3], "ErrorMsg": "\n".join(said)}
    if found[1] == "Warning":
        told["CriticalError"] = False
    if codes and int(codes[1]):
        told |= {"HoldReasonCode": int(codes[1]), "HoldReasonSubCode": int(codes[2])}
    return told


def _disconnected(title: str, body: Sequence[str]) -> dict[str, Any]:
    lines = _Lines(body)
    told: dict[str, Any] = {"EventDescription": "Job disconnected, attempting to reconnect"}
    told["DisconnectReason"] = lines.text()
    to = lines.take(r"Trying to reconnect to (\S+) (.*?)")
    if to is None:
        raise BadEvent("it does not say what it tries to reconnect to")
    return {**told, "StartdName": to[1], "StartdAddr": to[2]}


def _reconnected(title: str, body: Sequence[str]) -> dict[str, Any]:
    lines = _Lines(body)
    told: dict[str, Any] = {"EventDescription": "Job reconnected", "StartdName": _after(title, "Job reconnected to")}
    told["StartdAddr"] = lines.text(r"startd address: (.*?)")
    return {**told, "StarterAddr": lines.text(r"starter address: (.*?)")}


def _reconnect_failed(title: str, body: Sequence[str]) -> dict[str, Any]:
    lines = _Lines(body)
    told: dict[str, Any] = {"EventDescription": "Job reconnect impossible: rescheduling job", "Reason": lines.text()}
    return {**told, "StartdName": lines.text(r"Can not reconnect to (.*?), rescheduling job")}


def _grid(title: str, body: Sequence[str]) -> dict[str, Any]:
    lines = _Lines(body)
    return {"GridResource": lines.text(r"GridResource: (.*?)"), "GridJobId": lines.text(r"GridJobId: (.*?)")}


def _ad_information(title: str, body: Sequence[str]) -> dict[str, Any]:
    own = ("MyType", "EventTypeNumber", "EventTime", "Cluster", "Proc", "Subproc")
    return {name: value for name, value in _assignments(body).items() if name not in own}


def _attribute_changed(title: str, body: Sequence[str]) -> dict[str, Any]:
    found = re.fullmatch(r"(?:Changing|Setting) job attribute (\S+) (?:from (.*) )?to (.*)", title.strip())
    if found is None:
        raise BadEvent("its first line names no attribute")
    return {"Attribute": found[1], "PriorValue": found[2], "Value": found[3]}


def _cluster_removed(title: str, body: Sequence[str]) -> dict[str, Any]:
    lines = _Lines(body)
    count = lines.take(r"Materialized (\d+) jobs from (\d+) items\.\s*(\w*)")
    told: dict[str, Any] = {"Completion": 0}
    if count:
        told = {"NextProcId": int(count[1]), "NextRow": int(count[2]), "Completion": int(count[3] == "Complete")}
    return {**told, "Notes": lines.text()}


def _factory(title: str, body: Sequence[str]) -> dict[str, Any]:
    lines = _Lines(body)
    told: dict[str, Any] = {"Reason": lines.text(r"(?!PauseCode|HoldCode)(.+?)")}
    if title.startswith("Job Materialization Paused"):
        told["PauseCode"] = lines.number(r"PauseCode (-?\d+)") or 0
        told["HoldCode"] = lines.number(r"HoldCode (-?\d+)") or 0
    return told


def _transfer(title: str, body: Sequence[str]) -> dict[str, Any]:
    if title.strip() not in _TYPES:
        raise BadEvent("its first line names no transfer")
    lines = _Lines(body)
    told: dict[str, Any] = {"Type": _TYPES[title.strip()]}
    told["QueueingDelay"] = lines.number(r"Seconds spent in queue: (-?\d+)")
    return {**told, "Host": lines.text(r"Transferring to host: (.*?)")}


def _nothing(title: str, body: Sequence[str]) -> dict[str, Any]:
    return {}


def _future(title: str, body: Sequence[str]) -> dict[str, Any]:
    """A kind of a later version: what can be read as attributes."""
    return {"EventHead": title or None, **_assignments(body)}


_BODIES: Final[Mapping[int, Callable[[str, Sequence[str]], dict[str, Any]]]] = {
    0: _submitted,
    1: _executing,
    2: _executable_error,
    3: _checkpointed,
    4: _evicted,
    5: _terminated,
    6: _image_size,
    7: _shadow_exception,
    8: lambda title, body: {"Info": title},
    9: _reason,
    10: _suspended,
    11: _nothing,
    12: _held,
    13: _reason,
    14: _node_executing,
    15: _node_terminated,
    16: _post_script,
    21: _remote_error,
    22: _disconnected,
    23: _reconnected,
    24: _reconnect_failed,
    25: _grid,
    26: _grid,
    27: _grid,
    28: _ad_information,
    29: _nothing,
    30: _nothing,
    33: _attribute_changed,
    34: lambda title, body: {"SkipEventLogNotes": _Lines(body).text()},
    35: _cluster_submitted,
    36: _cluster_removed,
    37: _factory,
    38: _factory,
    40: _transfer,
    46: _reason,
}
