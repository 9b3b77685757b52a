"""What a pool writes into its jobs' logs, beside what HTCondor's daemons wrote for the same submit files and orders."""

import gzip
import json
from pathlib import Path

from tests.reference.__main__ import FAMILIES, replay
from tests.reference.family import Tally
from tests.reference.user_logs import answers

PATH = Path(__file__).resolve().parents[1] / "data" / "reference_user_logs" / "drawn.jsonl.gz"


def test_jobs_of_many_kinds_leave_the_log_that_htcondors_leave():
    """Ten jobs in one pool: the only test that has all daemons write whole logs. Others are bin/fidelity's."""
    tally = replay(FAMILIES["user-logs"], PATH)
    assert {cause: found[0] for cause, found in tally.differences.items()} == {}
    assert tally.agreed > 15
    assert sum(tally.known.values()) == 2


def test_another_order_or_another_word_is_a_difference():
    one = "012 (1.000.000) 2026-11-28 13:00:00 Job was held.\n\tbecause\n\tCode 1 Subcode 0\n...\n"
    two = "013 (1.000.000) 2026-11-28 13:00:01 Job was released.\n\tagain\n...\n"
    family = FAMILIES["user-logs"]
    for log in (two + one, one + two.replace("again", "anew"), one):
        tally = Tally()
        changed = answers([log])
        ours = answers([one + two])
        tally.take(family, {"jobs": [{"kind": "hold"}]}, ours, changed)
        assert len(tally.differences) == 1
    tally = Tally()
    later = (one + two).replace("13:00:0", "15:17:3").replace("(1.", "(77.")
    tally.take(family, {"jobs": [{"kind": "hold"}]}, answers([one + two]), answers([later]))
    assert (tally.agreed, tally.differences) == (1, {})


def test_the_recorded_jobs_are_of_as_many_kinds():
    with gzip.open(PATH, "rt") as lines:
        jobs = json.loads(next(lines))["case"]["jobs"]
    assert len({job["kind"] for job in jobs}) == len(jobs) == 10
