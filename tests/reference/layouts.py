"""What the tools print: made-up command lines of `status`, `q` and `history` over files of ads, some of which are made
up as well. A side's answers are the lines.

The reference is HTCondor's own tools (`daemons`); where they can not be had, what was recorded of them is replayed,
`userprio` as well, which asks for a negotiator even where it reads a file.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest import mock

from roost.cli import output
from roost.cli.main import main
from tests.reference.daemons import Daemons
from tests.reference.family import REFUSED, Case, Facts, Family

FILES: Final = Path(__file__).resolve().parents[1] / "unit" / "roost" / "data"
#: Ads that a case has beside those that are there.
MADE: Final = "made.ads"
#: Of an ad, what stays as it is: jobs and slots without a name are nobody's.
_KEPT: Final = ("ClusterId", "ProcId", "MyType", "Name", "JobStatus")
_SLOTS: Final = ("plain.ads", "compact.ads", "wild.ads", "realslots.ads")
_JOBS: Final = ("jobs2.ads", "jrun.ads", "jone.ads", "realjobs.ads", "owners.ads")
_PAST: Final = ("hist.ads", "realhistory.ads", "histmal.ads")
_ATTRIBUTES: Final = {
    "status": (
        *("Name", "Machine", "State", "Activity", "Cpus", "Memory", "LoadAvg", "OpSys", "Arch", "Disk", "SlotType"),
        *("MyType", "NoSuch"),
    ),
    "q": (
        *("ClusterId", "ProcId", "Owner", "JobStatus", "QDate", "Cmd", "Args", "JobPrio", "ImageSize"),
        *("RequestMemory", "RemoteHost", "NoSuch"),
    ),
    "history": (
        *("ClusterId", "ProcId", "Owner", "JobStatus", "CompletionDate", "RemoteWallClockTime", "ExitCode", "Cmd"),
        "NoSuch",
    ),
}
_EXPRESSIONS: Final = {
    "status": (
        *("Cpus > 1", 'State == "Claimed"', "Memory / 1024.0", "LoadAvg * 2", 'regexp("^slot1", Name)', "Cpus * 2"),
        *("1/0", "undefined"),
    ),
    "q": (
        *("JobStatus == 2", "ClusterId > 10", "ImageSize / 1024", 'Owner == "alice"', "JobPrio > 0"),
        *("ClusterId + ProcId", "error"),
    ),
    "history": ("JobStatus == 4", "RemoteWallClockTime > 3000", 'Owner == "bob"', "ClusterId * 2"),
}
#: Ads as a whole: columns of one's own are refused with them, or are what is left of the ad.
_WHOLE: Final = frozenset(("-long", "-json", "-xml", "-jsonl"))
_MODES: Final = {
    "status": (
        *("-server", "-run", "-state", "-claimed", "-compact", "-nocompact", "-total", "-wide", "-avail", "-cod"),
        *("-expert", "-absent", "-offline", "-java", "-vm", "-gpus", "-long", "-json", "-xml", "-jsonl"),
    ),
    "q": (
        *("-nobatch", "-batch", "-run", "-hold", "-idle", "-io", "-goodput", "-cputime", "-currentrun", "-wide"),
        *("-totals", "-dag", "-grid", "-long", "-json", "-xml", "-jsonl", "-globaljob"),
    ),
    "history": (
        *("-wide", "-forwards", "-backwards", "-long", "-json", "-xml", "-jsonl", "-limit 2", "-scanlimit 4"),
        "-completedsince 1",
    ),
}
_FORMATS: Final = ("%s\\n", "%d ", "%5.2f|", "%-12s|", "%v ", "%V\\n", "%T ", "%10d\\n", "%x ", "[%s]")


def make(rng: random.Random) -> Case:
    tool = rng.choice(("status", "status", "q", "q", "history"))
    files = {"status": _SLOTS, "q": _JOBS, "history": _PAST}[tool]
    base = rng.choice(files)
    made = ""
    if rng.random() < 0.6:
        made, file = _changed(rng, (FILES / base).read_text(errors="surrogateescape")), MADE
    else:
        file = base
    given = {"status": "-ads", "q": "-jobads", "history": "-file"}[tool]
    command = [tool, given, file]
    modes = rng.sample(_MODES[tool], rng.choice((0, 1, 1, 2)))
    for mode in modes:
        command += mode.split()
    if rng.random() < 0.3:
        command += ["-constraint", rng.choice(_EXPRESSIONS[tool])]
    if rng.random() < 0.45 and not _WHOLE & set(modes):
        command += _columns(rng, tool)
    if tool == "status" and rng.random() < 0.2:
        command += ["-sort", rng.choice(_ATTRIBUTES[tool])]
    return {"command": command, "made": made}


def _columns(rng: random.Random, tool: str) -> list[str]:
    names = rng.choices((*_ATTRIBUTES[tool], *_EXPRESSIONS[tool]), k=rng.randint(1, 4))
    if rng.random() < 0.7:
        letters = "".join(rng.sample("hjtlngrV,", rng.choice((0, 0, 1, 1, 2))))
        return [f"-af{':' if letters else ''}{letters}", *names]
    return [word for name in names for word in ("-format", rng.choice(_FORMATS), name)]


def _changed(rng: random.Random, text: str) -> str:
    """Some of these ads, with attributes that are gone, or are something else."""
    ads = [block for block in re.split(r"\n\s*\n", text) if block.strip()]
    found = []
    for ad in rng.sample(ads, rng.randint(1, min(len(ads), 6))):
        lines = []
        for line in ad.splitlines():
            name, equals, value = line.partition("=")
            dice = rng.random() if name.strip() not in _KEPT else 1.0
            if equals and dice < 0.03:
                continue
            if equals and dice < 0.06:
                value = rng.choice(
                    (" undefined", " 0", " -1", " 3.75", ' "text"', " 1 + 1", " true", " 123456789", ' ""')
                )
            lines.append(f"{name}{equals}{value}")
        found.append("\n".join(lines))
    return "\n\n".join(found) + "\n\n"


def lines(text: str) -> Facts:
    """Without the moment at which a queue was looked at."""
    text = re.sub(r"^(-- [^\n]*) @ \d\d/\d\d/\d\d \d\d:\d\d:\d\d$", r"\1", text, flags=re.MULTILINE)
    return {f"line {number}": line for number, line in enumerate(text.splitlines(), 1)}


def ours(case: Case) -> Facts:
    printed, before = io.StringIO(), Path.cwd()
    with contextlib.ExitStack() as stack:
        place = FILES
        if case.get("made"):
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            (place / MADE).write_text(case["made"], errors="surrogateescape")
        stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        stack.enter_context(mock.patch.object(output, "terminal_width", return_value=case.get("terminal", 0)))
        stack.enter_context(mock.patch.dict(os.environ, {"TZ": "UTC"}))
        time.tzset()
        os.chdir(place)
        try:
            code = main(case["command"])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        finally:
            os.chdir(before)
    time.tzset()
    return lines(printed.getvalue()) if code == 0 else {REFUSED: str(code)}


class LayoutReference:
    """The reference's tools."""

    def __init__(self) -> None:
        self._daemons = Daemons()

    def __enter__(self) -> LayoutReference:
        self._daemons.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._daemons.__exit__()

    def ask(self, case: Case) -> Facts | None:
        tool, *words = case["command"]
        files = _files()
        if case["made"]:
            files = files | {MADE: case["made"].encode("utf-8", "surrogateescape")}
        said = self._daemons.tool([f"condor_{tool}", *words], files)
        if said.returncode < 0 or said.returncode >= 124:
            return None
        return lines(said.stdout) if said.returncode == 0 else {REFUSED: str(said.returncode)}


@cache
def _files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in FILES.glob("*.ads")}


def _recorded() -> Iterator[tuple[Case, Facts]]:
    for line in (FILES / "recordings.jsonl").read_text().splitlines():
        case = json.loads(line)
        yield case, lines(case["output"])


def _cause(question: str, mine: Any, theirs: Any) -> str:
    return "a line"


LAYOUTS: Final = Family("layouts", make, ours, cause=_cause, recorded=_recorded, reference=LayoutReference)
