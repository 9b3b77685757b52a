"""`roost up` and `roost down`: start and stop a personal pool."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from roost.cli.options import Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.errors import ClientError, UsageError
from roost.pool_directory import POOL_FILE, pool_dir
from shared import private_files

if TYPE_CHECKING:
    from roost.up import PersonalPool, Plan

UP: tuple[Option, ...] = (
    value("dir", help="the pool's directory (ROOST_POOL_DIR, else ~/.roost)", metavar="DIRECTORY"),
    value("amqp", help="use this RabbitMQ instead of messages within the process", metavar="URL"),
    value("redis", help="use this Redis instead of a store in the pool's directory", metavar="URL"),
    value("cpus", help="offer so many cpus (all there are)", metavar="N"),
    value("memory", help="offer so much memory (all there is)", metavar="MIB"),
    value("port", help="port of the gateway (9680; 0: any free one)", metavar="PORT"),
    flag("tls", help="speak TLS, with an authority of the pool's own (ROOST_OWN_AUTHORITY)"),
    flag("help", "h", help="show this help"),
)
DOWN: tuple[Option, ...] = (
    value("dir", help="the pool's directory (ROOST_POOL_DIR, else ~/.roost)", metavar="DIRECTORY"),
    flag("help", "h", help="show this help"),
)
_DOWN_S = 30.0


def run(command: str, argv: list[str]) -> int:
    options = UP if command == "up" else DOWN
    parsed = parse(argv, options)
    if parsed.has("help"):
        summary = "Start a personal pool; Ctrl-C stops it." if command == "up" else "Stop the personal pool."
        say(usage(command, "", summary, options))
        return 0
    directory = pool_dir(parsed.one("dir") or None)
    return _up(directory, parsed) if command == "up" else _down(directory)


def _up(directory: Path, parsed: Parsed) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):  # until the pool has handlers of its own there is nothing to stop
        signal.signal(number, _ended_early)
    # The daemons are imported here and not above: `roost help` need not wait for them.
    from roost import up
    from shared.daemon import logs
    from shared.daemon.main import loop_runner

    with up.only_one(directory):
        up.prepare(directory)
        with open(directory / "log" / "pool.log", "a", buffering=1, opener=private_files.opener) as log:
            logs.configure(stream=log)
            loop_runner()(up.run(_plan(directory, parsed), _announce, _still_waiting))
    say("The pool is down; running jobs go on and are found again by the next `roost up`.")
    return 0


def _ended_early(*_: object) -> None:
    # An exception would come out of whatever runs at this moment: in the middle of an event loop that is a traceback.
    sys.stdout.flush()
    os._exit(0)


def _still_waiting(what: str) -> None:
    sys.stderr.write(f"Still starting, waiting for {what}; Ctrl-C ends it.\n")
    sys.stderr.flush()


def _plan(directory: Path, parsed: Parsed) -> Plan:
    from roost.up import Plan

    knobs = {}
    for option, knob in (("cpus", "NUM_CPUS"), ("memory", "MEMORY"), ("port", "ROOST_GATEWAY_PORT")):
        if parsed.has(option):
            knobs[knob] = str(parsed.integer(option, 0))
    if parsed.has("tls"):
        knobs["ROOST_OWN_AUTHORITY"] = "true"
    if not 0 <= parsed.integer("port", 0) <= 65535:
        raise UsageError(f"-port wants 0 (any free port) to 65535, not {parsed.one('port')}")
    return Plan(
        directory=directory,
        amqp_url=parsed.one("amqp") or os.environ.get("ROOST_AMQP_URL", ""),
        redis_url=parsed.one("redis") or os.environ.get("ROOST_REDIS_URL", ""),
        knobs=knobs,
    )


def _announce(pool: PersonalPool) -> None:
    directory = pool.plan.directory
    for problem in (*pool.problems, *pool.warnings):
        sys.stderr.write(f"WARNING: {problem}\n")
    sys.stderr.flush()
    hint = "" if os.environ.get("ROOST_POOL_DIR") or directory == pool_dir() else f"ROOST_POOL_DIR={directory} "
    say(f"The pool is up at {pool.url}   (state in {directory}, log in {directory}/log/pool.log)")
    say(f"In another terminal:  {hint}roost status | submit FILE | q | events    Ctrl-C stops the pool.")
    say(f"Dashboard:  {hint}roost dashboard    prints a link that logs you in to {pool.url}/")
    sys.stdout.flush()


def _down(directory: Path) -> int:
    try:
        pid = int(json.loads((directory / POOL_FILE).read_text())["pid"])
    except FileNotFoundError:
        raise ClientError(f"no pool is up in {directory}", "no-pool") from None
    except (ValueError, KeyError) as error:
        raise ClientError(f"{directory / POOL_FILE} is damaged: {error}; remove it if no pool is up") from error
    with (directory / "lock").open("a") as lock:
        end = time.monotonic() + _DOWN_S
        asked = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break  # nobody holds the directory: the pool is down
            except BlockingIOError:
                if not asked:
                    os.kill(pid, signal.SIGTERM)
                    asked = True
            if time.monotonic() > end:
                raise ClientError(
                    f"the pool (process {pid}) is still up after {_DOWN_S:g} s; kill -9 {pid} loses nothing"
                )
            time.sleep(0.05)
    (directory / POOL_FILE).unlink(missing_ok=True)
    say("The pool is down." if asked else "The pool was down already.")
    return 0
