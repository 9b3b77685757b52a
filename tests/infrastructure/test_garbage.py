"""Collections of garbage in the tests' own process (tests/garbage.py), in one of its own."""

import subprocess
import sys

import pytest

from tests.warm import ROOT

PROGRAM = """
import gc, sys
from tests.garbage import THRESHOLDS, Collections
collections = Collections(float(sys.argv[1]))
collections.begin()
assert gc.get_threshold() == THRESHOLDS
before = gc.get_freeze_count()
kept = [[number] for number in range(20_000)]
gc.collect()
assert gc.get_freeze_count() == before  # a test may look for what it made
collections.between_tests()
print(gc.get_freeze_count() - before >= 20_000)
"""


@pytest.mark.parametrize(("long_s", "frozen"), [("0", "True"), ("60", "False")])
def test_what_a_long_collection_leaves_is_looked_at_no_more_from_the_next_test_on(long_s, frozen):
    command = [sys.executable, "-c", PROGRAM, long_s]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == frozen
