"""Sessions in containers, through the engine's exec. What runs so has the container's user, capabilities, limits and
namespaces, and no-new-privileges, as the job has.

The engine gives a terminal its size only when the program runs already. So a shell of the image comes first: it says
its number, by which signals find it, waits for a line, and becomes the program. An image without a shell has its
program run at once; its terminal gets its size a moment later, and signals do not reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from typing import Any

from services.startd.exec.docker.engine import Engine, EngineAway, EngineRefused
from services.startd.exec.job_session import LINGER_S, End, JobSession, Kind, SessionRefused
from shared.messages.visits import Wish

_FIRST = 'echo "$$"; IFS= read -r go; exec "$@"'
_SHELL = ("/bin/sh", "-c", 'exec "${SHELL:-$(command -v bash || echo /bin/sh)}"')
_READ = 65536
_HEADER = 8
_STDERR = 2
#: For the shell to say its number, seconds.
GREETING_S = 20.0


class DockerSession(JobSession):
    def __init__(self, user: str, run: str, engine: Engine, container: str) -> None:
        super().__init__(user, run)
        self.engine = engine
        self.container = container
        self._exec = ""
        self._pid = 0  # in the container; 0: not known
        self._tty = False
        self._attached: Any = None
        self._socket: socket.socket | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._room = asyncio.Event()
        self._fed = asyncio.Event()
        self._pending = bytearray()  # came with the greeting

    async def start(self, wish: Wish) -> None:
        """Raises VisitRefused."""
        self._tty = wish.tty
        words = list(wish.command) or list(_SHELL)
        try:
            await self._begin(["/bin/sh", "-c", _FIRST, "sh", *words], wish)
            if not await self._greeted(wish):
                self._hang_up()
                self._pending.clear()
                await self._begin(words, wish)
                await self._resize(wish.rows, wish.columns)
        except (EngineAway, EngineRefused, TimeoutError) as error:
            self._hang_up()
            raise SessionRefused(f"the container can not be entered: {error or type(error).__name__}") from error
        for work, name in ((self._take(), "output"), (self._give(), "input")):
            self._tasks.append(asyncio.create_task(work, name=f"docker-visit-{name}"))

    async def _begin(self, words: list[str], wish: Wish) -> None:
        environment = {"TERM": wish.term or "xterm"} if wish.tty else {}

        def begin(api: Any) -> tuple[str, Any]:
            made = api.exec_create(
                self.container, words, stdin=True, stdout=True, stderr=True, tty=wish.tty, environment=environment
            )
            return made["Id"], api.exec_start(made["Id"], tty=wish.tty, socket=True)

        self._exec, self._attached = await self.engine.ask(begin)
        self._socket = getattr(self._attached, "_sock", self._attached)
        assert self._socket is not None
        self._socket.setblocking(False)

    async def _greeted(self, wish: Wish) -> bool:
        """The shell is there, and has become the program; False: the image has none."""
        loop, stream = asyncio.get_running_loop(), self._socket
        assert stream is not None
        said = bytearray()
        async with asyncio.timeout(GREETING_S):
            while b"\n" not in said:
                data = await loop.sock_recv(stream, _READ)
                if not data:
                    return False
                self._pending += data
                said += data if self._tty else b"".join(data for _, data in self._pieces())
            number = said.partition(b"\n")[0].strip()
            if not number.isdigit():
                return False  # the engine's words on why there is no shell
            self._pid = int(number)
            if self._tty:
                self._pending.clear()
            await self._resize(wish.rows, wish.columns)
            await loop.sock_sendall(stream, b"\n")
            if self._tty:  # our line comes back, as what is typed at a terminal does
                while len(self._pending) < 2:
                    data = await loop.sock_recv(stream, _READ)
                    if not data:
                        break
                    self._pending += data
                if self._pending.startswith(b"\r\n"):
                    del self._pending[:2]
        return True

    def _pieces(self) -> list[tuple[Kind, bytes]]:
        """Whole pieces of what came; a terminal has but one stream."""
        found: list[tuple[Kind, bytes]] = []
        if self._tty:
            found.append(("out", bytes(self._pending)))
            self._pending.clear()
            return found
        while len(self._pending) >= _HEADER:
            length = int.from_bytes(self._pending[4:_HEADER], "big")
            if len(self._pending) < _HEADER + length:
                break
            kind: Kind = "err" if self._pending[0] == _STDERR else "out"
            found.append((kind, bytes(self._pending[_HEADER : _HEADER + length])))
            del self._pending[: _HEADER + length]
        return found

    # -- streams

    async def _take(self) -> None:
        loop, stream = asyncio.get_running_loop(), self._socket
        assert stream is not None
        end = End(reason="the visit was lost")
        try:
            while True:
                for kind, data in self._pieces():
                    self.output.add(kind, data)
                self.news()
                while not self.output.room:
                    self._room.clear()
                    await self._room.wait()
                data = await loop.sock_recv(stream, _READ)
                if not data:
                    break
                self._pending += data
            end = await self._end()
        except OSError:
            end = await self._end()
        finally:
            self._hang_up()
            self.finish(end)

    async def _end(self) -> End:
        """The engine may learn of the end a moment after the output's."""
        for _ in range(int(LINGER_S / 0.05)):
            try:
                found = await self.engine.ask(lambda api: api.exec_inspect(self._exec))
            except (EngineAway, EngineRefused):
                return End(reason="the job has ended")
            if not found.get("Running") and found.get("ExitCode") is not None:
                return End(exit_code=int(found["ExitCode"]))
            await asyncio.sleep(0.05)
        return End(reason="the job has ended")

    async def _give(self) -> None:
        loop, stream = asyncio.get_running_loop(), self._socket
        assert stream is not None
        with contextlib.suppress(OSError):
            while self.end is None:
                if self._input:
                    data = bytes(self._input[:_READ])
                    await loop.sock_sendall(stream, data)
                    del self._input[: len(data)]
                    self.news()
                elif self._eof:
                    if self._tty:
                        self.signal(signal.SIGHUP)
                    else:
                        stream.shutdown(socket.SHUT_WR)
                    return
                else:
                    self._fed.clear()
                    await self._fed.wait()

    def resume(self) -> None:
        if self.output.room:
            self._room.set()

    def feed(self) -> None:
        self._fed.set()

    # -- what steers

    def resize(self, rows: int, columns: int) -> None:
        self._spawn(self._resize(rows, columns))

    async def _resize(self, rows: int, columns: int) -> None:
        if self._tty and rows and columns:
            with contextlib.suppress(EngineAway, EngineRefused):  # it has ended meanwhile
                await self.engine.ask(lambda api: api.exec_resize(self._exec, height=rows, width=columns))

    def signal(self, number: int) -> None:
        if self._pid and self.end is None:
            self._spawn(self._signal(number))

    async def _signal(self, number: int) -> None:
        text = f"kill -{number} -{self._pid} 2>/dev/null || kill -{number} {self._pid}"

        def send(api: Any) -> None:
            made = api.exec_create(self.container, ["/bin/sh", "-c", text], stdout=False, stderr=False)
            api.exec_start(made["Id"], detach=True)

        with contextlib.suppress(EngineAway, EngineRefused):
            await self.engine.ask(send)

    def leave(self) -> None:
        self._spawn(self.close())

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work, name="docker-visit")
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    def _hang_up(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._attached._response.close()
            self._socket.close()
            self._socket = None

    async def close(self) -> None:
        if self.end is None and self._pid:
            await self._signal(signal.SIGKILL)
        own = asyncio.current_task()
        others = [task for task in self._tasks if task is not own]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others)
        self._hang_up()
        self.finish(End(reason="the visit was ended"))
