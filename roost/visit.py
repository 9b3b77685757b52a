"""A visit to a running job, from the visitor's side: output as it comes, input and window sizes in their order.

The output is one long answer of the gateway; what is typed goes by short requests on a connection of its own, one after
the other, from a thread that sends. Its queue is short: who types faster than the program reads has to wait.
"""

from __future__ import annotations

import contextlib
import http.client
import queue
import threading
from collections.abc import Callable, Generator
from typing import Any

from roost import protocol
from roost.errors import ClientError
from roost.protocol import VISIT_CHUNK, VISIT_QUIET_S, Frames, VisitInput
from roost.transport import Transport

#: Requests that may wait to be sent.
WAITING = 4


class Visit:
    """To be closed, or used with `with`."""

    def __init__(self, transport: Transport, name: str) -> None:
        self.name = name
        self._reader, self._sender = transport.another(), transport.another()
        self._todo: queue.Queue[Callable[[], None] | None] = queue.Queue(WAITING)
        self._input = VisitInput(name)
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

    def output(self) -> Generator[tuple[str, bytes], None, None]:
        """("out" or "err", bytes) until the end, which `end` then tells of. Raises ClientError."""
        # The gateway says at least every 10 s that there is nothing new.
        stream, frames = self._reader.body(protocol.visit_output(self.name), VISIT_QUIET_S), Frames()
        try:
            while data := stream.read1(VISIT_CHUNK):
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
        for at in range(0, len(data), VISIT_CHUNK):
            part = data[at : at + VISIT_CHUNK]
            self._put(lambda part=part: self._write(part))  # type: ignore[misc]

    def end_input(self) -> None:
        self._put(lambda: self._write(b"", eof=True))

    def steer(self, **what: Any) -> None:
        """rows and columns, or signal."""
        self._put(lambda: self._steer(what))

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
        self._input.give(data, eof=eof)
        while not self._over and (request := self._input.request()) is not None:
            self._input.answered(protocol.decoded(self._sender.url, self._sender.read(request)))

    def _steer(self, what: dict[str, Any]) -> None:
        self._sender.read(protocol.visit_steer(self.name, what))
