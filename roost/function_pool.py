"""Runs calls of functions as jobs of a pool: what roost.executor.Pool and AsyncPool have in common. It lives in an
event loop; its calls are futures of concurrent.futures, so any thread may wait for them.

Calls of one function that wait together, with equal options, go as one cluster. The pool's events tell when a job runs
and ends, so nothing polls.

A call that takes values of other calls waits here, in no thread, until all of these are over: their values are wanted
here anyhow, and then go along with its arguments.
"""

from __future__ import annotations

import asyncio
import pickle
import tempfile
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from roost.aio import AsyncClient
from roost.errors import ClientError
from roost.following import EventFollower, until_done
from roost.functions import (
    PICKLED_RESULT,
    PROTOCOL,
    RUNNER,
    DependencyFailed,
    FunctionFailed,
    pickled,
    read_pickled,
    value_bytes,
    write_runner,
    write_source,
)
from roost.notebook import table
from roost.protocol import Event
from shared.classad import ClassAd

#: Jobs of one cluster at most.
TOGETHER: Final = 500
#: Results that are fetched at a time.
FETCHES: Final = 8
#: What calls can be.
STATES: Final = ("waiting", "running", "done", "failed", "cancelled")
_EVENTS: Final = ("job.started", "job.ended", "job.removed", "job.held")
_ASKED: Final = ("ClusterId", "ProcId", "JobStatus", "HoldReason", "RemoveReason")


class CallFuture(Future[Any]):
    """A call of a function. function: its name; job_id: of its job, once there is one; schedd: which has it."""

    def __init__(self, pool: FunctionPool, function: str) -> None:
        super().__init__()
        self.function = function
        self.job_id = ""
        self.schedd = ""
        self._pool = pool

    def cancel(self) -> bool:
        """Take the call back, and its job out of the queue, unless it runs or is over."""
        if not super().cancel():
            return False
        self._pool.from_any_thread(self._pool.take_back, self)
        return True

    @property
    def state(self) -> str:
        """waiting, running, done, failed or cancelled."""
        if not self.done():
            return "running" if self.running() else "waiting"
        return "cancelled" if self.cancelled() else "failed" if self.exception() is not None else "done"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.state}{f', job {self.job_id}' if self.job_id else ''}>"

    def _repr_html_(self) -> str:
        failed = repr(self.exception()) if self.state == "failed" else ""
        return table("Call", {"state": self.state, "job": self.job_id, "access point": self.schedd, "raised": failed})

    def remove(self, reason: str = "") -> None:
        """Remove its job, whatever it does; the call has failed then, if it was not over."""
        self._pool.from_any_thread(self._pool.remove, self, reason)


@dataclass(slots=True, eq=False)
class Call:
    """options: further submit commands; single: the value is that of the only call, not a list; told: to its job;
    needs: futures whose values its arguments are, and their names there; open: how many of these are not over."""

    function: Callable[..., Any]
    options: tuple[tuple[str, Any], ...]
    single: bool
    future: CallFuture
    source: Path = field(default_factory=Path)
    told: dict[str, Any] = field(default_factory=dict)
    needs: dict[Future[Any], str] = field(default_factory=dict)
    open: int = 0


