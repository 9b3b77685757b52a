"""The `roost` command: finds the subcommand, and turns errors into one line on standard error and exit code 1."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterable, Sequence

from roost.errors import ClientError, UnknownOption, UsageError
from shared.call_stack import in_one_piece
from shared.errors import RoostError

#: Command -> module in roost.cli (each has `run(argv) -> int`), and one line for `roost help`.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("up", "start a personal pool (or all daemons in one process on RabbitMQ and Redis)"),
    "down": ("up", "stop the personal pool; running jobs go on and are found again"),
    "demo": ("demo", "watch a pool work: some forty real jobs, start to finish"),
    "submit": ("submit", "queue the jobs of a submit file"),
    "submit-dag": ("submit_dag", "run a DAG of jobs"),
    "dag": ("dag", "how a DAG stands; halt, resume and remove it"),
    "q": ("q", "jobs in the queue"),
    "analyze": ("analyze", "why jobs do not run, and what would help"),
    "what-if": ("what_if", "a recorded interval once more, with another configuration: who would have waited less"),
    "explain": ("explain", "why a job waited, at any time of the past; why a user's share is what it is"),
    "negotiate": ("negotiate", "a negotiation cycle on paper: who would get what"),
    "wait": ("wait", "wait until jobs are done"),
    "rm": ("act", "remove jobs"),
    "rerun": ("rerun", "submit jobs that failed once more"),
    "hold": ("act", "put jobs on hold"),
    "release": ("act", "release held jobs"),
    "suspend": ("act", "have running jobs stand still, on their slots"),
    "continue": ("act", "let suspended jobs go on"),
    "vacate-job": ("act", "end a job's run; it starts again elsewhere"),
    "qedit": ("edit", "change attributes of queued jobs"),
    "prio": ("edit", "change the priority of jobs among those of their user"),
    "exec": ("ssh_to_job", "run a program in a running job's surroundings; a shell by default"),
    "tail": ("ssh_to_job", "the end of what a running job has written"),
    "stats": ("stats", "how machines and submitters stood in the past (KEEP_POOL_HISTORY)"),
    "history": ("history", "jobs that left the queue"),
    "transfer-data": ("transfer_data", "fetch the output of jobs submitted with -spool"),
    "status": ("status", "slots and daemons of the pool"),
    "top": ("top", "the pool in a terminal, live"),
    "doctor": ("doctor", "whether the pool is well, and what to do where it is not"),
    "pools": ("pools", "this pool and others beside it, a line each"),
    "had": ("had", "who leads, and how the daemons that choose the active negotiator stand"),
    "userprio": ("userprio", "users' priorities and usage"),
    "vacate": ("machines", "end the claims of slots"),
    "drain": ("machines", "let machines become empty, for maintenance or larger jobs"),
    "undrain": ("machines", "end a draining"),
    "off": ("daemons", "switch daemons off"),
    "on": ("daemons", "switch daemons on"),
    "reconfig": ("daemons", "have daemons read their configuration again"),
    "restart": ("daemons", "have daemons end in good order and start again"),
    "update-machine-ad": ("machines", "set attributes of a machine's ads"),
    "power": ("power", "wake machines that sleep"),
    "who": ("ping", "whose jobs run on a machine"),
    "ping": ("ping", "whether the pool answers, and what it lets you do"),
    "gpu-discovery": ("gpu_discovery", "the GPUs of this machine, as its startd sees them"),
    "dashboard": ("dashboard", "a link to the pool's pages that logs you in"),
    "events": ("events", "follow what happens in the pool"),
    "import": ("import_pool", "take over the priorities and the queue of an HTCondor pool"),
    "config-val": ("config_val", "what the configuration says, and where"),
    "support-bundle": ("support_bundle", "one file for who helps from afar, without secrets"),
    "backup": ("backup", "copy what a pool keeps, while it works"),
    "restore": ("backup", "put a backup back, in a new place"),
    "upgrade": ("upgrade", "which releases run, and in which order to restart daemons with a new one"),
    "adstash": ("adstash", "export the histories of jobs to Elasticsearch, OpenSearch or files"),
    "dead-letters": ("dead_letters", "messages that no daemon could take"),
    "enroll": ("enroll", "give a daemon of this machine a user of the broker, by a join token; make join tokens"),
    "identities": ("enroll", "daemons that have users of the broker, and taking those away"),
    "gateway-key": ("gateway_key", "make the key by which daemons know what a gateway says of people"),
    "setup": (
        "setup",
        "make this machine a central manager, access point or execution point, started by systemd",
    ),
    "token": ("token", "make, list and revoke access tokens"),
    "store-cred": ("store_cred", "keep the tokens of services that jobs use"),
    "completion": ("completion", "have bash, zsh or fish complete commands, options, jobs, machines and knobs"),
    "condor-names": ("condor_names", "write programs with HTCondor's names: condor_q, condor_submit, ..."),
    "version": ("version", "print the version"),
}
#: `roost help TOPIC`: what the topic is about, and its commands. Every command is of one.
TOPICS: dict[str, tuple[str, str]] = {
    "start": ("a pool of one's own", "up down demo"),
    "jobs": (
        "submit, follow and change jobs",
        "submit submit-dag dag q wait rm rerun hold release suspend continue vacate-job qedit prio exec tail history "
        "transfer-data store-cred",
    ),
    "why": ("why jobs wait, and who gets what", "analyze explain what-if negotiate"),
    "pool": ("what is in the pool", "status pools stats top doctor had userprio who ping dashboard events"),
    "machines": ("machines and daemons", "setup vacate drain undrain off on reconfig restart update-machine-ad power"),
    "administration": (
        "configuration, access, what went wrong",
        "config-val import gpu-discovery backup restore upgrade support-bundle "
        "adstash token enroll identities gateway-key dead-letters",
    ),
    "shell": ("the command itself", "completion condor-names version"),
}


def main(argv: Sequence[str]) -> int:
    """Run one command. Returns the exit code: 0 done, 1 refused or failed."""
    if not argv or argv[0] in ("help", "-h", "-help", "--help"):
        return help_on(argv[1:])
    name, rest = argv[0], list(argv[1:])
    if name in ("-version", "--version"):
        name = "version"
    if name.startswith("condor_"):
        from roost.cli.condor_names import translated

        try:
            name, rest = translated(name, rest)
        except RoostError as error:
            return fail(error, as_json=False)
    found = COMMANDS.get(name)
    if found is None:
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"did you mean `roost {near[0]}`?" if near else "see `roost help`"
        return fail(ClientError(f"unknown command {name!r}; {hint}", "usage"), as_json=False)
    try:
        module = importlib.import_module(f"roost.cli.{found[0]}")
        code: int = module.run(name, rest)
        sys.stdout.flush()
        return code
    except RoostError as error:
        told = _instead(name, error) if isinstance(error, UnknownOption) else error
        return fail(told, as_json=any(word in ("-json", "--json") for word in rest))
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            sys.stderr.write("\n")  # the terminal has shown ^C: the prompt begins a line of its own
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads on: no complaint at exit
        return 0


def _instead(command: str, error: UnknownOption) -> RoostError:
    """What is told of an option that HTCondor's tool has and ours has not; of others, what parse says."""
    from roost.cli.effects import instead

    why = instead(command, error.name)
    return UsageError(f"`roost {command}` has no -{error.name}: {why}") if why else error


