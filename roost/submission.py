"""Submits for the client libraries: descriptions from mappings, texts and files, the plan of queueing one, the input
files that spooled jobs take along, and the output that they bring back."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from roost import protocol
from roost.errors import ClientError
from roost.protocol import Cluster, Plan, Send, call
from roost.submit import DescribedCluster, Description, here, read_file
from roost.submit.description import materialize_at_once
from shared.classad import ClassAd
from shared.config.errors import ConfigError
from shared.host import host_id
from shared.transfer.bundle import CHUNK, Extraction, Source
from shared.transfer.errors import TransferError
from shared.transfer.sandbox import NOWHERE, input_sources, parse_remaps


def read(
    what: Mapping[str, Any] | str | Path,
    count: int | None,
    itemdata: Iterable[Mapping[str, Any]] | None,
    directory: str | Path | None,
) -> Description:
    """What Client.submit takes, as a description. Raises ClientError."""
    base = Path(directory) if directory is not None else None
    if isinstance(what, Mapping):
        text, file = text_of(what, count, itemdata), "<submit>"
    elif isinstance(what, Path):
        file = str(what)
        place = here(file, base)
        try:
            text = read_file(file, place)
        except ConfigError as error:
            raise ClientError(str(error), "bad-request") from error
    else:
        text, file = what, "<submit>"
    if not isinstance(what, Mapping) and (count is not None or itemdata is not None):
        text += "\n" + _queue(count, itemdata)
    return Description(text, here(file, base), now=time.time())


def text_of(
    commands: Mapping[str, Any], count: int | None = None, itemdata: Iterable[Mapping[str, Any]] | None = None
) -> str:
    """Commands as lines of a submit file. None is left out; true, false and numbers are written as the language has
    them. Raises ClientError for what is no one line."""
    return "".join(f"{_line(name, value)}\n" for name, value in commands.items() if value is not None) + _queue(
        count, itemdata
    )


def _queue(count: int | None, itemdata: Iterable[Mapping[str, Any]] | None) -> str:
    number = 1 if count is None else count
    if itemdata is None:
        return f"queue {number}\n"
    # Values may have commas and blanks, so each item gets a statement of its own.
    lines = []
    for item in itemdata:
        lines += [_line(name, value) for name, value in item.items()]
        lines.append(f"queue {number}")
    if not lines:
        raise ClientError("itemdata is empty: nothing to submit", "bad-request")
    return "\n".join(lines) + "\n"


def _line(name: str, value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if any(bad in f"{name}{text}" for bad in "\n\r\0") or "=" in name or not name.strip():
        raise ClientError(
            f"{name[:80]!r}: a command is one line, NAME = VALUE; take the line breaks out", "bad-request"
        )
    if name.split()[0].lower() in ("queue", "include", "use", "if", "else", "elif", "endif"):
        raise ClientError(
            f"{name[:80]!r} is no command with a value; give count and itemdata, or the text", "bad-request"
        )
    return f"{name} = {text}"


def submit(description: Description, spool: bool | None, schedd: str, owner: str) -> Plan[Cluster]:
    """Queue the one cluster of a description, with its files where it is spooled. Nothing stays of one that fails."""
    cluster = described(description)
    about = yield call("GET", "/v1/schedd", {"name": schedd})
    if spool is None:
        spool = bool(owner) or not shares_files(about)
    queued, each = yield from queue(description, cluster, spool, about["name"], owner)
    if spool:
        try:
            yield from send_files(queued, each)
        except (ClientError, TransferError) as error:
            yield from protocol.act("remove", [str(queued.cluster)], "", "its files could not be sent", queued.schedd)
            raise error if isinstance(error, ClientError) else ClientError(str(error), "bad-request") from error
    return queued


def described(description: Description) -> DescribedCluster:
    """The one cluster of a description. Raises ClientError."""
    try:
        clusters = list(description.clusters())
    except ConfigError as error:
        raise ClientError(str(error), "bad-request") from error
    if len(clusters) != 1:
        several = f"{len(clusters)} clusters (its executable changes): submit them one by one"
        raise ClientError(several if clusters else "nothing to submit: the queue statement gave no job", "bad-request")
    (cluster,) = clusters
    if cluster.not_run:
        raise ClientError(cluster.not_run, "bad-request")
    return cluster


def shares_files(about: Mapping[str, Any]) -> bool:
    """Whether a schedd (Client.schedd) uses our files where they lie."""
    return bool(about["host_id"] == host_id() and about["uid"] == os.getuid())


def queue(
    description: Description, cluster: DescribedCluster, spool: bool, schedd: str, owner: str = "", submit_id: str = ""
) -> Plan[tuple[Cluster, list[list[Source]]]]:
    """Queue a cluster of a description that has no other. The files that each of its jobs is to be sent, where it is
    spooled. submit_id: see protocol.submit."""
    try:
        each = input_files(cluster) if spool else []
    except TransferError as error:
        raise ClientError(str(error), "bad-request") from error
    if any(job != each[0] for job in each):
        materialize_at_once(cluster)
    if description.needs_cluster:

        def procs(number: int) -> Any:
            description.cluster = number
            (again,) = description.clusters()
            return list(again.jobs(cluster.attributes))

        queued = yield from protocol.submit(cluster.ad, procs, spool, schedd, owner, submit_id)
    else:
        queued = yield from protocol.submit(cluster.ad, cluster.jobs(), spool, schedd, owner, submit_id)
    return queued, each


def send_files(queued: Cluster, each: list[list[Source]]) -> Plan[None]:
    """Send the files of a spooled cluster: once where all jobs take the same ones along."""
    if all(job == each[0] for job in each):
        yield Send(protocol.files_path(str(queued.cluster), queued.schedd), each[0])
    else:
        for proc, job in enumerate(each):
            yield Send(protocol.files_path(f"{queued.cluster}.{proc}", queued.schedd), job)


def input_files(cluster: DescribedCluster) -> list[list[Source]]:
    """What each job of a cluster takes along. Raises TransferError naming a file that is not there."""
    common = cluster.ad
    each: list[list[Source]] = []
    for ad in cluster.jobs():
        ad.chain(common)
        sources = input_sources(ad)
        each.append(each[-1] if each and each[-1] == sources else sources)  # mostly the same ones, of many jobs
    for path in {source.path for job in each for source in job}:
        if not path.exists():
            raise TransferError(f"input file {path} does not exist; nothing is queued")
    return each


def unpack_output(stream: BinaryIO, job: ClassAd) -> int:
    """Put the output of a finished job where its submit file said; `stream` is its bundle. Returns how many files.

    Everything is received and verified before anything is put in place. Raises TransferError.
    """
    iwd = Path(job.eval_string("Iwd"))
    places = parse_remaps(job.eval_string("TransferOutputRemaps"))
    for attribute in ("Out", "Err", "UserLog"):
        place = job.eval_string(attribute)
        if place and place != NOWHERE:
            places[Path(place).name] = place
    iwd.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".transfer-", dir=iwd) as folder:
        root = Path(folder)
        with Extraction(root) as extraction:
            while chunk := stream.read(CHUNK):
                extraction.feed(chunk)
            entries = extraction.finish()
            extraction.move_in()
        for name in sorted(path.name for path in root.iterdir()):
            target = iwd / places.get(name, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.is_dir() and (root / name).is_dir():
                shutil.copytree(root / name, target, dirs_exist_ok=True, symlinks=True)
            else:
                shutil.move(root / name, target)
    return sum(entry.kind == "file" for entry in entries)
