"""Sending the input files of spooled jobs, and putting what they bring back where the submit file said."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from shared.classad import ClassAd
from shared.transfer.bundle import CHUNK, Extraction, Source, write_bundle
from shared.transfer.errors import TransferError
from shared.transfer.sandbox import NOWHERE, input_sources, parse_remaps

if TYPE_CHECKING:
    from roost.client import Client
    from roost.client import Cluster as Queued
    from roost.submit.description import Cluster


def sources(cluster: Cluster) -> list[list[Source]]:
    """What each job of a cluster takes along. Raises TransferError naming a file that is not there."""
    common = cluster.ad
    each = []
    for ad in cluster.jobs():
        ad.chain(common)
        each.append(input_sources(ad))
    for path in {source.path for job in each for source in job}:
        if not path.exists():
            raise TransferError(f"input file {path} does not exist; nothing is queued")
    return each


def upload(client: Client, queued: Queued, cluster: Cluster) -> None:
    """Send the files of every job: once for the whole cluster where all jobs take the same ones along. Raises
    TransferError naming a file that can not be sent; the jobs stay on hold then."""
    each = sources(cluster)
    if all(job == each[0] for job in each):
        client.upload(str(queued.cluster), chunks(write_bundle(each[0])), queued.schedd)
        return
    for proc, job in enumerate(each):
        client.upload(f"{queued.cluster}.{proc}", chunks(write_bundle(job)), queued.schedd)


def bring_home(stream: BinaryIO, job: ClassAd) -> int:
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


def chunks(bundle: AsyncIterator[bytes]) -> Iterator[bytes]:
    """An asynchronous stream for a synchronous reader. Its loop has a thread of its own: the reader's may run one
    already, as in a notebook."""
    loop = asyncio.new_event_loop()
    with ThreadPoolExecutor(1, thread_name_prefix="bundle") as thread:
        try:
            while True:
                try:
                    yield thread.submit(loop.run_until_complete, anext(bundle)).result()
                except StopAsyncIteration:
                    return
        finally:
            loop.close()
