"""What workers tell of tests (tests/reports.py)."""

import os
import subprocess
import sys

from tests.warm import ROOT

CONFTEST = """
import os
from pathlib import Path

def pytest_runtest_logreport(report):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(__file__).with_name("told").open("a") as told:
            print(report.nodeid.rpartition(":")[2], report.when, file=told)
"""
TESTS = """
import pytest

@pytest.fixture
def told():
    print("made")
    yield
    print("taken down")

@pytest.fixture
def broken():
    yield
    raise ValueError("it does not go")

def test_well(told): ...
def test_bad(told): assert print("said")
def test_stays(broken): ...
def test_left_out(): pytest.skip("why")
"""


def test_of_one_that_is_well_its_call_is_told_and_of_others_all(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_inner.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    command += ["-p", "tests.conftest", "-p", "no:cacheprovider", "-p", "no:randomly", "-q", "-rs", "-n", "1"]
    env = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert "1 failed, 2 passed, 1 skipped, 1 error" in done.stdout, done.stdout + done.stderr
    for words in ("made", "said", "taken down", "it does not go", "why"):
        assert words in done.stdout
    told = {}
    for line in (tmp_path / "told").read_text().splitlines():
        told.setdefault(line.split()[0], []).append(line.split()[1])
    parts = ["setup", "call", "teardown"]
    assert told == {"test_well": ["call"], "test_bad": parts, "test_stays": parts, "test_left_out": parts}
