"""On a terminal commands use colour by meaning and draw over one line; into a pipe they write plain text."""

import fcntl
import io
import os
import pty
import struct
import termios

import pytest

from engine.queue import hold_reasons
from engine.queue.hold_reasons import HoldReason, grouped
from roost.cli import act, daemon_commands, hold_codes, output, stats, wait
from roost.cli.options import parse
from roost.cli.paint import Paint
from roost.cli.progress import Progress
from roost.cli.top_screen import View, screen
from shared.classad import ClassAd

RED = "\x1b[31m"
#: Ends what is shown: the kernel hands it over in pieces.
END = "\0"


class Terminal:
    """A pseudo-terminal of so many columns; `shown` is what was written to it."""

    def __init__(self, columns):
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.stream = os.fdopen(theirs, "w")

    def shown(self):
        self.stream.write(END)
        self.stream.flush()
        text = ""
        while not text.endswith(END):
            text += os.read(self._ours, 65536).decode()
        return text.removesuffix(END)

    def close(self):
        self.stream.close()
        os.close(self._ours)


@pytest.fixture
def terminal():
    made = []

    def make(columns=80):
        made.append(Terminal(columns))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_colour_is_for_terminals_that_can_and_people_who_want_it(terminal, monkeypatch):
    stream = terminal().stream
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Paint.of_terminal(stream).bad("no") == f"{RED}no\x1b[0m"
    assert Paint.of_terminal(io.StringIO()).bad("no") == "no"
    monkeypatch.setenv("TERM", "dumb")
    assert Paint.of_terminal(stream).bad("no") == "no"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert Paint.of_terminal(stream).bad("no") == "no"


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_line_that_is_drawn_over_fits_the_terminal(terminal, columns):
    one = terminal(columns)
    clock = iter([0.0, 10.0, 20.0, 30.0])
    progress = Progress(one.stream, lambda: next(clock))
    progress.show("x" * 300)
    progress.show("short")
    progress.clear()
    first, second, *_ = one.shown().split("\r")[1:]
    assert first == "x" * (columns - 1)
    assert second == "short".ljust(columns - 1)  # nothing of the longer one is left


def test_how_jobs_stand_while_somebody_waits():
    states = {"7.0": 2, "7.1": 1, "7.2": 4, "7.3": 2}
    assert wait.standing(states, 3725.0) == "1:02:05  4 jobs: 1 completed, 1 idle, 2 running"
    assert wait.standing({}, 5.0) == "0:00:05  no such job yet"
    assert wait.counted({"7.0": 4}) == "1 job: 1 completed"


def held(proc, reason, code=13):
    return ClassAd({"ClusterId": 5, "ProcId": proc, "HoldReason": reason, "HoldReasonCode": code}), "ap", 1


def test_held_jobs_by_reason():
    found = grouped([held(0, "no /a/in.0"), held(1, "by\nhand", 1), held(2, "no /b/in.2")])
    assert [(one.count, one.first) for one in found] == [(2, "5.0"), (1, "5.1")]
    lines = list(hold_codes.lines(found, 0, Paint(False)))
    assert lines[:3] == [
        "JOBS CODE/SUB FIRST HOLD_REASON",
        "   2 13/0     5.0   no /a/in.0",
        "   1 1/0      5.1   by hand",
    ]
    assert lines[-1] == "3 held jobs, 2 reasons; `roost release` lets jobs go on."
    long = "x" * hold_reasons.MOST
    assert [one.count for one in grouped([held(0, f"{long} a"), held(1, f"{long} b"), held(2, "y")])] == [2, 1]
    assert list(hold_codes.lines([], 0, Paint(True))) == ["No jobs are held."]


def test_reasons_are_cut_to_the_terminal():
    found = [HoldReason("a long reason " * 20, 12, 2, "5.0", "ap", 3)]
    assert all(len(line) <= 60 for line in list(hold_codes.lines(found, 60, Paint(False)))[:2])


def test_an_order_that_was_refused_is_red():
    outcome = {"7.0": "done", "8.0": "denied"}
    good, bad = act.told("rm", outcome, each=False, paint=Paint(True))
    assert good == "Job 7.0 marked for removal"
    assert bad.startswith(RED)


