"""The screen of `roost top`: what it shows, and what keys do to it. Pure: numbers and keys come in, lines and actions
go out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from roost.cli.output import moment, span

Row = Mapping[str, Any]
#: What the list of jobs may be limited to.
STATUSES: Final = ("", "Running", "Idle", "Held")
ACTIONS: Final[Mapping[str, Literal["hold", "release", "remove"]]] = {"h": "hold", "r": "release", "x": "remove"}
HELP: Final = "q quit  p pause  s sort  t status  u user  / search  arrows choose  h hold  r release  x remove"
_MOST_USERS: Final = 5
_RATE_WINDOW_S: Final = 60.0


def _runtime(row: Row, now: float) -> float:
    start = row.get("JobCurrentStartDate")
    running = row.get("Status") == "Running" and isinstance(start, int | float)
    return max(0.0, now - float(start)) if running and start is not None else float(row.get("RemoteWallClockTime") or 0)


#: Name -> the key by which jobs are sorted; the first as the pool sends them, newest first.
_SORTS: Final[Mapping[str, Callable[[Row, float], Any] | None]] = {
    "newest": None,
    "runtime": lambda row, now: -_runtime(row, now),
    "cpus": lambda row, now: -float(row.get("RequestCpus") or 0),
    "memory": lambda row, now: -float(row.get("RequestMemory") or 0),
    "user": lambda row, now: str(row.get("User") or row.get("Owner")).lower(),
}
SORTS: Final = tuple(_SORTS)


@dataclass(slots=True)
class Rates:
    """Events of the last minute."""

    times: dict[str, deque[float]] = field(default_factory=dict)

    def add(self, kind: str, now: float) -> None:
        self.times.setdefault(kind, deque(maxlen=100_000)).append(now)

    def per_minute(self, kind: str, now: float) -> int:
        times = self.times.get(kind, deque())
        while times and times[0] < now - _RATE_WINDOW_S:
            times.popleft()
        return len(times)


@dataclass(frozen=True, slots=True)
class JobAction:
    """What a key wants done: quit, fetch (show other jobs), or an action on a job."""

    what: Literal["quit", "fetch", "hold", "release", "remove"]
    job: str = ""
    schedd: str = ""


@dataclass(slots=True)
class View:
    """What the user has chosen."""

    sort: str = SORTS[0]
    status: str = ""
    user: str = ""
    search: str = ""
    paused: bool = False
    chosen: str = ""  # the job at the cursor
    said: str = ""  # shown until the next key
    #: A question that waits for its answer: a deed for y, or a text that is being typed for "user" or "search".
    confirm: JobAction | None = None
    typing: str = ""
    typed: str = ""

    def press(self, key: str, rows: Sequence[Row], now: float) -> JobAction | None:
        """key: a character, or up, down, enter, escape, backspace. rows: the jobs that are shown."""
        self.said = ""
        if self.confirm is not None:
            deed, self.confirm = self.confirm, None
            if key in ("y", "Y"):
                return deed
            self.said = "Nothing was done."
            return None
        if self.typing:
            return self._type(key)
        if key == "q":
            return JobAction("quit")
        if key in ("p", " "):
            self.paused = not self.paused
            return None if self.paused else JobAction("fetch")
        if key == "s":
            self.sort = _next(SORTS, self.sort)
        elif key == "t":
            self.status = _next(STATUSES, self.status)
            return JobAction("fetch")
        elif key in ("u", "/"):
            self.typing, self.typed = ("user" if key == "u" else "search"), ""
        elif key in ("up", "down"):
            self._move(1 if key == "down" else -1, sorted_rows(self, rows, now))
        elif key in ACTIONS:
            row = next((row for row in rows if row["Id"] == self.chosen), None)
            if row is None:
                self.said = "Choose a job with the arrows first."
            else:
                self.confirm = JobAction(ACTIONS[key], self.chosen, str(row.get("Schedd", "")))
        elif key in ("?", "H"):
            self.said = HELP
        return None

    def _type(self, key: str) -> JobAction | None:
        if key == "enter":
            setattr(self, self.typing, self.typed.strip())
            self.typing = ""
            return JobAction("fetch")
        if key == "escape":
            self.typing = ""
        elif key == "backspace":
            self.typed = self.typed[:-1]
        elif len(key) == 1 and key.isprintable():
            self.typed = (self.typed + key)[:100]
        return None

    def _move(self, step: int, rows: Sequence[Row]) -> None:
        ids = [str(row["Id"]) for row in rows]
        if ids:
            at = ids.index(self.chosen) + step if self.chosen in ids else 0
            self.chosen = ids[max(0, min(at, len(ids) - 1))]


def _next(choices: Sequence[str], one: str) -> str:
    return choices[(choices.index(one) + 1) % len(choices)]


def sorted_rows(view: View, rows: Sequence[Row], now: float) -> list[Row]:
    key = _SORTS[view.sort]
    return list(rows) if key is None else sorted(rows, key=lambda row: key(row, now))


def screen(
    view: View, pool: Mapping[str, Any], jobs: Sequence[Row], rates: Rates | None, now: float, width: int, height: int
) -> list[str]:
    """At most `height` lines of at most `width` characters. pool: as GET /v1/overview tells it;
    rates: None where nobody listened."""
    found = [*summary(pool, rates, now), "", *_users(pool), "", _filters(view), *_jobs(view, jobs, now, width)]
    found = found[: max(0, height - 1)]
    found += [""] * (height - 1 - len(found))
    return [printable(line)[:width] for line in [*found, _bottom(view)][:height]]


def printable(text: str) -> str:
    """Names and commands are users' own: nothing in them may steer a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def summary(pool: Mapping[str, Any], rates: Rates | None, now: float) -> list[str]:
    """Totals: leader, slots, jobs, waits. A part that can not be had says why."""
    lines = [f"{moment(float(pool.get('at') or now), '%m/%d %H:%M:%S')}  {_leader(pool.get('hads'))}"]
    slots = pool.get("slots") or {}
    if "error" in slots:
        lines.append(f"Slots: {slots['error']}")
    else:
        states = ", ".join(f"{part['slots']} {name.lower()}" for name, part in slots.get("states", {}).items())
        used = f"{slots.get('used_cpus', 0):g} of {slots.get('cpus', 0):g} cpus in use"
        lines.append(f"Slots: {slots.get('slots', 0)} ({states or 'none'}); {used}, {slots.get('utilisation', 0):.0%}")
    queue = pool.get("queue") or {}
    if "error" in queue:
        lines.append(f"Jobs:  {queue['error']}")
    else:
        lines.append("Jobs:  " + ", ".join(f"{queue.get(name, 0)} {name}" for name in ("running", "idle", "held")))
    waits = pool.get("waits") or {}
    parts = []
    if waits.get("count"):
        parts.append(f"half of the jobs waited {waits['p50']:.1f} s or less, 9 of 10 {waits['p90']:.1f} s")
    if rates is not None:
        counts = (f"{rates.per_minute(kind, now)} {kind.partition('.')[2]}" for kind in ("job.started", "job.ended"))
        parts.append(f"in the last minute {', '.join(counts)}")
    lines.append("Pace:  " + ("; ".join(parts) or "no job has started yet"))
    return lines


