"""`roost config-val` prints expanded values (TLS-10)."""

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
