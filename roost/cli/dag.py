"""`roost dag status | halt | resume | rescue`: how a DAG stands, and what its manager is to do."""

from __future__ import annotations

import json
from pathlib import Path

from engine.dag.files import node_statuses
from engine.dag.run import DagRun, NodeStatus
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage
from roost.cli.output import say
from roost.client import Client
from roost.dag.journal import Record
from roost.dag.rescue_files import halt_path
from roost.errors import UsageError

OPTIONS: tuple[Option, ...] = (
    flag("nodes", help="status: every node that is not done, too"),
    flag("json", help="status: as JSON"),
    *COMMON,
)
_DEEDS = ("halt", "resume", "remove")


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        text = (
            "status  how the nodes of a DAG stand, by its journal\n"
            "halt    begin no node until `resume`; what runs goes on (FILE.halt is written)\n"
            "resume  go on (FILE.halt is removed)\n"
            "remove  end the DAG: its jobs are removed, and a rescue file is written (as `roost rm`)\n"
            "rescue  write a rescue file of how the DAG stands, whether its manager lives or not\n"
            "FILE is the DAG's first file."
        )
        say(usage(command, "status|halt|resume|remove|rescue FILE", text, OPTIONS))
        return 0
    if len(parsed.arguments) != 2 or parsed.arguments[0] not in ("status", "rescue", *_DEEDS):
        raise UsageError("roost dag status|halt|resume|remove|rescue FILE")
    what, file = parsed.arguments[0], Path(parsed.arguments[1])
    from roost.dag.journal import is_managed, read_journal, replayed

    journal = Path(f"{file}.journal")
    record = read_journal(journal)
    if record is None:
        raise UsageError(f"{file} was not run here: there is no {journal}")
    managed = is_managed(journal)
    if what in _DEEDS:
        if record.finished:
            raise UsageError(f"{file} has ended, with status {record.code}")
        return _do(what, file, record, parsed)
    found = replayed(record)
    if what == "rescue":
        from roost.dag.rescue_files import write_rescue

        say(f"{write_rescue(found, file)} written")
        return 0
    return _status(file, parsed, found, job=record.job, managed=managed)


def _do(what: str, file: Path, record: Record, parsed: Parsed) -> int:
    if what == "halt":
        halt_path(file).touch()
    elif what == "resume":
        halt_path(file).unlink(missing_ok=True)
    else:
        with Client(parsed.one("pool") or None) as client:
            client.act("remove", [f"{record.job}.0"], reason="via roost dag remove", schedd=record.schedd)
    say(f"DAG {file}, job {record.job}.0: {what} asked for")
    return 0


def _status(file: Path, parsed: Parsed, found: DagRun, *, job: int, managed: bool) -> int:
    statuses = node_statuses(found)
    counts = dict.fromkeys(NodeStatus, 0)
    for node in found.dag.nodes:
        if node.counted:
            counts[statuses[node.index]] += 1
    named = {one.name.lower(): count for one, count in counts.items()}
    if found.ended is not None:
        state = f"ended with status {found.ended.exit_code} ({found.ended.status.name})"
    elif not managed:
        state = f"its manager does not run: `roost q {job}` tells why"
    else:
        state = "halted" if found.halted else "running"
    if parsed.has("json"):
        told = {
            "file": str(file),
            "job": job,
            "state": state,
            "managed": managed,
            "nodes": named,
            "idle": found.idle,
            "held": found.held,
            "failed": [found.dag.nodes[one].name for one in found.failed],
        }
        say(json.dumps(told, indent=2))
        return 0
    say(f"{file}, job {job}.0: {state}")
    say("  ".join(f"{name} {count}" for name, count in named.items() if count))
    for index in found.failed:
        say(f"failed: {found.dag.nodes[index].name}, with {found.progress[index].code}")
    if parsed.has("nodes"):
        for node in found.dag.nodes:
            status = statuses[node.index]
            if node.counted and status is not NodeStatus.DONE:
                waits = [found.dag.nodes[one].name for one in node.parents if statuses[one] is not NodeStatus.DONE]
                why = f", waits for {' '.join(waits[:10])}{' ...' if len(waits) > 10 else ''}" if waits else ""
                say(f"{node.name}: {status.name.lower()}{why}")
    return 0
