"""`roost adstash`: exports the histories of jobs, without the daemon (MON-20). It asks the pool through its gateway, or
reads a history file; everything else is the daemon's."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.errors import UsageError
from shared.classad import ClassAd

if TYPE_CHECKING:
    from roost.aio import AsyncClient
    from services.adstash.exporter import Exporter
    from services.adstash.sources import Source
    from shared.config.knobs import AdstashSettings

#: Option -> knob; HTCondor's condor_adstash has the same names.
_KNOBS: Final[Mapping[str, str]] = {
    "interface": "ADSTASH_INTERFACE",
    "json_dir": "ADSTASH_JSON_DIR",
    "se_host": "ADSTASH_SE_HOST",
    "se_url_prefix": "ADSTASH_SE_URL_PREFIX",
    "se_username": "ADSTASH_SE_USERNAME",
    "se_password_file": "ADSTASH_SE_PASSWORD_FILE",
    "se_ca_certs": "ADSTASH_SE_CA_CERTS",
    "se_timeout": "ADSTASH_SE_TIMEOUT",
    "se_bunch_size": "ADSTASH_SE_BUNCH_SIZE",
    "se_index_name": "ADSTASH_SE_INDEX_NAME",
    "checkpoint_file": "ADSTASH_CHECKPOINT_FILE",
    "sample_interval": "ADSTASH_SAMPLE_INTERVAL",
    "schedds": "ADSTASH_READ_SCHEDDS",
}
OPTIONS: Final[tuple[Option, ...]] = (
    value("interface", help="elasticsearch (the default), opensearch or jsonfile", metavar="KIND"),
    value("se_host", "es_host", help="host[:port] or URL of the server (localhost:9200)", metavar="HOST"),
    value("se_index_name", "es_index_name", help="index (htcondor-000001)", metavar="NAME"),
    value("se_username", "es_username", help="user of the server", metavar="NAME"),
    value("se_password_file", help="file with that user's password", metavar="FILE"),
    flag("se_use_https", "es_use_https", help="speak HTTPS"),
    value("se_ca_certs", help="file of authorities for HTTPS", metavar="FILE"),
    value("se_url_prefix", help="path before the server's API", metavar="PATH"),
    value("se_timeout", "es_timeout", help="longest wait for an answer, seconds", metavar="N"),
    value("se_bunch_size", "es_bunch_size", help="records in one request", metavar="N"),
    value("json_dir", help="directory of the files of -interface jsonfile (./adstash)", metavar="DIR"),
    value("checkpoint_file", help="how far has been exported (./adstash_checkpoint.json)", metavar="FILE"),
    value("schedds", help="only the histories of these schedds", metavar="NAME,..."),
    value("ad_file", "file", help="jobs of this history file, instead of a pool's", metavar="FILE"),
    value("sample_interval", help="go on, with a pass every so many seconds; else one pass", metavar="N"),
    flag("standalone", help="taken for HTCondor's sake: this command always is"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        text = (
            "Exports jobs that left the queues to Elasticsearch, OpenSearch or files of JSON lines, each record once.\n"
            "What is not said here is as configured (ADSTASH_*). Exit code 0: all of it; 1: not."
        )
        say(usage(command, "", text, OPTIONS))
        return 0
    if parsed.arguments:
        raise UsageError(f"{parsed.arguments[0]}: adstash takes options only")
    return asyncio.run(_run(parsed, _settings(parsed)))


def _settings(parsed: Parsed) -> AdstashSettings:
    from roost.personal_config import tool_config
    from shared.config.knobs import AdstashSettings

    overrides = {"ADSTASH_JSON_DIR": str(Path("adstash").absolute())}
    overrides["ADSTASH_CHECKPOINT_FILE"] = str(Path("adstash_checkpoint.json").absolute())
    overrides |= {knob: parsed.one(option) for option, knob in _KNOBS.items() if parsed.has(option)}
    if parsed.has("ad_file"):
        overrides["ADSTASH_AD_FILE"] = str(Path(parsed.one("ad_file")).absolute())  # its name in the checkpoint
    if parsed.has("se_use_https"):
        overrides["ADSTASH_SE_USE_HTTPS"] = "true"
    settings = AdstashSettings.from_config(tool_config("ADSTASH", overrides=overrides))
    if settings.adstash_ad_file and not Path(settings.adstash_ad_file).is_file():
        raise UsageError(f"{settings.adstash_ad_file}: there is no such file")
    return settings


async def _run(parsed: Parsed, settings: AdstashSettings) -> int:
    import structlog

    from roost.aio import AsyncClient
    from services.adstash.daemon import target_of
    from services.adstash.exporter import Exporter
    from shared.daemon.clock import SystemClock

    log: structlog.stdlib.BoundLogger = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    target = target_of(settings, SystemClock(), log)
    exporter = Exporter(target, Path(settings.adstash_checkpoint_file), settings.adstash_se_bunch_size, log)
    await exporter.read_checkpoint()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    stopping: asyncio.Task[Any] = asyncio.create_task(stop.wait())
    status = 0
    async with _closing(None if settings.adstash_ad_file else AsyncClient(parsed.one("pool") or None)) as client:
        try:
            while not stop.is_set():
                status = await _pass(exporter, settings, client, stopping)
                if not parsed.has("sample_interval"):
                    break
                await asyncio.wait((stopping,), timeout=settings.adstash_sample_interval)
        finally:
            stopping.cancel()
            await target.close()
    return status


class _closing:
    """A client for as long as it is needed, if one is."""

    def __init__(self, client: AsyncClient | None) -> None:
        self.client = client

    async def __aenter__(self) -> AsyncClient | None:
        return self.client

    async def __aexit__(self, *_: object) -> None:
        if self.client is not None:
            await self.client.close()


async def _pass(
    exporter: Exporter, settings: AdstashSettings, client: AsyncClient | None, stopping: asyncio.Task[Any]
) -> int:
    """One pass, which a signal ends; what has not been exported is for the next one."""
    counts = exporter.target.counts
    before = counts.exported, counts.there, counts.refused
    passing = asyncio.ensure_future(_export(exporter, settings, client))
    await asyncio.wait((passing, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not passing.done():
        passing.cancel()
        await asyncio.wait((passing,))
        say("ended before all was exported")
        return 1
    problems = passing.result()
    exported, there, refused = counts.exported - before[0], counts.there - before[1], counts.refused - before[2]
    say(
        f"{exported} record{'' if exported == 1 else 's'} exported"
        + (f", {there} were there already" if there else "")
        + (f", {refused} refused ({counts.reason})" if refused else "")
        + (f", {exporter.unreadable} can not be read" if exporter.unreadable else "")
    )
    for name, reason in problems.items():
        sys.stderr.write(f"{name}: {reason}\n")
    return 1 if problems or refused else 0


async def _export(exporter: Exporter, settings: AdstashSettings, client: AsyncClient | None) -> Mapping[str, str]:
    passed = await exporter.run(await _sources(settings, client))
    return passed.problems


async def _sources(settings: AdstashSettings, client: AsyncClient | None) -> list[Source]:
    import socket

    from services.adstash.core.documents import AD_FILE
    from services.adstash.sources import HistoryFile, ScheddHistory

    if client is None:
        return [HistoryFile(Path(settings.adstash_ad_file or ""), AD_FILE, socket.gethostname())]
    names = [ad.eval_string("Name") async for ad in client.ads("Scheduler", projection=["Name"])]
    wanted = settings.adstash_read_schedds
    if missing := [name for name in wanted if name != "*" and name not in names]:
        raise UsageError(f"there is no schedd {missing[0][:80]}; the pool has {', '.join(sorted(names)) or 'none'}")
    return [
        ScheddHistory(name, partial(_jobs, client, name))
        for name in sorted(names if "*" in wanted else set(names) & set(wanted))
    ]


async def _jobs(client: AsyncClient, schedd: str) -> AsyncGenerator[ClassAd, None]:
    async for ad in client.jobs(schedd=schedd, history=True):
        yield ad
