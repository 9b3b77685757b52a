"""Functions as jobs, through `concurrent.futures`:

    with roost.Pool(memory="2GB", retries=2) as pool:
        futures = [pool.submit(simulate, seed) for seed in range(1000)]
        print(sum(future.result() for future in futures))

and in asyncio:

    async with roost.AsyncPool() as pool:
        values = await asyncio.gather(*(pool.submit(simulate, seed) for seed in range(1000)))

What can be run is what a process pool runs: functions of a module's own level, of the program too, with arguments
and values that can be pickled. The file of the function's module goes along; name others in transfer_input_files.

Values are unpickled here: who runs your jobs could run code in your program. Use roost.functions (JSON) where you do
not trust the machines.
"""

from __future__ import annotations

import asyncio
import multiprocessing  # noqa: F401  (names the program's module __mp_main__, as it is called where jobs run)
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future
from itertools import islice
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakKeyDictionary

from roost.aio import AsyncClient
from roost.errors import ClientError
from roost.function_pool import STATES, CallFuture, FunctionPool
from roost.notebook import table

#: Names of Pool's options -> submit commands.
_RESOURCES: Final = {
    "cpus": "request_cpus", "memory": "request_memory", "disk": "request_disk", "gpus": "request_gpus",
    "retries": "max_retries", "requirements": "requirements", "priority": "priority",
}  # fmt: skip


def _commands(options: Mapping[str, Any]) -> dict[str, Any]:
    """Submit commands of options of a pool. Raises TypeError for what is none."""
    found = dict(options.get("commands") or {})
    for name, value in options.items():
        if name == "python":
            found["python"] = value
        elif name != "commands":
            if name not in _RESOURCES:
                known = ", ".join((*_RESOURCES, "python", "commands"))
                raise TypeError(f"{name} is no option of a pool; there are {known}")
            found[_RESOURCES[name]] = value
    return {name: value for name, value in found.items() if value not in (None, "")}


class _Calls(Executor):
    """Where calls come from: a pool, or a view of one with other options."""

    _options: dict[str, Any]

    def _of(self) -> Pool:
        raise NotImplementedError

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> CallFuture:
        """Run fn(*args, **kwargs) as a job. Where a future stands among the arguments, also within lists and the like,
        the job gets its value, and is queued when all of these are there. Where one failed or was cancelled, this call
        fails with roost.functions.DependencyFailed. Raises ClientError for a function that can not be run so."""
        return self._of()._call(fn, [(args, kwargs)], self._options, single=True)

    def map(
        self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]:
        """As Executor.map. chunksize: calls that one job makes, one after the other."""
        if chunksize < 1:
            raise ValueError("chunksize must be >= 1.")
        rows = zip(*iterables, strict=False)
        futures: list[CallFuture] = []
        while chunk := list(islice(rows, chunksize)):
            futures.append(self._of()._call(fn, [(row, {}) for row in chunk], self._options, single=False))
        return _results(futures, None if timeout is None else time.monotonic() + timeout)

    def options(self, **options: Any) -> _View:
        """The same pool with other options (cpus, memory, ...): `pool.options(cpus=4).submit(fn)`."""
        return _View(self._of(), {**self._options, **_commands(options)})


class Pool(_Calls):
    """Jobs of a pool as an executor. url, token: as Client has them. cpus, memory, disk, gpus, requirements, priority:
    as the submit commands request_cpus, ...; retries: how often a call is tried again that raised or whose job failed;
    python: the interpreter on the execution points (python3 of their PATH); commands: further submit commands; name: of
    the jobs' batch. Raises ClientError where the pool does not answer.

    A future is running when its job is. Cancelling one takes its job out of the queue unless it runs; `future.remove()`
    removes it then, too. At the end of the with block all calls are waited for."""

    def __init__(self, url: str = "", token: str | None = None, *, name: str = "", **options: Any) -> None:
        self._options = _commands(options)
        self._pool: FunctionPool | None = None
        self._problem: BaseException | None = None
        self._shut = False
        self._futures: set[CallFuture] = set()
        self._over: Counter[str] = Counter()  # calls by how they ended
        self._lock = threading.Lock()
        self._made = threading.Event()
        self._end: asyncio.Event
        # No daemon: calls that nobody waits for come to their end, as those of other executors do.
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._live(url, token, name)), name="roost-pool", daemon=False
        )
        self._thread.start()
        self._made.wait()
        self._raise_problem()

    def _raise_problem(self) -> None:
        if self._problem is not None:
            self._thread.join()
            raise self._problem

    async def _live(self, url: str, token: str | None, name: str) -> None:
        self._end = asyncio.Event()
        try:
            async with AsyncClient(url or None, token) as client:
                await client.schedd()  # it answers, and takes the token
                self._pool = FunctionPool(client, name)
                self._made.set()
                await _run_to_end(self._pool, self._end)
        except ClientError as error:
            self._problem = error
        finally:
            self._made.set()

    def _of(self) -> Pool:
        return self

    def _call(
        self, function: Callable[..., Any], calls: list[tuple[tuple[Any, ...], dict[str, Any]]],
        options: dict[str, Any], *, single: bool,
    ) -> CallFuture:  # fmt: skip
        if self._shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if self._pool is None or self._problem is not None:
            raise RuntimeError(f"the pool is gone: {self._problem}")
        future = self._pool.call(function, calls, options, single=single, future_of=_future)
        with self._lock:
            self._futures.add(future)
        future.add_done_callback(self._forget)
        return future

    def _forget(self, future: Future[Any]) -> None:
        assert isinstance(future, CallFuture)
        with self._lock:
            self._futures.discard(future)
            self._over[future.state] += 1

    def states(self) -> dict[str, int]:
        """How many calls are waiting, running, done, failed and cancelled, of all that were made."""
        with self._lock:
            found = self._over + Counter(future.state for future in self._futures)
        return {state: found[state] for state in STATES}

    def __repr__(self) -> str:
        told = ", ".join(f"{count} {state}" for state, count in self.states().items() if count)
        return f"<{type(self).__name__} {told or 'without calls'}>"

    def _repr_html_(self) -> str:
        return table("Pool", self.states())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """wait: until all calls are over. cancel_futures: take back those that do not run yet."""
        self._shut = True
        if cancel_futures:
            with self._lock:
                open_ = list(self._futures)
            for future in open_:
                future.cancel()
        if self._pool is not None:
            self._pool.from_any_thread(self._end.set)
        if wait:
            self._thread.join()


