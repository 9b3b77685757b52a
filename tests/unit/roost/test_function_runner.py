"""What a function's job runs: with the interpreter of the execution point, and where that lacks what the module imports
with the one that made the call; the program's own import of roost is no reason to fail."""

import json
import os
import subprocess
import sys

import pytest

from roost.functions import CALL, RESULT, write_runner

#: Python without the packages of this environment.
BARE = os.path.join(sys.base_prefix, "bin", "python3")


@pytest.fixture
def call(tmp_path):
    """What comes of calling `work` of a module with this text."""

    def run(text, python):
        (tmp_path / "work.py").write_text(text)
        told = {"module": "work", "function": "work", "args": [20], "kwargs": {}, "python": python}
        (tmp_path / CALL).write_text(json.dumps(told))
        write_runner(tmp_path)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run([BARE, "roost_run.py"], cwd=tmp_path, env=environment, capture_output=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads((tmp_path / RESULT).read_text())

    return run


def test_a_module_that_needs_nothing_runs_where_it_is(call):
    text = "import sys\ndef work(n): return [n + 1, sys.executable]"
    value, python = call(text, sys.executable)["value"]
    assert value == 21
    assert os.path.realpath(python) == os.path.realpath(BARE)
    assert python != sys.executable


def test_what_is_missing_is_looked_for_where_the_call_was_made(call):
    text = "import sys\nfrom roost.client import Client\ndef work(n): return [n + 1, sys.executable, Client.__name__]"
    assert call(text, sys.executable) == {"value": [21, sys.executable, "Client"]}


def test_roost_is_no_reason_to_fail_where_it_is_not_installed(call):
    text = "import roost\nfrom roost.client import Client\nfrom roost import Pool\ndef work(n): return n + 1"
    assert call(text, "/nowhere/python") == {"value": 21}


@pytest.mark.parametrize("python", [sys.executable, "/nowhere/python"])
def test_what_is_missing_everywhere_is_named(call, python):
    answer = call("import roost, surely_not_there\ndef work(n): return n", python)
    assert answer["error"].startswith("ModuleNotFoundError: No module named 'surely_not_there' (in ")
    assert ("/nowhere/python, which made the call" in answer["error"]) == (python == "/nowhere/python")
