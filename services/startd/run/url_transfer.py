"""The files of a run that go by URL: plug-ins are run as the job's account, inside the job's walls.

Nobody but a plug-in speaks to a server of somebody's choice, and it may no more than the job itself: no daemon follows
a user's URL. Keys of stores of objects stay at the access point, which signs single requests (`shared.transfer.s3`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import aiohttp
from structlog.stdlib import BoundLogger

from services.startd.core.journal_records import RunRecord
from services.startd.core.run import plugins
from services.startd.core.run.failures import Fault, RunFailed, failed_with
from services.startd.core.run.job_launch import JOB_AD, MACHINE_AD, Finished, Launch, Started, ad_file
from services.startd.core.run.plugins import BadPlugin, Plugin, Results, Transfer
from services.startd.exec.process_based import read_end
from services.startd.run import scratch_files, url_progress
from services.startd.run.context import RunContext
from services.startd.run.orders import Orders
from shared.classad import ClassAd
from shared.transfer.bundle import Source
from shared.transfer.errors import InTheClear, TooLarge, TransferError, TransferUnavailable
from shared.transfer.limits import INPUT, limit_of
from shared.transfer.sandbox import job_plugins
from shared.transfer.urls import SIGNED, input_urls, local_name, scheme_of

_IN, _OUT, _ERR = ".roost-transfer-in", ".roost-transfer-out", ".roost-transfer-err"
#: Of what a plug-in tells of a file, bytes.
_TOLD = 1 << 14
#: A plug-in that was killed is waited for, seconds.
_GONE_S = 10.0
#: Of the startd's environment, what plug-ins get: how this machine reaches servers, and whom it trusts.
_INHERITED: Final = (
    *("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *(name for one in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (one, one.upper())),
)
_OF_JOBS: Final = ("_CONDOR_SCRATCH_DIR", "_CONDOR_SLOT", "_CONDOR_CREDS")
_SIGN: Final = aiohttp.ClientTimeout(total=30)


@cache
def _program() -> str:
    """The built-in plug-in, for an interpreter that can read no file of Roost's."""
    return Path(__file__).with_name("builtin_plugin.py").read_text(encoding="utf-8")


