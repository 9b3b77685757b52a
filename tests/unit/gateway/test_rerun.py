"""What a job that is run again keeps of the first try."""

from __future__ import annotations

import pytest

from services.gateway.core.rerun import NotAgain, again
from shared.classad import ClassAd


def test_it_is_what_was_submitted_and_says_of_what() -> None:
    ad = ClassAd(
        {
            "Cmd": "/bin/job",
            "Args": "1",
            "RequestCpus": 2,
            "HoldReason": "x",
            "JobBatchId": "3.0",
            "MemoryUsage": 9,
            "MachineAttrCpus0": 4,
        }
    )
    found = again(ad, "12.3")
    assert {name: found.eval(name) for name in found} == {
        "Cmd": "/bin/job",
        "Args": "1",
        "RequestCpus": 2,
        "RoostRerunOf": "12.3",
    }
    assert "RoostRerunOf" not in ad


@pytest.mark.parametrize(
    ("more", "says"),
    [({"StageInFinish": 5}, "submit it again"), ({"DAGManJobId": 7}, "submit the DAG again")],
)
def test_what_can_not_run_like_that_is_told_with_what_to_do(more: dict[str, object], says: str) -> None:
    with pytest.raises(NotAgain, match=says):
        again(ClassAd({"Cmd": "/bin/job", **more}), "12.3")