class _View(_Calls):
    """A pool with other options."""

    def __init__(self, pool: Pool, options: dict[str, Any]) -> None:
        self._pool = pool
        self._options = options

    def _of(self) -> Pool:
        return self._pool

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """The pool's."""
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


def _results(futures: list[CallFuture], deadline: float | None) -> Iterator[Any]:
    futures.reverse()
    try:
        while futures:
            yield from futures.pop().result(None if deadline is None else deadline - time.monotonic())
    finally:
        for future in futures:
            future.cancel()


class AsyncPool:
    """The same for asyncio, with the options of Pool: `async with AsyncPool() as pool: await pool.submit(fn, 1)`. At
    the end of the block all calls are waited for; where it ends with an exception, they are taken back."""

    def __init__(self, url: str = "", token: str | None = None, *, name: str = "", **options: Any) -> None:
        self._options = _commands(options)
        self._client = AsyncClient(url or None, token)
        self._name = name
        self._pool: FunctionPool | None = None
        self._task: asyncio.Task[None]
        self._end = asyncio.Event()
        self._calls: set[asyncio.Future[Any]] = set()  # what is not over
        self._made: WeakKeyDictionary[asyncio.Future[Any], CallFuture] = WeakKeyDictionary()

    async def __aenter__(self) -> Self:
        await self._client.schedd()
        self._pool = FunctionPool(self._client, self._name)
        self._task = asyncio.create_task(_run_to_end(self._pool, self._end))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if error is not None:
            for call in list(self._calls):
                call.cancel()
        self._end.set()
        try:
            await self._task
        except ClientError:
            if error is None and self._calls:
                raise
        finally:
            await self._client.close()

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        """To be awaited. Cancelling it takes its job out of the queue, unless it runs. Calls of this pool may stand
        among the arguments, as with Pool.submit."""
        if self._pool is None or self._end.is_set():
            raise RuntimeError("calls are made within `async with`")
        call = self._pool.call(function, [(args, kwargs)], self._options, single=True, future_of=self._future)
        future = asyncio.wrap_future(call)
        self._made[future] = call
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return future

    def _future(self, thing: object) -> Future[Any] | None:
        if not isinstance(thing, asyncio.Future):
            return _future(thing)
        if thing not in self._made:
            raise TypeError("a future of asyncio that is no call of this pool: await it, and give its value")
        thing.add_done_callback(_seen)
        return self._made[thing]


def _seen(over: asyncio.Future[Any]) -> None:
    """What it raised is told by the call that takes its value: asyncio need not complain that nobody looked."""
    if not over.cancelled():
        over.exception()


def _future(thing: object) -> Future[Any] | None:
    return thing if isinstance(thing, Future) else None


async def _run_to_end(pool: FunctionPool, end: asyncio.Event) -> None:
    """Run a pool until its end is wanted and all its calls are over. Raises ClientError."""
    running = asyncio.create_task(pool.run())
    ending = asyncio.create_task(_rested(pool, end))
    try:
        await asyncio.wait((running, ending), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
    finally:
        for task in (running, ending):
            task.cancel()
        await asyncio.gather(running, ending, return_exceptions=True)


async def _rested(pool: FunctionPool, end: asyncio.Event) -> None:
    await end.wait()
    await pool.rest()
