"""Writes the page of what becomes of HTCondor's knobs: `python -m shared.config.effects_page > docs/effects.md`."""

from __future__ import annotations

import sys

from shared.config.knobs.effects import GIVEN, NONE, PART
from shared.effects import table

_HEAD = """# What becomes of HTCondor's knobs

Every knob in the manual of HTCondor 23.9.6, and every one that its library knows, is one of these:

- it has effect: it stands in [the list of knobs](knobs.md) without a mark;
- [a part](#in-part) of what HTCondor does goes by it;
- [nothing](#none) goes by it;
- it is [set by the machine](#set-by-the-machine), and files refer to it.

Whoever sets one that nothing goes by is told: by the daemons whose work it is of, in one line of their logs when
they start and when a reconfiguration brings it, by `roost config-val -check`, and by `roost config-val NAME`
([what is checked](configuration.md#what-is-checked)). Names in the scope of a daemon (`SCHEDD.FLOCK_TO`) count,
and so do those in the scope of a daemon that is not here (`SHADOW.X`). What a macro that has effect takes in by
`$(NAME)` is not told, nor is a macro that is no knob of HTCondor's.

In a name, `<SUBSYS>` stands for a daemon of HTCondor's, `<N>` for a number, and anything else in angle brackets
is for whoever writes the file. This page is made from `shared/config/knobs/effects.py` by `python -m
shared.config.effects_page > docs/effects.md`; tests compare that with what the code reads, with the names in the
manual and with those of the library.
"""


def page() -> str:
    """The whole page, in Markdown."""
    told = [answer for answer in NONE if answer.told]
    quiet = [answer for answer in NONE if not answer.told]
    return (
        f"{_HEAD}\n## In part\n\n{table(PART, 'knob', 'what goes by it')}"
        f"\n## None\n\n{table(told, 'knob', 'why, and what there is in its place')}"
        "\nThese are not told, as they may as well be macros of somebody's own:\n\n"
        f"{table(quiet, 'knob', 'why nothing goes by it')}"
        f"\n## Set by the machine\n\n{', '.join(f'`{name}`' for name in GIVEN.split())}.\n"
    )


if __name__ == "__main__":
    sys.stdout.write(page())
