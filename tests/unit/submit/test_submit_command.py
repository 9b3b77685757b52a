"""`roost submit` as far as it goes without a pool: dry runs, command line settings, messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.cli.main import main
from tests.spec import spec


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.sh").write_text("#!/bin/sh\n")
    return tmp_path


def write(folder: Path, text: str) -> None:
    (folder / "job.sub").write_text(text)


def dry_run(capsys, *words: str) -> str:
    assert main(["submit", "-dry-run", "-", *words]) == 0
    return capsys.readouterr().out


def values(text: str, name: str) -> list[str]:
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{name}=")]


def test_dry_run_writes_every_job_and_how_many_there_are(folder, capsys) -> None:
    write(folder, "executable = x.sh\narguments = $(Process)\nqueue 3\n")
    text = dry_run(capsys, "job.sub")
    assert text.startswith("Dry-Run job(s)\nClusterId=1\n")
    assert text.endswith("3 job(s) dry-run to cluster 1.\n")
    assert text.count("\n.\n") == 3
    assert values(text, "Args") == ['"0"', '"1"', '"2"']


def test_dry_run_into_a_file_keeps_the_ads_out_of_the_output(folder, capsys) -> None:
    write(folder, "executable = x.sh\nqueue 2\n")
    assert main(["submit", "-dry-run", "ads.txt", "job.sub"]) == 0
    assert capsys.readouterr().out == "Dry-Run job(s)..\n2 job(s) dry-run to cluster 1.\n"
    ads = (folder / "ads.txt").read_text()
    assert ads.startswith("\nClusterId=1\n")
    assert ads.endswith("\nProcId=0\nJobStatus=1\n\nProcId=1\nJobStatus=1\n")
    assert values(ads, "ProcId") == ["0", "1"]


def test_dry_run_tells_of_every_cluster(folder, capsys) -> None:
    (folder / "y.sh").write_text("#!/bin/sh\n")
    write(folder, "executable = x.sh\nqueue\nexecutable = y.sh\nqueue 2\n")
    assert main(["submit", "-dry-run", "ads.txt", "job.sub"]) == 0
    told = capsys.readouterr().out
    assert told == "Dry-Run job(s)...\n1 job(s) dry-run to cluster 1.\n2 job(s) dry-run to cluster 2.\n"
    assert main(["submit", "-terse", "-dry-run", "ads.txt", "job.sub"]) == 0
    assert capsys.readouterr().out == "1.0 - 1.0\n2.0 - 2.1\n"
    assert main(["submit", "-dry-run", "no/such/ads.txt", "job.sub"]) == 1
    assert "-dry-run no/such/ads.txt: No such file or directory" in capsys.readouterr().err


def test_a_changed_executable_makes_another_cluster(folder, capsys) -> None:
    (folder / "y.sh").write_text("#!/bin/sh\n")
    write(folder, "executable = x.sh\nqueue\nexecutable = y.sh\nqueue\n")
    assert values(dry_run(capsys, "job.sub"), "ClusterId") == ["1", "2"]


def test_settings_of_the_command_line_come_before_the_file_and_appended_lines_behind_it(folder, capsys) -> None:
    write(folder, "executable = x.sh\narguments = $(who)\nqueue\n")
    text = dry_run(capsys, "who=me", "-append", "+Extra = 7", "-append", "request_cpus = 2", "job.sub")
    assert values(text, "Args") == ['"me"']
    assert values(text, "Extra") == ["7"]
    assert values(text, "RequestCpus") == ["2"]


def test_batch_name_of_the_command_line_wins(folder, capsys) -> None:
    write(folder, "executable = x.sh\nbatch_name = file\nqueue\n")
    assert values(dry_run(capsys, "-batch-name", "line", "job.sub"), "JobBatchName") == ['"line"']


def test_queue_of_the_command_line_serves_a_file_without_one(folder, capsys) -> None:
    write(folder, "executable = x.sh\narguments = $(n)\n")
    text = dry_run(capsys, "job.sub", "-queue", "n", "in", "(a b)")
    assert values(text, "Args") == ['"a"', '"b"']


def test_queue_of_the_command_line_beside_one_in_the_file_is_refused(folder, capsys) -> None:
    write(folder, "executable = x.sh\nqueue\n")
    assert main(["submit", "-dry-run", "-", "job.sub", "-queue", "2"]) == 1
    assert "job.sub, line 2" in capsys.readouterr().err


def test_the_file_may_come_from_standard_input(monkeypatch, capsys) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("executable = x.sh\nqueue 2\n"))
    assert values(dry_run(capsys, "-"), "ProcId") == ["0", "1"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("executable = x.sh\nrequest_memory = 10X\nqueue\n", "job.sub, line 2"),
        ("executable = nope\nqueue\n", "job.sub, line 1"),
        ("executable = x.sh\nqueue\nrequest_cpus = a b\nqueue\n", "job.sub, line 3"),
        ("executable = x.sh\nqueue in (a\n", "job.sub, line 2"),
        ("executable = x.sh\nqueue 2 # two\n", "job.sub, line 2"),
        ("executable = x.sh\nif maybe\nendif\nqueue\n", "job.sub, line 2"),
        ("executable = x.sh\nif true\nqueue\nendif\n", "job.sub, line 4"),
        ("executable = x.sh\n\n# behind it\n", "job.sub, line 3: no queue statement (end with a line: queue)"),
        ('executable = x.sh\narguments = a\narguments2 = "b"\nqueue\n', "job.sub, line 3"),
        ('executable = x.sh\nenv = A=1\nenvironment2 = "B=2"\nqueue\n', "allow_environment_v1 = true"),
        ("executable = x.sh\nconcurrency_limits = a\nconcurrency_limits_expr = b\nqueue\n", "job.sub, line 3"),
        ("executable = x.sh\nconcurrency_limits = a, b.9\nqueue\n", "Invalid concurrency limit 'b.9'"),
        ("executable = x.sh\nuniverse = docker\nqueue\n", "docker_image"),
        ('executable = x.sh\narguments = a " b\nqueue\n', "job.sub, line 2"),
        ("executable = x.sh\nhold = maybe\nqueue\n", "write true or false"),
        ("executable = x.sh\nrequest_memory = $CHOICE(Process,1,2,3 X)\nqueue 3\n", "job.sub, line 2"),
    ],
)
def test_an_error_names_the_place_and_exits_with_1(folder, capsys, text: str, told: str) -> None:
    write(folder, text)
    assert main(["submit", "-dry-run", "ads.txt", "job.sub"]) == 1
    assert told in capsys.readouterr().err
    assert not (folder / "ads.txt").exists()


def test_a_misspelt_command_is_told_with_its_line_and_the_likely_one(folder, capsys) -> None:
    write(folder, "executable = x.sh\narguemnts = a\nuseful = 1\noutput = $(useful)\nqueue\n")
    assert main(["submit", "-dry-run", "ads.txt", "job.sub"]) == 0
    told = capsys.readouterr().err
    assert "job.sub, line 2" in told
    assert "did you mean arguments?" in told
    assert "useful" not in told


def test_no_line_that_something_looks_at_is_told_as_unused(folder, capsys) -> None:
    write(
        folder,
        "executable = x.sh\nN = 2\nindex = 1\nnames = a, b\nwhich = 2\nword2 = hi\nwanted = true\nseen = 1\n"
        'if $(wanted)\narguments = "$CHOICE(index,names) $(word$(which))"\nendif\nif defined seen\nendif\n'
        "allow_arguments_v1 = true\nqueue $(N)\n",
    )
    assert main(["submit", "-dry-run", "ads.txt", "job.sub"]) == 0
    assert "unused" not in capsys.readouterr().err
    assert 'Arguments="b hi"' in (folder / "ads.txt").read_text()


def test_a_variable_of_the_queue_statement_that_nothing_looks_at_is_told(folder, capsys) -> None:
    write(folder, "executable = x.sh\narguments = $(a)\nmine = $(never)\nqueue a, Bee, output from (\n1 2 3\n)\n")
    assert main(["submit", "-dry-run", "ads.txt", "job.sub"]) == 0
    told = capsys.readouterr().err
    assert "job.sub, line 4: the queue variable 'Bee' was unused" in told
    assert "'mine = $(never)' was unused" in told  # and what only such a line names
    assert told.count("unused") == 2


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("nice_user = true\naccounting_group = g\nqueue", "nice_user conflicts with accounting_group"),
        ("requirements = true\n+Requirements = false\nqueue", "line 3: +Requirements (or MY.Requirements) overrides"),
        ("output = $(Item)\nqueue matching nothing.*, x.*", "line 3: 'nothing.*' does not match any files"),
    ],
)
def test_what_does_less_than_it_says_is_told(folder, capsys, lines, told) -> None:
    write(folder, f"executable = x.sh\n{lines}\n")
    assert main(["submit", "-dry-run", "ads.txt", "job.sub"]) == 0
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "has_term"),
    [("1", False), ("(1)", False), ("-1", False), ("true", False), ("1.5", True), ("1 + 0", True), ("0 * 3", True),
     ("ifThenElse(true, 1, 1)", True)],
)  # fmt: skip
def test_cores_get_a_term_when_they_are_more_than_one_or_an_expression(folder, capsys, asked, has_term) -> None:
    write(folder, f"executable = x.sh\nrequest_cpus = {asked}\nqueue\n")
    assert main(["submit", "-dry-run", "-", "job.sub"]) == 0
    assert ("(TARGET.Cpus >= RequestCpus)" in capsys.readouterr().out) is has_term


@pytest.mark.parametrize(
    ("lines", "has_term"),
    [
        ("+RequestCpus = undefined\n", True),
        ("+RequestCpus =\n", True),
        ("request_cpus = undefined\n", False),
        ("request_cpus = 1\n+RequestCpus = undefined\n", False),
        ("requirements = Cpus > 3\n+RequestCpus = undefined\n", False),
        ("", False),
    ],
)
def test_an_attribute_that_makes_cores_undefined_gets_a_term(folder, capsys, lines, has_term) -> None:
    write(folder, f"executable = x.sh\n{lines}queue\n")
    assert main(["submit", "-dry-run", "-", "job.sub"]) == 0
    assert ("(TARGET.Cpus >= RequestCpus)" in capsys.readouterr().out) is has_term


@pytest.mark.parametrize("lines", ["arguments =\nargs = a\n", "args = a\narguments = $(nothing)\n"])
def test_arguments_that_are_empty_hide_args(folder, capsys, lines) -> None:
    write(folder, f"executable = x.sh\n{lines}queue\n")
    assert main(["submit", "-dry-run", "-", "job.sub"]) == 0
    assert 'Arguments=""' in capsys.readouterr().out


def test_of_two_forms_of_arguments_that_are_allowed_the_new_one_counts(folder, capsys) -> None:
    write(folder, 'executable = x.sh\nargs = a\narguments2 = "b"\nallow_arguments_v1 = true\nqueue\n')
    assert main(["submit", "-dry-run", "-", "job.sub"]) == 0
    told = capsys.readouterr()
    assert 'Arguments="b"' in told.out
    assert "Args=" not in told.out
    assert told.err == ""


def test_a_missing_submit_file_is_told(capsys) -> None:
    assert main(["submit", "nowhere.sub"]) == 1
    assert "nowhere.sub" in capsys.readouterr().err


@spec("LIM-14")
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("concurrency_limits = XSW", '"xsw"'),
        ("concurrency_limits = XSW, Database:3 fileserver", '"database:3,fileserver,xsw"'),
        ("concurrency_limits_expr = TARGET.Network", "TARGET.Network"),
    ],
)
def test_concurrency_limits_become_an_attribute_sorted_in_lower_case(folder, capsys, lines, expected) -> None:
    write(folder, f"executable = x.sh\n{lines}\nqueue\n")
    assert values(dry_run(capsys, "job.sub"), "ConcurrencyLimits") == [expected]


@spec("LIM-10", "LIM-13", "W-32")
@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("concurrency_limits = a\nconcurrency_limits_expr = TARGET.Network", "can't be used together"),  # LIM-10
        ("concurrency_limits = a, b-c", "'b-c'"),  # LIM-13, W-32
        ("concurrency_limits = 9abc", "'9abc'"),
        ("concurrency_limits = a.b.c", "'a.b.c'"),
    ],
    ids=["LIM-10", "LIM-13", "W-32", "LIM-03"],
)
def test_concurrency_limits_that_can_not_be_are_refused(folder, capsys, lines, why) -> None:
    write(folder, f"executable = x.sh\n{lines}\nqueue\n")
    assert main(["submit", "-dry-run", "-", "job.sub"]) == 1
    assert why in capsys.readouterr().err


@spec("SLT-22")
def test_requests_that_are_not_made_are_the_knobs_but_not_for_other_batch_systems(folder, capsys, monkeypatch) -> None:
    """Cores, MiB, KiB; a job that goes to another batch system asks for what that is asked for."""
    config = folder / "condor_config"
    config.write_text("JOB_DEFAULT_REQUESTCPUS = 3\nJOB_DEFAULT_REQUESTMEMORY = 77\nJOB_DEFAULT_REQUESTDISK = 88\n")
    monkeypatch.setenv("ROOST_CONFIG", str(config))
    write(folder, "executable = x.sh\nqueue\nrequest_cpus = 2\nrequest_memory = 1G\nrequest_disk = 2M\nqueue\n")
    text = dry_run(capsys, "job.sub")
    assert values(text, "RequestCpus") == ["3", "2"]
    assert values(text, "RequestMemory") == ["77", "1024"]
    assert values(text, "RequestDisk") == ["88", "2048"]
    write(folder, "universe = grid\ngrid_resource = batch slurm\nexecutable = x.sh\nqueue\n")
    grid = dry_run(capsys, "job.sub")
    assert [values(grid, f"Request{name}") for name in ("Cpus", "Memory", "Disk")] == [[], [], []]


@spec("LEA-01")
def test_the_lease_that_nobody_names_is_the_knob(folder, capsys, monkeypatch) -> None:
    """JOB_DEFAULT_LEASE_DURATION; LEA-01."""
    config = folder / "condor_config"
    config.write_text("JOB_DEFAULT_LEASE_DURATION = 10 * 60\n")
    monkeypatch.setenv("ROOST_CONFIG", str(config))
    write(folder, "executable = x.sh\nqueue\njob_lease_duration = 77\nqueue\n")
    assert values(dry_run(capsys, "job.sub"), "JobLeaseDuration") == ["10 * 60", "77"]
    config.write_text("")
    assert values(dry_run(capsys, "job.sub"), "JobLeaseDuration") == ["2400", "77"]
