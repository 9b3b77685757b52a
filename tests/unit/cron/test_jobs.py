"""What the knobs of cron jobs mean (CRN-06 to CRN-10, CRN-12)."""

import pytest

from shared.config import load_config
from shared.config.knobs import ScheddSettings, StartdSettings
from shared.cron.jobs import Mode, benchmarks, period, schedd_cron, startd_cron
from tests.spec import spec

#: The manual's sample, as far as it is about cron jobs.
SAMPLE = """
MODULES = /opt/modules
STARTD_CRON_CONFIG_VAL = /usr/bin/condor_config_val
STARTD_CRON_MAX_JOB_LOAD = 0.2
STARTD_CRON_JOBLIST =
STARTD_CRON_LOG_NON_ZERO_EXIT = true
STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) test
STARTD_CRON_TEST_MODE = OneShot
STARTD_CRON_TEST_RECONFIG_RERUN = True
STARTD_CRON_TEST_PREFIX = test_
STARTD_CRON_TEST_EXECUTABLE = $(MODULES)/test
STARTD_CRON_TEST_KILL = True
STARTD_CRON_TEST_ARGS = abc 123
STARTD_CRON_TEST_SLOTS = 1
STARTD_CRON_TEST_JOB_LOAD = 0.01
STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) date
STARTD_CRON_DATE_MODE = Periodic
STARTD_CRON_DATE_EXECUTABLE = $(MODULES)/date
STARTD_CRON_DATE_PERIOD = 15s
STARTD_CRON_DATE_JOB_LOAD = 0.01
STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) foo
STARTD_CRON_FOO_EXECUTABLE = $(MODULES)/foo
STARTD_CRON_FOO_PREFIX = Foo
STARTD_CRON_FOO_MODE = Periodic
STARTD_CRON_FOO_PERIOD = 10m
STARTD_CRON_FOO_JOB_LOAD = 0.2
BENCHMARKS_JOBLIST = mips kflops
BENCHMARKS_MIPS_EXECUTABLE = $(LIBEXEC)/condor_mips
BENCHMARKS_MIPS_JOB_LOAD = 1.0
BENCHMARKS_KFLOPS_EXECUTABLE = $(LIBEXEC)/condor_kflops
BENCHMARKS_KFLOPS_JOB_LOAD = 1.0
SCHEDD_CRON_CONFIG_VAL = /usr/bin/condor_config_val
SCHEDD_CRON_JOBLIST = $(SCHEDD_CRON_JOBLIST) test
SCHEDD_CRON_TEST_MODE = OneShot
SCHEDD_CRON_TEST_RECONFIG_RERUN = True
SCHEDD_CRON_TEST_PREFIX = test_
SCHEDD_CRON_TEST_EXECUTABLE = $(MODULES)/test
SCHEDD_CRON_TEST_PERIOD = 5m
SCHEDD_CRON_TEST_KILL = True
SCHEDD_CRON_TEST_ARGS = abc 123
"""


def settings(kind, text, tmp_path):
    path = tmp_path / "config"
    path.write_text(text)
    return kind.from_config(load_config([path], subsystem=kind.SUBSYSTEM, env={}))


def startd(text, tmp_path):
    return startd_cron(settings(StartdSettings, text, tmp_path))


def one(text, tmp_path, base="STARTD_CRON_JOBLIST = x\nSTARTD_CRON_X_EXECUTABLE = /bin/x\nSTARTD_CRON_X_PERIOD = 9s\n"):
    table = startd(base + text, tmp_path)
    assert not table.problems
    return table.jobs[0]


@spec("CRN-06", "CRN-07", "CRN-08", "CRN-09", "W-66")
def test_the_sample_of_the_manual(tmp_path):
    table = startd(SAMPLE, tmp_path)
    assert (table.problems, table.max_load) == ((), 0.2)
    test, date, foo = table.jobs
    assert (test.name, test.mode, test.reconfig_rerun, test.kill) == ("test", Mode.ONE_SHOT, True, True)
    assert (test.executable, test.args, test.prefix) == ("/opt/modules/test", ("abc", "123"), "test_")
    assert (test.slots, test.load) == ({1}, 0.01)
    assert (date.mode, date.period_s, date.slots, date.kill) == (Mode.PERIODIC, 15, frozenset(), False)
    assert (foo.period_s, foo.prefix, foo.load) == (600, "Foo", 0.2)


@spec("CRN-11")
def test_the_sample_of_an_access_point(tmp_path):
    """A PERIOD that a OneShot job does not need does no harm."""
    table = schedd_cron(settings(ScheddSettings, SAMPLE, tmp_path))
    assert (table.problems, table.max_load) == ((), 0.1)
    (job,) = table.jobs
    assert (job.mode, job.args, job.prefix, job.period_s) == (Mode.ONE_SHOT, ("abc", "123"), "test_", 0)


