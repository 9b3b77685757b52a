"""docs/spec: which tests hold a row, written into its page, and the lists of its README.

`python -m tests.infrastructure.spec_pages` writes them anew. Markers are read from the source of the tests, so nothing
is imported and no test is run.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.infrastructure.imports import house_of
from tests.spec import LINE, PAGES, Row, pages, rows

ROOT = PAGES.parents[1]
README = PAGES / "README.md"
MADE = "<!-- made by tests.infrastructure.spec_pages -->"
END = "<!-- end -->"
NONE = "none"
#: What stands in a row that is not as HTCondor has it.
DIFFERS = re.compile(r"\*\*(?:Differs|Not here):")
#: A group's own sentence that all of it differs.
DIFFERS_AS_A_WHOLE = "**Differs** as a whole"
#: Where rows are cited.
CITING = ("services", "shared", "engine", "roost", "bench", "docs", "tests", "examples", "compose", "bin")
_TEXT = {".py", ".md", ".json", ".lua", ".sql", ".js", ".sh", ".yaml", ".yml", ".toml", ""}


class Held(NamedTuple):
    """A test that holds a row."""

    path: str  # of its module, below the repository
    test: str

    @property
    def link(self) -> str:
        return f"[{self.test}](../../{self.path})"


def _ids_of(node: ast.expr) -> list[str]:
    """The rows of `spec("...", ...)`, or of a list of such calls among others."""
    if isinstance(node, ast.List | ast.Tuple):
        return [one for item in node.elts for one in _ids_of(item)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        if name == "spec":
            return [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return []


def _decorated(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [one for decorator in node.decorator_list for one in _ids_of(decorator)]


def _markers(body: list[ast.stmt], around: list[str]) -> Iterator[tuple[str, str]]:
    """(test, row) of every test in a module or a class."""
    for node in body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets):
            around = around + _ids_of(node.value)
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _markers(node.body, around + _decorated(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            for row in around + _decorated(node):
                yield node.name, row


@cache
def held() -> dict[str, list[Held]]:
    """By row: the tests that hold it."""
    found: dict[str, set[Held]] = {}
    for module in house_of("tests").modules.values():
        if module.path.name.startswith("test_"):
            for test, row in _markers(module.tree.body, []):
                found.setdefault(row, set()).add(Held(module.path.relative_to(ROOT).as_posix(), test))
    return {row: sorted(tests) for row, tests in found.items()}


def page_as_it_should_be(page: Path) -> str:
    """A page with its last column made anew."""

    def filled(line: str) -> str:
        if (found := LINE.match(line)) is None:
            return line
        tests = ", ".join(one.link for one in held().get(found["id"], ())) or NONE
        return f"| {found['id']} | {found['promise']} | {found['documented']} | {tests} |"

    return "\n".join(map(filled, page.read_text().splitlines())) + "\n"


def _lists() -> str:
    """The groups with their counts, the rows that no test holds, and those that differ from HTCondor."""
    text = "| group | rows | held by tests | differ from HTCondor |\n| --- | --- | --- | --- |\n"
    untested: list[str] = []
    for page in pages():
        title = page.read_text().splitlines()[0].removeprefix("# ")
        here = [row for row in rows().values() if row.page == page]
        untested += [row.id for row in here if row.id not in held()]
        differ = [_linked(row) for row in here if DIFFERS.search(row.promise)]
        if DIFFERS_AS_A_WHOLE in page.read_text().partition("\n| row |")[0].replace("\n", " "):
            differ.insert(0, "all")
        count = sum(row.id in held() for row in here)
        text += f"| [{title}]({page.name}) | {len(here)} | {count} | {', '.join(differ)} |\n"
    text += f"\nOf {len(rows())} rows {len(rows()) - len(untested)} are held by a test that names them. "
    if untested:
        text += f"No test names these: {', '.join(_linked(rows()[one]) for one in untested)}.\n"
    else:
        text += "There is none without.\n"
    return text


def _linked(row: Row) -> str:
    return f"[{row.id}]({row.page.name})"


def readme_as_it_should_be() -> str:
    before, made, rest = README.read_text().partition(MADE + "\n")
    _, end, after = rest.partition(END)
    if not made or not end:
        raise ValueError(f"{README} has lost its lines {MADE} and {END}")
    return f"{before}{MADE}\n\n{_lists()}\n{END}{after}"


def citations() -> Iterator[tuple[str, int, str]]:
    """(file, line, id) of whatever looks like the id of a row, in all files of the repository that may cite one."""
    groups = "|".join(sorted({row.group for row in rows().values()}))
    cited = re.compile(rf"(?<![\w-])(?:(?:{groups})-\d\d|STM-[A-Z])(?![\w-]*\w)")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *CITING, "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in sorted(set(listed.stdout.split("\0"))):
        path = ROOT / name
        if not name or path.suffix not in _TEXT or not path.is_file() or name.startswith("tests/data/"):
            continue
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            for found in cited.finditer(line):
                yield name, number, found[0]


def write() -> list[Path]:
    """Make all pages anew; those that changed."""
    changed = []
    for page, text in [*((page, page_as_it_should_be(page)) for page in pages()), (README, readme_as_it_should_be())]:
        if page.read_text() != text:
            page.write_text(text)
            changed.append(page)
    return changed


if __name__ == "__main__":
    for one in write():
        print(f"written: {one.relative_to(ROOT)}")
