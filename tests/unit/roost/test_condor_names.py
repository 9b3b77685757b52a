"""HTCondor's names of the commands, as programs that a shell finds; and `roost help`."""

import os
import subprocess

import pytest

from roost.cli.condor_names import INSTEAD, NAMES, translated
from roost.cli.main import COMMANDS, TOPICS, main
from roost.errors import UsageError
from tests.integration.pools import ROOT


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("condor_q -nobatch alice", "q -layout condor -nobatch alice"),
        ("condor_q -debug -better-analyze 12", "q -layout condor -better-analyze 12"),
        ("condor_submit -debug x.sub", "submit -debug x.sub"),
        ("condor_config_val -v START", "config-val -v START"),
        ("condor_status -version", "version"),
        ("condor_token_create -identity a@b -authz READ", "token create -identity a@b -authz READ -key POOL"),
        ("condor_wait -wait 60 job.log", "wait -wait 60 -log job.log"),
        ("condor_wait -echo job.log 12.0", "wait -echo -log job.log 12.0"),
        ("condor_ssh_to_job -auto-retry 12.3 ls -addr", "exec 12.3 ls -addr"),
        ("condor_vacate_job -fast 12", "vacate-job -fast 12"),
        ("condor_submit_dag -maxjobs 5 x.dag", "submit-dag -maxjobs 5 x.dag"),
        ("condor_off -all -neg", "off -all -neg"),
    ],
)
def test_command_lines_are_read_as_htcondors(typed, ours):
    name, *words = typed.split()
    command, left = translated(name, words)
    assert " ".join([command, *left]) == ours


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("condor_dagman x.dag", "roost submit-dag"),
        ("condor_frobnicate", "roost help"),
    ],
)
def test_what_there_is_not_is_told_with_what_there_is(typed, says, capsys):
    with pytest.raises(UsageError, match=says.replace("(", "\\(")):
        translated(typed.split()[0], typed.split()[1:])
    assert main(typed.split()) == 1
    assert says in capsys.readouterr().err


def test_an_option_that_changes_nothing_is_told(capsys):
    assert translated("condor_rm", ["-debug", "12", "--", "-debug"]) == ("rm", ["12", "--", "-debug"])
    assert capsys.readouterr().err.startswith("NOTE: -debug has no effect: ")


def test_every_name_is_a_command_and_none_has_two_answers(capsys):
    assert all(command in COMMANDS for (command, *_), _ in NAMES.values())
    assert not INSTEAD.keys() & NAMES.keys()
    for name in NAMES:
        assert main([name, "-help"]) == 0, name
        assert capsys.readouterr().out.startswith(("usage", "Roost")), name


def test_the_programs_are_found_and_run(tmp_path):
    roost = {"env": {**os.environ, "PYTHONPATH": str(ROOT)}, "capture_output": True, "text": True, "check": False}
    directory = tmp_path / "with blank"
    assert main(["condor-names", str(directory)]) == 0
    assert {file.name for file in directory.iterdir()} == set(NAMES)
    roost["env"]["PATH"] = f"{directory}:{os.environ['PATH']}"
    done = subprocess.run(["condor_config_val", "-default", "NEGOTIATOR_INTERVAL"], **roost)
    assert (done.returncode, done.stdout) == (0, "60\n"), done.stderr
    assert main(["condor-names", str(directory)]) == 0, "they may be written again"


def test_programs_of_others_are_not_written_over(tmp_path, capsys):
    theirs = tmp_path / "condor_wait"
    theirs.write_text("theirs")
    assert main(["condor-names", str(tmp_path)]) == 1
    assert "-force" in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["condor_wait"]
    assert main(["condor-names", "-force", str(tmp_path)]) == 0
    assert theirs.read_text() != "theirs"
    (tmp_path / "file").touch()
    assert main(["condor-names", str(tmp_path / "file" / "bin")]) == 1


def test_help_is_by_topic_and_has_every_command_once(capsys):
    names = [name for _, words in TOPICS.values() for name in words.split()]
    assert sorted(names) == sorted(COMMANDS)
    assert main(["help"]) == 0
    whole = capsys.readouterr().out
    assert all(f"\n  {name} " in whole for name in names)
    assert main(["help", "jobs"]) == 0
    part = capsys.readouterr().out
    assert "qedit" in part
    assert "config-val" not in part
    assert main(["help", "condor_q"]) == 0
    assert capsys.readouterr().out.startswith("usage: roost q")
    assert main(["help", "nothing"]) == 1
    assert "topics start, jobs" in capsys.readouterr().err