def test_what_daemons_say_alike_is_told_once(capsys):
    said = {"done": True, "changed": ["A"], "at_start": []}
    answers = [{"subsystem": kind, "name": "here", **said} for kind in ("SCHEDD", "STARTD", "COLLECTOR")]
    answers.append({"subsystem": "HAD", "name": "here", "done": True, "changed": [], "at_start": []})
    assert daemon_commands.report(parse([], ()), answers, "reconfigured") == 0
    assert capsys.readouterr().out.splitlines() == [
        "3 daemons (schedd here, startd here, collector here): reconfigured; in force: A",
        "had here: reconfigured, nothing has changed",
    ]


def test_the_history_of_the_pool_is_summed_up():
    found = {"columns": ["Unclaimed", "Claimed", "Owner"], "points": [[1.0, 4, 0, 0], [2.0, 2, 2, 0]]}
    assert list(stats._sums(found, "slots")) == [
        ("slots unclaimed", "2", "2", "3", "4"),
        ("slots claimed", "2", "0", "1", "2"),
    ]


def test_top_tells_memory_with_its_unit_and_one_name_of_a_user():
    job = {"Id": "7.0", "Status": "Idle", "User": "ada@pool", "AccountingGroup": "physics.ada@pool"}
    lines = screen(View(), {}, [{**job, "RequestMemory": 4096}, {**job, "RequestMemory": 64}], None, 0.0, 200, 50)
    assert any("physics.ada@pool" in line and "4 GiB" in line for line in lines)
    assert any("64 MiB" in line for line in lines)


def test_tables_leave_out_what_may_go_and_go_on_below():
    headings, right = ("ID", "WHEN", "COUNT", "WHY"), (False, False, True, False)
    rows = [("1.0", "11/28 20:14", "3", "no slot satisfies its Requirements as things are"), ("2.0", "", "4", "")]

    def shown(screen):
        return output.lines(headings, rows, right, screen=screen, spare=("WHEN", "COUNT"))

    assert shown(0) == shown(200) == output.lines(headings, rows, right)
    assert shown(60) == [
        "ID  WHEN        COUNT WHY",
        "1.0 11/28 20:14     3 no slot satisfies its Requirements as",
        "                      things are",
        "2.0                 4",
    ]
    assert shown(44)[:2] == ["ID  COUNT WHY", "1.0     3 no slot satisfies its Requirements"]
    assert shown(36)[:2] == ["ID  WHY", "1.0 no slot satisfies its"]
    assert "".join(line.strip() + " " for line in shown(36)).count("as things are") == 1


def test_prose_goes_on_under_its_last_column():
    line = "11/28 20:14:51  submitted by root with two jobs in its cluster"
    assert output.wrapped(line, 0) == output.wrapped(line, 62) == [line]
    assert output.wrapped(line, 50) == [
        "11/28 20:14:51  submitted by root with two jobs in",
        "                its cluster",
    ]
    assert output.wrapped("one two three four five", 16) == ["one two three", "four five"]


def test_top_drops_columns_before_the_command_and_has_units_for_everything():
    job = {"Id": "1.0", "User": "ann@p", "Status": "Idle", "Cmd": "/bin/simulate", "Args": "-all", "RequestCpus": 1}
    jobs = [{**job, "RequestMemory": 9_999_999}, {**job, "RequestMemory": 1_020_000}]
    wide, middle, narrow = (screen(View(), {}, jobs, None, 0.0, width, 50) for width in (200, 80, 60))
    assert [one for one in ("WHERE", "MEMORY", "CPUS", "COMMAND") if any(one in line for line in wide)] == [
        "WHERE",
        "MEMORY",
        "CPUS",
        "COMMAND",
    ]
    for lines, gone in ((middle, ("WHERE",)), (narrow, ("WHERE", "MEMORY", "CPUS"))):
        assert [one for one in gone if any(one in line for line in lines)] == []
        assert sum(line.endswith("simulate -all") for line in lines) == 2
    assert any("9.54 TiB" in line for line in wide)
    assert any("996 GiB" in line for line in wide)