class FunctionPool:
    """To be run (`run`) in the loop that it was made in. client: is closed with it. name: of the jobs' batch."""

    def __init__(self, client: AsyncClient, name: str = "") -> None:
        self._client = client
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._new: deque[Call] = deque()
        self._behind: dict[CallFuture, Call] = {}  # what waits for other calls
        self._wake = asyncio.Event()
        self._jobs: dict[tuple[str, str], Call] = {}  # by schedd and job id
        self._early: dict[tuple[str, str], list[Event]] = {}  # of jobs whose submit may not be answered yet
        self._submitting = False
        self._gone: list[CallFuture] = []  # whose jobs are to be removed, or may go from the queue
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(FETCHES)
        self._events = EventFollower(client, _EVENTS, self._heard, lambda: self._spawn(self._look()))
        self._rest = asyncio.Event()  # there is nothing to do
        self._rest.set()

    # From any thread

    def from_any_thread(self, what: Callable[..., object], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is over: so is every call
            self._loop.call_soon_threadsafe(what, *arguments)

    def call(
        self, function: Callable[..., Any], calls: Sequence[tuple[Sequence[Any], Mapping[str, Any]]],
        options: Mapping[str, Any], *, single: bool, future_of: Callable[[object], Future[Any] | None],
    ) -> CallFuture:  # fmt: skip
        """future_of: see functions.pickled. Raises ClientError for a function that can not be run as a job, and what
        pickle raises of arguments."""
        source, told, needs = pickled(function, calls, future_of)
        future = CallFuture(self, function.__qualname__)
        call = Call(function, tuple(sorted(options.items())), single, future, source, told, needs, len(needs))
        self.from_any_thread(self._take, call)
        return future

    # In the loop

    def _take(self, call: Call) -> None:
        self._rest.clear()
        if not call.needs:
            self._new.append(call)
            self._wake.set()
            return
        self._behind[call.future] = call
        for one in call.needs:
            one.add_done_callback(lambda over: self.from_any_thread(self._need_over, call, over))

    def _need_over(self, call: Call, over: Future[Any]) -> None:
        call.open -= 1
        if call.future not in self._behind:
            return
        if over.cancelled() or over.exception() is not None:
            del self._behind[call.future]
            _fail(call.future, _dependency_failed(over))
            self._look_for_rest()
        elif call.open == 0:
            self._new.append(self._behind.pop(call.future))
            self._wake.set()

    async def run(self) -> None:
        """Until cancelled. Raises ClientError where the pool will not answer; all calls have failed with it then."""
        listening = asyncio.create_task(self._events.follow())
        try:
            opened = asyncio.create_task(self._events.opened.wait())
            await asyncio.wait((listening, opened), return_when=asyncio.FIRST_COMPLETED)
            opened.cancel()
            submitting = asyncio.create_task(self._submit_all())
            self._tasks.add(submitting)
            await listening
        except ClientError as error:
            self._fail_all(error)
            raise
        finally:
            listening.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(listening, *self._tasks, return_exceptions=True)

    async def rest(self) -> None:
        """Until every call is over."""
        await self._rest.wait()

    def _look_for_rest(self) -> None:
        if not self._new and not self._behind and not self._jobs and not self._submitting and not self._gone:
            self._rest.set()

    def _fail_all(self, error: BaseException) -> None:
        for call in (*self._new, *self._behind.values(), *self._jobs.values()):
            _fail(call.future, error)
        self._new.clear()
        self._behind.clear()
        self._jobs.clear()
        self._gone.clear()
        self._submitting = False
        self._look_for_rest()

    # Submits

    async def _submit_all(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._new or self._gone:
                if self._gone:
                    await self._remove_gone()
                if together := self._together():
                    self._submitting = True
                    try:
                        await self._submit(together)
                    except (ClientError, OSError) as error:
                        for call in together:
                            _fail(call.future, error)
                    self._submitting = False
                    self._early.clear()
            self._look_for_rest()

    def _together(self) -> list[Call]:
        """The next calls that go as one cluster."""
        found: list[Call] = []
        while self._new and len(found) < TOGETHER:
            call = self._new[0]
            if call.future.cancelled():
                self._new.popleft()
                continue
            first = found[0] if found else call
            if (call.source, call.options, call.function) != (first.source, first.options, first.function):
                break
            found.append(self._new.popleft())
        return found

    async def _submit(self, calls: Sequence[Call]) -> None:
        """Raises ClientError, OSError."""
        with tempfile.TemporaryDirectory(prefix="roost-pool-") as name:
            folder = Path(name)
            calls = await asyncio.to_thread(_write, folder, calls)
            if not calls:
                return
            commands = self._commands(calls[0])
            items = [{"call": _name_of(number)} for number in range(len(calls))]
            cluster = await until_done(
                lambda: self._client.submit(commands, itemdata=items, directory=folder, spool=True)
            )
        for number, call in enumerate(calls):
            key = (cluster.schedd, f"{cluster.cluster}.{number}")
            call.future.schedd, call.future.job_id = key
            call.told, call.needs = {}, {}
            if call.future.cancelled():
                self._let_go(call.future)
                continue
            self._jobs[key] = call
            for event in self._early.pop(key, ()):
                self._heard(event)

    def _commands(self, call: Call) -> dict[str, Any]:
        """Of the cluster of a call and its like."""
        own = {str(command).lower(): value for command, value in call.options}
        python = own.pop("python", "")
        listed = [text.strip() for text in str(own.pop("transfer_input_files", "")).split(",")]
        files = [call.source.name, "$(call)", *(str(Path(one).absolute()) for one in listed if one)]
        program: dict[str, Any] = {"executable": RUNNER, "arguments": "$(call)"}
        if python:
            program = {"executable": python, "transfer_executable": False, "arguments": f"{RUNNER} $(call)"}
            files.append(RUNNER)
        return {
            "output": "stdout.txt", "error": "stderr.txt", "batch_name": self._name or call.function.__qualname__,
            **own, **program, "transfer_input_files": ", ".join(files), "transfer_output_files": PICKLED_RESULT,
            "should_transfer_files": "YES", "when_to_transfer_output": "ON_EXIT",
        }  # fmt: skip

    # What becomes of jobs

    def _heard(self, event: Event) -> None:
        key = (str(event.body.get("schedd")), str(event.body.get("job_id")))
        call = self._jobs.get(key)
        if call is None:
            if self._submitting:
                self._early.setdefault(key, []).append(event)
        elif event.type == "job.started":
            _run(call.future)
        elif event.type == "job.ended":
            self._ended(key, call)
        else:
            self._lost(key, call, event.type.removeprefix("job."), str(event.body.get("reason", "")))

    def _ended(self, key: tuple[str, str], call: Call) -> None:
        del self._jobs[key]
        self._rest.clear()
        self._spawn(self._fetch(call))

    def _lost(self, key: tuple[str, str], call: Call, how: str, reason: str) -> None:
        del self._jobs[key]
        _fail(call.future, FunctionFailed(f"job {call.future.job_id} was {how}: {reason}"))
        if how == "held":
            self._let_go(call.future)
        self._look_for_rest()

    async def _look(self) -> None:
        """Ask how the jobs stand, in the queue or out of it."""
        for schedd in {schedd for schedd, _ in self._jobs}:
            ids = [job_id for one, job_id in self._jobs if one == schedd]
            for history in (False, True):
                for ad in await until_done(
                    lambda ids=ids, history=history, schedd=schedd: self._ads(ids, history, schedd)  # type: ignore[misc]
                ):
                    self._stands(schedd, ad)

    async def _ads(self, ids: Sequence[str], history: bool, schedd: str) -> list[ClassAd]:
        asked = self._client.jobs(*ids, projection=_ASKED, history=history, schedd=schedd)
        return [ad async for ad in asked]

    def _stands(self, schedd: str, ad: ClassAd) -> None:
        key = (schedd, f"{ad.eval('ClusterId')}.{ad.eval('ProcId')}")
        call, status = self._jobs.get(key), ad.eval("JobStatus")
        if call is None:
            return
        if status in (2, 6, 7):
            _run(call.future)
        elif status == 4:
            self._ended(key, call)
        elif status in (3, 5):
            reason = str(ad.eval("HoldReason" if status == 5 else "RemoveReason"))
            self._lost(key, call, "held" if status == 5 else "removed", reason)

    async def _fetch(self, call: Call) -> None:
        future = call.future
        _run(future)
        try:
            async with self._slots:
                job = self._client.job(future.job_id, future.schedd)
                data = await until_done(lambda: job.output(PICKLED_RESULT))
            values = await asyncio.to_thread(read_pickled, data)
            with suppress(InvalidStateError):
                future.set_result(values[0] if call.single else values)
        except ClientError as error:
            _fail(future, FunctionFailed(f"job {future.job_id} left no result: {error}"))
        except Exception as error:  # noqa: BLE001  (whatever the call raised is its result)
            _fail(future, error)
        self._let_go(future)

    # Jobs that are to go

    def take_back(self, future: CallFuture) -> None:
        """It was cancelled before it ran."""
        self._behind.pop(future, None)
        if future.job_id and self._jobs.pop((future.schedd, future.job_id), None) is not None:
            self._let_go(future)
        self._look_for_rest()
        self._wake.set()

    def remove(self, future: CallFuture, reason: str) -> None:
        call = self._jobs.get((future.schedd, future.job_id))
        if call is not None:
            self._lost((future.schedd, future.job_id), call, "removed", reason or "by its program")
            self._let_go(future)
        else:
            future.cancel()

    def _let_go(self, future: CallFuture) -> None:
        """Its job may leave the queue: nobody wants anything of it."""
        self._rest.clear()
        self._gone.append(future)
        self._wake.set()

    async def _remove_gone(self) -> None:
        gone, self._gone = self._gone, []
        for schedd in {one.schedd for one in gone}:
            ids = [one.job_id for one in gone if one.schedd == schedd]
            with suppress(ClientError):  # spooled jobs leave by themselves after some days
                await until_done(lambda ids=ids, schedd=schedd: self._remove(ids, schedd))  # type: ignore[misc]

    async def _remove(self, ids: Sequence[str], schedd: str) -> None:
        await self._client.act("remove", ids, reason="its result was fetched, or nobody wants it", schedd=schedd)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _name_of(number: int) -> str:
    return f"roost_call_{number}.pickle"


def _write(folder: Path, calls: Sequence[Call]) -> list[Call]:
    """Those whose files are written, in that order; the others have failed, as a value that they need is none that can
    be sent."""
    write_runner(folder)
    write_source(calls[0].source, folder)
    values: dict[Future[Any], bytes] = {}
    written: list[Call] = []
    for call in calls:
        try:
            for one in call.needs:
                if one not in values:
                    values[one] = value_bytes(one.result(), call.told)
        except Exception as error:  # noqa: BLE001  (whatever the class of a value raises)
            _fail(call.future, error)
            continue
        told = {**call.told, "values": {name: values[one] for one, name in call.needs.items()}}
        (folder / _name_of(len(written))).write_bytes(pickle.dumps(told, PROTOCOL))
        written.append(call)
    return written


def _dependency_failed(over: Future[Any]) -> DependencyFailed:
    what = "a call whose value it takes"
    if isinstance(over, CallFuture):
        what = over.function + (f" (job {over.job_id})" if over.job_id else "") + ", whose value it takes,"
    if over.cancelled():
        return DependencyFailed(f"not run, as {what} was cancelled")
    cause = over.exception()
    failed = DependencyFailed(f"not run, as {what} failed: {type(cause).__name__}: {cause}")
    failed.__cause__ = cause
    return failed


def _run(future: CallFuture) -> None:
    if not future.running() and not future.done():
        with suppress(InvalidStateError):
            future.set_running_or_notify_cancel()


def _fail(future: CallFuture, error: BaseException) -> None:
    _run(future)
    with suppress(InvalidStateError):
        future.set_exception(error)
