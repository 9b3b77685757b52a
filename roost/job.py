"""One job as an object: `client.job("12.3").wait()`; with an AsyncClient every method is awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from roost.calls import File
from roost.errors import ClientError
from shared.classad import ClassAd

if TYPE_CHECKING:
    from roost.aio import AsyncClient
    from roost.client import Client

#: JobStatus as people read it.
STATUS: Final = {
    1: "idle",
    2: "running",
    3: "removed",
    4: "completed",
    5: "held",
    6: "transferring output",
    7: "suspended",
}
#: What an action says where there was nothing to do.
_FINE: Final = ("done", "already")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job came to rest. status: completed, removed or held; reason: why it was removed or held."""

    status: str
    exit_code: int | None = None
    exit_signal: int | None = None
    reason: str = ""

    @property
    def ok(self) -> bool:
        """It ended by itself, with exit code 0."""
        return self.status == "completed" and self.exit_code == 0


class _Named:
    def __init__(self, job_id: str, schedd: str) -> None:
        self.id = job_id
        self.schedd = schedd

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def _outcome(self, ad: ClassAd) -> Outcome:
        status = self._status(ad)
        code, signal = (ad.eval(name) for name in ("ExitCode", "ExitSignal"))
        reason = ad.eval({"held": "HoldReason", "removed": "RemoveReason"}.get(status, ""))
        return Outcome(
            status,
            code if isinstance(code, int) and ad.eval("ExitBySignal") is not True else None,
            signal if isinstance(signal, int) and ad.eval("ExitBySignal") is True else None,
            reason if isinstance(reason, str) else "",
        )

    def _status(self, ad: ClassAd) -> str:
        value = ad.eval("JobStatus")
        return STATUS.get(value, str(value)) if isinstance(value, int) else str(value)

    def _missing(self) -> ClientError:
        return ClientError(f"there is no job {self.id} in the queue or the history", "not-found")

    def _check(self, results: dict[str, str]) -> None:
        said = results.get(self.id, "not-found")
        if said not in _FINE:
            raise ClientError(f"job {self.id}: {said}", said)


class Job(_Named):
    """A job of the pool. Nothing is remembered: each question is asked anew. Raises ClientError."""

    def __init__(self, client: Client, job_id: str, schedd: str = "") -> None:
        super().__init__(job_id, schedd)
        self._client = client

    @property
    def ad(self) -> ClassAd:
        """Its ad, as it is now; of a job that left the queue as it was then."""
        for history in (False, True):
            for ad in self._client.jobs(self.id, schedd=self.schedd, history=history):
                return ad
        raise self._missing()

    @property
    def status(self) -> str:
        """idle, running, held, completed, removed, transferring output or suspended."""
        return self._status(self.ad)

    def wait(self, timeout: float | None = None) -> Outcome:
        """Until it has left the queue or is on hold. Raises TimeoutError after `timeout` seconds."""
        self._client.wait([self.id], timeout=timeout)
        return self._outcome(self.ad)

    def hold(self, reason: str = "") -> None:
        self._act("hold", reason)

    def release(self, reason: str = "") -> None:
        self._act("release", reason)

    def remove(self, reason: str = "") -> None:
        self._act("remove", reason)

    def vacate(self) -> None:
        """End its run; it starts again elsewhere."""
        self._act("vacate", "")

    def edit(self, **attributes: str) -> None:
        """Change attributes: ClassAd expressions."""
        self._check(self._client.edit([self.id], attributes, schedd=self.schedd))

    def files(self) -> list[File]:
        """What a spooled job has brought back."""
        return self._client.output_files(self.id, self.schedd)

    def output(self, name: str = "") -> bytes:
        """One file of a spooled job's output; without a name its standard output."""
        name = name or _standard_output(self.ad)
        return self._client.output(self.id, name, self.schedd).read()

    def log(self) -> str:
        """The events of its log."""
        return self._client.log(self.id, self.schedd).decode(errors="replace")

    def tail(self, name: str = "", *, follow: bool = False) -> Iterator[bytes]:
        """What a running job has written: its standard output, or a file in its directory. follow: until it ends."""
        with self._client.visit(self.id, _tail(name, follow=follow), self.schedd) as visit:
            for _, data in visit.output():
                yield data

    def _act(self, action: str, reason: str) -> None:
        self._check(self._client.act(action, [self.id], reason=reason, schedd=self.schedd))


class AsyncJob(_Named):
    """As Job, of an AsyncClient."""

    def __init__(self, client: AsyncClient, job_id: str, schedd: str = "") -> None:
        super().__init__(job_id, schedd)
        self._client = client

    async def ad(self) -> ClassAd:
        for history in (False, True):
            async for ad in self._client.jobs(self.id, schedd=self.schedd, history=history):
                return ad
        raise self._missing()

    async def status(self) -> str:
        return self._status(await self.ad())

    async def wait(self, timeout: float | None = None) -> Outcome:
        await self._client.wait([self.id], timeout=timeout)
        return self._outcome(await self.ad())

    async def hold(self, reason: str = "") -> None:
        await self._act("hold", reason)

    async def release(self, reason: str = "") -> None:
        await self._act("release", reason)

    async def remove(self, reason: str = "") -> None:
        await self._act("remove", reason)

    async def vacate(self) -> None:
        await self._act("vacate", "")

    async def edit(self, **attributes: str) -> None:
        self._check(await self._client.edit([self.id], attributes, schedd=self.schedd))

    async def files(self) -> list[File]:
        return await self._client.output_files(self.id, self.schedd)

    async def output(self, name: str = "") -> bytes:
        name = name or _standard_output(await self.ad())
        return await self._client.output(self.id, name, self.schedd)

    async def log(self) -> str:
        return (await self._client.log(self.id, self.schedd)).decode(errors="replace")

    async def tail(self, name: str = "", *, follow: bool = False) -> AsyncIterator[bytes]:
        visit = await self._client.visit(self.id, _tail(name, follow=follow), self.schedd)
        async with visit, aclosing(visit.output()) as coming:
            async for _, data in coming:
                yield data

    async def _act(self, action: str, reason: str) -> None:
        self._check(await self._client.act(action, [self.id], reason=reason, schedd=self.schedd))


def _tail(name: str, *, follow: bool) -> dict[str, Any]:
    return {"kind": "tail", "file": name, "follow": follow, "max_bytes": -1}


def _standard_output(ad: ClassAd) -> str:
    place = ad.eval_string("Out")
    if not place or place == "/dev/null":
        raise ClientError("this job keeps no standard output: say output = FILE when you submit", "not-found")
    return place.rpartition("/")[2]
