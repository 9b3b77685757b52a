"""`roost submit-dag`: run a DAG, or go on with one whose manager was killed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.errors import ClientError, UsageError

if TYPE_CHECKING:
    from engine.dag.model import Dag
    from roost.client import Client
    from roost.dag.beginning import Wishes
    from roost.dag.journal import Record

OPTIONS: tuple[Option, ...] = (
    value("maxjobs", help="at most so many nodes in the queue at a time (0: no limit)", metavar="NUMBER"),
    value(
        "maxidle", help="submit nothing while so many jobs of the DAG are idle (0: no limit; 1000)", metavar="NUMBER"
    ),
    value("maxpre", help="at most so many PRE scripts at a time (0: no limit; 20)", metavar="NUMBER"),
    value("maxpost", help="at most so many POST scripts at a time (0: no limit; 20)", metavar="NUMBER"),
    flag("AlwaysRunPost", help="run POST scripts of nodes whose PRE script failed, too"),
    flag("DontAlwaysRunPost", help="do not (so it is by default)"),
    flag("force", "f", help="begin anew: use no rescue file, and forget a DAG that did not come to its end"),
    value("dorescuefrom", help="go on from rescue file NUMBER; later ones are renamed", metavar="NUMBER"),
    value("autorescue", help="1: go on from the last rescue file (so it is by default); 0: do not", metavar="0|1"),
    value("load_save", help="go on from this save point file", metavar="FILE"),
    value("batch-name", help="name of the DAG's line in the queue", metavar="NAME"),
    flag("no_submit", help="read the DAG and tell what is wrong with it; run nothing"),
    value("include_env", help="variables that the manager gets of this environment, besides", metavar="NAME,..."),
    value("insert_env", help="variables that the manager gets", metavar="NAME=VALUE;..."),
    flag("verbose", "v", help="tell how many nodes there are"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        text = (
            "Run a DAG of jobs. A job of the scheduler universe manages it on the access point, until the DAG ends;\n"
            "what it does is in FILE.dagman.out. Killed, it is started again and goes on where it was."
        )
        say(usage(command, "FILE [FILE...]", text, OPTIONS))
        return 0
    if not parsed.arguments:
        raise UsageError("which DAG? roost submit-dag FILE")
    file = Path(parsed.arguments[0])
    from roost.dag.journal import read_dag

    dag = read_dag(parsed.arguments)
    for problem in dag.warnings:
        sys.stderr.write(f"WARNING: {problem}\n")
    if parsed.has("verbose") or parsed.has("no_submit"):
        say(f"{file}: {dag.counted} nodes")
    return 0 if parsed.has("no_submit") else _submit(file, parsed, dag)


def _submit(file: Path, parsed: Parsed, dag: Dag) -> int:
    from roost.client import Client
    from roost.dag.beginning import begin
    from roost.submission import shares_files

    wishes = _wishes(parsed)
    with Client(parsed.one("pool") or None) as client:
        schedd = client.schedd()
        if not shares_files(schedd):
            raise ClientError(
                f"DAGs run where the schedd has their files: on its machine, as its account; {schedd['name']} is on "
                "another one, or has another account",
                "usage",
            )
        begun = begin(parsed.arguments, Path.cwd(), wishes, lambda record: _is_queued(client, record), dag)
        for problem in begun.in_vain:
            sys.stderr.write(f"WARNING: {problem}\n")
        queued = client.submit_once(begun.ad, begun.name, schedd=schedd["name"])
    say(f"Submitting job(s).\n1 job(s) submitted to cluster {queued.cluster}.")
    if sys.stderr.isatty():
        sys.stderr.write(f"Follow it with `roost dag status {file}`; what it does is in {file}.dagman.out.\n")
    return 0


def _is_queued(client: Client, record: Record) -> bool:
    ads = client.jobs(str(record.job), projection=["JobStatus"], schedd=record.schedd)
    return any(ad.eval("JobStatus") not in (3, 4) for ad in ads)


def _wishes(parsed: Parsed) -> Wishes:
    from roost.dag.beginning import Wishes

    numbers = {"maxjobs": "max_jobs", "maxidle": "max_idle", "maxpre": "max_pre", "maxpost": "max_post"}
    limits: dict[str, Any] = {name: parsed.integer(word, 0) for word, name in numbers.items() if parsed.has(word)}
    if parsed.has("AlwaysRunPost") or parsed.has("DontAlwaysRunPost"):
        limits["always_post"] = parsed.has("AlwaysRunPost")
    inserted: dict[str, Any] = dict(_pair(text) for text in parsed.one("insert_env").split(";") if text.strip())
    if url := parsed.one("pool"):
        inserted["ROOST_URL"] = url
    return Wishes(
        limits,
        force=parsed.has("force"),
        auto_rescue=bool(parsed.integer("autorescue", 1)) if parsed.has("autorescue") else None,
        rescue_from=parsed.integer("dorescuefrom", 0) if parsed.has("dorescuefrom") else None,
        load_save=parsed.one("load_save"),
        batch=parsed.one("batch-name"),
        include_env=tuple(name.strip() for name in parsed.one("include_env").split(",") if name.strip()),
        insert_env=inserted,
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value_ = text.strip().partition("=")
    if not equals or not name:
        raise UsageError(f"-insert_env {text.strip()[:80]}: write NAME=VALUE, and a semicolon between two")
    return name, value_
