"""Gathers what somebody needs who helps with a pool from afar, without its secrets: `roost support-bundle`.

Everything goes through a `Scrubber`, besides what daemons and ads leave out themselves: values of secret knobs, what
lies in files of tokens, passwords and keys on this machine, and whatever looks like a password in an address, a token,
a claim id or a private key.
"""

from __future__ import annotations

import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from engine.attention import Finding
from roost.client import Client
from roost.doctor import Report
from roost.errors import ClientError
from roost.pool_directory import TOKEN_FILE, pool_dir
from roost.setup.layout import IDENTITIES
from shared.config import Config
from shared.config.errors import ConfigError
from shared.daemon.config_query import HIDDEN, describe_config, is_secret, mask_secrets
from shared.messages.base import protocol
from shared.messages.orders import AskConfig
from shared.version import VERSION

#: Bytes of the end of each log, logs, and events.
LOG_TAIL: Final = 256 * 1024
MOST_LOGS: Final = 40
MOST_EVENTS: Final = 2_000
#: How far back, seconds, and pages of so many that are read for them.
EVENTS_S: Final = 3600.0
EVENTS_AT_ONCE: Final = 500
MOST_PAGES: Final = 40
#: Lines of systemd's journal.
MOST_LINES: Final = 5_000
#: Machines whose ads are in it, and whose startds' configuration is.
MOST_MACHINES: Final = 200
MOST_STARTDS: Final = 5
#: A file of secrets is no longer than this, bytes.
_LONGEST_SECRET: Final = 64 * 1024

#: What looks like a secret, wherever it stands: (what, with what is kept before it in group 1).
_SHAPES: Final = (
    re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?=-----END|\Z)", re.DOTALL),
    re.compile(r"(\b[Bb]earer\s+)[A-Za-z0-9._~+/=-]{8,}"),
    re.compile(r"()\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"),  # a JSON web token
    re.compile(r"(#\d+#\d+#)[A-Za-z0-9._~+/=-]{6,}"),  # a claim id, after its public part
    re.compile(
        r"((?:\b|_)(?:password|passwd|secret|token|api[_-]?key|private[_-]?key|claim_?id|authorization)[\"']?\s*[=:]\s*[\"']?)"
        r"(?!<secret>)[^\s\"',;}\]]+",
        re.IGNORECASE,
    ),
)


class Scrubber:
    """Takes secrets out of texts. secrets: texts that are some."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted({one for one in secrets if len(one) >= 6}, key=len, reverse=True)

    def text(self, text: str) -> str:
        text = mask_secrets(text, self._secrets)
        for shape in _SHAPES:
            text = shape.sub(rf"\1{HIDDEN}", text)
        return text

    def data(self, value: Any, name: str = "") -> Any:
        """A value of JSON, with all texts scrubbed; of an entry with a secret's name nothing is left."""
        if isinstance(value, dict):
            return {self.text(str(key)): self.data(one, str(key)) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(one, name) for one in value]
        if isinstance(value, str):
            return HIDDEN if value and name and is_secret(name) else self.text(value)
        return value


def secrets_here(config: Config | None) -> Iterator[str]:
    """Texts that are secrets on this machine, as far as we may read them: values of secret knobs, passwords in
    addresses, and what lies in files of tokens, passwords and identities."""
    places = [pool_dir() / TOKEN_FILE, pool_dir() / "passwords.d", Path(IDENTITIES)]
    for name in ("ROOST_TOKEN_FILE",):
        if named := os.environ.get(name):
            places.append(Path(named))
    if token := os.environ.get("ROOST_TOKEN"):
        yield token
    if config is not None:
        for macro in config.macros():
            if is_secret(macro.name):
                yield macro.text
            yield from (found[1] for found in re.finditer(r"://[^/\s:@]*:([^/\s@]+)@", macro.text))
        for knob in ("SEC_PASSWORD_DIRECTORY", "SEC_TOKEN_DIRECTORY", "SEC_TOKEN_SYSTEM_DIRECTORY", "ROOST_TOKEN_FILE"):
            try:
                if named := config.get(knob):
                    places.append(Path(named).expanduser())
            except (ConfigError, RuntimeError):
                continue
    for path in places:
        yield from _texts(path)


def _texts(place: Path) -> Iterator[str]:
    """Lines of a file of secrets, or of those in a directory."""
    try:
        files = [one for one in place.rglob("*") if one.is_file()] if place.is_dir() else [place]
        for file in files[:1000]:
            if file.stat().st_size <= _LONGEST_SECRET:
                text = file.read_bytes().decode("utf-8", "replace")
                yield from (line.strip() for line in text.splitlines())
                yield from (found[1] for found in re.finditer(r"://[^/\s:@]*:([^/\s@]+)@", text))
    except OSError:
        return


