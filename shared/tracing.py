"""Traces of jobs and of negotiation cycles for OpenTelemetry: off, and almost free, unless `start` was called with
somewhere to send them.

A job's trace is named by a W3C traceparent ("00-<32 hex>-<16 hex>-<2 hex>"). It travels in the envelope of requests
(`trace`), in the context of the task that handles one, and in the job itself (RoostTrace, which only its schedd
writes). Spans of which another life of a daemon must know the name, as parents of further ones, get ids that are
computed of the trace and of what they tell about (`derived`): so a schedd that was restarted goes on with the same
trace and keeps nothing else for it.

OpenTelemetry is an optional extra (roost-pool[otel]) and imported by `start` only. State is the process's, as is
OpenTelemetry's: the daemons of a personal pool share it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from shared.version import VERSION

#: Where the standard says that collectors are told, for all signals and for traces.
STANDARD: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
#: Seconds that sending once may take. Spans are sent by a thread of their own, and dropped if it can not keep up.
SEND_S: Final = 2

#: The all-zero ids are invalid, says the W3C; version ff is too.
_PARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")

Value = str | int | float | bool


class NoTracing(Exception):
    """Traces were asked for and can not be made: the text says what is missing."""


@dataclass(slots=True)
class _Current:
    """The span under way in a task. Tasks begun under it inherit it, and may outlive it: then it is over."""

    parent: str
    span: Any
    over: bool = False


_current: ContextVar[_Current | None] = ContextVar("roost_trace", default=None)
_sdk: Any = None  # _Sdk, while traces are on


class _Sdk:
    """What we need of OpenTelemetry."""

    def __init__(self, service: str, processor: Any, instance: str = "") -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

        class Ids(RandomIdGenerator):
            """Random ones, or the one that is wanted next."""

            wanted = 0

            def generate_span_id(self) -> int:
                wanted, self.wanted = self.wanted, 0
                return wanted or super().generate_span_id()

        self.trace = trace
        self.nothing = Context()
        self.ids = Ids()
        self.provider = TracerProvider(
            resource=Resource.create(
                {"service.name": service, "service.instance.id": instance or service, "service.version": VERSION}
            ),
            id_generator=self.ids,
            shutdown_on_exit=False,
        )
        self.provider.add_span_processor(processor)
        self.tracer = self.provider.get_tracer("roost")

    def begin(
        self,
        name: str,
        parent: str | None,
        attributes: Mapping[str, Value],
        at: float | None = None,
        id_: int = 0,
        link: str | None = None,
    ) -> Any:
        context = self.nothing
        if (above := self.remote(parent)) is not None:
            context = self.trace.set_span_in_context(self.trace.NonRecordingSpan(above), context)
        links = () if (other := self.remote(link)) is None else (self.trace.Link(other),)
        self.ids.wanted = id_
        return self.tracer.start_span(
            name,
            context=context,
            attributes=dict(attributes),
            links=links,
            start_time=None if at is None else round(at * 1e9),
        )

    def remote(self, parent: str | None) -> Any:
        """The span that a traceparent names; None for what is none."""
        match = _PARENT.fullmatch(parent or "")
        if match is None:
            return None
        flags = self.trace.TraceFlags(int(match[3], 16) & 1)
        return self.trace.SpanContext(int(match[1], 16), int(match[2], 16), True, flags)

    def fail(self, span: Any, text: str) -> None:
        span.set_status(self.trace.Status(self.trace.StatusCode.ERROR, text[:500]))


def start(
    service: str, endpoint: str | None, environment: Mapping[str, str] | None = None, *, instance: str = ""
) -> bool:
    """Send spans to a collector: OTLP over HTTP to `endpoint` (a base URL, as http://host:4318), or to where the
    standard's variables say. instance: which of these services this is, e.g. the daemon's name. False: nobody says
    where. Raises NoTracing where the extra is missing."""
    url = _url(endpoint, os.environ if environment is None else environment)
    if not url:
        return False
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise NoTracing(
            f"traces are wanted (ROOST_OTLP_ENDPOINT or {STANDARD[1]}), but {error.name} is not installed: install "
            "roost-pool[otel]"
        ) from error
    use(service, BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=SEND_S)), instance)
    return True


def _url(endpoint: str | None, environment: Mapping[str, str]) -> str:
    """Where spans go; empty: nowhere. A variable that is set and empty counts as not set, as the standard has it."""
    exact = "" if endpoint else environment.get(STANDARD[0], "").strip()
    base = endpoint or environment.get(STANDARD[1], "").strip()
    return exact or (f"{base.rstrip('/')}/v1/traces" if base else "")


def use(service: str, processor: Any, instance: str = "") -> None:
    """Give spans to this span processor of OpenTelemetry's SDK; tests bring their own."""
    global _sdk
    stop()
    _sdk = _Sdk(service, processor, instance)


def stop() -> None:
    """Send what waits, and make no more. Blocks for a few seconds at most if the collector is away."""
    global _sdk
    sdk, _sdk = _sdk, None
    if sdk is not None:
        sdk.provider.shutdown()


def on() -> bool:
    return _sdk is not None


def current() -> str | None:
    """The traceparent of the span under way in this task; None: there is none."""
    if _sdk is None:
        return None
    now = _current.get()
    return None if now is None or now.over else now.parent


def trace_of(parent: str | None) -> dict[str, str]:
    """What log lines about a job say of its trace (shared.daemon.logs says it of the span under way): its trace_id, or
    nothing while traces are off."""
    return {"trace_id": parent[3:35]} if _sdk is not None and parent and proper(parent) else {}


def proper(parent: str | None) -> str | None:
    """A traceparent as it is, None for what is none: it may come from anybody."""
    return parent if parent and _PARENT.fullmatch(parent) else None


@contextlib.contextmanager
def _span(name: str, parent: str | None, attributes: Mapping[str, Value]) -> Iterator[None]:
    sdk = _sdk
    span = sdk.begin(name, proper(parent) or current(), attributes)
    at = span.get_span_context()
    now = _Current(f"00-{at.trace_id:032x}-{at.span_id:016x}-{at.trace_flags:02x}", span)
    token = _current.set(now)
    try:
        yield
    except Exception as error:
        sdk.fail(span, f"{type(error).__name__}: {error}")
        raise
    finally:
        now.over = True
        _current.reset(token)
        span.end()


_NOTHING: Final = contextlib.nullcontext()


def span(name: str, parent: str | None = None, **attributes: Value) -> contextlib.AbstractContextManager[None]:
    """A span around what is done now; requests sent meanwhile carry it. Child of `parent` (a traceparent; anything else
    counts as none), or of the span under way, or the first of a new trace."""
    if _sdk is None:
        return _NOTHING
    return _span(name, parent, attributes)


def note(**attributes: Value) -> None:
    """Attributes that are known only now, for the span under way in this task, if there is one."""
    if _sdk is not None and (now := _current.get()) is not None and not now.over:
        now.span.set_attributes(attributes)


def handling(kind: str, parent: str | None) -> contextlib.AbstractContextManager[None]:
    """The span of answering a request that came with a traceparent; nothing for others: most requests belong to no
    job."""
    if _sdk is None or proper(parent) is None:
        return _NOTHING
    return _span(f"handle {kind}", parent, {})


def derived(parent: str, *names: Value) -> str:
    """The traceparent of the span that tells of `names` in the trace of `parent`: always the same."""
    return f"{parent[:36]}{_derived_id(parent, names):016x}{parent[52:]}"


def _derived_id(parent: str, names: tuple[Value, ...]) -> int:
    digest = hashlib.blake2b("\0".join((parent, *map(str, names))).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") or 1


def told(
    name: str,
    parent: str,
    began: float,
    ended: float,
    attributes: Mapping[str, Value],
    *,
    id_of: str = "",
    error: str = "",
    link: str | None = None,
) -> None:
    """A span that is over: from `began` to `ended` (seconds since 1970). id_of: what `derived` gave for it; else it
    gets an id of its own. error: it failed, and why. link: the traceparent of a span in another trace that has to do
    with it."""
    sdk = _sdk
    if sdk is None or proper(parent) is None:
        return
    span = sdk.begin(name, parent, attributes, began, int(id_of[36:52], 16) if id_of else 0, link)
    if error:
        sdk.fail(span, error)
    span.end(round(max(began, ended) * 1e9))
