"""A Dask cluster whose workers are jobs of a pool:

    from distributed import Client
    from roost.dask import RoostCluster

    with RoostCluster(cpus=2, memory="4GB") as cluster, Client(cluster) as client:
        cluster.scale(10)
        print(client.submit(sum, [1, 2]).result())

The scheduler runs in this program; each worker is a call of roost.Pool, which has as many threads and as much memory as
its slot. It takes `distributed` here and where the jobs run (the extra `dask`).
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from distributed import Security
from distributed.core import Status
from distributed.deploy.spec import ProcessInterface, SpecCluster
from distributed.scheduler import Scheduler

from roost.dask_worker import work
from roost.executor import Pool
from roost.function_pool import CallFuture

_log: Final = logging.getLogger(__name__)
_LOOPBACK: Final = "localhost:8787"


class RoostWorker(ProcessInterface):
    """A worker of a RoostCluster. future: the call that is its job; trouble: why that failed, as where it was held."""

    def __init__(self, scheduler: str, name: object, cluster: RoostCluster) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self.name = name
        self.trouble = ""
        self.future: CallFuture | None = None
        self._scheduler = scheduler
        self._cluster = cluster

    async def start(self) -> None:
        """Its job is in the queue a moment later, and runs when there is a slot."""
        self.future = self._cluster.call(work, self._scheduler, str(self.name))
        loop = asyncio.get_running_loop()

        def over(future: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop is over, and the cluster with it
                loop.call_soon_threadsafe(self._over, future)

        self.future.add_done_callback(over)
        await super().start()

    def _over(self, future: Future[Any]) -> None:
        if self._event_finished.is_set():  # it was closed
            return
        if not future.cancelled() and (error := future.exception()) is not None:
            self.trouble = str(error)
            _log.warning("the job of Dask's worker %s failed: %s", self.name, error)
        self.status = Status.closed
        self._event_finished.set()

    async def close(self) -> None:
        """Its job is removed, whatever it does."""
        await super().close()
        if self.future is not None and not self.future.done():
            self.future.remove("Dask's cluster wants it no more")


class RoostCluster(SpecCluster):
    """n_workers: to begin with; `scale` and `adapt` change that. url, token, name and all options of roost.Pool (cpus,
    memory, disk, gpus, requirements, priority, python, commands) are those of the workers' jobs. worker_options:
    further words of `dask worker`. security: True: certificates made for this cluster alone, which go to the workers
    with their jobs; a distributed.Security with its keys as texts or files; False: anybody who reaches the scheduler
    may run code. scheduler_options: of distributed.Scheduler (host, port, dashboard_address, ...). asynchronous: for
    `async with`. Raises ClientError where the pool does not answer."""

    def __init__(
        self, n_workers: int = 0, *, url: str = "", token: str | None = None, name: str = "",
        worker_options: tuple[str, ...] = (), security: Security | bool = True,
        scheduler_options: dict[str, Any] | None = None, asynchronous: bool = False, loop: Any = None, **options: Any,
    ) -> None:  # fmt: skip
        if isinstance(security, bool):
            security = Security.temporary() if security else Security()
        self._worker_words = tuple(worker_options)
        self._worker_keys = _keys(security)
        self._pool = Pool(url, token, name=name or "dask-workers", **options)
        given = {"dashboard_address": _LOOPBACK, "security": security, **(scheduler_options or {})}
        worker = {"cls": RoostWorker, "options": {"cluster": self}}
        try:
            super().__init__(
                workers=dict.fromkeys(range(n_workers), worker),
                scheduler={"cls": Scheduler, "options": given},
                worker=worker,
                security=security,
                asynchronous=asynchronous,
                loop=loop,
                name=name or None,
            )
        except BaseException:
            self._pool.shutdown(cancel_futures=True)
            raise

    def call(self, function: Any, scheduler: str, name: str) -> CallFuture:
        """The call that is a worker's job."""
        return self._pool.submit(function, scheduler, name, self._worker_words, self._worker_keys)

    async def _close(self) -> None:
        try:
            await super()._close()
        finally:
            # All calls are over or were removed: what is waited for is the access point's answer.
            await asyncio.to_thread(self._pool.shutdown)


def _keys(security: Security) -> dict[str, str]:
    """What a worker needs to speak with its scheduler: options of `dask worker` -> texts of PEM files."""
    found = security.get_tls_config_for_role("worker")
    texts = {"ca-file": found.get("ca_file"), "cert": found.get("cert"), "key": found.get("key")}
    return {
        name: value if "-----BEGIN" in value else Path(value).read_text(encoding="ascii")
        for name, value in texts.items()
        if value
    }
