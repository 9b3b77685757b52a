"""`roost import`: priorities and jobs of an HTCondor pool come into this one (docs/migration.md)."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engine.queue.jobs import ACTIVE
from roost.cli.options import COMMON, Option, Parsed, flag, many, parse, usage, value
from roost.cli.output import say
from roost.client import Client
from roost.errors import ClientError, UsageError
from roost.importing.accounts import Accounts, read_accounts
from roost.importing.classad_log import Log, lines_of, read_log
from roost.importing.queue import QueuedCluster, files_of, in_parts, names_files, read_queue
from roost.importing.reading_as import account_of, collected, reading_as
from shared.config.errors import ConfigError, Problem, Source
from shared.host import host_id
from shared.transfer.bundle import Source as FileSource

#: Records in one request.
_BATCH: Final = 1000

#: Jobs in one request.
_JOBS: Final = 2000
_AWAITED: Final = "JobStatus == 5 && HoldReasonCode == 16"

OPTIONS: tuple[Option, ...] = (
    flag("dry-run", help="change nothing: say what would be done, and what is wrong"),
    flag("replace", help="accountant: also users of whom this pool knows something already"),
    value("spool", help="queue: HTCondor's SPOOL, where that is not the directory of FILE", metavar="DIRECTORY"),
    many("leave-out", help="queue: clusters that stay behind", metavar="CLUSTER"),
    value("name", help="the negotiator or schedd, where there are several", metavar="NAME"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        text = (
            "Bring priorities and jobs of an HTCondor pool to this one (docs/migration.md). FILE of accountant is the\n"
            "Accountantnew.log in SPOOL of the machine with the negotiator, of queue the job_queue.log in SPOOL of an\n"
            "access point. Stop HTCondor first, or copy the file."
        )
        say(usage(command, "accountant|queue FILE", text, OPTIONS))
        return 0
    kinds = {"accountant": _accountant, "queue": _queue}
    if len(parsed.arguments) != 2 or parsed.arguments[0] not in kinds:
        raise UsageError("say what to import: roost import accountant FILE, or roost import queue FILE")
    return kinds[parsed.arguments[0]](parsed, parsed.arguments[1])


def _read(file: str) -> Log:
    """Raises UsageError, ConfigError."""
    try:
        with open(file, "rb") as stream:
            log = read_log(lines_of(stream), file)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; name a file that can be read") from error
    warn(log.warnings)
    return log


def warn(problems: Iterable[Problem]) -> None:
    for problem in problems:
        sys.stderr.write(f"WARNING: {problem}\n")


def _accountant(parsed: Parsed, file: str) -> int:
    found = read_accounts(_read(file), file)
    dry, replacing = parsed.has("dry-run"), parsed.has("replace")
    with Client(parsed.one("pool") or None) as client:
        # All are looked at before any is taken in.
        plan = _ask(client, parsed, found, replacing=replacing, dry=True)
        done = plan if dry else _ask(client, parsed, found, replacing=replacing, dry=False)
    for name in sorted(done["taken"]):
        say(f"{name}: {_described(found, name)}{' would be' if dry else ''} taken in")
    for name in sorted(done["known"]):
        say(f"{name}: is known here already and stays as it is (-replace takes the file's)")
    for name, why in sorted(done["left"].items()):
        sys.stderr.write(f"WARNING: {file}, line {found.lines[name]}: {name} is left out: {why}\n")
    counts = [
        f"{len(done['taken'])} {'would be ' if dry else ''}taken in",
        f"{len(done['known'])} known already",
        f"{len(done['usual'])} without anything to keep",
        f"{len(done['left'])} left out",
    ]
    say(f"{len(found.records)} records: {', '.join(counts)}")
    return 0


def _ask(client: Client, parsed: Parsed, found: Accounts, *, replacing: bool, dry: bool) -> dict[str, Any]:
    rows = [{"name": name, **dataclasses.asdict(record)} for name, record in found.records.items()]
    summed: dict[str, Any] = {"taken": [], "known": [], "usual": [], "left": {}}
    for start in range(0, len(rows), _BATCH):
        answer = client.import_accounts(
            rows[start : start + _BATCH],
            until=found.until,
            replacing=replacing,
            dry_run=dry,
            negotiator=parsed.one("name"),
        )
        for kind in ("taken", "known", "usual"):
            summed[kind] += answer[kind]
        summed["left"].update(answer["left"])
    return summed


def _described(found: Accounts, name: str) -> str:
    record = found.records[name]
    factor = f", factor {record.factor:g}" if record.factor else ""
    return f"priority {record.priority:.2f}{factor}, {record.weighted_usage / 3600.0:.2f} weighted hours"


# --- the queue


@dataclass(slots=True)
class _Counts:
    taken: int = 0
    known: int = 0
    waiting: int = 0


def _queue(parsed: Parsed, file: str) -> int:
    queue = read_queue(_read(file), file)
    warn(queue.warnings)
    out = {one for word in parsed.all("leave-out") for one in word.split(",")}
    if wrong := out - {str(cluster.number) for cluster in queue.clusters}:
        raise UsageError(f"-leave-out {', '.join(sorted(wrong))}: no such cluster comes from {file}")
    clusters = [cluster for cluster in queue.clusters if str(cluster.number) not in out]
    for cluster in queue.clusters:
        if cluster not in clusters:
            queue.left["that -leave-out names"] += len(cluster.jobs)
    spool, dry = Path(parsed.one("spool") or os.path.dirname(os.path.abspath(file))), parsed.has("dry-run")
    counts = _Counts()
    with Client(parsed.one("pool") or None) as client:
        about = client.schedd(parsed.one("name"))
        same_host = about["host_id"] == host_id()
        plans = [_planned(client, about["name"], file, cluster) for cluster in clusters]
        problems = [problem for problem in plans if isinstance(problem, Problem)]
        if problems:  # nothing has changed yet
            raise ConfigError(problems)
        for cluster, plan in zip(clusters, plans, strict=True):
            assert not isinstance(plan, Problem)
            direct = plan.direct and same_host and not any(job.spooled for job in cluster.jobs)
            number = plan.number
            if not dry:
                number = _take(client, about["name"], cluster, spool=not direct)
            _say_taken(cluster, number, plan, dry=dry)
            counts.known += len(plan.known)
            counts.taken += len(cluster.jobs) - len(plan.known)
            if not direct:
                counts.waiting += _bring_files(client, about["name"], file, cluster, number, plan, spool, dry=dry)
    would = "would be " if dry else ""
    parts = [f"{counts.taken} jobs {would}taken in", f"{counts.known} known already"]
    if counts.waiting:
        parts.append(f"{counts.waiting} of them wait on hold for their files")
    parts += [f"{number} left out {why}" for why, number in sorted(queue.left.items())]
    say(f"{len(clusters)} clusters: {', '.join(parts)}")
    return 0


@dataclass(frozen=True, slots=True)
class _Plan:
    number: int  # here; 0: the next one
    known: frozenset[int]
    direct: bool


def _planned(client: Client, schedd: str, file: str, cluster: QueuedCluster) -> _Plan | Problem:
    """What would become of a cluster, or why it can not come."""
    known: set[int] = set()
    answer: dict[str, Any] = {}
    try:
        for part in in_parts(cluster, _JOBS):
            answer = client.import_jobs(
                cluster.user, cluster.origin, cluster.number, cluster.ad, part, dry_run=True, schedd=schedd
            )
            known.update(answer["known"])
    except ClientError as error:
        if error.code != "bad-request":
            raise
        mend = f"mend it, or leave it out: -leave-out {cluster.number}"
        return Problem(f"cluster {cluster.number}: {error}", Source(file, cluster.line), mend)
    return _Plan(answer["cluster"], frozenset(known), answer["direct"])


def _take(client: Client, schedd: str, cluster: QueuedCluster, *, spool: bool) -> int:
    number = 0
    for part in in_parts(cluster, _JOBS):
        answer = client.import_jobs(
            cluster.user, cluster.origin, cluster.number, cluster.ad, part, spool=spool, schedd=schedd
        )
        number = answer["cluster"]
    return number


def _say_taken(cluster: QueuedCluster, number: int, plan: _Plan, *, dry: bool) -> None:
    coming = [job for job in cluster.jobs if job.proc not in plan.known]
    if not coming:
        say(f"{cluster.number} -> {number}: {len(cluster.jobs)} jobs of {cluster.user} are here already")
        return
    held = sum(job.ad["JobStatus"] == 5 for job in coming)
    ran = sum(job.status in ACTIVE for job in coming)
    told = [f"{len(coming) - held} idle", f"{held} held"] + ([f"{ran} of them ran and begin anew"] if ran else [])
    already = f"; {len(plan.known)} more are here already" if plan.known else ""
    say(
        f"{cluster.number} -> {number or 'the next number'}: {len(coming)} jobs of {cluster.user}"
        f"{' would come' if dry else ''} ({', '.join(told)}){already}"
    )


def _bring_files(
    client: Client, schedd: str, file: str, cluster: QueuedCluster, number: int, plan: _Plan, spool: Path, *, dry: bool
) -> int:
    """Send the input of jobs that wait for it. Returns how many go on waiting."""
    jobs = {job.proc: job for job in cluster.jobs}
    awaited = set(jobs)
    if dry:
        awaited -= plan.known
    else:
        awaited &= {
            ad["ProcId"] for ad in client.jobs(str(number), constraint=_AWAITED, projection=("ProcId",), schedd=schedd)
        }
    ready: dict[int, list[FileSource]] = {}
    for proc in sorted(awaited):
        job = jobs[proc]
        try:
            if not names_files(cluster, job):
                ready[proc] = []
                continue
            with reading_as(account_of(cluster.user)):
                ready[proc] = files_of(cluster, job, spool)
        except ValueError as error:
            waits = "would wait" if dry else "waits"
            place = f"{file}, line {job.line}: " if job.line else ""
            sys.stderr.write(
                f"WARNING: {place}{cluster.number}.{proc} {waits} on hold: {error} (then give this command again)\n"
            )
    if not dry:
        _send(client, schedd, cluster, number, ready, together=len(ready) == len(jobs))
    return len(awaited) - len(ready)


def _send(
    client: Client,
    schedd: str,
    cluster: QueuedCluster,
    number: int,
    ready: Mapping[int, list[FileSource]],
    *,
    together: bool,
) -> None:
    each = list(ready.values())
    if together and all(one == each[0] for one in each):
        _upload(client, str(number), cluster.user, each[0], schedd)
        return
    for proc, sources in ready.items():
        _upload(client, f"{number}.{proc}", cluster.user, sources, schedd)


def _upload(client: Client, job: str, user: str, sources: list[FileSource], schedd: str) -> None:
    from roost.transport import synchronous
    from shared.transfer.bundle import CHUNK, write_bundle

    chunks = synchronous(write_bundle(sources))
    if not sources:
        client.upload(job, chunks, schedd)
        return
    with tempfile.TemporaryFile() as bundle:
        collected(account_of(user), chunks, bundle)
        client.upload(job, iter(lambda: bundle.read(CHUNK), b""), schedd)
