"""`roost submit`: queue the jobs of a submit file."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.client import Client, Cluster
from roost.errors import ClientError, UsageError
from roost.submit import Description, Place, dry_run, here, read_file
from roost.submit import description as language
from shared.host import host_id

OPTIONS: tuple[Option, ...] = (
    value("dry-run", help="queue nothing; write the job ads to FILE (-: standard output)", metavar="FILE"),
    value(
        "append", "a", help="a line that counts as written before the queue statement; may be repeated", metavar="LINE"
    ),
    value("batch-name", help="name of the batch, as -append batch_name", metavar="NAME"),
    flag("spool", "remote", help="send the input files and keep the output at the schedd (see transfer-data)"),
    value("name", help="submit to this schedd", metavar="SCHEDD"),
    flag("terse", help="print only the ids: CLUSTER.FIRST - CLUSTER.LAST"),
    flag("json", help="print what was queued as JSON"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    argv, queue = _split_queue(argv)
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        text = "Queue the jobs of a submit file (-: standard input). -queue ARGUMENTS, given last, replaces its queue."
        say(usage(command, "[NAME=VALUE]... FILE", text, OPTIONS))
        return 0
    settings = [word for word in parsed.arguments if "=" in word and not Path(word).exists()]
    files = [word for word in parsed.arguments if word not in settings]
    if len(files) > 1:
        raise UsageError(f"one submit file at a time, not {len(files)}: {' '.join(files)}")
    file = files[0] if files else "-"
    append = [*parsed.all("append")]
    if parsed.has("batch-name"):
        append.append(f"batch_name = {parsed.one('batch-name')}")
    place = here(file)
    text = sys.stdin.read() if file == "-" else read_file(file, place)
    description = Description(
        text, place, prelude=settings, append=append, queue_override=queue, now=time.time(), stdin=sys.stdin.read
    )
    if parsed.has("dry-run"):
        return _dry_run(description, parsed.one("dry-run"))
    return _submit(description, place, parsed)


def _split_queue(argv: list[str]) -> tuple[list[str], str | None]:
    for position, word in enumerate(argv):
        if word in ("-queue", "--queue"):
            return argv[:position], " ".join(argv[position + 1 :])
    return argv, None


def _dry_run(description: Description, target: str) -> int:
    lines: list[str] = []
    total = number = 0
    for number, cluster in enumerate(description.clusters(), 1):
        lines += dry_run.lines(cluster, number, description.now)
        total += len(cluster.procs)
    _warn(description)
    text = "".join(f"{line}\n" for line in lines)
    if target == "-":
        say("Dry-Run job(s)")
        sys.stdout.write(text)
    else:
        Path(target).write_text(text)
        say("Dry-Run job(s)" + "." * total)
    say(f"{total} job(s) dry-run to cluster {max(number, 1)}.")
    return 0


def _submit(description: Description, place: Place, parsed: Parsed) -> int:
    clusters = list(description.clusters())  # everything is read before anything is queued
    _warn(description)
    for cluster in clusters:
        _check_universe(cluster, place)
    if not clusters:
        say("No jobs were queued.")
        return 0
    queued: list[Cluster] = []
    with Client(parsed.one("pool") or None) as client:
        about = client.schedd(parsed.one("name"))
        same_files = about["host_id"] == host_id() and about["uid"] == os.getuid()
        spool = parsed.has("spool") or not same_files
        if spool:  # else neither asyncio nor the transfer code is needed: 50 ms of every submit
            from roost.submit.spool import sources, upload

            for cluster in clusters:
                sources(cluster)
        try:
            for index in range(len(clusters)):
                queued.append(_queue(client, description, clusters, index, spool=spool, schedd=about["name"]))
                if spool:
                    upload(client, queued[-1], clusters[index])
        except Exception:
            _take_back(client, queued, about["name"])
            raise
    _report(queued, parsed, spool=spool)
    return 0


def _take_back(client: Client, queued: list[Cluster], schedd: str) -> None:
    """Leave nothing half-done in the queue; what can not be removed is told."""
    ids = [str(done.cluster) for done in queued]
    if ids:
        try:
            client.act("remove", ids, reason="the submit failed", schedd=schedd)
        except ClientError as error:
            sys.stderr.write(f"roost: could not remove {', '.join(ids)} again: {error}\n")


def _queue(
    client: Client, description: Description, clusters: list[language.Cluster], index: int, *, spool: bool, schedd: str
) -> Cluster:
    cluster = clusters[index]
    if not description.needs_cluster:
        return client.submit(cluster.ad, cluster.jobs(), spool=spool, schedd=schedd)

    def jobs(number: int) -> list:  # type: ignore[type-arg]
        description.cluster = number
        again = list(description.clusters())[index]
        clusters[index] = again
        return list(again.jobs(cluster.attributes))

    return client.submit(cluster.ad, jobs, spool=spool, schedd=schedd)


def _check_universe(cluster: language.Cluster, place: Place) -> None:
    number = cluster.attributes["JobUniverse"]
    if number != 5:
        raise UsageError(f"{place.file}: universe {number} is not run by this pool; use vanilla, docker or container")


def _report(queued: list[Cluster], parsed: Parsed, *, spool: bool) -> None:
    if parsed.has("json"):
        say(json.dumps([{"cluster": q.cluster, "count": q.count, "schedd": q.schedd} for q in queued]))
    elif parsed.has("terse"):
        for q in queued:
            say(f"{q.cluster}.0 - {q.cluster}.{q.count - 1}")
    else:
        total = sum(q.count for q in queued)
        say("Submitting job(s)" + "." * min(total, 60))
        for q in queued:
            say(f"{q.count} job(s) submitted to cluster {q.cluster}.")
        last = queued[-1].cluster
        if sys.stderr.isatty():
            fetch = f", then `roost transfer-data {last}`" if spool else ""
            sys.stderr.write(f"Follow them with `roost q {last}`, wait with `roost wait {last}`{fetch}.\n")


def _warn(description: Description) -> None:
    for problem in description.warnings:
        sys.stderr.write(f"WARNING: {problem}\n")
