"""docs/spec, and whatever names its rows."""

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from tests.infrastructure import spec_pages
from tests.infrastructure.imports import SOURCE
from tests.infrastructure.test_second_try import PLUGINS
from tests.spec import LINE, groups, lines, pages, rows, spec, wanted


@pytest.mark.xdist_group(SOURCE)
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_shows_the_tests_that_hold_its_rows(page):
    assert page.read_text() == spec_pages.page_as_it_should_be(page), "run: python -m tests.infrastructure.spec_pages"


@pytest.mark.xdist_group(SOURCE)
def test_the_first_page_shows_what_the_others_come_to():
    wanted_text = spec_pages.readme_as_it_should_be()
    assert spec_pages.README.read_text() == wanted_text, "run: python -m tests.infrastructure.spec_pages"


def test_every_row_has_one_id_a_promise_and_a_page():
    assert [row for row, count in Counter(found["id"] for _, found in lines()).items() if count > 1] == []
    for row in rows().values():
        assert row.page.stem == row.group.lower(), row
        assert row.promise, row
        assert "](" in row.documented, row
    for page in pages():
        table = [line for line in page.read_text().splitlines() if re.match(r"\| *[A-Z]+-", line)]
        assert [line[:40] for line in table if not LINE.match(line)] == [], f"{page.name}: these are no rows"


def test_every_id_that_is_cited_has_a_row():
    wrong = [f"{name}:{number}: {row}" for name, number, row in spec_pages.citations() if row not in rows()]
    assert wrong == []


def test_citations_are_seen_and_other_words_are_not():
    seen = {row for name, _, row in spec_pages.citations() if name.startswith(("services/", "shared/"))}
    assert {"LEA-08", "CLA-01", "STM-45"} <= seen


def test_no_test_has_an_id_in_its_name():
    name = re.compile(rf"def (test\w*_(?:{'|'.join(sorted(groups()))})_(?:\d\d|[A-Z])(?:_\w*)?)\(", re.I)
    found = [
        f"{path.relative_to(spec_pages.ROOT)}: {one}"
        for path in (spec_pages.ROOT / "tests").rglob("test_*.py")
        for one in name.findall(path.read_text())
    ]
    assert found == [], "say it with a marker, @spec(...)"


@pytest.mark.xdist_group(SOURCE)
def test_every_test_that_is_marked_names_rows_that_exist():
    assert sorted(set(spec_pages.held()) - set(rows())) == []


def test_a_row_that_does_not_exist_is_an_error():
    nobodys = "NEG" + "-99"  # in two parts, or the check of citations would find it
    with pytest.raises(ValueError, match=nobodys):
        spec("NEG-21", nobodys)
    with pytest.raises(ValueError, match="wants the id"):
        spec()
    with pytest.raises(ValueError, match="NOPE"):
        wanted(["NEG", "NOPE"])


def test_rows_are_chosen_by_id_or_group():
    assert wanted(["neg-21, LEA-08"]) == {"NEG-21", "LEA-08"}
    assert wanted(["MUL"]) == {"MUL-01", "MUL-02", "MUL-03", "MUL-04", "MUL-05"}
    assert "STM-A" in wanted(["STM"])


MARKED = """
from tests.spec import spec

pytestmark = spec("MUL-01")

@spec("NEG-21")
def test_one(): ...

@spec("NEG-22", "LEA-08")
def test_other(): ...
"""


def collected(module, *asked):
    """What pytest, asked for these rows, says and finds in a module."""
    options = [f"--spec={one}" for one in asked]
    command = [sys.executable, "-m", "pytest", *PLUGINS, "-p", "tests.conftest", "--collect-only", "-q"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [*command, *options, str(module)], cwd=spec_pages.ROOT, env=env, capture_output=True, text=True, check=False
    )


def test_pytest_runs_the_tests_of_a_row(tmp_path):
    module = tmp_path / "test_marked.py"
    module.write_text(MARKED)
    done = collected(module, "ACC", "LEA-08")
    assert set(re.findall(r"::(\w+)", done.stdout)) == {"test_other"}
    assert done.returncode == pytest.ExitCode.OK
    done = collected(module, "NEG-1")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no such row or group" in done.stderr
