"""A visit to a running job, from the visitor's side: output as it comes, input and window sizes in their order.

The output is one long answer of the gateway; what is typed goes by short requests on a connection of its own, one after
the other, from a thread that sends. Its queue is short: who types faster than the program reads has to wait.
"""

from __future__ import annotations

import contextlib
import http.client
import queue
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from roost.calls import VISIT_CHUNK as CHUNK
from roost.calls import Frames
from roost.errors import ClientError

if TYPE_CHECKING:
    from roost.client import Client

#: Requests that may wait to be sent.
WAITING = 4


class Visit:
    """connect: a fresh client of the same pool. To be closed."""

    def __init__(self, connect: Callable[[], Client], name: str) -> None:
        self.name = name
        self._reader, self._sender = connect(), connect()
        self._todo: queue.Queue[Callable[[], None] | None] = queue.Queue(WAITING)
        self._sent = 0
        self._over = False
        self._thread = threading.Thread(target=self._send, name="visit-input", daemon=True)
        self._thread.start()
        #: How it ended: exit_code, exit_signal, reason.
        self.end: dict[str, Any] = {}

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave: what still runs is ended."""
        self._over = True
        with contextlib.suppress(queue.Full):
            self._todo.put_nowait(None)
        self._reader.close()  # the sender is closed by its thread: it may be in the middle of a request

    # -- output

    def output(self) -> Iterator[tuple[str, bytes]]:
        """("out" or "err", bytes) until the end, which `end` then tells of. Raises ClientError."""
        stream, frames = self._reader.visit_output(self.name), Frames()
        try:
            while data := stream.read1(CHUNK):
                yield from frames.feed(data)
                if frames.end is not None:
                    self.end = frames.end
                    return
            raise ValueError("it ended in the middle")
        except (OSError, http.client.HTTPException, ValueError) as error:
            text = f"the connection to the visit broke off: {error or type(error).__name__}"
            raise ClientError(text, "unavailable") from error
        finally:
            self._over = True

    # -- input: each waits while much is on its way

    def write(self, data: bytes) -> None:
        for at in range(0, len(data), CHUNK):
            part = data[at : at + CHUNK]
            self._put(lambda part=part: self._write(part))  # type: ignore[misc]

    def end_input(self) -> None:
        self._put(lambda: self._write(b"", eof=True))

    def steer(self, **what: Any) -> None:
        """rows and columns, or signal."""
        self._put(lambda: self._sender.visit_steer(self.name, **what))

    def _put(self, work: Callable[[], None]) -> None:
        while not self._over:
            with contextlib.suppress(queue.Full):
                self._todo.put(work, timeout=0.2)
                return

    def _send(self) -> None:
        try:
            while (work := self._todo.get()) is not None and not self._over:
                work()
        except ClientError:
            self._over = True  # the reader tells why
        finally:
            self._sender.close()

    def _write(self, data: bytes, *, eof: bool = False) -> None:
        end = self._sent + len(data)
        while not self._over:
            answer = self._sender.visit_input(self.name, self._sent, data[len(data) - (end - self._sent) :], eof=eof)
            self._sent = max(self._sent, int(answer["taken"]))
            if answer["ended"] or self._sent >= end:
                return