class UrlTransfer:
    """The transfers by URL of one run."""

    def __init__(self, record: RunRecord, context: RunContext, orders: Orders, log: BoundLogger) -> None:
        self._record = record
        self._context = context
        self._orders = orders
        self._log = log

    @property
    def _scratch(self) -> Path:
        return self._context.scratch(self._record)

    async def fetch(self, job: ClassAd, launch: Launch, placed: frozenset[str] = frozenset()) -> Results:
        """Get the job's input by URL into its scratch directory. placed: URLs of what is there. Raises RunFailed."""
        transfers = [Transfer(url, str(launch.scratch / _name(url))) for url in input_urls(job)]
        results = await self._do(job, launch, [one for one in transfers if one.url not in placed], upload=False)
        limit = limit_of(job, INPUT)
        if limit is not None and (size := await asyncio.to_thread(_sizes, self._scratch, transfers)) > limit:
            raise Fault.INPUT_TOO_LARGE.failure(f"input files: {size} bytes came by URL where {limit} are allowed")
        return results

    async def get(self, job: ClassAd, launch: Launch, transfers: Sequence[Transfer]) -> Results:
        """Raises RunFailed."""
        return await self._do(job, launch, transfers, upload=False)

    async def send(self, job: ClassAd, launch: Launch, transfers: Sequence[Transfer]) -> Results:
        """Raises RunFailed, TransferUnavailable: no time was left for it."""
        return await self._do(job, launch, transfers, upload=True)

    async def _do(self, job: ClassAd, launch: Launch, transfers: Sequence[Transfer], *, upload: bool) -> Results:
        found = Results()
        if not transfers:
            return found
        await asyncio.to_thread(self._make_ready, job, launch.machine_ad)
        own = plugins.of_job(self._context.plugins.by_scheme, job_plugins(job), str(launch.scratch))
        slot = self._record.slot
        try:
            for plugin, some in plugins.share_out(await self._sign(transfers, own, upload=upload), own):
                async with url_progress.told(self._record, self._context, some, upload=upload):
                    results, subcode = await self._run(plugin, some, launch, upload=upload)
                found = found.plus(results)
                if results.trouble:
                    raise plugins.failure(results.trouble, subcode, upload=upload, slot=slot)
        except BadPlugin as error:
            raise plugins.failure(str(error), 0, upload=upload, slot=slot) from error
        finally:
            await asyncio.to_thread(scratch_files.remove, self._scratch, _IN, _OUT, _ERR)
        return found

    def _make_ready(self, job: ClassAd, machine: ClassAd) -> None:
        """What plug-ins read, and those that came with the job executable."""
        for one in job_plugins(job):
            scratch_files.make_executable(self._scratch, one.name)
        for name, ad in ((JOB_AD, job), (MACHINE_AD, machine)):
            scratch_files.write(self._scratch, name, ad_file(ad))

    # -- one plug-in

    async def _run(
        self, plugin: Plugin, transfers: Sequence[Transfer], launch: Launch, *, upload: bool
    ) -> tuple[Results, int]:
        """What it did, and the subcode of its failure. Raises RunFailed, TransferUnavailable."""
        scratch = self._scratch
        await asyncio.to_thread(scratch_files.remove, scratch, _OUT, _ERR)
        asked = plugins.asked_ads(transfers).encode("utf-8", "surrogateescape")
        await asyncio.to_thread(scratch_files.write, scratch, _IN, asked)
        inside = launch.scratch
        words = plugins.arguments(plugin, transfers, str(inside / _IN), str(inside / _OUT), upload=upload)
        lifetime_s = self._context.settings().plugin_lifetime_s
        end = await self._end_of(_launch(plugin, words, launch, self._record.name), lifetime_s)
        ended = ""
        if end is None:
            ended = f"took longer than {lifetime_s} s (MAX_FILE_TRANSFER_PLUGIN_LIFETIME)"
        elif end.exit_signal is not None:
            ended = f"ended by signal {end.exit_signal}"
        elif end.exit_code:
            ended = f"ended with exit status {end.exit_code}"
        told = await asyncio.to_thread(scratch_files.read, scratch, _OUT, _TOLD * (len(transfers) + 1))
        said = await asyncio.to_thread(read_end, str(scratch / _ERR), 0)
        results = plugins.results_of(plugin, transfers, told, said, ended)
        log = self._log.warning if results.trouble else self._log.info
        log("files_by_url", plugin=str(plugin), upload=upload, files=dict(results.files), trouble=results.trouble)
        return results, plugins.subcode_of(end.exit_code if end is not None else None, timed_out=end is None)

    async def _end_of(self, launch: Launch, lifetime_s: float) -> Finished | None:
        """None: it took too long, and was killed. Raises RunFailed, TransferUnavailable."""
        processes = self._context.launchers["process"]
        await processes.prepare(launch)
        starting = asyncio.ensure_future(processes.start(launch))
        end: Finished | None = None
        tasks: list[asyncio.Future[object]] = []
        try:
            await asyncio.shield(starting)
            finished = asyncio.ensure_future(processes.finished(launch.run))
            tasks += [finished, asyncio.ensure_future(self._orders.fast.wait())]  # type: ignore[list-item]
            await asyncio.wait(tasks, timeout=lifetime_s, return_when=asyncio.FIRST_COMPLETED)
            if finished.done():
                end = finished.result()
            elif self._orders.fast.is_set():
                raise TransferUnavailable("no time was left for it")
        finally:
            for task in tasks:
                task.cancel()
            if end is None:
                await self._make_end(launch.run, starting)
            await processes.forget(launch.run)
        if end is not None and (end.hold_code or end.trouble):
            raise failed_with(end.hold_message or end.trouble, end.hold_code, end.hold_subcode)
        return end

    async def _make_end(self, run: str, starting: asyncio.Future[Started]) -> None:
        """Nothing of it is left when this returns, unless the kernel can not end it."""
        processes = self._context.launchers["process"]
        with contextlib.suppress(RunFailed):
            await starting
            await processes.kill(run)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GONE_S):
                    await processes.finished(run)

    # -- stores of objects

    async def _sign(self, transfers: Sequence[Transfer], has: Mapping[str, Plugin], *, upload: bool) -> list[Transfer]:
        """With URLs that the access point signed in place of those for which no plug-in is here. Raises RunFailed."""
        wanted = [one.url for one in transfers if (scheme := scheme_of(one.url)) in SIGNED and scheme not in has]
        if not wanted:
            return list(transfers)
        method = "PUT" if upload else "GET"
        address = f"{self._record.transfer_url}/signed"
        headers = {"Authorization": f"Bearer {self._record.transfer_token}"}
        try:
            way = await self._context.transfer_tls.way(address)
            async with self._context.session().post(
                address, json={"method": method, "urls": wanted}, headers=headers, timeout=_SIGN, ssl=way
            ) as answer:
                if answer.status == 422:
                    reason = (await answer.content.read(4096)).decode("utf-8", "replace")
                    raise plugins.failure(reason, 0, upload=upload, slot=self._record.slot)
                answer.raise_for_status()
                signed = (await answer.json())["urls"]
        except InTheClear as error:
            raise Fault.IN_THE_CLEAR.failure(f"signed URLs: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as error:
            raise TransferUnavailable(f"the access point signs no URLs now: {error}") from error
        return [replace(one, url=signed.get(one.url, one.url), asked=one.url) for one in transfers]


def uploads(files: list[tuple[Source, str]], scratch: Path, inside: Path, limit: int | None) -> list[Transfer]:
    """What plug-ins are to send: of a directory each file in it. inside: the scratch directory as the job finds it.
    Raises TransferError, TooLarge."""
    found: list[Transfer] = []
    size = 0
    for source, url in files:
        names = [""]
        if source.path.is_dir() and not source.path.is_symlink():
            names = [
                os.path.relpath(os.path.join(folder, name), source.path)
                for folder, _, listed in os.walk(source.path)
                for name in sorted(listed)
            ]
        for name in names:
            path = source.path / name if name else source.path
            try:
                size += path.lstat().st_size
            except OSError as error:
                raise TransferError(f"{source.name}: cannot read {path}: {error.strerror}") from error
            if limit is not None and size > limit:
                raise TooLarge(f"{source.name}: with it, the files would exceed the limit of {limit} bytes")
            target = f"{url.rstrip('/')}/{name}" if name else url
            found.append(Transfer(target, str(inside / path.relative_to(scratch))))
    return found


def _name(url: str) -> str:
    """Raises RunFailed."""
    name = local_name(url)
    if not name:
        raise Fault.URL_INPUT.failure(f"{url}: its path ends without a name, so no file can be called so")
    return name


def _sizes(scratch: Path, transfers: Sequence[Transfer]) -> int:
    found = 0
    for one in transfers:
        with contextlib.suppress(OSError):
            found += os.lstat(scratch / Path(one.path).name).st_size
    return found


def _launch(plugin: Plugin, words: Sequence[str], job: Launch, run: str) -> Launch:
    """The plug-in, where and as whom the job is run."""
    if plugin.path:
        executable, argv = plugin.path, (plugin.path, *words)
        reads: tuple[str, ...] = (plugin.path,)
    else:
        executable = os.path.realpath(sys.executable)
        argv = (executable, "-I", "-S", "-c", _program(), *words)
        reads = (executable, sys.base_prefix, *([os.path.realpath(plugin.helper)] if plugin.helper else []))
    scratch = str(job.scratch)
    env = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    env |= {name: job.env[name] for name in _OF_JOBS if name in job.env}
    env |= {"_CONDOR_JOB_AD": f"{scratch}/{JOB_AD}", "_CONDOR_MACHINE_AD": f"{scratch}/{MACHINE_AD}"}
    env |= {"HOME": scratch, "TMPDIR": scratch, url_progress.VARIABLE: f"{scratch}/{url_progress.FILE}"}
    return replace(
        job,
        run=f"{run}/transfer/{secrets.token_hex(4)}",
        executable=executable,
        argv=argv,
        env=env,
        cwd=scratch,
        stdin="",
        stdout="",
        stderr=f"{scratch}/{_ERR}",
        append=False,
        image="",
        in_container=False,
        in_machine=False,
        plan=None,
        lease_s=None,
        reads=reads,
        wrapped=False,
    )
