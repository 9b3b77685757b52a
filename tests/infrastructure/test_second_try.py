"""bin/test's second try for a handful of failures."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_try import MOST, ONLY, REPORT, plain_id, summary

ROOT = Path(__file__).parents[2]
PLUGINS = ("-p", "xdist.plugin", "-p", "pytest_asyncio.plugin", "-p", "pytest_timeout")

#: Tests by what they do; a file remembers how often each ran.
SOURCE = """
import pytest
from pathlib import Path

def runs(name):
    file = Path(__file__).with_name(f"runs of {name}")
    file.write_text((file.read_text() if file.exists() else "") + "x")
    return len(file.read_text())

def test_steady():
    assert runs("steady") == 1

@pytest.mark.skip
def test_skipped():
    pass

@pytest.mark.xdist_group("large")
@pytest.mark.parametrize("case", ["a@b", "c"])
@pytest.mark.parametrize("number", range(UNSTEADY))
def test_unsteady(number, case):
    assert case == "c" or runs(f"unsteady {number}") > 1

@pytest.mark.parametrize("number", range(BROKEN))
def test_broken(number):
    assert runs(f"broken {number}") < 1
"""


def second_try(folder, *arguments, unsteady=0, broken=0, more=""):
    """(exit status, what was printed, last words)."""
    source = SOURCE.replace("UNSTEADY", str(unsteady)).replace("BROKEN", str(broken)) + more
    (folder / "test_inner.py").write_text(source)
    words = folder / "words"
    words.write_text("")
    options = [
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(folder),
        "-p",
        "no:cacheprovider",
        *PLUGINS,
        *arguments,
    ]
    command = [sys.executable, "-m", "tests.second_try", str(words), *options, str(folder)]
    env = {name: value for name, value in os.environ.items() if name not in (ONLY, REPORT)}
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # most of the start is the import of plugins that are not used here
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout + done.stderr, words.read_text()


def runs(folder, name):
    return len((folder / f"runs of {name}").read_text())


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_passes_the_second_time_is_named_and_does_not_fail_the_rest(tmp_path, workers):
    status, said, words = second_try(tmp_path, "-n", workers, unsteady=2)
    assert status == 0, said
    *unsteady, last = words.splitlines()
    assert [line.partition(": failed")[0] for line in unsteady] == [
        f"unsteady: test_inner.py::test_unsteady[{number}-a@b]" for number in range(2)
    ]
    # The parameter set of no broken ones counts as one skipped test.
    assert last.startswith("5 passed (2 of them the second time), 2 skipped in ")
    assert runs(tmp_path, "steady") == 1  # what passed is not run again
    assert "second try: 2 failed" in said


def test_what_fails_again_fails(tmp_path):
    status, said, words = second_try(tmp_path, "-n", "0", unsteady=1, broken=1)
    assert status == 1, said
    assert runs(tmp_path, "broken 0") == 2
    unsteady, last = words.splitlines()
    assert "test_unsteady[0-a@b]" in unsteady
    assert last.startswith("1 failed, 3 passed (1 of them the second time), 1 skipped in ")


def test_more_than_a_handful_fail_at_once(tmp_path):
    status, said, words = second_try(tmp_path, "-n", "0", broken=MOST + 1)
    assert (status, words) == (1, ""), said
    assert {runs(tmp_path, f"broken {number}") for number in range(MOST + 1)} == {1}


@pytest.mark.parametrize(
    ("more", "code"), [("raise OSError\n", 2), ("@pytest.fixture(scope='nonsense')\ndef f(): pass\n", 2)]
)
def test_what_can_not_be_collected_is_not_tried_again(tmp_path, more, code):
    status, said, words = second_try(tmp_path, "-n", "0", unsteady=1, more=more)
    assert (status, words) == (code, ""), said
    assert "second try" not in said


def test_success_needs_no_last_words(tmp_path):
    status, said, words = second_try(tmp_path, "-n", "0")
    assert (status, words) == (0, ""), said


def test_a_failing_teardown_is_tried_again(tmp_path):
    more = """
@pytest.fixture
def messy():
    yield
    assert runs("messy") > 1

def test_messy(messy):
    pass
"""
    status, said, words = second_try(tmp_path, "-n", "0", more=more)
    assert status == 0, said
    assert "unsteady: test_inner.py::test_messy" in words
    assert "2 passed (1 of them the second time)" in words


def test_groups_are_no_part_of_an_id():
    assert plain_id("t.py::test_a@compose") == "t.py::test_a"
    assert plain_id("t.py::test_a[x@y]@compose") == "t.py::test_a[x@y]"
    assert plain_id("t.py::test_a[x@y]") == "t.py::test_a[x@y]"


def test_the_summary_reads_as_pytest_s():
    assert summary({"a": "passed", "b": "failed", "c": "xfailed"}, 0, 1.0) == "1 failed, 1 passed, 1 xfailed in 1.00s"
