"""What a function's job runs: with the interpreter of the execution point, and where that lacks what the module imports
with the one that made the call; the program's own import of roost is no reason to fail."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roost.errors import ClientError
from roost.functions import CALL, RESULT, pickled, write_runner

ROOT = Path(__file__).resolve().parents[3]
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


#: As a notebook has them: nothing here is in a file.
CELLS = """
import subprocess, sys
from concurrent.futures import Future
from pathlib import Path
from roost import functions

class Point:
    def __init__(self, x):
        self.x = x

class Refused(Exception):
    pass

offset = 10

def moved(point, by=1):
    if by < 0:
        raise Refused(by)
    return Point(point.x + by + offset)

def scaled(factor):
    return lambda point: Point(point.x * factor)

def run(runner_python, function, *calls, value=None, **more):
    future_of = lambda thing: thing if isinstance(thing, Future) else None
    source, told, needs = functions.pickled(function, calls, future_of)
    functions.write_runner(Path())
    functions.write_source(source, Path())
    told |= {"values": {name: functions.value_bytes(value, told) for name in needs.values()}} | more
    Path("call.pickle").write_bytes(functions.pickle.dumps(told))
    subprocess.run([runner_python, functions.RUNNER, "call.pickle"])
    return functions.read_pickled(Path(functions.PICKLED_RESULT).read_bytes())

bare = sys.argv[1]
found = run(bare, moved, ((Point(1),), {}), ((Future(),), {"by": 2}), value=Point(5))
assert [type(one) for one in found] == [Point, Point]
print([one.x for one in found], run(bare, scaled(3), ((Point(7),), {}))[0].x)
for more in ({}, {"version": "2.7", "python": ""}):
    try:
        run(bare, moved, ((Point(1),), {"by": -1}), **more)
    except (Refused, ImportError) as error:
        print(type(error).__name__, error)
"""


def test_functions_without_a_file_go_as_they_are_with_what_they_use(clients, tmp_path):
    path = os.pathsep.join(map(str, (ROOT, clients)))
    # -S: what runs the calls has no cloudpickle of its own.
    python = tmp_path / "bare"
    python.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {BARE} -S "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", CELLS, str(python)], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    told = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert told[:2] == ["[12, 17] 21", "Refused -1"], done.stdout + done.stderr
    assert told[2].startswith("ImportError a function without a file runs on the Python of its call, 2.7, not 3."), (
        done.stderr
    )


def test_without_cloudpickle_they_are_refused_with_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(ClientError, match="of a module's own level; or install cloudpickle"):
        pickled(lambda: 1, [((), {})], lambda thing: None)
