"""The scenarios as small SVG plots, the same bytes each time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import matplotlib
from cycler import cycler
from matplotlib.figure import Figure

from bench.fairshare import scenarios
from bench.fairshare.simulation import Moment

#: Points of one line: more would not be seen.
_POINTS: Final = 240
#: Cores (or priority) from one moment to the next that are no curve any more.
_JUMP: Final = 0.2
_COLOURS: Final = ("#20639b", "#d1495b", "#3caea3")
_STYLE: Final[Any] = {
    "svg.hashsalt": "roost",  # ids of clip paths, else random
    "svg.fonttype": "none",  # text as text: a tenth of the size
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=_COLOURS),
    "lines.linewidth": 2,
}


def write(directory: Path) -> list[Path]:
    """All plots into a directory, which is made if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(_STYLE):
        for name, draw in PLOTS.items():
            figure = Figure(figsize=(6.4, 3.4), layout="constrained")
            draw(figure.subplots())
            path = directory / f"fair-share-{name}.svg"
            figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
            # Blanks at the ends of lines would differ from what editors and checks leave.
            path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
            written.append(path)
    return written


def _lines(axes: Any, moments: Sequence[Moment], values: Callable[[Moment], Mapping[str, float]]) -> None:
    """A line a user, in hours: every so many moments, and those on both sides of a jump."""
    names = list(values(moments[0]))
    step = max(1, len(moments) // _POINTS)
    shown = {*range(0, len(moments), step), len(moments) - 1}
    for number, (one, two) in enumerate(pairwise(moments)):
        if any(abs(values(one)[name] - values(two)[name]) > _JUMP for name in names):
            shown |= {number, number + 1}
    chosen = [moments[number] for number in sorted(shown)]
    for name in names:
        axes.plot([moment.seconds / 3600 for moment in chosen], [values(moment)[name] for moment in chosen], label=name)


def _labels(axes: Any, title: str, y: str, legend: bool = False, x: str = "hours") -> None:
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_ylim(bottom=0)
    axes.margins(x=0)
    if legend:
        axes.legend(frameon=False)


def _growth(axes: Any) -> None:
    _lines(axes, scenarios.growth(), lambda moment: moment.rup)
    axes.axhline(scenarios.CORES, color="#888888", linewidth=1, linestyle="--")
    axes.set_xticks(range(0, 73, 12))
    _labels(axes, "Real priority of a new user with 100 cores", "real priority")


def _growth_and_decay(axes: Any) -> None:
    _lines(axes, [m for m in scenarios.growth_and_decay() if m.seconds <= 120 * 3600], lambda moment: moment.rup)
    axes.axvline(24, color="#888888", linewidth=1, linestyle="--")
    axes.set_xticks(range(0, 121, 24))
    _labels(axes, "100 cores for a day, then none", "real priority")


def _decay(axes: Any) -> None:
    _lines(axes, scenarios.decay(), lambda moment: moment.rup)
    axes.axhline(0.5, color="#888888", linewidth=1, linestyle="--")
    axes.set_xticks(range(0, 145, 24))
    _labels(axes, "A real priority of 10 without any use", "real priority")


def _a_against_b(axes: Any) -> None:
    _lines(axes, scenarios.a_against_b(), lambda moment: moment.cores)
    axes.axhline(50, color="#888888", linewidth=1, linestyle="--")
    axes.set_xticks(range(0, 145, 24))
    _labels(axes, "A alone, B from hour 48 on: cores of 100", "cores", legend=True)


def _a_against_b_priorities(axes: Any) -> None:
    _lines(axes, scenarios.a_against_b(), lambda moment: moment.rup)
    axes.set_xticks(range(0, 145, 24))
    _labels(axes, "A alone, B from hour 48 on: real priorities", "real priority", legend=True)


def _a_against_b_in_cycles(axes: Any) -> None:
    ideal = [moment for moment in scenarios.a_against_b() if moment.seconds >= 48 * 3600]
    for name in "AB":
        moments = scenarios.a_against_b_in_cycles()
        hours, cores = [m.seconds / 3600 + 48 for m in moments], [m.cores[name] for m in moments]
        axes.step(hours[::3], cores[::3], where="post", label=f"{name}, in whole slots", linewidth=1.4)
    for name in "AB":
        some = [moment for moment in ideal if moment.seconds <= 96 * 3600][::30]
        axes.plot([m.seconds / 3600 for m in some], [m.cores[name] for m in some], color="#888888", linewidth=1)
    axes.set_xticks(range(48, 97, 6))
    _labels(axes, "The negotiation cycle on 100 slots, jobs of half an hour", "slots", legend=True)


def _inverse_ratio(axes: Any) -> None:
    groups = (("all want all", scenarios.inverse_ratio()), ("A wants 10", scenarios.inverse_ratio(10.0)))
    for place, name in enumerate("ABC"):
        bars = axes.bar(
            [number + (place - 1) * 0.26 for number in range(len(groups))],
            [cores[name] for _, cores in groups],
            width=0.24,
            label=f"{name}, EUP {(5, 10, 20)[place]}",
        )
        axes.bar_label(bars, fmt="%.0f")
    axes.grid(False)
    axes.set_xticks(range(len(groups)), [title for title, _ in groups])
    _labels(axes, "70 cores for effective priorities of 5, 10 and 20", "cores", legend=True, x="")
    axes.margins(x=0.1)
    axes.set_ylim(top=46)


def _factors(axes: Any) -> None:
    _lines(axes, [m for m in scenarios.factors() if m.seconds <= 6 * 3600], lambda moment: moment.cores)
    _labels(axes, "Two new users on 90 cores", "cores", legend=True)


def _floor_and_ceiling(axes: Any) -> None:
    _lines(axes, scenarios.floor_and_ceiling(), lambda moment: moment.cores)
    axes.axvline(24, color="#888888", linewidth=1, linestyle="--")
    axes.set_xticks(range(0, 49, 6))
    _labels(axes, "B has a floor of 10; A has a ceiling of 30 from hour 24 on", "cores of 100", legend=True)
    axes.set_ylim(top=100)


PLOTS: Final[Mapping[str, Callable[[Any], None]]] = {
    "growth": _growth,
    "growth-and-decay": _growth_and_decay,
    "decay": _decay,
    "a-against-b": _a_against_b,
    "a-against-b-priorities": _a_against_b_priorities,
    "a-against-b-in-cycles": _a_against_b_in_cycles,
    "inverse-ratio": _inverse_ratio,
    "factors": _factors,
    "floor-and-ceiling": _floor_and_ceiling,
}
