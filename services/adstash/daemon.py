"""Adstash: exports the histories of the pool's jobs to Elasticsearch, OpenSearch, or files of JSON lines, each record
once (spec rows MON-17 to MON-20). Nobody waits for it; what it has not exported stays in the histories.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import structlog

from services.adstash.core.documents import AD_FILE, STARTD_HISTORY
from services.adstash.elastic import Elastic, Server
from services.adstash.exporter import Exporter
from services.adstash.json_files import JsonFiles
from services.adstash.sources import HistoryFile, ScheddHistory, Source, jobs_by_bus, schedds
from services.adstash.target import Target
from shared.config.errors import config_error
from shared.config.knobs import AdstashSettings
from shared.daemon.auxiliary import AuxiliaryDaemon
from shared.daemon.clock import Clock, wait_for_event
from shared.daemon.context import Context
from shared.daemon.metrics import Counter, Declared, Gauge, register
from shared.errors import RoostError

_INDEX = re.compile(r"[a-z0-9][a-z0-9_.+-]{0,200}\Z")
_HOST = re.compile(r"(?:(https?)://)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?\Z")
_PORT = ":9200"


def target_of(settings: AdstashSettings, clock: Clock, log: structlog.stdlib.BoundLogger) -> Target:
    """Raises ConfigError for what can not be used."""
    if settings.adstash_interface.lower() == "jsonfile":
        return JsonFiles(Path(settings.adstash_json_dir))
    return Elastic(server_of(settings), clock, log)


def server_of(settings: AdstashSettings) -> Server:
    """Raises ConfigError."""
    index = settings.adstash_se_index_name
    if not _INDEX.match(index):
        raise config_error(f"ADSTASH_SE_INDEX_NAME: {index[:60]!r}: want small letters, digits and _ . + -")
    return Server(
        url_of(settings),
        index,
        settings.adstash_se_username or "",
        _password(settings),
        settings.adstash_se_ca_certs or "",
        settings.adstash_se_timeout,
    )


def url_of(settings: AdstashSettings) -> str:
    """The server's URL, without a slash at its end. Raises ConfigError."""
    found = _HOST.match(settings.adstash_se_host)
    if not found:
        raise config_error(
            f"ADSTASH_SE_HOST: {settings.adstash_se_host[:80]!r}: want host:port, or http://host:port; user and "
            "password have knobs of their own"
        )
    scheme = found[1] or ("https" if settings.adstash_se_use_https else "http")
    prefix = (found[4] or "").rstrip("/") + "/" + (settings.adstash_se_url_prefix or "").strip("/")
    return f"{scheme}://{found[2]}{found[3] or ('' if found[1] else _PORT)}{prefix}".rstrip("/")


def _password(settings: AdstashSettings) -> str:
    path = settings.adstash_se_password_file
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise config_error(f"ADSTASH_SE_PASSWORD_FILE: {path}: {error}") from error


def files_of(settings: AdstashSettings, spool: Path, machine: str) -> list[Source]:
    """History files of this machine that are to be exported (MON-19)."""
    found: list[Source] = []
    if settings.adstash_startd_history:
        path = Path(settings.startd_history) if settings.startd_history else spool / "startd_history"
        found.append(HistoryFile(path, STARTD_HISTORY, machine))
    if settings.adstash_ad_file:
        found.append(HistoryFile(Path(settings.adstash_ad_file), AD_FILE, machine))
    return found


#: What could not be exported is tried again after so many seconds, or the interval if that is shorter.
RETRY_S: Final = 60.0


