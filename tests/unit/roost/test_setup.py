import os
import stat
from pathlib import Path, PurePosixPath

import pytest

from roost.cli.main import main
from roost.setup import machine
from roost.setup.execution_point import ExecutionPoint, environment, files
from roost.setup.layout import File
from shared.config import load_config

POINT = ExecutionPoint("node1.example.org", "/opt/roost/bin/python", "/etc/condor/identities/x/gateways.pem", True)
URL = "amqps://startd.node1.example.org:a%40b@pool.example.org:5671/"


def test_what_is_written_says_who_the_startd_is_and_keeps_its_password_to_itself(tmp_path):
    written = machine.write(files(POINT, URL), tmp_path)
    told = {path: machine.below(tmp_path, path).read_text() for path in written}
    assert [path for path, text in told.items() if "a%40b" in text] == [environment(POINT)]
    secret = machine.below(tmp_path, environment(POINT))
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(secret.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "etc/condor/condor_config").stat().st_mode) == 0o644


def test_a_daemon_reads_what_is_written(tmp_path):
    machine.write(files(POINT, URL), tmp_path)
    first = tmp_path / "etc/condor/condor_config"
    assert machine.reads(first, PurePosixPath("/etc/condor/config.d"))
    first.write_text(first.read_text().replace(" /etc", f" {tmp_path}/etc"))
    config = load_config([first], subsystem="STARTD", env={})
    assert config.get("STARTD_NAME") == "node1.example.org"
    assert config.get("SPOOL") == "/var/lib/condor/spool"
    assert config.get("EXECUTE") == "/var/lib/condor/execute"
    assert config.get("ROOST_GATEWAY_KEYS") == POINT.keys
    assert config.get("AUTH_SSL_CLIENT_CAFILE") == "/etc/condor/pool-ca.pem"


def test_a_configuration_that_is_there_stays_and_all_else_is_brought_up_to_date(tmp_path):
    first = tmp_path / "etc/condor/condor_config"
    first.parent.mkdir(parents=True)
    first.write_text("MINE = 1\n")
    machine.write(files(POINT, URL), tmp_path)
    assert first.read_text() == "MINE = 1\n"
    again = machine.write(files(POINT, URL.replace("a%40b", "new")), tmp_path)
    assert PurePosixPath("/etc/condor/condor_config") not in again
    assert "new" in machine.below(tmp_path, environment(POINT)).read_text()


def test_code_that_others_can_change_is_found(tmp_path):
    assert machine.foreign([Path("/bin/sh")]) is None
    ours = tmp_path / "bin"
    ours.mkdir()
    (ours / "python").touch()
    assert machine.foreign([ours / "python"]) in (None, *ours.parents)  # whose the directory of tests is
    ours.chmod(0o777)
    assert machine.foreign([ours / "python"]) in (ours, *ours.parents)
    link = tmp_path / "link"
    link.symlink_to(ours / "python")
    assert machine.foreign([link]) in (ours, *ours.parents)


def test_a_file_is_written_as_a_whole_or_not_at_all(tmp_path):
    (tmp_path / "etc").write_text("a file where a directory has to be")
    with pytest.raises(OSError, match="etc"):
        machine.write([File(PurePosixPath("/etc/x"), "text")], tmp_path)


def test_a_configuration_that_would_not_read_it_is_told_before_anything_is_written(tmp_path, capsys):
    first = tmp_path / "etc/condor/condor_config"
    first.parent.mkdir(parents=True)
    first.write_text("LOCAL_CONFIG_DIR = /elsewhere\n")
    (tmp_path / "join").write_text("token")
    words = ["setup", "execution-point", "-root", str(tmp_path), "-token-file", str(tmp_path / "join")]
    assert main(words) == 1
    assert "LOCAL_CONFIG_DIR = /etc/condor/config.d" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["condor", "condor_config", "etc", "join"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("submit-point",), "wants one of central-manager, access-point, execution-point"),
        ((), "execution-point"),
        (("execution-point", "and-more"), "'and-more' does not belong here"),
        (("execution-point",), "wants -token-file FILE"),
        (("execution-point", "-token-file", "none", "-root", "."), "none: No such file or directory"),
        (("execution-point", "-token-file", "x", "-ca-file", "/dev/null", "-root", "."), "holds no certificate"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(words, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").write_text("token")
    assert main(["setup", *words]) == 1
    assert told in capsys.readouterr().err


def test_nobody_but_root_changes_the_machine(capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["setup", "execution-point", "-token-file", "x"]) == 1
    assert "run it as root" in capsys.readouterr().err


def test_a_dry_run_shows_all_of_it_but_no_secret(capsys):
    assert main(["setup", "execution-point", "-dry-run", "-name", "node1"]) == 0
    shown = capsys.readouterr().out
    for path in ("/etc/condor/condor_config", "/etc/systemd/system/roost-startd.service", "STARTD_NAME = node1"):
        assert path in shown
