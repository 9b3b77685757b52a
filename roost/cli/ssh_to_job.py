"""`roost exec` and `roost tail`: look into running jobs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.client import Client
from roost.errors import ClientError, UsageError
from roost.visit import Visit

EXEC: tuple[Option, ...] = (
    flag("tty", "t", help="with a terminal; the default where this is one"),
    flag("no-tty", "T", help="without a terminal: standard output and standard error stay apart"),
    value("name", help="the schedd that has the job", metavar="SCHEDD"),
    *COMMON,
)
TAIL: tuple[Option, ...] = (
    flag("follow", "f", help="go on until the job ends"),
    flag("stdout", help="the job's standard output; the default"),
    flag("stderr", help="the job's standard error"),
    value("maxbytes", help="of what is there already, at most so many; 1024. -1: all", metavar="BYTES"),
    value("name", help="the schedd that has the job", metavar="SCHEDD"),
    *COMMON,
)
#: Passed on to the visitor's program, where it has no terminal by which they would come.
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def run(command: str, argv: list[str]) -> int:
    return _exec(command, argv) if command == "exec" else _tail(command, argv)


def _exec(command: str, argv: list[str]) -> int:
    # Words after the job are the program's, also those that begin with a dash.
    parsed, words = _split(argv)
    if parsed.has("help"):
        text = (
            "Run a program where a running job runs: in its container, directory, variables, account and limits; a\n"
            "shell if none is named. It ends with the job. The exit code is the program's, or 128 and the number of\n"
            "the signal that ended it."
        )
        say(usage(command, "JOB [--] [PROGRAM [ARGUMENT...]]", text, EXEC))
        return 0
    if not parsed.arguments:
        raise UsageError("exec in which job? name one: 12.3")
    if parsed.has("tty") and parsed.has("no-tty"):
        raise UsageError("-tty and -no-tty contradict each other")
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if parsed.has("tty") and not terminal:
        raise UsageError("-tty wants a terminal on standard input and output")
    with_tty = terminal and not parsed.has("no-tty")
    with Client(parsed.one("pool") or None) as client:
        return attach(client, parsed.arguments[0], words, parsed.one("name"), with_tty=with_tty)


def attach(
    client: Client,
    job_id: str,
    words: list[str],
    schedd: str,
    *,
    with_tty: bool,
    active: Callable[[], None] = lambda: None,
) -> int:
    """Run a program beside a job, with this terminal or these pipes: its exit code. active: called whenever something
    is typed or shown. Raises ClientError."""
    wish: dict[str, Any] = {"kind": "run", "command": words, "tty": with_tty}
    if with_tty:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        wish |= {"rows": rows, "columns": columns, "term": os.environ.get("TERM", "")}
    with (
        client.visit(job_id, wish, schedd) as visit,
        _raw_terminal() if with_tty else contextlib.nullcontext(),
        _signals(visit, with_tty=with_tty),
    ):
        threading.Thread(target=_type, args=(visit, active), name="visit-stdin", daemon=True).start()
        _show(visit, active)
    return _code(visit)


def _split(argv: list[str]) -> tuple[Parsed, list[str]]:
    """Our options and the job, and the program's words."""
    takes = {name for option in EXEC if option.takes for name in option.names}
    at = 0
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "--":
        begun = argv[at].lstrip("-").lower()
        at += 2 if len(begun) > 1 and any(name.startswith(begun) for name in takes) else 1
    words = argv[at + 1 :]
    if words and words[0] == "--":
        words = words[1:]
    return parse(argv[: at + 1], EXEC), words


def _tail(command: str, argv: list[str]) -> int:
    parsed = parse(argv, TAIL)
    if parsed.has("help"):
        text = "Show the end of what a running job has written: its standard output, or a file in its directory."
        say(usage(command, "JOB [FILE]", text, TAIL))
        return 0
    if not 1 <= len(parsed.arguments) <= 2:
        raise UsageError("tail wants a job, 12.3 say, and perhaps one file")
    file = parsed.arguments[1] if len(parsed.arguments) > 1 else ""
    if parsed.has("stdout") + parsed.has("stderr") + bool(file) > 1:
        raise UsageError("one at a time: -stdout, -stderr or a file")
    wish = {
        "kind": "tail",
        "file": file,
        "stream": "stderr" if parsed.has("stderr") else "stdout",
        "follow": parsed.has("follow"),
        "max_bytes": parsed.integer("maxbytes", 1024),
    }
    with Client(parsed.one("pool") or None) as client:
        try:
            with client.visit(parsed.arguments[0], wish, parsed.one("name")) as visit:
                _show(visit)
        except KeyboardInterrupt:
            return 0 if parsed.has("follow") else 130
    return _code(visit)


def _show(visit: Visit, active: Callable[[], None] = lambda: None) -> None:
    for kind, data in visit.output():
        active()
        stream = sys.stdout if kind == "out" else sys.stderr
        stream.buffer.write(data)
        stream.flush()


def _code(visit: Visit) -> int:
    end = visit.end
    if end.get("exit_code") is not None:
        return int(end["exit_code"])
    if end.get("exit_signal") is not None:
        return 128 + int(end["exit_signal"])
    raise ClientError(str(end.get("reason") or "the visit was lost"), "ended")


def _type(visit: Visit, active: Callable[[], None]) -> None:
    """Standard input, as it comes."""
    with contextlib.suppress(OSError):
        while data := os.read(sys.stdin.fileno(), 65536):
            active()
            visit.write(data)
    visit.end_input()


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Every key goes to the job's side, Ctrl-C too."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setraw(terminal)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _signals(visit: Visit, *, with_tty: bool) -> Iterator[None]:
    """Sizes of the window, and signals, go where the program is."""

    def resized(number: int, frame: FrameType | None) -> None:
        columns, rows = os.get_terminal_size(sys.stdout.fileno())
        _later(lambda: visit.steer(rows=rows, columns=columns))

    def passed_on(number: int, frame: FrameType | None) -> None:
        _later(lambda: visit.steer(signal=number))

    handlers = {signal.SIGWINCH: resized} if with_tty else dict.fromkeys(PASSED_ON, passed_on)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _later(work: Any) -> None:
    """Not in the handler: it may have to wait, and what it interrupts may hold the same lock."""
    threading.Thread(target=work, daemon=True).start()
