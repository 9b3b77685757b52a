"""The rows of docs/spec, and the marker that says which of them a test holds.

    @spec("NEG-21")
    def test_slots_are_sorted_by_five_keys(): ...

`pytest --spec NEG-21` (or a whole group, `--spec NEG`) runs only such tests. A row that does not exist is an error when
the module is read.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

PAGES = Path(__file__).parents[1] / "docs" / "spec"
#: One row of a page: id, promise, where it is documented, which tests hold it.
LINE = re.compile(r"^\| (?P<id>[A-Z]+-(?:\d\d|[A-Z])) \| (?P<promise>.*?) \| (?P<documented>.*?) \| (?P<held>.*?) \|$")


class Row(NamedTuple):
    """One promise of the specification."""

    id: str
    promise: str
    documented: str
    page: Path

    @property
    def group(self) -> str:
        return self.id.partition("-")[0]


def pages() -> list[Path]:
    """The page of every group, in the order of their names."""
    return sorted(path for path in PAGES.glob("*.md") if path.name != "README.md")


def lines() -> Iterator[tuple[Path, re.Match[str]]]:
    """Every row as it stands in its page."""
    for page in pages():
        for line in page.read_text().splitlines():
            if found := LINE.match(line):
                yield page, found


@cache
def rows() -> dict[str, Row]:
    """All rows by their ids."""
    return {found["id"]: Row(found["id"], found["promise"], found["documented"], page) for page, found in lines()}


@cache
def groups() -> frozenset[str]:
    return frozenset(row.group for row in rows().values())


def unknown(ids: Iterable[str]) -> list[str]:
    """Those ids that no row has."""
    return [one for one in ids if one not in rows()]


def spec(*ids: str) -> pytest.MarkDecorator:
    """Marks a test as one that holds these rows."""
    if not ids or (wrong := unknown(ids)):
        raise ValueError(f"docs/spec has no row {', '.join(wrong)}" if ids else "spec() wants the id of a row")
    return pytest.mark.spec(*ids)


def held_by(item: pytest.Item) -> set[str]:
    """The rows that a test holds, by its own markers and those of its class and module."""
    return {str(one) for mark in item.iter_markers("spec") for one in mark.args}


def wanted(named: Iterable[str]) -> frozenset[str]:
    """The rows that `--spec` names, each by itself or as a group. Raises ValueError for one that does not exist."""
    chosen: set[str] = set()
    for word in (name.strip().upper() for many in named for name in many.split(",")):
        if word in groups():
            chosen |= {row.id for row in rows().values() if row.group == word}
        elif word in rows():
            chosen.add(word)
        else:
            raise ValueError(
                f"--spec {word}: docs/spec has no such row or group; groups are {' '.join(sorted(groups()))}"
            )
    return frozenset(chosen)
