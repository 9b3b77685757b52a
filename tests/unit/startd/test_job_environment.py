"""Variables that an administrator gives to jobs."""

from pathlib import Path

import pytest

from services.startd import settings
from services.startd.core.run.job_launch import Choice, JobEnvironment, Place, describe
from services.startd.settings import BadSetting
from shared.classad import parse_ad
from shared.config import load_config
from tests.spec import spec
from tests.unit.startd.test_consumption import DETECTED


def environment_of(given, ad=""):
    place = Place(run="r", slot="slot1@m", scratch=Path("/s"), cpus=3.0, memory_mib=1, transfer=True, environment=given)
    return describe(parse_ad(f'[Cmd = "x"; {ad}]'), place).env


@spec("SUB-07")
def test_the_jobs_own_count_more_and_what_tells_the_truth_most():
    given = JobEnvironment({"A": "theirs", "B": "2", "OMP_X": "7", "_CONDOR_SLOT": "lie"}, ("OMP_X", "CORES"))
    found = environment_of(given, 'Environment = "A=own"')
    assert (found["A"], found["B"], found["OMP_X"], found["CORES"]) == ("own", "2", "7", "3")
    assert found["_CONDOR_SLOT"] == "slot1"
    assert "GOMAXPROCS" not in found
    assert environment_of(JobEnvironment())["GOMAXPROCS"] == "3"


def settings_of(tmp_path, text, env=None):
    file = tmp_path / "config"
    file.write_text(f"{text}\n")
    return settings.read(load_config([file], subsystem="STARTD", env=env or {}), DETECTED)


@spec("ISO-22")
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("false", set()),
        ("", set()),
        ("True", {"PATH", "LD_LIBRARY_PATH", "HOME"}),
        ("PATH, LD_*", {"PATH", "LD_LIBRARY_PATH"}),
        ("*", {"PATH", "LD_LIBRARY_PATH", "HOME"}),
        ("ROOST_* _CONDOR_X", set()),
    ],
)
def test_the_startds_own_variables(tmp_path, wanted, expected):
    """What daemons are told, passwords among it, is no job's."""
    own = {"PATH": "/p", "LD_LIBRARY_PATH": "/l", "HOME": "/h", "ROOST_AMQP_URL": "amqp://u:secret@h", "_CONDOR_X": "1"}
    found = settings_of(tmp_path, f"JOB_INHERITS_STARTER_ENVIRONMENT = {wanted}", own).environment
    assert set(found.inherited) == expected


@spec("ISO-22")
def test_what_is_inherited_counts_least():
    given = JobEnvironment({"B": "theirs"}, ("C",), {"A": "mine", "B": "mine", "C": "mine", "D": "mine"})
    found = environment_of(given, 'Environment = "A=own"')
    assert [found[name] for name in "ABCD"] == ["own", "theirs", "3", "mine"]
    place = Place(run="r", slot="s", scratch=Path("/s"), cpus=3.0, memory_mib=1, transfer=True, environment=given)
    assert "D" not in describe(parse_ad('[Cmd = "x"]'), place, Choice("docker", "debian")).env


@spec("SUB-07")
@pytest.mark.parametrize("text", ["\"A=1 B='x y'\"", "A=1;B=x y"])
def test_both_forms_of_the_knob(tmp_path, text):
    found = settings_of(tmp_path, f"STARTER_JOB_ENVIRONMENT = {text}\nSTARTER_NUM_THREADS_ENV_VARS = MINE, YOURS")
    assert found.environment == JobEnvironment({"A": "1", "B": "x y"}, ("MINE", "YOURS"))


def test_without_the_knobs_it_is_as_the_manual_says(tmp_path):
    assert settings_of(tmp_path, "").environment == JobEnvironment()


def test_what_can_not_be_read_is_told(tmp_path):
    with pytest.raises(BadSetting, match="STARTER_JOB_ENVIRONMENT: "):
        settings_of(tmp_path, 'STARTER_JOB_ENVIRONMENT = "A=\'x"')
