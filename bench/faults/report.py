"""What the bench found, as tables: pure functions over the figures of its runs, one dictionary a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

WANTED = ("submit", "match", "query", "leader")
COUNTED = ("lost", "twice", "log")

HEAD = (
    "| fault | lasts s | without submit s | match s | query s | leader s | two leaders s | jobs | lost | run twice "
    "| log faults | charged - used s | load |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def row(runs: Sequence[Mapping[str, Any]]) -> str:
    """Of all runs of one fault. Seconds without are the median and, after a comma, the worst; what was lost or done
    twice is the sum, two leaders the worst, the load the least and the most."""

    def seconds(what: str) -> str:
        found = [run[what] for run in runs]
        aim = runs[0]["aims"].get(what)
        text = f"{median(found):.1f}" + (f", {max(found):.1f}" if len(runs) > 1 else "")
        return text + (f" (aim {aim:g})" if aim is not None else "")

    name = runs[0]["fault"] + (f" ({len(runs)} times)" if len(runs) > 1 else "")
    cells = [name, f"{runs[0]['lasts_s']:g}", *(seconds(what) for what in WANTED)]
    cells.append(f"{max(run['two leaders'] for run in runs):.2f}")
    cells += [str(sum(run["jobs"] for run in runs)), *(str(sum(len(run[what]) for run in runs)) for what in COUNTED)]
    used = sum(run["ran_s"] for run in runs)
    cells.append(f"{sum(run['charged_s'] for run in runs) - used:+.1f} of {used:.0f}")
    loads = [round(run["load"]) for run in runs]
    cells.append(f"{min(loads)}" if min(loads) == max(loads) else f"{min(loads)} to {max(loads)}")
    return f"| {' | '.join(cells)} |"


def by_fault(runs: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The runs of each fault, in the order in which faults were first run."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        found.setdefault(run["fault"], []).append(run)
    return list(found.values())


def table(told: Mapping[str, Any]) -> str:
    """Of a whole run of the bench, as its --json has it: a row for each fault, then what was bad, and what did not
    fit into its minutes."""
    lines = [HEAD, *(row(runs) for runs in by_fault(told["runs"]))]
    for title, which in (("Missed, lost or done twice", told["bad"]), ("Not run for want of time", told["not_run"])):
        lines += ["", f"{title}: {'; '.join(which) or 'nothing'}."]
    return "\n".join(lines)


def missed(aims: Mapping[str, float], without: Mapping[str, float]) -> list[str]:
    return [f"{what}: {without[what]:.1f} s, aim {aim:g} s" for what, aim in aims.items() if without[what] > aim]


def fits(spent_s: float, longest_s: float, minutes: float | None) -> bool:
    """Whether a run that takes as long as the longest yet ends within so many minutes; None: there is no bound."""
    return minutes is None or spent_s + longest_s <= minutes * 60
