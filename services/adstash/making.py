"""Targets and files as they are configured."""

from __future__ import annotations

import re
from pathlib import Path

import structlog

from services.adstash.documents import AD_FILE, STARTD_HISTORY
from services.adstash.elastic import Elastic, Where
from services.adstash.jsonfiles import JsonFiles
from services.adstash.sources import HistoryFile, Source
from services.adstash.target import Target
from shared.config.errors import config_error
from shared.config.knobs import AdstashSettings
from shared.daemon.clock import Clock

_INDEX = re.compile(r"[a-z0-9][a-z0-9_.+-]{0,200}\Z")
_HOST = re.compile(r"(?:(https?)://)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?(/[A-Za-z0-9._~/-]*)?\Z")
_PORT = ":9200"


def target_of(settings: AdstashSettings, clock: Clock, log: structlog.stdlib.BoundLogger) -> Target:
    """Raises ConfigError for what can not be used."""
    if settings.adstash_interface.lower() == "jsonfile":
        return JsonFiles(Path(settings.adstash_json_dir))
    return Elastic(where_of(settings), clock, log)


def where_of(settings: AdstashSettings) -> Where:
    """Raises ConfigError."""
    index = settings.adstash_se_index_name
    if not _INDEX.match(index):
        raise config_error(f"ADSTASH_SE_INDEX_NAME: {index[:60]!r}: want small letters, digits and _ . + -")
    return Where(
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
