"""Changes that mutation testing makes, and that it makes them where the functions are (tests/mutation.py)."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

from tests.mutation import mutants, put_in_place

SOURCE = '''
LIMIT = 5


def small(number: int = 3) -> bool:
    """Nothing to change here: 1 < 2."""
    if number < 0:
        raise ValueError("0 < 1")
    return number < LIMIT and not number == 4


class Counter:
    def __init__(self):
        self.count = 0

    def add(self, more):
        self.count += more
        return self.count
'''


def test_one_thing_at_a_time_is_changed_within_functions_and_nothing_that_is_only_read():
    found = {(mutant.line, mutant.was, mutant.now) for mutant in mutants(SOURCE)}
    assert (7, "number < 0", "number <= 0") in found
    assert (9, "number < LIMIT and (not number == 4)", "number < LIMIT or not number == 4") in found
    assert (9, "not number == 4", "number == 4") in found
    assert (9, "4", "5") in found
    assert (14, "self.count = 0", "pass") in found
    assert (17, "self.count += more", "self.count -= more") in found
    assert (18, "return self.count", "return None") in found
    assert not [line for line, _, _ in found if line in (2, 5, 6, 8)]
    trees = [ast.unparse(mutant.tree) for mutant in mutants(SOURCE)]
    assert len(set(trees)) == len(trees)
    assert ast.unparse(ast.parse(SOURCE)) not in trees


def test_functions_that_others_hold_are_changed_too(tmp_path):
    path = tmp_path / "subject.py"
    path.write_text(SOURCE)
    specification = importlib.util.spec_from_file_location("subject", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    small, counter = module.small, module.Counter()
    (changed,) = [mutant for mutant in mutants(SOURCE) if mutant.now == "number <= LIMIT"]
    assert not small(5)
    put_in_place(path, changed.tree)
    assert small(5)
    (changed,) = [mutant for mutant in mutants(SOURCE) if mutant.now == "self.count -= more"]
    put_in_place(path, changed.tree)
    assert counter.add(2) == -2


def test_what_no_test_notices_is_named():
    """By its own command, with a test that looks at one function only."""
    test = "tests/unit/startd/test_leases.py::test_lease_is_the_jobs_own_or_six_missed_alives"
    words = ["services/startd/core/slots/leases.py", test, "--line", "21"]
    command = [sys.executable, "-m", "tests.mutation", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 1, done.stderr
    assert "leases.py:21: 1  ->  2" in done.stderr
    assert "job_lease_s > 0  ->" not in done.stderr.partition("by the clock")[2]
    assert "mutants, " in done.stderr