def write(
    path: Path, client: Client | None, config: Config | None, report: Report, scrubber: Scrubber, now: float
) -> list[str]:
    """Make the bundle, readable by its owner only; the names of what is in it. Raises OSError."""
    root = time.strftime("roost-support-%Y%m%d-%H%M%S", time.gmtime(now))
    names = []
    with (
        os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file,
        tarfile.open(fileobj=file, mode="w:gz") as bundle,
    ):
        for name, content in _parts(client, config, report, now):
            text = scrubber.text(content) if isinstance(content, str) else json.dumps(scrubber.data(content), indent=1)
            data = text.encode("utf-8", "replace")
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size, entry.mtime, entry.mode = len(data), int(now), 0o600
            bundle.addfile(entry, io.BytesIO(data))
            names.append(name)
    return names


def _parts(client: Client | None, config: Config | None, report: Report, now: float) -> Iterator[tuple[str, Any]]:
    """Names and contents, texts or JSON."""
    yield "doctor.json", {"findings": [_plain(one) for one in report.findings], "looked": report.looked}
    yield "versions.json", versions()
    yield "daemons.json", report.daemons
    if config is not None:
        yield "configuration/this-machine.json", describe_config(config, AskConfig()).macros
    if client is not None:
        yield from _of_pool(client, report, now)
    yield from _logs(config)


def _plain(one: Finding) -> dict[str, Any]:
    return asdict(one)


def versions() -> dict[str, Any]:
    """Of Roost, and of what it stands on here."""
    packages: dict[str, str | None] = {}
    for name in (
        "aio-pika",
        "redis",
        "fastapi",
        "pydantic",
        "sqlalchemy",
        "msgpack",
        "numpy",
        "cryptography",
        "uvloop",
    ):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = None
    return {
        "roost": VERSION,
        "protocol": protocol(),
        "python": sys.version,
        "system": platform.platform(),
        "packages": packages,
    }


def _of_pool(client: Client, report: Report, now: float) -> Iterator[tuple[str, Any]]:
    told = report.daemons.get("daemons") or ()
    names = [one["name"] for one in told if one["subsystem"] != "STARTD"]
    names += [one["name"] for one in told if one["subsystem"] == "STARTD"][:MOST_STARTDS]
    for name in dict.fromkeys(names):
        yield f"configuration/{_file(name)}.json", _try(lambda name=name: client.config(daemons=[name]))  # type: ignore[misc]
    yield "ads/daemons.json", _try(lambda: [_ad(ad) for ad in client.ads(*_KINDS, limit=1000)])
    yield "ads/machines.json", _try(lambda: [_ad(ad) for ad in client.ads("Machine", limit=MOST_MACHINES)])
    yield "leaders.json", _try(client.hads)
    yield "jobs.json", _try(client.job_totals)
    yield "overview.json", _try(client.overview)
    yield "attention.json", _try(client.attention)
    yield "events.json", _try(lambda: _events(client, now))


_KINDS: Final = ("Scheduler", "Negotiator", "Collector", "HAD", "Journal", "Defrag", "Rooster", "Gangliad", "Adstash")


def _events(client: Client, now: float) -> list[Any]:
    """The last ones of the last hour, as the journal has them."""
    found: deque[Any] = deque(maxlen=MOST_EVENTS)
    after = ""
    for _ in range(MOST_PAGES):
        page = client.journal("events", **{"from": now - EVENTS_S, "limit": EVENTS_AT_ONCE, "after": after})
        found += page["events"]
        after = page.get("next") or ""
        if not after:
            break
    return list(found)


def _ad(ad: Any) -> dict[str, str]:
    return {name: str(ad[name]) for name in ad}


def _try(ask: Callable[[], Any]) -> Any:
    """What it gives, or why not: a bundle is made of a pool that is not well."""
    try:
        return ask()
    except ClientError as error:
        return {"error": str(error)}


def _logs(config: Config | None) -> Iterator[tuple[str, str]]:
    folder = (config.get("LOG") if config is not None else "") or ""
    for path in newest(Path(folder), MOST_LOGS) if folder else ():
        try:
            yield f"logs/{_file(path.name)}", tail(path, LOG_TAIL)
        except OSError as error:
            yield f"logs/{_file(path.name)}.error", f"{error.strerror}\n"
    if Path("/run/systemd/system").is_dir():
        yield "logs/journald.txt", _journald(("roost-*",))


def newest(folder: Path, most: int) -> Sequence[Path]:
    """Plain files of a directory that are logs by name, the ones that were written last first."""
    try:
        found = [one for one in folder.iterdir() if one.is_file() and not one.is_symlink()]
        return sorted(found, key=lambda one: -one.stat().st_mtime)[:most]
    except OSError:
        return []


def tail(path: Path, most: int) -> str:
    """The end of a file, from the beginning of a line on. Raises OSError."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        data = file.read(most)
    if size > most:
        data = data.partition(b"\n")[2]
    return data.decode("utf-8", "replace")


def _journald(units: Iterable[str]) -> str:
    words = ["journalctl", "--no-pager", "--lines", str(MOST_LINES), "--output", "short-iso"]
    try:
        done = subprocess.run(
            [*words, *(f"--unit={unit}" for unit in units)], capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{error}\n"
    return done.stdout or done.stderr


def _file(name: str) -> str:
    """A name that is one of a file."""
    return re.sub(r"[^A-Za-z0-9._@-]", "_", name)[:100].lstrip(".") or "_"
