"""`roost submit-dag`: every option of condor_submit_dag is obeyed, or told (tests/infrastructure/test_effects.py)."""

from pathlib import Path

import pytest

from engine.dag.run import Begin, DagRun, Limits
from roost.cli import submit_dag
from roost.cli.main import main
from roost.cli.options import parse
from roost.dag.beginning import Wishes, begin, line_ad
from roost.dag.descriptions import description_of
from roost.dag.journal import read_dag, read_journal
from roost.dag.settings import Options, settings_of
from roost.errors import UsageError
from roost.submission import described

DAG = "JOB A a.sub\nJOB B a.sub\nPRIORITY B 7\n"


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROOST_POOL_DIR", str(tmp_path))
    (tmp_path / "d.dag").write_text(DAG)
    (tmp_path / "a.sub").write_text("executable = /bin/true\nnotification = always\nqueue\n")
    return tmp_path


def wishes_of(*words):
    return submit_dag.wishes(parse([*words, "d.dag"], submit_dag.OPTIONS))


def line_of(directory, *words):
    knobs = settings_of("", directory).knobs
    return line_ad(Path("d.dag"), directory, read_dag(["d.dag"]), wishes_of(*words), knobs)


def test_the_line_in_the_queue_has_what_is_asked_for_it(directory):
    (directory / "more").write_text('+Project = "tau"\naccounting_group = physics\n')
    ad = line_of(directory, "-notification", "complete", "-append", "+Why = 1 + 1", "-insert_sub_file", "more")
    assert (ad.eval("JobNotification"), ad.eval("Why"), ad.eval("Project")) == (2, 2, "tau")
    assert ad.eval("AcctGroup") == "physics"
    assert line_of(directory, "-priority", "5").eval("JobPrio") == 5
    plain = line_of(directory)
    assert "JobNotification" not in plain
    assert plain.eval("Cmd") == ad.eval("Cmd")


@pytest.mark.parametrize("command", ["executable = /bin/cat", "arguments = x", "output = x", "universe = vanilla"])
def test_what_the_manager_is_nobody_changes(directory, command):
    with pytest.raises(UsageError, match="says how the DAG is managed"):
        line_of(directory, "-append", command)


def test_variables_come_of_the_environment_and_of_the_command(directory, monkeypatch):
    monkeypatch.setenv("OF_MINE", "here")
    assert "OF_MINE=here" not in line_of(directory).eval("Environment")
    assert "OF_MINE=here" in line_of(directory, "-import_env").eval("Environment")
    assert "OF_MINE=here" in line_of(directory, "-include_env", "OTHER", "-include_env", "OF_MINE").eval("Environment")
    assert wishes_of("-insert_env", "A=1;B=2", "-insert_env", "|B=3;4|C=5").insert_env == {
        "A": "1",
        "B": "3;4",
        "C": "5",
    }


@pytest.mark.parametrize(
    ("words", "priorities", "notification"),
    [
        ((), (0, 7), 0),
        (("-priority", "5"), (5, 7), 0),
        (("-dont_suppress_notification",), (0, 7), 1),
        (("-dont_suppress_notification", "-suppress_notification"), (0, 7), 0),
    ],
)
def test_nodes_have_their_least_priority_and_send_no_mail(directory, words, priorities, notification):
    begun = begin(["d.dag"], directory, wishes_of(*words), lambda record: False)
    options = Options(**read_journal(directory / "d.dag.journal").header.options)
    run = DagRun(begun.dag, Limits())
    run.apply(Begin(), 0.0)
    ads = [described(description_of(run, node, 1, 0.0, options)).ad for node in begun.dag.nodes]
    assert tuple(ad.eval("JobPrio") for ad in ads) == priorities
    assert [ad.eval("JobNotification") for ad in ads] == [notification, notification]


def test_a_file_of_knobs_counts_as_the_dags_own(directory):
    (directory / "knobs").write_text("DAGMAN_MAX_JOBS_SUBMITTED = 3\n")
    begin(["d.dag"], directory, wishes_of("-config", "knobs"), lambda record: False)
    assert read_journal(directory / "d.dag.journal").header.limits["max_jobs"] == 3
    (directory / "d.dag").write_text("CONFIG knobs\n" + DAG)
    with pytest.raises(UsageError, match="CONFIG of its own"):
        begin(["d.dag"], directory, Wishes(config="knobs"), lambda record: False)


def test_a_dag_may_be_of_its_own_directory(directory, monkeypatch, capsys):
    monkeypatch.chdir(directory.parent)
    file = f"{directory.name}/d.dag"
    assert submit_dag.place(parse(["-usedagdir", file], submit_dag.OPTIONS)) == (directory, ["d.dag"])
    assert submit_dag.place(parse([file], submit_dag.OPTIONS)) == (directory.parent, [file])
    assert main(["submit-dag", "-usedagdir", "x/a.dag", "y/b.dag"]) == 1
    assert "submit them one by one" in capsys.readouterr().err


def test_what_is_not_here_is_told(directory, capsys):
    assert main(["submit-dag", "-outfile_dir", "x", "d.dag"]) == 1
    assert "FILE.dagman.out lies beside FILE" in capsys.readouterr().err
    assert main(["submit-dag", "-no_submit", "-debug", "3", "-DoRecovery", "d.dag"]) == 0
    assert "2 nodes" in capsys.readouterr().out
