"""Scores of benchmarks, and the backfill client of the knobs (CRN-13, CRN-14, BKF-01, BKF-05)."""

import pytest

from services.startd.components.benchmarks import Scores
from services.startd.core.backfill_client import LONGEST_WAIT_S, BadBackfill, backfill_client, wait_s
from shared.classad import ClassAd
from shared.config import load_config
from shared.config.knobs import StartdSettings
from tests.spec import spec


@spec("CRN-13", "SLT-28", "CRN-14")
def test_scores_are_weighted_averages():
    """LastBenchmark is 0 before."""
    scores = Scores()
    assert scores.attributes() == {"LastBenchmark": 0}
    scores.put(ClassAd({"Mips": 1000, "KFlops": 10.0, "How": "fast"}))
    scores.over(77.9)
    assert scores.attributes() == {"LastBenchmark": 77, "Mips": 1000, "KFlops": 10.0, "How": "fast"}
    scores.put(ClassAd({"Mips": 2001, "How": "faster"}))
    assert scores.attributes()["Mips"] == 1250
    assert scores.attributes()["How"] == "faster"
    scores.put(ClassAd({"Mips": "none"}))
    scores.put(ClassAd({"Mips": 500}))
    assert scores.attributes()["Mips"] == 500


SAMPLE = {
    "ENABLE_BACKFILL": "TRUE",
    "BACKFILL_SYSTEM": "BOINC",
    "BOINC_HOME": "/var/boinc",
    "BOINC_Executable": "/usr/local/bin/boinc_client",
    "BOINC_Universe": "vanilla",
    "BOINC_InitialDir": "$(BOINC_HOME)",
    "BOINC_Output": "$(BOINC_HOME)/boinc.out",
    "BOINC_Error": "boinc.err",
    "BOINC_Owner": "nobody",
    "BOINC_Arguments": "--attach_project http://einstein.phys.uwm.edu KEY",
    "BOINC_Environment": "A=1;B=two words",
}


def read(root=False, **changes):
    env = {f"_CONDOR_{name}": value for name, value in (SAMPLE | changes).items() if value}
    return backfill_client(StartdSettings.from_config(load_config([], subsystem="STARTD", env=env)), root=root)


@spec("BKF-05")
def test_the_sample_of_the_manual():
    found = read(root=True)
    assert found.executable == "/usr/local/bin/boinc_client"
    assert found.arguments == ("--attach_project", "http://einstein.phys.uwm.edu", "KEY")
    assert (found.directory, found.stdout, found.stderr) == (
        "/var/boinc",
        "/var/boinc/boinc.out",
        "/var/boinc/boinc.err",
    )
    assert found.env == {"A": "1", "B": "two words"}
    assert found.owner == "nobody"
    plain = read(BOINC_Output="", BOINC_Error="", BOINC_Owner="", BOINC_Arguments="", BOINC_Environment="")
    assert (plain.stdout, plain.stderr, plain.arguments, plain.env) == ("", "", (), {})


@spec("BKF-01")
def test_backfill_is_off_unless_it_is_switched_on():
    assert read(ENABLE_BACKFILL="") is None


@spec("BKF-01", "BKF-05")
@pytest.mark.parametrize(
    ("change", "mend"),
    [
        ({"BACKFILL_SYSTEM": "SETI"}, "BACKFILL_SYSTEM = SETI: give BOINC"),
        ({"BACKFILL_SYSTEM": ""}, "give BOINC"),
        ({"BOINC_Executable": ""}, "BOINC_Executable is not defined"),
        ({"BOINC_Executable": "boinc"}, "give the full path"),
        ({"BOINC_InitialDir": ""}, "BOINC_InitialDir is not defined"),
        ({"BOINC_Universe": ""}, "give vanilla"),
        ({"BOINC_Universe": "java"}, "give vanilla"),
        ({"BOINC_Owner": ""}, "BOINC_Owner is not defined"),
        ({"BOINC_Arguments": '"a \'b"'}, "BOINC_Arguments"),
        ({"BOINC_Environment": "novalue"}, "BOINC_Environment"),
    ],
)
def test_what_is_missing_is_named(change, mend):
    with pytest.raises(BadBackfill, match=mend):
        read(root=True, **change)


def test_a_client_that_keeps_ending_is_started_more_and_more_seldom():
    assert wait_s(0, 0.1) == 0
    waits = [wait_s(lives, 1.0) for lives in range(1, 12)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (5, LONGEST_WAIT_S)
    assert wait_s(9, 3600.0) == 0
