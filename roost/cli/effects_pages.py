"""Writes the pages of what becomes of HTCondor's submit commands, attributes and options of tools:
`python -m roost.cli.effects_pages submit > docs/effects-submit.md`, and likewise `attributes` and `tools`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

from roost.cli import effects as tools
from roost.cli.condor_names import INSTEAD, NAMES
from roost.submit import effects as commands
from shared.effects import Answer, cell, daemon_attributes, job_attributes, machine_attributes, table

_WHY: Final = "why, and what there is in its place"
_PART: Final = "what goes by it"
_IDLE: Final = "why nothing changes"
_MADE: Final = """
This page is made from {source} by `python -m roost.cli.effects_pages {page} > docs/effects-{page}.md`; tests compare
the tables with the code and with the names in HTCondor's manual.
"""


def submit_page() -> str:
    """Commands of submit files, in Markdown."""
    refused = {name: row for name, row in commands.TABLE.items() if row.refused}
    told = {name: row for name, row in commands.TABLE.items() if not row.refused}
    return (
        "# What becomes of HTCondor's submit commands\n\n"
        "Every command that the manual of HTCondor 23.9 has, and that stands in none of these tables, has effect\n"
        "([submit.md](submit.md)). Whoever writes one that has none is told by `roost submit`, with file and\n"
        "line, and by everything else that submits.\n"
        f"{_MADE.format(source='`roost/submit/effects.py`', page='submit')}"
        "\n## Refused\n\nA job that asks for one of these is not queued: it would wait for ever, or the\n"
        f"opposite would happen. `-dry-run` shows it, with a warning.\n\n{_rows(refused)}"
        f"\n## Told\n\nOf these a warning tells, and the job is queued.\n\n{_rows(told)}\n"
        f"These are of jobs that no pool of ours runs, or are written into none:\n\n"
        f"{table(commands.COMMANDS, 'command', _WHY)}"
        f"\n## In part\n\n{table(commands.PART, 'command', _PART)}"
    )


def attributes_page() -> str:
    """Attributes of jobs, of slots and of daemons, in Markdown."""
    daemons = "".join(
        f"\n### {my_type}\n\n{table(answers, 'attribute', _WHY)}"
        for my_type, answers in daemon_attributes.NEVER.items()
    )
    return (
        "# What becomes of HTCondor's attributes\n\n"
        "Every attribute of jobs and of machines that the manual of HTCondor 23.9 has, and that stands in none of\n"
        "these tables, is as there. What a job asks for by an attribute in vain is in\n"
        "[effects-submit.md](effects-submit.md).\n"
        f"{_MADE.format(source='`shared/effects`', page='attributes')}"
        "\n## Of jobs\n\nNo job has these, unless it gives them to itself (`+Name = value`). A policy of a job\n"
        "that reads one (`periodic_hold`, `on_exit_remove`, ...) sees undefined: `roost submit` tells that.\n\n"
        f"{table(job_attributes.UNSET, 'attribute', _WHY)}\nThese are there in part:\n\n"
        f"{table(job_attributes.PART, 'attribute', 'what is there')}"
        "\n## Of slots\n\nNo slot has these, unless an administrator gives them to slots (STARTD_ATTRS). `roost\n"
        "submit` tells of `requirements` and `rank` that read one, `roost analyze` of jobs that wait for one.\n\n"
        f"{table(machine_attributes.NEVER, 'attribute', _WHY)}\nThese are there in part:\n\n"
        f"{table(machine_attributes.PART, 'attribute', 'what is there')}"
        "\n## Of daemons\n\nThe ads of a schedd, a collector and a negotiator of HTCondor 23.9.6 were recorded while\n"
        "two jobs ran. Of their attributes those of daemons here lack these. There is one ad for each slot,\n"
        f"and none for a startd as a whole.\n{daemons}"
    )


def tools_page() -> str:
    """Options of the tools, and tools that are not there, in Markdown."""
    names = {ours: name for name, ((ours, *_), _read) in reversed(NAMES.items())}
    return (
        "# What becomes of HTCondor's tools and their options\n\n"
        "`roost condor-names DIR` writes programs with HTCondor's names. Every option that the manual of\n"
        "HTCondor 23.9 has, and that stands in none of these tables, is as there. A command that meets one that it\n"
        "does not have tells what there is in its place, and ends with exit code 1.\n"
        f"{_MADE.format(source='`roost/cli/effects.py`', page='tools')}"
        f"\n## None\n\nOf all commands:\n\n{table(tools.EVERYWHERE, 'option', _WHY)}\n"
        f"{_options(tools.NONE, names, _WHY)}"
        "\n## Taken, without effect\n\n"
        f"{_options(tools.IDLE, names, _IDLE)}"
        f"\nUnder HTCondor's names also {tools.DEBUG.names} of nearly all commands\n"
        f"({tools.DEBUG.why}), with a note, and:\n\n{_options(tools.LEFT_OUT, names, _IDLE)}"
        "\n## Other tools\n\n| tool | what there is in its place |\n|---|---|\n"
        + "".join(f"| `{name}` | {cell(why)} |\n" for name, why in sorted(INSTEAD.items()))
    )


def _rows(rows: Mapping[str, commands.WithoutEffect]) -> str:
    lines = dict.fromkeys(f"| `{row.command}` | {cell(row.told)} |\n" for row in rows.values())
    return f"| command | what happens, and what to do |\n|---|---|\n{''.join(lines)}"


def _options(answers: Mapping[str, tuple[Answer, ...]], names: Mapping[str, str], heading: str) -> str:
    return "\n".join(
        f"### {names.get(command, f'roost {command}')}\n\n{table(rows, 'option', heading)}"
        for command, rows in sorted(answers.items())
        if rows
    )


PAGES: Final = {"submit": submit_page, "attributes": attributes_page, "tools": tools_page}

if __name__ == "__main__":
    sys.stdout.write(PAGES[sys.argv[1]]())
