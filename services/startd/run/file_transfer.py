"""The files of a run: input is fetched from the schedd before the job, output is sent to it after."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

import aiohttp
from structlog.stdlib import BoundLogger

from services.startd.core.journal_records import RunRecord
from services.startd.core.run.exit_status import (
    Output,
    checkpoint_of,
    keeps_streams,
    output_of,
    saves_when_evicted,
    unsent,
)
from services.startd.core.run.failures import Fault, RunFailed
from services.startd.core.run.job_launch import EXECUTABLE, OWN_FILES, STDERR, STDOUT, Launch
from services.startd.core.run.manifest import AFTER, BEFORE, ENVIRONMENT, directory_of
from services.startd.core.run.plugins import Results, statistics
from services.startd.exec.registry import LAUNCHER_FILES
from services.startd.isolation import scratch_dirs
from services.startd.run import manifest
from services.startd.run.checkpoint_store import CheckpointStore
from services.startd.run.context import RunContext
from services.startd.run.orders import Orders
from services.startd.run.output_stream import OutputStreams
from services.startd.run.public_files import PublicFiles
from services.startd.run.reports import Reports
from services.startd.run.url_transfer import UrlTransfer, uploads
from shared.classad import ClassAd
from shared.messages.claims import JobExit
from shared.transfer.bundle import Source
from shared.transfer.client import Received, fetch, send
from shared.transfer.errors import (
    CertificateTrouble,
    InTheClear,
    NoRoom,
    TooLarge,
    TransferError,
    TransferRefused,
    TransferUnavailable,
)
from shared.transfer.limits import INPUT, OUTPUT, limit_of
from shared.transfer.urls import destination_of, goes_by_url, input_urls, output_url

#: The schedd's endpoint says that this run is over or not meant: statuses of HTTP.
_NOT_WANTED = (401, 404, 409, 410)
#: The same: more than the job may send or bring back.
_TOO_LARGE = 413

T = TypeVar("T")


class FileTransfer:
    """The files of one run."""

    def __init__(
        self, record: RunRecord, context: RunContext, orders: Orders, reports: Reports, log: BoundLogger
    ) -> None:
        self._record = record
        self._context = context
        self._orders = orders
        self._reports = reports
        self._log = log
        self._bundle = (0, 0)  # files and bytes that came from the access point
        self._urls = UrlTransfer(record, context, orders, log)
        self._public = PublicFiles(record, context, log)
        self._checkpoints = CheckpointStore(record, self._urls, lambda: self._scratch, self._source)
        self._streams = OutputStreams(record, context, lambda name: self._source(self._scratch / name, name), log)

    def follow_output(self, job: ClassAd) -> None:
        """The job runs: what it says is sent meanwhile, where it wants that."""
        self._streams.begin(job)

    def close(self) -> None:
        """Nothing more is to be done in this life of the startd."""
        self._streams.cancel()

    def _session(self) -> aiohttp.ClientSession:
        return self._context.session()

    @property
    def _scratch(self) -> Path:
        return self._context.scratch(self._record)

    async def note_environment(self, job: ClassAd, variables: Mapping[str, str]) -> None:
        """In the job's manifest, if it wants one and files travel: what it is started with. Raises RunFailed."""
        if self._record.transfer_url and (directory := directory_of(job)):
            await self._noted(manifest.list_environment, directory, ENVIRONMENT, tuple(variables.items()))

    async def _noted(self, write: Callable[..., None], directory: str, file: str, *more: object) -> None:
        """Write a file of the manifest. One that can not be written keeps no job from its work."""
        try:
            await asyncio.to_thread(write, self._scratch, directory, file, *more)
        except OSError as error:
            self._log.warning("manifest_not_written", file=f"{directory}/{file}", reason=str(error))

    async def fetch_input(self, job: ClassAd) -> None:
        record = self._record
        directory = directory_of(job)
        limit = limit_of(job, INPUT)
        timer = self._reports.later("transferring-input")
        try:
            with self._context.counts.files.measured("input"):
                placed = await self._while_wanted(lambda: self._public.place(job, limit), but=CertificateTrouble)
                rest = limit - sum(one.size for one in placed) if limit is not None else None
                received = await self._fetch("input?without=public" if placed else "input", rest)
        except TransferRefused as error:
            if error.status in _NOT_WANTED:
                raise Fault.NOT_WANTED.failure(f"the schedd does not want this run: {error}") from error
            fault = Fault.INPUT_TOO_LARGE if error.status == _TOO_LARGE else Fault.BAD_INPUT
            raise fault.failure(f"input files: {error}") from error
        except TooLarge as error:
            raise Fault.INPUT_TOO_LARGE.failure(f"input files: {error}") from error
        except InTheClear as error:
            raise Fault.IN_THE_CLEAR.failure(f"input files: {error}") from error
        except CertificateTrouble as error:
            raise Fault.CERTIFICATE_TROUBLE.failure(f"input files: {error}") from error
        except NoRoom as error:
            raise Fault.EXECUTE_FULL.failure(f"this machine is full: {error}") from error
        except TransferError as error:
            raise Fault.BAD_INPUT.failure(f"input files: {error}") from error
        finally:
            timer.cancel()
        size = record.usage["bytes_received"] = received.bytes + self._public.got_bytes
        count = sum(entry.kind == "file" for entry in received.entries) + self._public.got_files
        self._tell_input(job, (count, size), self._public.reused)
        self._context.counts.files.bytes.add("input", count=received.bytes)
        executable = self._scratch / EXECUTABLE
        if executable.is_file() and not executable.is_symlink():
            executable.chmod(0o755)
        if directory:
            await self._noted(manifest.list_scratch, directory, BEFORE)
        record.before = _top_files(self._scratch)

    async def _fetch(self, what: str, limit: int | None = None) -> Received:
        """What the access point has for this run, into the scratch directory. Raises as `fetch` does, and RunFailed."""
        record = self._record
        return await self._while_wanted(
            lambda: fetch(
                self._session(),
                record.transfer_url,
                record.transfer_token,
                self._scratch,
                what=what,
                limit_bytes=limit,
                tls=self._context.transfer_tls,
            ),
            but=CertificateTrouble,
        )

    async def fetch_by_url(self, job: ClassAd, launch: Launch) -> None:
        """The input that lies elsewhere, once the rest is there. Raises RunFailed."""
        if not input_urls(job):
            return
        timer = self._reports.later("transferring-input")
        try:
            with self._context.counts.files.measured("url-input"):
                placed = await self._public.place_by_url(job)
                results = await self._urls.fetch(job, launch, placed)
                await self._public.keep_by_url(job, placed)
        except TransferUnavailable as error:
            raise Fault.MACHINE_ERROR.failure(f"input files: {error}") from error
        finally:
            timer.cancel()
        record = self._record
        record.usage["bytes_received"] = record.usage.get("bytes_received", 0) + results.size
        self._context.counts.files.bytes.add("url-input", count=results.size)
        self._tell_input(job, self._bundle, results.plus(self._public.reused))
        if directory := directory_of(job):
            await self._noted(manifest.list_scratch, directory, BEFORE)
        record.before = _top_files(self._scratch)

    async def fetch_checkpoint(self, job: ClassAd, launch: Launch) -> None:
        """What an earlier run saved, over the input. What it did not change counts as changed: it is the job's work.
        Raises RunFailed."""
        if not isinstance(job.eval("CheckpointNumber"), int):
            return
        record = self._record
        try:
            received = await self._fetch("checkpoint")
        except TransferRefused as error:
            raise Fault.NOT_WANTED.failure(f"the schedd does not want this run: {error}") from error
        except InTheClear as error:
            raise Fault.IN_THE_CLEAR.failure(f"checkpoint: {error}") from error
        except CertificateTrouble as error:
            raise Fault.CERTIFICATE_TROUBLE.failure(f"checkpoint: {error}") from error
        except (NoRoom, TransferUnavailable) as error:
            raise Fault.EXECUTE_FULL.failure(f"the checkpoint does not come: {error}") from error
        except TransferError as error:
            raise Fault.BAD_INPUT.failure(f"checkpoint: {error}") from error
        try:
            by_url = await self._checkpoints.get(job, [entry.name for entry in received.entries], launch)
        except TransferUnavailable as error:
            raise Fault.MACHINE_ERROR.failure(f"checkpoint: {error}") from error
        size = received.bytes + by_url.size
        record.usage["bytes_received"] = record.usage.get("bytes_received", 0) + size
        self._context.counts.files.bytes.add("checkpoint", count=size)

    async def save(self, job: ClassAd, *, streams: bool, launch: Callable[[], Launch] | None = None) -> None:
        """Send what the job has saved to its access point, which has it for good when this returns. streams: with what
        it said. launch: what was started, described anew, where the files may go to the job's checkpoint_destination.
        Raises RunFailed, TransferUnavailable: no time was left for it."""
        record = self._record
        limit = limit_of(job, OUTPUT)
        elsewhere, manifest_there = 0, None
        try:
            sources = self._standard_streams() if streams else []
            chosen = await self._chosen(checkpoint_of(job))
            if launch is not None and destination_of(job):
                found = launch()
                manifest_there, results = await self._while_wanted(
                    lambda: self._checkpoints.put(job, chosen, found, limit)
                )
                chosen, elsewhere = [manifest_there], results.size
            sources += chosen
            sent = await self._while_wanted(
                lambda: send(
                    self._session(),
                    record.transfer_url,
                    record.transfer_token,
                    sources,
                    what="checkpoint",
                    limit_bytes=limit,
                    tls=self._context.transfer_tls,
                )
            )
        except TransferRefused as error:
            if error.status in _NOT_WANTED:
                raise Fault.NOT_WANTED.failure(f"the schedd does not want this run: {error}") from error
            raise Fault.NO_CHECKPOINT.failure(f"checkpoint: {error}") from error
        except InTheClear as error:
            raise Fault.IN_THE_CLEAR.failure(f"checkpoint: {error}") from error
        except TransferError as error:
            raise Fault.NO_CHECKPOINT.failure(f"checkpoint: {error}") from error
        if manifest_there is not None:
            await self._checkpoints.forget(manifest_there)
        size = sent.bytes + elsewhere
        record.usage["bytes_sent"] = record.usage.get("bytes_sent", 0) + size
        self._context.counts.files.bytes.add("checkpoint", count=size)
        self._log.info("checkpoint_sent", bytes=size)

    async def _chosen(self, output: Output) -> list[Source]:
        """Raises RunFailed."""
        if output.listed is None:
            return await asyncio.to_thread(self._changed_files)
        chosen: list[Source] = []
        for name in output.listed:
            path, called = _listed(self._scratch, name, output.flatten)
            if name.endswith("/") and output.flatten:  # what is in the directory, without it
                inside = await asyncio.to_thread(_names_in, self._scratch, path, name)
                chosen += [self._source(path / one, one) for one in inside]
            else:
                chosen.append(self._source(path, called))
        return chosen

    def _tell_input(self, job: ClassAd, bundle: tuple[int, int], results: Results) -> None:
        self._bundle = bundle
        if goes_by_url(job) or results.files:
            told = statistics(job.eval("TransferInputStats"), bundle, results)
            self._reports.extras["TransferInputStats"] = told

    async def _while_wanted(
        self, work: Callable[[], Awaitable[T]], *, but: type[TransferUnavailable] | tuple[()] = ()
    ) -> T:
        """Repeat a transfer while the schedd's endpoint is away. The lease of the claim bounds it: its end cancels or
        stops this run; and so does a slot that has no more time for it. but: what is not repeated."""
        while True:
            task = asyncio.ensure_future(work())
            hurried = asyncio.ensure_future(self._orders.fast.wait())
            try:
                await asyncio.wait((task, hurried), return_when=asyncio.FIRST_COMPLETED)
                order = self._orders.stop
                if not task.done() and order is not None and order.how == "evicted":
                    raise TransferUnavailable("no time was left for it")
                return await task
            except TransferUnavailable as error:
                if self._orders.fast.is_set() or isinstance(error, but):
                    raise
                self._log.warning("transfer_waits", reason=str(error))
            finally:
                hurried.cancel()
                if not task.done():
                    task.cancel()
                    await asyncio.gather(task, return_exceptions=True)

    async def send_output(self, job: ClassAd, outcome: JobExit, launch: Callable[[], Launch]) -> JobExit:
        """launch: what was started, described anew. Raises RunFailed."""
        record = self._record
        at_once = outcome.reason == "evicted" and self._orders.fast.is_set()
        arrived = await self._streams.end(rest=not at_once)
        if not record.transfer_url or outcome.reason in ("hold", "failed"):
            return outcome
        if at_once:
            return outcome  # its slot is taken at once, as everybody knows of such an end
        asked = self._orders.stop is not None and self._orders.stop.want_output
        by_itself = outcome.reason == "exited"
        output = output_of(job, outcome.exit_code, ended_by_itself=by_itself, asked=asked)
        if output is None or (outcome.exit_code is None and outcome.exit_signal is None):
            return outcome
        if saves_when_evicted(job, outcome) and not asked:
            return await self._save_evicted(job, outcome)
        sources = [source for source in self._standard_streams() if source.name not in arrived]
        sources += await self._chosen(output)
        if directory := directory_of(job):
            await self._noted(manifest.list_scratch, directory, AFTER)
            path = self._scratch / directory
            if path.is_dir() and not path.is_symlink() and all(one.name != directory for one in sources):
                sources.append(self._source(path, directory))
        record.usage["disk_kib"] = await asyncio.to_thread(scratch_dirs.size_kib, self._scratch)
        limit = limit_of(job, OUTPUT)
        by_url = [(source, url) for source in sources if (url := output_url(job, source.name))]
        gone = {source.name for source, _ in by_url}
        sources = [source for source in sources if source.name not in gone]
        timer = self._reports.later("transferring-output") if sources or by_url else None
        try:
            results = await self._send_by_url(job, by_url, launch)
            with self._context.counts.files.measured("output"):
                sent = await self._while_wanted(
                    lambda: send(
                        self._session(),
                        record.transfer_url,
                        record.transfer_token,
                        sources,
                        limit_bytes=limit,
                        tls=self._context.transfer_tls,
                    )
                )
        except RunFailed as error:
            return _with(outcome, error.exit()) if error.kind == "hold" else error.exit()
        except TransferUnavailable as error:
            why = unsent(outcome, self._orders.stop, str(error))
            return _with(outcome, Fault.NO_TIME_FOR_OUTPUT.exit("evicted", why))
        except TransferRefused as error:
            if error.status in _NOT_WANTED:
                return Fault.NOT_WANTED.exit("failed", f"the schedd does not want this run: {error}")
            return _bad_output(outcome, error)
        except InTheClear as error:  # it was allowed when the run began
            return Fault.IN_THE_CLEAR.exit("failed", f"output files: {error}")
        except TransferError as error:
            return _bad_output(outcome, error)
        finally:
            if timer is not None:
                timer.cancel()
        # What it takes to say that there is nothing is nothing of the job's.
        size = sent.bytes if sources else 0
        record.usage["bytes_sent"] = record.usage.get("bytes_sent", 0) + size + results.size
        if goes_by_url(job):
            told = statistics(job.eval("TransferOutputStats"), (len(sources), sent.bytes), results)
            self._reports.extras["TransferOutputStats"] = told
        self._context.counts.files.bytes.add("output", count=sent.bytes)
        return outcome.model_copy(update={"output_committed": True})

    async def _save_evicted(self, job: ClassAd, outcome: JobExit) -> JobExit:
        timer = self._reports.later("transferring-output")
        try:
            await self.save(job, streams=keeps_streams(job))
        except RunFailed as error:
            return _with(outcome, error.exit()) if error.kind == "hold" else error.exit()
        except TransferUnavailable as error:
            return _with(
                outcome, Fault.NO_TIME_FOR_OUTPUT.exit("evicted", unsent(outcome, self._orders.stop, str(error)))
            )
        finally:
            timer.cancel()
        return outcome

    async def _send_by_url(
        self, job: ClassAd, files: list[tuple[Source, str]], launch: Callable[[], Launch]
    ) -> Results:
        """Raises RunFailed, TransferError, TransferUnavailable."""
        if not files:
            return Results()
        limit = limit_of(job, OUTPUT)
        found = launch()
        transfers = await asyncio.to_thread(uploads, files, self._scratch, found.scratch, limit)
        with self._context.counts.files.measured("url-output"):
            results = await self._while_wanted(lambda: self._urls.send(job, found, transfers))
        self._context.counts.files.bytes.add("url-output", count=results.size)
        return results

    def _standard_streams(self) -> list[Source]:
        paths = (self._scratch / name for name in (STDOUT, STDERR))
        return [self._source(path, path.name) for path in paths if path.is_symlink() or path.is_file()]

    def _source(self, path: Path, name: str) -> Source:
        """One file of the job's to be sent. The job owns its scratch directory and may have put links there, so
        nothing is read that lies outside, nor what another account's file is also called."""
        owner = self._scratch.stat().st_uid
        return Source(path, name, within=self._scratch, owner=owner if owner != os.geteuid() else None)

    def _changed_files(self) -> list[Source]:
        """Files of the scratch's top directory that are new or were changed; what else is there stays here."""
        now = _top_files(self._scratch)
        before = self._record.before
        names = (name for name, seen in now.items() if seen != before.get(name))
        return [
            self._source(self._scratch / name, name) for name in sorted(names) if name not in OWN_FILES | LAUNCHER_FILES
        ]


