"""The diagram and the list of a slot's states for docs/execution/states.md, made from `transitions.TABLE`:

python -m services.startd.core.slots.diagram --write
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from services.startd.core.slots.transitions import TABLE, Condition, State

PAGE: Final = Path(__file__).parents[4] / "docs" / "execution" / "states.md"
BEGIN, END = "<!-- made by services.startd.core.slots.diagram -->", "<!-- end -->"


def diagram() -> str:
    """A Mermaid diagram: States with their Activities, and an arrow for each pair of conditions, with its rows."""
    arrows: dict[tuple[Condition, Condition], list[str]] = {}
    for one in TABLE:
        rows = arrows.setdefault((one.before, one.after), [])
        number = one.row.removeprefix("STM-").lstrip("0")
        if number not in rows:
            rows.append(number)
    conditions = [condition for pair in arrows for condition in pair]
    lines = ["stateDiagram-v2", "    [*] --> Owner_Idle"]
    for state in State:
        inside = sorted({str(one.activity) for one in conditions if one.state is state})
        lines.append(f"    state {state} {{")
        lines += [f"        {state}_{activity} : {activity}" for activity in inside]
        lines.append("    }")
    lines += [f"    {_id(before)} --> {_id(after)} : {', '.join(rows)}" for (before, after), rows in arrows.items()]
    return "\n".join(lines)


def listing() -> Iterator[str]:
    """The rows of the table, as Markdown."""
    yield "| row | from | to | because | by itself when |"
    yield "| --- | --- | --- | --- | --- |"
    for one in sorted(TABLE, key=lambda one: one.row):
        guard = one.guard.replace("-", " ")
        yield f"| {one.row} | {one.before} | {one.after} | {one.cause.value} | {guard} |"


def made() -> str:
    """What stands between the marks of the page."""
    return "\n".join([BEGIN, "", "```mermaid", diagram(), "```", "", *listing(), "", END])


def fresh(page: str) -> str:
    """The page with what is made put in anew. Raises ValueError if it lacks the marks."""
    head, found, rest = page.partition(BEGIN)
    tail = rest.partition(END)
    if not found or not tail[1]:
        raise ValueError(f"the page lacks {BEGIN} or {END}")
    return head + made() + tail[2]


def _id(condition: Condition) -> str:
    return f"{condition.state}_{condition.activity}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(fresh(PAGE.read_text()))
    else:
        print(made())  # noqa: T201
