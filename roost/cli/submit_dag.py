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
    flag("import_env", help="the manager gets all of this environment"),
    value("config", help="file with knobs of the DAG, as its CONFIG is", metavar="FILE"),
    value("priority", help="least priority of the DAG and of its nodes' jobs", metavar="NUMBER"),
    value("notification", help="when mail about the DAG itself is sent", metavar="always|complete|error|never"),
    flag("suppress_notification", help="nodes send no mail (so it is by default)"),
    flag("dont_suppress_notification", help="they do as their descriptions say"),
    value("append", help="a submit command for the DAG's line in the queue: '+Name = EXPR', ...", metavar="COMMAND"),
    value("insert_sub_file", help="a file of such commands", metavar="FILE"),
    flag("usedagdir", help="as if given in the directory of the DAG"),
    flag("verbose", "v", help="tell how many nodes there are"),
    value("debug", help="changes nothing: FILE.dagman.out tells what is done", metavar="LEVEL"),
    flag("update_submit", help="changes nothing: no submit file is written"),
    flag("no_recurse", help="changes nothing: inner DAGs are read when their node begins"),
    flag("do_recurse", help="changes nothing: inner DAGs are read when their node begins"),
    flag("allowversionmismatch", help="changes nothing: the manager is of this version"),
    flag("DoRecovery", help="changes nothing: a DAG goes on where it was by itself"),
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
    from roost.dag.journal import read_dag

    directory, files = place(parsed)
    file = Path(files[0])
    dag = read_dag(files, "", str(directory))
    for problem in dag.warnings:
        sys.stderr.write(f"WARNING: {problem}\n")
    if parsed.has("verbose") or parsed.has("no_submit"):
        say(f"{file}: {dag.counted} nodes")
    return 0 if parsed.has("no_submit") else _submit(directory, files, parsed, dag)


def place(parsed: Parsed) -> tuple[Path, list[str]]:
    """The directory that the DAG is of, and its files from there."""
    here, files = Path.cwd(), parsed.arguments
    if not parsed.has("usedagdir"):
        return here, files
    folders = {(here / file).parent for file in files}
    if len(folders) > 1:
        raise UsageError(
            "-usedagdir: these DAGs are in several directories: submit them one by one, or by SUBDAG EXTERNAL"
        )
    return folders.pop(), [Path(file).name for file in files]


def _submit(directory: Path, files: list[str], parsed: Parsed, dag: Dag) -> int:
    from roost.client import Client
    from roost.dag.beginning import begin
    from roost.submission import shares_files

    wanted = wishes(parsed)
    with Client(parsed.one("pool") or None) as client:
        schedd = client.schedd()
        if not shares_files(schedd):
            raise ClientError(
                f"DAGs run where the schedd has their files: on its machine, as its account; {schedd['name']} is on "
                "another one, or has another account",
                "usage",
            )
        begun = begin(files, directory, wanted, lambda record: is_queued(client, record), dag)
        for problem in begun.in_vain:
            sys.stderr.write(f"WARNING: {problem}\n")
        queued = client.submit_once(begun.ad, begun.name, schedd=schedd["name"])
    say(f"Submitting job(s).\n1 job(s) submitted to cluster {queued.cluster}.")
    if sys.stderr.isatty():
        shown = parsed.arguments[0]
        sys.stderr.write(f"Follow it with `roost dag status {shown}`; what it does is in {shown}.dagman.out.\n")
    return 0


def is_queued(client: Client, record: Record) -> bool:
    """Whether the line of a DAG that did not come to its end is in the queue yet."""
    ads = client.jobs(str(record.job), projection=["JobStatus"], schedd=record.schedd)
    return any(ad.eval("JobStatus") not in (3, 4) for ad in ads)


def wishes(parsed: Parsed) -> Wishes:
    """How the DAG is to be run. Raises UsageError."""
    from roost.dag.beginning import Wishes

    numbers = {"maxjobs": "max_jobs", "maxidle": "max_idle", "maxpre": "max_pre", "maxpost": "max_post"}
    limits: dict[str, Any] = {name: parsed.integer(word, 0) for word, name in numbers.items() if parsed.has(word)}
    if parsed.has("AlwaysRunPost") or parsed.has("DontAlwaysRunPost"):
        limits["always_post"] = parsed.has("AlwaysRunPost")
    inserted: dict[str, Any] = dict(pair for text in parsed.values.get("insert_env", ()) for pair in _pairs(text))
    if url := parsed.one("pool"):
        inserted["ROOST_URL"] = url
    included = [name.strip() for text in parsed.values.get("include_env", ()) for name in text.split(",")]
    return Wishes(
        limits,
        force=parsed.has("force"),
        auto_rescue=bool(parsed.integer("autorescue", 1)) if parsed.has("autorescue") else None,
        rescue_from=(parsed.integer("dorescuefrom", 0) or None) if parsed.has("dorescuefrom") else None,
        load_save=parsed.one("load_save"),
        batch=parsed.one("batch-name"),
        include_env=("*",) if parsed.has("import_env") else tuple(filter(None, included)),
        insert_env=inserted,
        commands=_commands(parsed),
        options=_options(parsed),
        config=parsed.one("config"),
    )


def _options(parsed: Parsed) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if parsed.has("priority"):
        found["least_priority"] = parsed.integer("priority", 0)
    told = [name for name, _, _ in parsed.order if name in ("suppress_notification", "dont_suppress_notification")]
    if told:
        found["suppress_notification"] = told[-1] == "suppress_notification"
    return found


def _commands(parsed: Parsed) -> tuple[str, ...]:
    """For the DAG's line in the queue."""
    lines = [f"{name} = {parsed.one(name)}" for name in ("notification", "priority") if parsed.has(name)]
    if parsed.has("insert_sub_file"):
        path = Path(parsed.one("insert_sub_file"))
        try:
            lines += path.read_text(errors="surrogateescape").splitlines()
        except OSError as error:
            raise UsageError(f"-insert_sub_file {path}: {error.strerror}") from error
    return (*lines, *parsed.values.get("append", ()))


def _pairs(text: str) -> list[tuple[str, str]]:
    """NAME=VALUE, with semicolons between two, or with what the text begins with, where that is no letter."""
    between = ";"
    if text[:1] and not (text[0].isalnum() or text[0] in "_ "):
        between, text = text[0], text[1:]
    return [_pair(one) for one in text.split(between) if one.strip()]


def _pair(text: str) -> tuple[str, str]:
    name, equals, value_ = text.strip().partition("=")
    if not equals or not name:
        raise UsageError(f"-insert_env {text.strip()[:80]}: write NAME=VALUE, and a semicolon between two")
    return name, value_
