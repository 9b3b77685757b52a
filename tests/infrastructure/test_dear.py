"""Tests that are left out for their cost: cheaper ones hold the same promises."""

import ast
import re
from pathlib import Path

from tests.infrastructure.test_fixtures import run_pytest

ROOT = Path(__file__).parents[2]
DEAR = {path: text for path in (ROOT / "tests").rglob("test_*.py") if "mark.dear(" in (text := path.read_text())}
DEAR.pop(Path(__file__))


def test_they_are_left_out_where_asked_for_and_it_is_told_last(tmp_path):
    source = (
        "import pytest\n@pytest.mark.dear(held_by='it')\ndef test_dear():\n    assert 0\ndef test_cheap():\n    pass\n"
    )
    done = run_pytest(tmp_path, source, "--without", "dear")
    assert "1 passed, 1 skipped" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("1 dear tests left out")
    assert "1 failed, 1 passed" in run_pytest(tmp_path, source).stdout


def test_others_hold_what_they_promise():
    for path, text in DEAR.items():
        holders = re.findall(r'"(tests/[\w/]+\.py)::(\w+)"', text)
        assert len(re.findall(r"held_by=", text)) <= len(holders), path
        for module, name in holders:
            functions = {
                one.name: one
                for one in ast.parse((ROOT / module).read_text()).body
                if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            marks = map(ast.unparse, functions[name].decorator_list)
            assert not any(mark.startswith("pytest.mark.dear") for mark in marks), f"{module}::{name} is dear itself"


def test_the_guide_names_them():
    guide = (ROOT / "docs" / "testing.md").read_text().partition("## Dear tests")[2].partition("\n## ")[0]
    rows = set(re.findall(r"^\| `(\w+)`", guide, re.MULTILINE))
    assert rows == {path.stem for path in DEAR}