class Adstash(AuxiliaryDaemon):
    """Adstash as a daemon: it makes a pass over all sources in each interval."""

    subsystem: ClassVar[str] = "ADSTASH"
    uses_store: ClassVar[bool] = False
    my_type: ClassVar[str] = "Adstash"
    at_start: ClassVar[tuple[str, ...]] = ("ADSTASH_CHECKPOINT_FILE",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = AdstashSettings.from_config(context.config)
        self.target: Target = target_of(self.settings, context.clock, context.log)
        self.exporter = Exporter(
            self.target, Path(self.settings.adstash_checkpoint_file), self.settings.adstash_se_bunch_size, context.log
        )
        self._old: list[Target] = []  # that a pass may still use
        self.passes = self.failures = 0
        self.newest = 0.0
        self.trouble = ""
        self._again = asyncio.Event()
        self._whole = asyncio.Lock()  # a pass, or a change of the target
        register(context.metrics, METRICS, self)

    async def setup(self) -> None:
        """Raises PermanentError for a checkpoint that can not be used."""
        await self.exporter.read_checkpoint()
        await super().setup()

    def tasks(self) -> dict[str, Coroutine[Any, Any, None]]:
        return {"export": self._export(), **super().tasks()}

    async def reconfigure(self) -> None:
        fresh = AdstashSettings.from_config(self.context.config)
        target = target_of(fresh, self.context.clock, self.context.log)
        target.counts = self.target.counts
        self.settings = fresh
        before, self.target = self.target, target
        self._again.set()
        self._old.append(before)  # a pass may be under way: the next one closes it

    async def close(self) -> None:
        for target in (*self._old, self.target):
            await target.close()

    def ready(self) -> str:
        return self.trouble

    async def _export(self) -> None:
        clock = self.context.clock
        while True:
            self._again.clear()
            began = clock.monotonic()
            await self.run_pass()
            interval = float(self.settings.adstash_sample_interval)
            pause = min(RETRY_S, interval) if self.trouble else interval - (clock.monotonic() - began)
            await wait_for_event(self._again, clock, max(1.0, pause))

    async def run_pass(self) -> None:
        """One pass over all sources."""
        async with self._whole:
            while self._old:
                await self._old.pop().close()
            self.exporter.target, self.exporter.bunch = self.target, self.settings.adstash_se_bunch_size
            try:
                passed = await self.exporter.run(await self._sources())
                self.trouble = "; ".join(f"{name}: {reason}" for name, reason in passed.problems.items())
                records = passed.records
            except RoostError as error:
                self.trouble, records = f"the pool's schedds are not known: {error}", 0
        self.passes += 1
        if self.trouble:
            self.failures += 1
            self.context.log.warning("not_exported", reason=self.trouble, records=records)
        else:
            self.newest = self.context.clock.now()
            self.context.log.info("exported", records=records)

    async def _sources(self) -> list[Source]:
        settings, bus = self.settings, self.context.bus
        found: list[Source] = []
        if settings.adstash_schedd_history:
            known = await schedds(bus)
            wanted = settings.adstash_read_schedds
            for name in sorted(known if "*" in wanted else known.keys() & set(wanted)):
                found.append(ScheddHistory(name, partial(jobs_by_bus, bus, known[name])))
        return found + files_of(settings, self.context.spool, self.context.name)

    def update_interval_s(self) -> float:
        return float(self.settings.master_update_interval)

    def ad_attributes(self) -> Mapping[str, object]:
        return {
            "AdstashRecords": self.exporter.records,
            "AdstashRefused": self.target.counts.refused,
            "AdstashNewest": int(self.newest),
            "AdstashProblem": self.trouble,
        }


METRICS: Final[Declared[Adstash]] = (
    Counter("roost_adstash_passes", "Passes over all histories", lambda adstash: adstash.passes),
    Counter("roost_adstash_failures", "Passes that did not export all", lambda adstash: adstash.failures),
    Counter(
        "roost_adstash_records",
        "Records exported that were not there before",
        lambda adstash: adstash.target.counts.exported,
    ),
    Counter(
        "roost_adstash_records_again",
        "Records sent that were there already",
        lambda adstash: adstash.target.counts.there,
    ),
    Counter(
        "roost_adstash_records_refused",
        "Records that the server will never take",
        lambda adstash: adstash.target.counts.refused,
    ),
    Counter(
        "roost_adstash_records_bare",
        "Records exported without attributes of their users",
        lambda adstash: adstash.target.counts.bare,
    ),
    Counter(
        "roost_adstash_records_unreadable",
        "Records of histories that can not be read",
        lambda adstash: adstash.exporter.unreadable,
    ),
    Gauge(
        "roost_adstash_newest_seconds",
        "Time of the newest pass that exported all, seconds since 1970; 0: none yet",
        lambda adstash: adstash.newest,
    ),
)
