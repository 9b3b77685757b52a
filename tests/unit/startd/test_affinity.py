"""Which cores a job is bound to."""

import pytest

from services.startd.core.machine.affinity import CpuAffinity, free_cores, listed_cores
from shared.classad import parse_ad, parse_expr
from shared.config import ConfigError
from tests.spec import spec
from tests.unit.startd.test_job_environment import settings_of

MACHINE = (0, 1, 2, 5)


@spec("ISO-21")
@pytest.mark.parametrize(
    ("in_use", "cpus", "expected"),
    [
        ([], 1, (0,)),
        ([], 2.0, (0, 1)),
        ([], 0.5, (0,)),
        ([], 1.5, (0, 1)),
        ([], 9, MACHINE),
        ([(0,), (2,)], 2, (1, 5)),
        ([(0, 1, 2)], 2, (0, 5)),  # one is shared where there are too few
        ([(0, 1), (0, 2), (5,)], 1, (1,)),
    ],
)
def test_a_job_gets_the_cores_that_fewest_others_have(in_use, cpus, expected):
    assert free_cores(MACHINE, in_use, cpus) == expected


@spec("ISO-21")
def test_who_is_bound(tmp_path):
    """The reference's order: ASSIGN_CPU_AFFINITY is looked at first, in the job's ad."""
    job, other = parse_ad("[Binds = true]"), parse_ad("[]")
    assert CpuAffinity().cores(job, 1, 2, MACHINE, []) == ()
    assign = CpuAffinity(assign=parse_expr("Binds =?= true", "old"))
    assert assign.cores(job, 1, 2, MACHINE, [(0,)]) == (1, 2)
    assert assign.cores(other, 1, 2, MACHINE, []) == ()
    listed = CpuAffinity(assign.assign, enforce=True, by_slot={2: (5,)})
    assert listed.cores(job, 2, 1, MACHINE, []) == (0,)
    assert listed.cores(other, 2, 1, MACHINE, []) == (5,)
    assert listed.cores(other, 1, 1, MACHINE, [(0,)]) == (1,)
    assert CpuAffinity(by_slot={2: (5,)}).cores(other, 2, 1, MACHINE, []) == ()


@spec("ISO-21")
def test_lists_of_cores():
    assert listed_cores("5, 0-2 1", MACHINE) == (0, 1, 2, 5)
    assert listed_cores("3", ()) == (3,)
    with pytest.raises(ValueError, match="no core 3: this startd may use 0, 1, 2, 5"):
        listed_cores("1-3", MACHINE)
    with pytest.raises(ValueError, match="first is no core"):
        listed_cores("first", MACHINE)


@spec("ISO-21")
def test_the_knobs(tmp_path):
    found = settings_of(
        tmp_path, "ENFORCE_CPU_AFFINITY = true\nSLOT1_CPU_AFFINITY = 0,2\nSLOT2_CPU_AFFINITY = *"
    ).affinity
    assert (found.enforce, dict(found.by_slot)) == (True, {1: (0, 2), 2: ()})
    assert settings_of(tmp_path, "").affinity.cores(parse_ad("[]"), 1, 1, MACHINE, []) == ()
    with pytest.raises(ConfigError, match=r"config, line 1: SLOT1_CPU_AFFINITY = x is not usable"):
        settings_of(tmp_path, "SLOT1_CPU_AFFINITY = x")
