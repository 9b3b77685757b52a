"""Gathers what `roost doctor` looks at: what the pool's gateway knows of all daemons, and what there is on the machine
where the command runs. engine.doctor says what is wrong with it."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from engine.attention import Certificate, Disk, Finding
from engine.doctor import MIB, Machine, Pool, Server, Waiting, check_machine, check_pool, merged, told_of
from roost.client import Client
from roost.errors import ClientError
from roost.personal_config import tool_config
from roost.setup.layout import IDENTITIES
from shared.bus import try_broker
from shared.config import Config
from shared.config.errors import ConfigError
from shared.config.knobs.tls import TlsSettings
from shared.daemon.health_told import certificate_ends
from shared.state import try_store
from shared.tls import ClientTls

_SERVERS: Final[tuple[tuple[str, Literal["broker", "store"]], ...]] = (
    ("ROOST_AMQP_URL", "broker"),
    ("ROOST_REDIS_URL", "store"),
)
_FIELDS: Final = tuple(one.name for one in fields(Finding))
_FOLDERS: Final = ("SPOOL", "EXECUTE", "LOG")


@dataclass(slots=True)
class Report:
    """findings: errors first. looked: what was looked at, in words. daemons: as the gateway tells of them."""

    findings: list[Finding]
    looked: list[str] = field(default_factory=list)
    daemons: dict[str, Any] = field(default_factory=dict)


def examine(client: Client | None, why_none: str = "", *, machine: bool = True) -> Report:
    """The pool, and this machine where its configuration names servers or `machine` is true. client: None where there
    is no gateway: why_none says why."""
    report = Report([])
    lists: list[list[Finding]] = []
    if client is None:
        lists.append([_no_gateway(why_none)])
    else:
        lists += _pool(client, report)
    if machine:
        lists.append(_machine(report))
    report.findings = merged(*lists)
    return report


def _no_gateway(why: str) -> Finding:
    text = f"The gateway does not answer: {why}"
    return Finding("gateway", "error", text, help="commands.md#which-pool", command="roost ping -verbose")


def _pool(client: Client, report: Report) -> Iterator[list[Finding]]:
    """What is wrong with the pool; a part that can not be had is told of, and keeps no other from being looked at."""
    try:
        client.whoami()
    except ClientError as error:
        yield [_no_gateway(str(error))]
        return
    try:
        found = client.daemons_health()
    except ClientError as error:
        yield [_unknown("the daemons", error)]
        found = {}
    own = time.time()
    report.daemons = found
    pool = Pool(
        daemons=told_of(found),
        queues=[Waiting(**one) for one in found.get("queues", ())],
        hads=_or_nothing(client.hads),
        own_clock_s=own - found["now"] if "now" in found else None,
        machines=int(found.get("machines", 0)),
    )
    yield check_pool(pool, float(found.get("now", own)))
    report.looked += ["daemons", "clocks", "event loops", "leases", "queues", "disks", "certificates"]
    yield _overview(client, report)


def _overview(client: Client, report: Report) -> list[Finding]:
    """What the dashboard's overview says."""
    try:
        told = client.attention()
    except ClientError as error:
        if error.code == "not-found":
            text = "The gateway is of an earlier release, which does not tell what needs attention: upgrade it."
            return [Finding("older", "note", text, help="upgrade.md", command="roost upgrade -check")]
        return [_unknown("jobs and machines", error)]
    report.looked += ["jobs that wait in vain", "machines that fail jobs", "dead letters", "versions"]
    found = [Finding(**{name: one[name] for name in _FIELDS if name in one}) for one in told["findings"]]
    if hidden := told.get("hidden"):
        text = f"You may not see {', '.join(hidden)}: ask as an administrator."
        found.append(Finding("hidden", "note", text, help="security.md", command="roost ping ADMINISTRATOR"))
    return found


def _unknown(what: str, error: ClientError) -> Finding:
    return Finding("unknown", "error", f"Nothing is known of {what}: {error}", help="daemons.md", command="roost ping")


def _or_nothing(ask: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    try:
        return ask()
    except ClientError:
        return []


def _machine(report: Report) -> list[Finding]:
    """What is wrong here, by this machine's configuration and the identities of its daemons."""
    try:
        config = tool_config()
    except (ConfigError, ClientError) as error:
        return check_machine(Machine(configuration=str(error)), time.time())
    named = _urls(config)
    servers = asyncio.run(_servers(named, ClientTls.of(TlsSettings.from_config(config)))) if named else []
    folders = {name: config.get(name) or "" for name in _FOLDERS}
    report.looked.append("this machine's " + ", ".join([*(knob for knob, _, _ in named), "disks", "certificates"]))
    machine = Machine(servers, list(_disks(folders)), _certificates(config))
    return check_machine(machine, time.time())


Named = tuple[str, Literal["broker", "store"], str]


def _urls(config: Config) -> list[Named]:
    """The servers that are named here: knob, kind, URL."""
    found: list[Named] = []
    for knob, kind in _SERVERS:
        url = config.get(knob) or ""
        if url and urlsplit(url).scheme:
            found.append((knob, kind, url))
    for path in _environments():
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, text = line.partition("=")
            found += [(f"{name} of {path}", kind, text.strip()) for knob, kind in _SERVERS if name == knob]
    return found


def _environments() -> list[Path]:
    """Files that name servers to the units of daemons which were enrolled here, as far as we may read them."""
    found = sorted(Path(IDENTITIES).glob("*/environment")) if os.access(IDENTITIES, os.R_OK | os.X_OK) else []
    return [path for path in found if os.access(path, os.R_OK)]


async def _servers(named: Iterable[Named], tls: ClientTls) -> list[Server]:
    async def attempt(knob: str, kind: Literal["broker", "store"], url: str) -> Server:
        if kind == "broker":
            return Server(kind, knob, await try_broker(url, tls))
        trouble, release = await try_store(url, tls)
        return Server(kind, knob, trouble, release)

    return list(await asyncio.gather(*(attempt(*one) for one in named)))


def _disks(folders: dict[str, str]) -> Iterator[Disk]:
    for name, folder in folders.items():
        try:
            free = shutil.disk_usage(folder).free
        except OSError:
            continue
        yield Disk(f"disk of {folder} on this machine", name, free / MIB)


def _certificates(config: Config) -> list[Certificate]:
    return [Certificate(f"file {path} on this machine", ends) for path, ends in certificate_ends(config).items()]
