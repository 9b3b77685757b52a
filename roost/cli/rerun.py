"""`roost rerun`: jobs that left the queue once more."""

from __future__ import annotations

from typing import Final

from engine.queue.outcome import ATTRIBUTES, FAILED, failure
from roost.cli.job_selection import is_id, owned_by
from roost.cli.options import COMMON, Option, flag, parse, usage, value
from roost.cli.output import constraints, say
from roost.client import Client
from roost.errors import ClientError, UsageError

OPTIONS: tuple[Option, ...] = (
    value("constraint", help="failed jobs for which this expression is true", metavar="EXPR"),
    flag("dry-run", help="only list the jobs that would be submitted again"),
    flag("verbose", "v", help="name each job and the new one"),
    value("limit", help="at most so many jobs (1000)", metavar="N"),
    value("name", help="only jobs of this schedd", metavar="SCHEDD"),
    *COMMON,
)
_MOST: Final = 1000
_SUMMARY: Final = (
    "Submit jobs that left the queue once more, as they were submitted. A job (12.3) is run again whatever became of "
    "it; of a cluster (12), an owner or -constraint those jobs that failed."
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "JOB... | OWNER", _SUMMARY, OPTIONS))
        return 0
    jobs = [word for word in parsed.arguments if is_id(word) and "." in word]
    clusters = [word for word in parsed.arguments if is_id(word) and "." not in word]
    owners = [word for word in parsed.arguments if not is_id(word)]
    terms = constraints(parsed)
    if owners:
        terms.append(owned_by(owners))
    if not (jobs or clusters or terms):
        raise UsageError("rerun what? name jobs (12.3), clusters or owners whose failed jobs are meant, or -constraint")
    if (jobs or clusters) and terms:
        raise UsageError("name jobs either by id or by owner and -constraint, not both")
    limit = parsed.integer("limit", _MOST)
    schedd = parsed.one("name")
    needs = ["ClusterId", "ProcId", "RoostRerunOf", *ATTRIBUTES]
    with Client(parsed.one("pool") or None) as client:
        found: dict[str, str] = dict.fromkeys(jobs, "")
        if clusters or terms:
            condition = " && ".join([FAILED, *terms])
            for ad in client.jobs(
                *clusters, constraint=condition, projection=needs, schedd=schedd, limit=limit, history=True
            ):
                found[f"{ad.eval('ClusterId')}.{ad.eval('ProcId')}"] = failure(ad)
        if not found:
            say("No failed jobs match.")
            return 1
        if parsed.has("dry-run"):
            for job, why in found.items():
                say(f"Job {job}" + (f": {why}" if why else ""))
            return 0
        done, refused = {}, {}
        for job in found:
            try:
                done[job] = client.rerun(job, schedd)
            except ClientError as error:
                if error.code in ("unavailable", "unauthorized"):
                    raise
                refused[job] = str(error)
    for job, new in done.items() if parsed.has("verbose") or len(done) == 1 else ():
        say(f"Job {job} runs again as {new}")
    if len(done) > 1:
        say(f"{len(done)} jobs run again, as {next(iter(done.values()))} to {list(done.values())[-1]}")
    for job, reason in refused.items():
        say(f"Job {job}: {reason}")
    return 1 if refused else 0