def _with(outcome: JobExit, failure: JobExit) -> JobExit:
    """The job's own end, of which the run's failure says what becomes of it."""
    return outcome.model_copy(update=failure.model_dump(exclude_unset=True))


def _bad_output(outcome: JobExit, error: TransferError) -> JobExit:
    too_large = isinstance(error, TooLarge) or (isinstance(error, TransferRefused) and error.status == _TOO_LARGE)
    fault = Fault.OUTPUT_TOO_LARGE if too_large else Fault.BAD_OUTPUT
    return _with(outcome, fault.exit("hold", f"output files: {error}"))


def _listed(scratch: Path, name: str, flatten: bool) -> tuple[Path, str]:
    """A path that the job lists, and what it is called at the schedd. It must lie in the scratch directory."""
    clean = os.path.normpath(name)
    if os.path.isabs(clean) or clean.split(os.sep)[0] == "..":
        inside = os.path.relpath(clean, scratch) if os.path.isabs(clean) else ".."
        if inside.split(os.sep)[0] == "..":
            raise Fault.BAD_OUTPUT.failure(f"output file {name!r} lies outside of the scratch directory")
        clean = inside
    return scratch / clean, os.path.basename(clean) if flatten else clean


def _names_in(scratch: Path, folder: Path, name: str) -> list[str]:
    """Raises RunFailed."""
    real = Path(os.path.realpath(folder))
    if not real.is_relative_to(os.path.realpath(scratch)):
        raise Fault.BAD_OUTPUT.failure(f"output directory {name!r} leads out of the scratch directory")
    try:
        return sorted(os.listdir(real))
    except OSError as error:
        raise Fault.BAD_OUTPUT.failure(f"output directory {name!r} can not be read: {error.strerror}") from error


def _top_files(folder: Path) -> dict[str, list[int]]:
    """Files of a directory, each with what changes when it is written: time, size, inode."""
    found = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                found[entry.name] = [status.st_mtime_ns, status.st_size, status.st_ino]
    return found
