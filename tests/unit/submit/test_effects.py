"""What a job asks for in vain is refused or told, and the list of it is true."""

from pathlib import Path

import pytest

from roost.cli.main import main
from roost.errors import ClientError
from roost.submission import submit
from roost.submit import Description, SubmitContext
from roost.submit.description import told_of
from roost.submit.effects import TABLE, command_in_vain
from tests.infrastructure.words import stands

ROOT = Path(__file__).resolve().parents[3]
#: A submit file's line for each row, and one that asks for nothing where there is such a one.
LINES = {
    "SuccessCheckpointExitCode": ("checkpoint_exit_code = 85", ""),
    "EncryptExecuteDirectory": ("encrypt_execute_directory = true", "encrypt_execute_directory = false"),
    "EncryptInputFiles": ("encrypt_input_files = a", ""),
    "EncryptOutputFiles": ("encrypt_output_files = a", ""),
    "DontEncryptInputFiles": ("dont_encrypt_input_files = a", ""),
    "DontEncryptOutputFiles": ("dont_encrypt_output_files = a", ""),
    "TransferPlugins": ("transfer_plugins = tar=/bin/true", ""),
    "WantTransferPluginMethods": (
        "transfer_input_files = https://example.org/data",
        "transfer_input_files = /bin/true",
    ),
    "OutputDestination": ("output_destination = /elsewhere", ""),
    "StreamIn": ("input = /bin/true\nstream_input = true", "input = /bin/true"),
    "JobStarterLog": ("starter_log = log", ""),
    "LoadProfile": ("load_profile = true", "load_profile = false"),
    "SuccessCheckpointExitBySignal": ("+SuccessCheckpointExitBySignal = true", ""),
    "SuccessCheckpointExitSignal": ("+SuccessCheckpointExitSignal = 9", ""),
    "WantFTOnCheckpoint": ("+WantFTOnCheckpoint = true", ""),
    "PreCmd": ('+PreCmd = "setup"', ""),
    "PostCmd": ('+PostCmd = "after"', ""),
    "RequestedChroot": ('+RequestedChroot = "/jail"', ""),
    "RemoteIwd": ("remote_initialdir = /work", ""),
    "JobVMCheckpoint": ("+JobVMCheckpoint = true", "+JobVMCheckpoint = false"),
    "JobStarterDebug": ("starter_debug = D_FULLDEBUG", ""),
    "TransferCheckpoint": ("transfer_checkpoint_files = a", ""),
    "ScitokensFile": ("scitokens_file = token", ""),
    "DelegateJobGSICredentialsLifetime": ("delegate_job_GSI_credentials_lifetime = 3600", ""),
    "BufferFiles": ("buffer_files = 7", ""),
    "CompressFiles": ("compress_files = a", ""),
    "FileRemaps": ('file_remaps = "a=b"', ""),
    "PreJobPrio1": ("+PreJobPrio1 = 3", "+PreJobPrio1 = 0"),
    "PreJobPrio2": ("+PreJobPrio2 = 3", ""),
    "PostJobPrio1": ("+PostJobPrio1 = 3", ""),
    "PostJobPrio2": ("+PostJobPrio2 = 3", ""),
    "OtherJobRemoveRequirements": ('+OtherJobRemoveRequirements = "DAGManJobId == 1"', ""),
}


def described(text, tmp_path):
    place = SubmitContext(tmp_path, "job.sub", "alice", {}, "example.org")
    return Description(f"executable = /bin/true\n{text}\nqueue 2\n", place)


@pytest.mark.parametrize("attribute", TABLE)
def test_each_is_refused_or_told_where_it_is_asked_for(attribute, tmp_path):
    asking, plain = LINES[attribute]
    row = TABLE[attribute]
    [cluster] = described(asking, tmp_path).clusters()
    said = f"{row.command} has no effect: {row.told}"
    assert (said in cluster.not_run, said in told_of([cluster])) == (row.refused, not row.refused)
    [cluster] = described(plain, tmp_path).clusters()
    assert (cluster.not_run, told_of([cluster])) == ("", [])


def test_attributes_that_a_daemon_reads_are_not_in_the_table():
    exports = ROOT / "services" / "adstash"  # names every attribute there may be
    text = "\n".join(
        path.read_text()
        for package in ("engine", "services", "shared")
        for path in (ROOT / package).rglob("*.py")
        if exports not in path.parents
    )
    assert [name for name in TABLE if stands(name, text)] == []


def test_one_job_of_many_is_enough(tmp_path):
    [cluster] = described("encrypt_execute_directory = $(Process)", tmp_path).clusters()
    assert cluster.not_run.startswith("encrypt_execute_directory has no effect")


def test_every_door_refuses(tmp_path, monkeypatch, capsys):
    with pytest.raises(ClientError, match="encrypt_execute_directory has no effect"):
        next(submit(described("encrypt_execute_directory = true", tmp_path), None, "", ""))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROOST_POOL_DIR", str(tmp_path))
    (tmp_path / "job.sub").write_text(
        "executable = /bin/true\nencrypt_execute_directory = true\nstarter_log = log\nqueue\n"
    )
    assert main(["submit", "job.sub"]) == 1
    assert "job.sub: encrypt_execute_directory has no effect: no" in capsys.readouterr().err
    assert main(["submit", "-dry-run", "-", "job.sub"]) == 0
    said = capsys.readouterr().err
    assert "WARNING: without -dry-run it would be refused: encrypt_execute_directory has no effect" in said
    assert "WARNING: starter_log has no effect: the startd's log stays" in said


def test_commands_that_are_written_into_no_job_are_told_with_their_line(tmp_path):
    description = described("jobset = sweep\nec2_tag_Name = x\nkernel = 5\narguments = $(kernel)", tmp_path)
    list(description.clusters())
    told = [str(one) for one in description.warnings]
    assert told == [
        f"job.sub, line 2: jobset has no effect: {command_in_vain('jobset')}",
        "job.sub, line 3: ec2_tag_Name has no effect: there is no grid universe: jobs run in this pool",
    ]


def test_what_policies_and_requirements_read_that_nothing_has_is_told(tmp_path):
    text = "periodic_hold = MY.JobDisconnectedDate > 5 || NumVacates > 1\nrequirements = TARGET.HasSshd && Cpus > 1"
    (cluster,) = described(text, tmp_path).clusters()
    assert [one.partition(",")[0] for one in told_of([cluster])] == [
        "PeriodicHold reads JobDisconnectedDate",
        "Requirements reads HasSshd",
    ]
    (cluster,) = described(f"{text}\n+JobDisconnectedDate = 7\n+HasSshd = true", tmp_path).clusters()
    assert [one.partition(",")[0] for one in told_of([cluster])] == ["Requirements reads HasSshd"]
