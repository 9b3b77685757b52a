"""`roost transfer-data`: bring home the output of jobs that were submitted with -spool."""

from __future__ import annotations

from roost.cli.options import COMMON, Option, parse, usage, value
from roost.cli.output import number, say
from roost.client import Client
from roost.errors import UsageError
from roost.submission import unpack_output

OPTIONS: tuple[Option, ...] = (
    value("name", help="the schedd that has the jobs", metavar="SCHEDD"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        summary = "Fetch the output of spooled jobs into the directory and under the names that their submit file gave."
        say(usage(command, "JOB...", summary, OPTIONS))
        return 0
    if not parsed.arguments:
        raise UsageError("transfer-data of what? name jobs: 12 or 12.3")
    schedd = parsed.one("name")
    needs = ("ClusterId", "ProcId", "JobStatus", "Iwd", "Out", "Err", "UserLog", "TransferOutputRemaps")
    fetched = files = waiting = 0
    with Client(parsed.one("pool") or None) as client:
        for job in list(client.jobs(*parsed.arguments, projection=needs, schedd=schedd)):
            if number(job, "JobStatus") != 4:
                waiting += 1
                continue
            name = f"{int(number(job, 'ClusterId'))}.{int(number(job, 'ProcId'))}"
            files += unpack_output(client.download(name, schedd), job)
            fetched += 1
    say(f"Fetched {files} files of {fetched} jobs." + (f" {waiting} jobs are not done yet." if waiting else ""))
    if not fetched and not waiting:
        raise UsageError(f"no spooled job in the queue: {' '.join(parsed.arguments)}")
    return 0