def _leader(hads: Any) -> str:
    if not isinstance(hads, list):
        return f"HADs: {hads['error']}" if isinstance(hads, Mapping) and "error" in hads else "no HAD"
    leaders = [f"{had['Name']} leads (epoch {had.get('HadEpoch')})" for had in hads if had.get("HadState") == "Leader"]
    return ", ".join(leaders) or "nobody leads"


def _users(pool: Mapping[str, Any]) -> list[str]:
    users = pool.get("users") or {}
    if "error" in users:
        return [f"Users: {users['error']}"]
    lines = [f"{'USER':<30} {'RUNNING':>8} {'IDLE':>8} {'HELD':>8}"]
    for one in users.get("lines", [])[:_MOST_USERS]:
        lines.append(f"{one['name'][:30]:<30} {one['running']:>8} {one['idle']:>8} {one['held']:>8}")
    more = users.get("count", 0) - _MOST_USERS
    return [*lines, f"and {more} more"] if more > 0 else lines


def _filters(view: View) -> str:
    parts = [f"by {view.sort}", view.status or "all", f"of {view.user}" if view.user else ""]
    parts.append(f"with {view.search!r}" if view.search else "")
    return f"Jobs: {', '.join(part for part in parts if part)}" + ("   PAUSED" if view.paused else "")


#: Columns of jobs before their command: heading, width, which side.
_COLUMNS: Final = (
    ("ID", 12, "<"), ("USER", 20, "<"), ("STATUS", 9, "<"), ("RUNTIME", 12, ">"), ("CPUS", 5, ">"), ("MEMORY", 8, ">"),
    ("WHERE", 22, "<"),
)  # fmt: skip
#: What goes first where there is no room, and what of a command must be seen before nothing more goes.
_SPARE: Final = ("WHERE", "MEMORY", "CPUS", "USER")
_LEAST_COMMAND: Final = 16


def _shown(width: int) -> list[str]:
    """The columns that a line of so many characters has room for."""
    shown = {name: size for name, size, _ in _COLUMNS}
    for name in _SPARE:
        if 2 + sum(shown.values()) + len(shown) + _LEAST_COMMAND > width:
            del shown[name]
    return list(shown)


def _jobs(view: View, jobs: Sequence[Row], now: float, width: int) -> list[str]:
    shown = _shown(width)

    def line(mark: str, cells: Sequence[str], command: str) -> str:
        pairs = zip(_COLUMNS, cells, strict=True)
        kept = [f"{cell:{side}{size}}" for (name, size, side), cell in pairs if name in shown]
        return " ".join([mark, *kept, command]).rstrip()

    lines = [line(" ", [name for name, _, _ in _COLUMNS], "COMMAND")]
    for row in sorted_rows(view, jobs, now):
        mark = ">" if row["Id"] == view.chosen else " "
        user = str(row.get("AccountingGroup") or row.get("User") or row.get("Owner") or "")
        command = f"{str(row.get('Cmd') or '').rpartition('/')[2]} {row.get('Args') or row.get('Arguments') or ''}"
        cells = (
            str(row["Id"]), user[:20], str(row.get("Status", "")), span(_runtime(row, now)),
            str(row.get("RequestCpus") or ""), _memory(row), str(row.get("RemoteHost") or "")[:22],
        )  # fmt: skip
        lines.append(line(mark, cells, command))
    return lines


def _memory(row: Row) -> str:
    """With its unit."""
    asked = row.get("RequestMemory")
    if not isinstance(asked, int | float) or not asked:
        return ""
    amount, units = float(asked), ["MiB", "GiB", "TiB", "PiB"]
    while amount >= 1024 and len(units) > 1:
        amount /= 1024
        units.pop(0)
    return f"{amount:.3g} {units[0]}" if amount < 999.5 else f"{amount:.0f} {units[0]}"


def _bottom(view: View) -> str:
    if view.confirm is not None:
        return f"{view.confirm.what} job {view.confirm.job}? y: yes, any other key: no"
    if view.typing:
        return f"{view.typing}: {view.typed}_"
    return view.said or HELP
