"""`roost config-val` prints expanded values (TLS-10)."""

import json

import pytest

from roost.cli.main import main
from tests.spec import spec


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    file = tmp_path / "condor_config"
    file.write_text("BASE = /data\nDEEP = $(BASE)/pool\nEXECUTE = $(DEEP)/run-$(WHO:nobody)\nSTARTD.WHO = them\n")
    monkeypatch.setenv("CONDOR_CONFIG", str(file))
    monkeypatch.delenv("ROOST_CONFIG", raising=False)

    def answer(*arguments):
        code = main(["config-val", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return answer


@spec("TLS-10")
def test_a_macro_is_printed_expanded(ask):
    assert ask("EXECUTE") == (0, "/data/pool/run-nobody\n", "")
    assert ask("-subsystem", "STARTD", "EXECUTE") == (0, "/data/pool/run-them\n", "")
    assert ask("deep", "BASE") == (0, "/data/pool\n/data\n", "")


@spec("TLS-10")
def test_what_is_not_defined_is_an_error(ask):
    code, said, trouble = ask("NO_SUCH_KNOB", "BASE")
    assert (code, said) == (1, "/data\n")
    assert trouble == "Not defined: NO_SUCH_KNOB\n"


@spec("CFG-21")
def test_the_check_tells_errors_first_then_warnings_each_with_its_daemons(ask, tmp_path):
    code, said, trouble = ask("-check")
    assert (code, said, trouble) == (0, f"Read {tmp_path}/condor_config: 0 errors, 0 warnings.\n", "")
    text = (
        "USE_PROCD = false\n"  # for all
        "SEC_CLIENT_AUTHENTICATION = OPTIONAL\n"  # what the gateway finds: one line, none besides for the others
        "NUM_CPUS = 4\nSLOT_TYPE_1 = cpus=8\nNUM_SLOTS_TYPE_1 = 1\n"  # what the startd finds in dividing the machine
        "NEGOTIATOR_INTERVAL = soon\n"
    )
    (tmp_path / "condor_config").write_text(text)
    code, said, _ = ask("-check")
    *lines, last = said.splitlines()
    file = f"{tmp_path}/condor_config, line"
    assert code == 1
    assert [line.partition(":")[0] for line in lines] == ["ERROR", "ERROR", "WARNING", "WARNING"]
    assert f"{file} 6: NEGOTIATOR_INTERVAL = soon is not usable" in lines[0]
    assert lines[0].endswith("[NEGOTIATOR]")
    assert "SLOT_TYPE_1" in lines[1]
    assert lines[1].endswith("[STARTD]")
    assert any(f"{file} 1: USE_PROCD has no effect" in line and "[STARTD" in line for line in lines[2:])
    assert any(f"{file} 2: SEC_CLIENT_AUTHENTICATION" in line and line.endswith("[GATEWAY]") for line in lines[2:])
    assert last == f"Read {tmp_path}/condor_config: 2 errors, 2 warnings."


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("A = 1\nSTARTD_CRON_JOBLIST = r\nSTARTD_CRON_r_EXECUTABLE = /bin/true\nSTARTD_CRON_r_MODE = Periodc\n", "4: "),
        ("A = 1\nSCHEDD_CRON_JOBLIST = rack\n", "2: SCHEDD_CRON_JOBLIST names rack, which is left out"),
        ("A = 1\nBENCHMARKS_JOBLIST = mips nosuch\n", "2: BENCHMARKS_JOBLIST names nosuch, which is left out"),
        (
            "A = 1\nFILETRANSFER_PLUGINS = /no/such\n",
            "2: FILETRANSFER_PLUGINS names /no/such, which is left out: No such",
        ),
        ("A = 1\nSTARTD_ATTRS = Site\n", "2: STARTD_ATTRS names Site, which is not set: no ad of a slot has it"),
        ("A = 1\nDAEMON_LIST = MASTER, COLECTOR\n", "2: DAEMON_LIST names COLECTOR, which is no daemon here"),
        ("A = 1\nSLOT_TYPE_1 = memmory=1\nNUM_SLOTS_TYPE_1 = 1\n", "2: SLOT_TYPE_1: unknown resource 'memmory'"),
        (
            "A = 1\nSCHEDD_CLASSAD_USER_MAP_NAMES = m\n",
            "2: SCHEDD_CLASSAD_USER_MAP_NAMES has the user map m: set CLASS",
        ),
        (
            "CLASSAD_USER_MAP_NAMES = m\nCLASSAD_USER_MAPDATA_m @=end\n* ann\n@end\n",
            "2: CLASSAD_USER_MAPDATA_m: line 1: expected `* user groups`",
        ),
        ("A = 1\nJOB_TRANSFORM_NAMES = t\n", "2: JOB_TRANSFORM_t is not defined"),
    ],
)
def test_the_check_tells_what_a_daemon_would_leave_out_with_its_line(ask, tmp_path, text, told):
    (tmp_path / "condor_config").write_text(text)
    [line, _] = ask("-check")[1].splitlines()
    assert f"{tmp_path}/condor_config, line {told}" in line


@spec("CFG-21")
def test_the_check_of_one_kind_of_daemon_as_data(ask, tmp_path):
    (tmp_path / "condor_config").write_text("SCHEDD_INTERVAL = 0\nNEGOTIATOR_INTERVAL = soon\n")
    code, said, _ = ask("-check", "-subsystem", "schedd", "-json")
    [found] = json.loads(said)
    assert code == 1
    assert (found["severity"], found["daemons"], found["line"]) == ("error", ["SCHEDD"], 1)
    assert found["mend"] == "give at least 1"


def test_the_check_takes_no_names(ask):
    code, _, trouble = ask("-check", "NUM_CPUS")
    assert (code, "leave the names out" in trouble) == (1, True)
