"""What a job asks for in vain is refused or told, and the list of it is true."""

import re
from pathlib import Path

import pytest

from roost.cli.main import main
from roost.errors import ClientError
from roost.submission import submit
from roost.submit import Description, SubmitContext
from roost.submit.description import told_of
from roost.submit.effects import TABLE

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
    "PublicInputFiles": ("public_input_files = a", ""),
    "StreamIn": ("input = /bin/true\nstream_input = true", "input = /bin/true"),
    "WantIOProxy": ("want_io_proxy = true", "want_io_proxy = false"),
    "JobStarterLog": ("starter_log = log", ""),
    "LoadProfile": ("load_profile = true", "load_profile = false"),
    "EraseOutputAndErrorOnRestart": (
        "erase_output_and_error_on_restart = false",
        "erase_output_and_error_on_restart = true",
    ),
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
    texts = [
        path.read_text()
        for package in ("engine", "services", "shared")
        for path in (ROOT / package).rglob("*.py")
        if exports not in path.parents
    ]
    assert [name for name in TABLE if any(re.search(rf"\b{name}\b", text) for text in texts)] == []


def test_one_job_of_many_is_enough(tmp_path):
    [cluster] = described("encrypt_execute_directory = $(Process)", tmp_path).clusters()
    assert cluster.not_run.startswith("encrypt_execute_directory has no effect")


def test_every_door_refuses(tmp_path, monkeypatch, capsys):
    with pytest.raises(ClientError, match="encrypt_execute_directory has no effect"):
        next(submit(described("encrypt_execute_directory = true", tmp_path), None, "", ""))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROOST_POOL_DIR", str(tmp_path))
    (tmp_path / "job.sub").write_text(
        "executable = /bin/true\nencrypt_execute_directory = true\nwant_io_proxy = true\nqueue\n"
    )
    assert main(["submit", "job.sub"]) == 1
    assert "job.sub: encrypt_execute_directory has no effect: no" in capsys.readouterr().err
    assert main(["submit", "-dry-run", "-", "job.sub"]) == 0
    said = capsys.readouterr().err
    assert "WARNING: without -dry-run it would be refused: encrypt_execute_directory has no effect" in said
    assert "WARNING: want_io_proxy has no effect: there is no Chirp proxy" in said


@pytest.mark.parametrize("attribute", TABLE)
def test_the_page_tells_it(attribute):
    row = TABLE[attribute]
    pages = (ROOT / "docs" / "submit.md").read_text().splitlines()
    assert [line for line in pages if row.command in line and line.endswith(f"| {row.told} |")]