def fail(error: RoostError, *, as_json: bool) -> int:
    """One line for people; a JSON object for scripts that asked for JSON."""
    if as_json:
        code = getattr(error, "code", "error")
        retryable = bool(getattr(error, "retryable", False))
        body = {"error": {"code": code, "message": str(error), "retryable": retryable}}
        sys.stderr.write(json.dumps(body) + "\n")
    else:
        from roost.cli.paint import Paint

        sys.stderr.write(f"{Paint.of_terminal(sys.stderr).bad('roost:')} {error}\n")
    return 1


def help_on(words: Sequence[str]) -> int:
    """`roost help`, `roost help TOPIC`, `roost help COMMAND`."""
    if not words:
        sys.stdout.write(overview(TOPICS))
        return 0
    word = words[0]
    if word in TOPICS:
        sys.stdout.write(overview([word]))
        return 0
    if word in COMMANDS or word.startswith("condor_"):
        return main([word, "-help"])
    return fail(
        ClientError(f"no help on {word!r}; there are commands and the topics {', '.join(TOPICS)}", "usage"),
        as_json=False,
    )


def overview(topics: Iterable[str]) -> str:
    width = max(map(len, COMMANDS))
    parts = ["usage: roost COMMAND [options]\n"]
    for topic in topics:
        about, names = TOPICS[topic]
        rows = "\n".join(f"  {name:<{width}}  {COMMANDS[name][1]}" for name in names.split())
        parts.append(f"{topic}: {about}\n{rows}\n")
    parts.append("`roost COMMAND -help` tells more of each.\n")
    return "\n".join(parts)


def entry() -> None:
    # SIGPIPE stays ignored, as Python has it: a gateway that closes an idle connection must not end the command.
    sys.exit(in_one_piece(main, sys.argv[1:]))
