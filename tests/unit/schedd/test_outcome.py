"""Which jobs failed: the expression that finds them and the words that tell of them say the same."""

from __future__ import annotations

import pytest

from engine.queue.outcome import FAILED, failure
from shared.classad import ClassAd, evaluate, parse_expr


@pytest.mark.parametrize(
    ("ad", "said"),
    [
        ({"JobStatus": 4, "ExitCode": 0, "ExitBySignal": False}, ""),
        ({"JobStatus": 4, "ExitCode": 3, "ExitBySignal": False}, "exit code 3"),
        ({"JobStatus": 4, "ExitBySignal": True, "ExitSignal": 11}, "signal 11 (SIGSEGV)"),
        ({"JobStatus": 4, "ExitBySignal": True, "ExitSignal": 99}, "signal 99"),
        ({"JobStatus": 4, "ExitBySignal": True}, "a signal"),
        ({"JobStatus": 4, "ExitCode": 3, "JobSuccessExitCode": 3}, ""),
        ({"JobStatus": 4, "ExitCode": 0, "JobSuccessExitCode": 3}, "exit code 0"),
        ({"JobStatus": 4, "ExitCode": 7, "SuccessExitCode": 7}, ""),
        ({"JobStatus": 4, "ExitCode": 7, "JobSuccessExitCode": 1, "SuccessExitCode": 7}, "exit code 7"),
        ({"JobStatus": 4}, ""),
        ({"JobStatus": 3, "ExitCode": 3}, ""),
        ({"JobStatus": 1, "ExitCode": 3}, ""),
        ({}, ""),
    ],
)
def test_what_failed_is_said_and_found(ad: dict[str, object], said: str) -> None:
    job = ClassAd(ad)
    assert failure(job) == said
    assert (evaluate(parse_expr(FAILED), job) is True) == bool(said)
