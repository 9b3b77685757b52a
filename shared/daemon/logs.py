"""Log lines: one JSON object each, on standard error (docs/daemons.md lists their fields). Set up by processes;
libraries and daemons only use loggers."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog
from aiohttp.http_exceptions import HttpProcessingError

from shared import tracing

#: What every line says of who wrote it, unless its logger is bound to another: daemon and name.
_who: dict[str, str] = {}


def identify(daemon: str, name: str) -> None:
    """From now on every line of this process says so, also those of the bus, the store and of libraries."""
    _who.update(daemon=daemon, name=name)


def _add_who(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in _who.items():
        event.setdefault(key, value)
    return event


def _add_trace(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The span under way, as OpenTelemetry names it in logs."""
    if (span := tracing.current()) is not None:
        event.setdefault("trace_id", span[3:35])
        event.setdefault("span_id", span[36:52])
    return event


_SHARED: list[Any] = [
    structlog.stdlib.add_log_level,
    _add_who,
    _add_trace,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
    structlog.processors.format_exc_info,
]

#: Libraries that log a traceback for every lost connection: the bus says it in one line.
_NOISY = ("aiormq", "aio_pika", "aiohttp.access")


def configure(level: str = "INFO", *, stream: TextIO = sys.stderr) -> None:
    """Send structlog and the standard library's logging of this process to `stream`, from this level on."""
    wanted = logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(wanted)
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(wanted, logging.CRITICAL if name != "aiohttp.access" else logging.WARNING))
    server = logging.getLogger("aiohttp.server")
    if _is_of_us not in server.filters:
        server.addFilter(_is_of_us)


def _is_of_us(record: logging.LogRecord) -> bool:
    """Whether what aiohttp's server tells is no request that it refused with 400: anybody could fill the log with
    those, and their text has the header that was wrong, tokens too."""
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


def level_of(*lists: str | None) -> str:
    """The level that HTCondor's lists `<SUBSYS>_DEBUG` and ALL_DEBUG ask for: D_FULLDEBUG and friends mean DEBUG."""
    words = " ".join(one or "" for one in lists).replace(",", " ").upper().split()
    return "DEBUG" if any(w.startswith(("D_FULLDEBUG", "D_ALL")) or w.endswith(":2") for w in words) else "INFO"