@spec("CRN-12")
def test_benchmarks_of_the_sample_are_our_own_programs(tmp_path):
    """Mips and kflops, load 1.0 each; one at a time as the sum may be 1.0."""
    own = {"mips": ("/py", "-m", "a b"), "kflops": ("/py", "k")}
    for text in (SAMPLE, ""):
        table = benchmarks(settings(StartdSettings, text, tmp_path), own)
        assert (table.problems, table.max_load) == ((), 1.0)
        assert [(job.name, job.mode, job.load) for job in table.jobs] == [
            ("mips", Mode.ON_DEMAND, 1.0),
            ("kflops", Mode.ON_DEMAND, 1.0),
        ]
        assert (table.jobs[0].executable, table.jobs[0].args) == ("/py", ("-m", "a b"))
    text = "BENCHMARKS_JOBLIST = mips disk\nBENCHMARKS_MIPS_EXECUTABLE = /my/mips\nBENCHMARKS_DISK_EXECUTABLE = /d"
    table = benchmarks(settings(StartdSettings, text, tmp_path), own)
    assert [(job.executable, job.args) for job in table.jobs] == [("/my/mips", ()), ("/d", ())]


@spec("CRN-07")
@pytest.mark.parametrize(("text", "seconds"), [("15s", 15), ("10m", 600), ("5M", 300), ("2h", 7200), ("7", 7)])
def test_period(text, seconds):
    assert period(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "1.5m", "-3s", "5d", "5 minutes", "9" * 30])
def test_no_period(text):
    with pytest.raises(ValueError, match="10m"):
        period(text)


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        ("STARTD_CRON_X_PERIOD = 5m", "STARTD_CRON_x_EXECUTABLE is not defined"),
        ("STARTD_CRON_X_EXECUTABLE = here/x", "give the full path"),
        ("STARTD_CRON_X_EXECUTABLE = /x", "STARTD_CRON_x_PERIOD is not defined"),
        ("STARTD_CRON_X_EXECUTABLE = /x\nSTARTD_CRON_X_PERIOD = soon", "10m"),
        ("STARTD_CRON_X_EXECUTABLE = /x\nSTARTD_CRON_X_PERIOD = 0s", "at least 1s"),
        ("STARTD_CRON_X_EXECUTABLE = /x\nSTARTD_CRON_X_MODE = Often", "Periodic, WaitForExit, OneShot, OnDemand"),
        ("STARTD_CRON_X_EXECUTABLE = /x\nSTARTD_CRON_X_MODE = OneShot\nSTARTD_CRON_X_PREFIX = a-b", "underscores"),
        ("STARTD_CRON_X_EXECUTABLE = /x\nSTARTD_CRON_X_MODE = OneShot\nSTARTD_CRON_X_SLOTS = slot1", "1,3"),
        ("STARTD_CRON_X_EXECUTABLE = /x\nSTARTD_CRON_X_MODE = OneShot\nSTARTD_CRON_X_JOB_LOAD = 0.2", "never run"),
        ("STARTD_CRON_X_EXECUTABLE = /x\nSTARTD_CRON_X_MODE = OneShot\nSTARTD_CRON_X_METRICS = MAX:Y", "SUM:"),
        ("STARTD_CRON_X_EXECUTABLE = /x\nSTARTD_CRON_X_MODE = OneShot\nSTARTD_CRON_X_ENV = PATH", "NAME=value"),
    ],
)
def test_a_job_that_makes_no_sense_is_told_and_the_others_run(text, mend, tmp_path):
    good = "STARTD_CRON_GOOD_EXECUTABLE = /bin/good\nSTARTD_CRON_GOOD_MODE = onDemand\n"
    table = startd(f"STARTD_CRON_JOBLIST = x good x\n{good}{text}\n", tmp_path)
    assert [job.name for job in table.jobs] == ["good"]
    assert any(mend in problem for problem in table.problems)
    assert all("names x" in problem for problem in table.problems)


@spec("CRN-08")
def test_arguments_and_environment_in_both_forms(tmp_path):
    job = one('STARTD_CRON_X_ARGS = a  "b" c\nSTARTD_CRON_X_ENV = A=1;B=two words', tmp_path)
    assert (job.args, job.env) == (("a", '"b"', "c"), {"A": "1", "B": "two words"})
    job = one("STARTD_CRON_X_ARGS = \"a 'b c' d\"\nSTARTD_CRON_X_ENV = \"A=1 B='x y'\"", tmp_path)
    assert (job.args, job.env) == (("a", "b c", "d"), {"A": "1", "B": "x y"})


def test_defaults(tmp_path):
    job = one("STARTD_CRON_X_METRICS = SUM:Sqids, PEAK:SqidsMem", tmp_path)
    assert (job.mode, job.load, job.kill, job.reconfig_rerun) == (Mode.PERIODIC, 0.01, False, False)
    assert job.metrics == {"Sqids": "SUM", "SqidsMem": "PEAK"}
    assert startd("", tmp_path).max_load == 0.1
