"""`roost submit`: queue the jobs of a submit file."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from roost.cli import submit_checks
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.client import Client, Cluster
from roost.errors import ClientError, UsageError
from roost.personal_config import tool_config
from roost.submit import DescribedCluster, Description, SubmitContext, dry_run, here, read_file
from roost.submit.description import make_factory, materialize_at_once, told_of
from shared.classad import ClassAd
from shared.host import host_id

OPTIONS: tuple[Option, ...] = (
    value("dry-run", "dump", help="queue nothing; write the job ads to FILE (-: standard output)", metavar="FILE"),
    value(
        "append", "a", help="a line that counts as written before the queue statement; may be repeated", metavar="LINE"
    ),
    value("batch-name", help="name of the batch, as -append batch_name", metavar="NAME"),
    value("file", help="the submit file, as without -file", metavar="FILE"),
    flag("interactive", "i", help="one job that holds a slot, and a shell beside it; the job ends with the shell"),
    value("idle", help="with -interactive: log out when nothing was typed or shown for so long", metavar="SECONDS"),
    flag("spool", help="send the input files and keep the output at the schedd (see transfer-data)"),
    value("remote", help="submit to this schedd, with -spool", metavar="SCHEDD"),
    value("name", help="submit to this schedd", metavar="SCHEDD"),
    value("maxjobs", help="queue nothing if the file makes more jobs than this", metavar="NUMBER"),
    flag("single-cluster", help="queue nothing if the file makes more than one cluster"),
    flag("allow-crlf-script", help="only warn of a script whose first line ends as on DOS"),
    flag("unused", help="do not warn of lines that nothing uses"),
    flag("disable", help="no effect: files are looked at where they are used (for HTCondor's scripts)"),
    flag("factory", help="let jobs come into the queue as others leave it, also without max_materialize"),
    flag("debug", help="tell where the pool is and what was read"),
    flag("terse", help="print only the ids: CLUSTER.FIRST - CLUSTER.LAST"),
    flag("verbose", "v", help="print the ad of each job that was queued"),
    flag("json", help="print what was queued as JSON"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    argv, queue = _split_queue(argv)
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        text = (
            "Queue the jobs of a submit file (-: standard input). -queue ARGUMENTS, up to the next option, stands for\n"
            "its queue statement. NAME=VALUE counts as written before the file."
        )
        say(usage(command, "[NAME=VALUE]... FILE", text, OPTIONS))
        return 0
    settings = [word for word in parsed.arguments if "=" in word and not Path(word).exists()]
    files = [word for word in parsed.arguments if word not in settings]
    files += parsed.all("file")
    if len(files) > 1:
        raise UsageError(f"one submit file at a time, not {len(files)}: {' '.join(files)}")
    if parsed.has("idle") and not parsed.has("interactive"):
        raise UsageError("-idle belongs to -interactive")
    append = [*parsed.all("append")]
    if parsed.has("batch-name"):
        append.append(f"batch_name = {parsed.one('batch-name')}")
    if parsed.has("interactive"):
        from roost.cli import interactive

        files = files or [tool_config("SUBMIT").get("INTERACTIVE_SUBMIT_FILE") or ""]
        append += interactive.INTERACTIVE_COMMANDS
        if files == ["-"]:
            raise UsageError("-interactive needs standard input for the shell: name a submit file, or none")
    file = files[0] if files else "-"
    place = replace(here(file or "<interactive>"), allow_crlf_script=parsed.has("allow-crlf-script"))
    if not file:
        text = interactive.INTERACTIVE_DESCRIPTION
    else:
        text = sys.stdin.read() if file == "-" else read_file(file, place)
    if not file and queue is not None:
        text = text.replace("queue\n", "")
    description = Description(
        text, place, prelude=settings, append=append, queue_override=queue, now=time.time(), stdin=sys.stdin.read
    )
    if parsed.has("unused"):
        description.tell_unused = False
    if parsed.has("dry-run"):
        return _dry_run(description, parsed)
    return _submit(description, place, parsed)


def _split_queue(argv: list[str]) -> tuple[list[str], str | None]:
    for position, word in enumerate(argv):
        if word in ("-queue", "--queue"):
            end = position + 1
            while end < len(argv) and (argv[end] == "-" or not argv[end].startswith("-")):
                end += 1
            return argv[:position] + argv[end:], " ".join(argv[position + 1 : end])
    return argv, None


def _dry_run(description: Description, parsed: Parsed) -> int:
    target, terse = parsed.one("dry-run"), parsed.has("terse")
    lines: list[str] = []
    told: list[str] = []
    total = 0
    lines_of = dry_run.lines if target == "-" else dry_run.lines_of_file
    clusters = list(description.clusters())
    _check_limits(clusters, parsed)
    for number, cluster in enumerate(clusters, 1):
        lines += lines_of(cluster, number, description.now)
        count = len((cluster.written or cluster).procs)
        told.append(f"{number}.0 - {number}.{count - 1}" if terse else f"{count} job(s) dry-run to cluster {number}.")
        total += count
    _warn(description)
    for wrong in dict.fromkeys(cluster.not_run for cluster in clusters if cluster.not_run):
        sys.stderr.write(f"WARNING: without -dry-run it would be refused: {wrong}\n")
    for one in told_of(clusters):
        sys.stderr.write(f"WARNING: {one}\n")
    text = "".join(f"{line}\n" for line in lines)
    if target == "-":
        say("" if terse else "Dry-Run job(s)")
        sys.stdout.write(text)
    else:
        try:
            Path(target).write_text(text)
        except OSError as error:
            raise UsageError(f"-dry-run {target}: {error.strerror}") from error
        if not terse:
            say("Dry-Run job(s)" + "." * total)
    for line in told:
        say(line)
    return 0


def _submit(description: Description, place: SubmitContext, parsed: Parsed) -> int:
    clusters = list(description.clusters())  # everything is read before anything is queued
    _warn(description)
    for cluster in clusters:
        _check_universe(cluster, place)
    for told in told_of(clusters):
        sys.stderr.write(f"WARNING: {told}\n")
    if not clusters:
        say("No jobs were queued.")
        return 0
    _check_numbers(clusters, parsed)
    by_default = place.knobs.submit_factory_jobs_by_default
    for cluster in clusters:
        if parsed.has("factory") or (by_default and len(cluster.procs) > 1):
            make_factory(cluster)
    queued: list[Cluster] = []
    with Client(parsed.one("pool") or None) as client:
        about = client.schedd(parsed.one("remote") or parsed.one("name"))
        if parsed.has("debug"):
            sys.stderr.write(f"Pool {client.url}, schedd {about['name']}\n")
        same_files = about["host_id"] == host_id() and about["uid"] == os.getuid()
        if (problem := about.get("mail_problem")) and any(_wants_mail(cluster) for cluster in clusters):
            sys.stderr.write(f"WARNING: notification has no effect: {about['name']} sends no mail: {problem}\n")
        spool = parsed.has("spool") or parsed.has("remote") or not same_files
        for told in () if spool else submit_checks.files_told(clusters):
            sys.stderr.write(f"WARNING: {told}\n")
        if spool:  # else neither asyncio nor the transfer code is needed: 50 ms of every submit
            from roost.submission import input_files

            for cluster in clusters:
                each = input_files(cluster)
                if any(job != each[0] for job in each) and (warning := materialize_at_once(cluster)):
                    sys.stderr.write(f"WARNING: {warning}\n")
        try:
            for index in range(len(clusters)):
                queued.append(_queue(client, description, clusters, index, spool=spool, schedd=about["name"]))
                if spool:
                    _upload(client, queued[-1], clusters[index])
        except Exception:
            _take_back(client, queued, about["name"])
            raise
        if parsed.has("interactive"):
            return _session(client, parsed, queued[0])
        _report(queued, parsed, spool=spool)
        # A question for the pool: for who looks on, not for scripts that submit a thousand times.
        for told in submit_checks.never_run(client, queued) if sys.stderr.isatty() else ():
            sys.stderr.write(f"WARNING: {told}\n")
    if parsed.has("verbose"):
        _show_ads(queued, clusters)
    return 0


def _wants_mail(cluster: DescribedCluster) -> bool:
    each = cluster.procs if "JobNotification" in cluster.procs.names else ()
    return any(ad.get("JobNotification") not in (None, 0) for ad in (cluster.attributes, *each))


def _upload(client: Client, queued: Cluster, cluster: DescribedCluster) -> None:
    """Send the files of every job: once for the whole cluster where all jobs take the same ones along. Raises
    TransferError naming a file that can not be sent; the jobs stay on hold then."""
    from roost.submission import input_files
    from roost.transport import synchronous
    from shared.transfer.bundle import write_bundle

    each = input_files(cluster)
    if all(job == each[0] for job in each):
        client.upload(str(queued.cluster), synchronous(write_bundle(each[0])), queued.schedd)
        return
    for proc, job in enumerate(each):
        client.upload(f"{queued.cluster}.{proc}", synchronous(write_bundle(job)), queued.schedd)


def _session(client: Client, parsed: Parsed, queued: Cluster) -> int:
    from roost.cli.interactive import session

    sys.stderr.write(f"Submitting job(s).\n1 job(s) submitted to cluster {queued.cluster}.\n")
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return session(client, f"{queued.cluster}.0", queued.schedd, parsed.seconds("idle"), terminal=terminal)


def _check_limits(clusters: list[DescribedCluster], parsed: Parsed) -> None:
    """What -maxjobs and -single-cluster allow. Raises UsageError."""
    jobs = sum(len(cluster.procs) for cluster in clusters)
    if parsed.has("maxjobs") and jobs > (most := parsed.integer("maxjobs", 0)):
        raise UsageError(f"the number of jobs, {jobs}, would exceed -maxjobs {most}: nothing was queued")
    if parsed.has("single-cluster") and len(clusters) > 1:
        raise UsageError(f"the file makes {len(clusters)} clusters, against -single-cluster: nothing was queued")


def _check_numbers(clusters: list[DescribedCluster], parsed: Parsed) -> None:
    """What -maxjobs, -single-cluster and -interactive allow. Raises UsageError."""
    _check_limits(clusters, parsed)
    if parsed.has("interactive"):
        from roost.cli.interactive import check_interactive

        check_interactive(clusters)


def _show_ads(queued: list[Cluster], clusters: list[DescribedCluster]) -> None:
    """Each job's ad as it was sent. The schedd adds what it keeps itself; roost q -l shows all of it."""
    from roost.cli.ad_formats import text_of

    for done, cluster in zip(queued, clusters, strict=True):
        for proc in cluster.procs:
            ad = ClassAd({**cluster.attributes, **proc, "ClusterId": done.cluster})
            sys.stdout.write(f"\n** Proc {done.cluster}.{proc['ProcId']}:\n{text_of(ad, 'long')}")


def _take_back(client: Client, queued: list[Cluster], schedd: str) -> None:
    """Leave nothing half-done in the queue; what can not be removed is told."""
    ids = [str(done.cluster) for done in queued]
    if ids:
        try:
            client.act("remove", ids, reason="the submit failed", schedd=schedd)
        except ClientError as error:
            sys.stderr.write(f"roost: could not remove {', '.join(ids)} again: {error}\n")


def _queue(
    client: Client, description: Description, clusters: list[DescribedCluster], index: int, *, spool: bool, schedd: str
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


def _check_universe(cluster: DescribedCluster, place: SubmitContext) -> None:
    if cluster.not_run:
        raise UsageError(f"{place.file}: {cluster.not_run}")


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
