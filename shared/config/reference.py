"""Writes the page of all knobs: `python -m shared.config.reference > docs/knobs.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from shared.config.effects import place
from shared.config.knobs import KNOBS, SETTINGS, Knob
from shared.config.knobs.others import OTHERS
from shared.effects import Effect

_HEAD = """# Knobs

Every macro that Roost knows by itself, with its default. This page is made from the declarations in
`shared/config/knobs/` by `python -m shared.config.reference > docs/knobs.md`; a test compares the two.
How files are read is in [configuration.md](configuration.md).

A default in the column is text as a file would have it, so `$(X)` in it follows X. An empty one means "not
defined". In a name, what stands in angle brackets is for you to fill in. A knob marked _no effect_ is known,
since files written for HTCondor set it, but nothing goes by its value; what stands behind it is what HTCondor does
with it, and what there is here in its place; _in part_ is likewise followed by the part. [effects.md](effects.md) has
also those of HTCondor's knobs that nothing goes by and that are not on this page.
"""

_TITLES = {
    "MASTER": "Master",
    "COLLECTOR": "Collector",
    "NEGOTIATOR": "Negotiator",
    "SCHEDD": "Access point (schedd)",
    "STARTD": "Execution point (startd)",
    "HAD": "High availability (had)",
    "GATEWAY": "Gateway",
    "JOURNAL": "Journal",
    "DEFRAG": "Defragmentation (defrag)",
    "ROOSTER": "Waking of machines (rooster)",
    "GANGLIAD": "Monitor (gangliad)",
    "REGISTRAR": "Users of daemons (registrar)",
    "ADSTASH": "Export of histories (adstash)",
    "SUBMIT": "Submits (roost submit)",
}


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(text: str) -> str:
    return f"`{_cell(text)}`" if text else ""


def _range(knob: Knob) -> str:
    if knob.choices:
        return ", ".join(knob.choices)
    least = "" if knob.least is None else f"{knob.least:g}"
    most = "" if knob.most is None else f"{knob.most:g}"
    return f"{least}..{most}" if least or most else ""


def _meaning(knob: Knob) -> str:
    meaning = _cell(knob.meaning)
    placed = place(knob.name)
    if placed is None or placed.name != knob.name or placed.kind is Effect.FULL:
        return meaning
    label = "no effect" if placed.kind is Effect.NONE else "in part"
    return f"_{label}_: {meaning}. Here {_cell(placed.why)}"


def _table(knobs: Iterable[Knob]) -> str:
    rows = [
        f"| {_code(knob.name)} | {knob.kind} | {_code(knob.default or '')} | {knob.unit} | {_range(knob)} "
        f"| {_meaning(knob)} |\n"
        for knob in knobs
    ]
    return "| name | type | default | unit | range | meaning |\n|---|---|---|---|---|---|\n" + "".join(rows)


def page() -> str:
    """The whole page, in Markdown."""
    parts = [_HEAD]
    known = {settings.SUBSYSTEM for settings in SETTINGS}
    everywhere = [knob for knob in KNOBS.values() if not knob.daemons and knob.name not in helpers()]
    parts.append("\n## All daemons\n\n" + _table(everywhere))
    for settings in SETTINGS:
        subsystem = settings.SUBSYSTEM
        own = [knob for knob in KNOBS.values() if subsystem in knob.daemons]
        parts.append(f"\n## {_TITLES[subsystem]}\n\n" + _table(own))
    others = [knob for knob in KNOBS.values() if knob.daemons and not known.intersection(knob.daemons)]
    parts.append("\n## Other programs\n\n" + _table(others))
    pieces = [knob for knob in KNOBS.values() if knob.name in helpers()]
    parts.append(
        "\n## Helpers\n\nPieces for expressions of your own, such as `START = KeyboardIdle > $(StartIdleTime)`.\n\n"
        + _table(pieces)
    )
    return "".join(parts)


def helpers() -> frozenset[str]:
    """Names of the knobs that are there for other macros to refer to."""
    return frozenset(knob.name for knob in OTHERS if not knob.daemons)


if __name__ == "__main__":
    sys.stdout.write(page())
