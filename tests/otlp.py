"""A real receiver of OTLP over HTTP: what an OpenTelemetry collector is to daemons."""

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Span:
    """As it came over the wire; ids in hex, "" for none; times in seconds."""

    service: str
    instance: str
    name: str
    trace: str
    id: str
    parent: str
    began: float
    ended: float
    failed: bool
    links: tuple[tuple[str, str], ...]  # (trace, span)
    attributes: dict = field(hash=False)


class Receiver:
    """`with Receiver() as receiver:` listens at `.url`, and keeps what came in `.spans`. address: for others than this
    machine "0.0.0.0"."""

    def __init__(self, address: str = "127.0.0.1", port: int = 0) -> None:
        self.spans: list[Span] = []
        self.problems: list[str] = []
        receiver = self

        class Door(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                try:
                    assert self.path == "/v1/traces", self.path
                    receiver.take(ExportTraceServiceRequest.FromString(body))
                except Exception as error:
                    receiver.problems.append(repr(error))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer((address, port), Door)
        self._thread = threading.Thread(target=self._server.serve_forever)

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def take(self, request) -> None:
        for resource in request.resource_spans:
            about = {a.key: a.value.string_value for a in resource.resource.attributes}
            who = (about["service.name"], about["service.instance.id"])
            self.spans += [_span(*who, span) for scope in resource.scope_spans for span in scope.spans]

    def trace(self, trace: str) -> list[Span]:
        return [span for span in list(self.spans) if span.trace == trace]


def orphans(spans) -> list[Span]:
    """Those of one trace whose parent is not among them."""
    ids = {span.id for span in spans}
    return [span for span in spans if span.parent and span.parent not in ids]


def _span(service, instance, span) -> Span:
    return Span(
        service,
        instance,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano / 1e9,
        span.end_time_unix_nano / 1e9,
        span.status.code == 2,
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes},
    )
