"""`roost gateway-key`."""

import json

from roost.cli.main import main
from shared.bus.statements import Keys, key_id, signer_of


def test_a_key_is_made_once_and_what_to_set_is_told(tmp_path, capsys):
    path = tmp_path / "gateway.key"
    assert main(["gateway-key", str(path)]) == 0
    told = capsys.readouterr().out
    assert f"GATEWAY.ROOST_GATEWAY_KEY = {path}\n" in told
    assert f"ROOST_GATEWAY_KEYS = {path}.pub\n" in told
    made = signer_of(path)
    assert Keys(tmp_path / "gateway.key.pub").find(key_id(made.public)) == made.public
    assert main(["gateway-key", str(path), "-json"]) == 0
    assert json.loads(capsys.readouterr().out)["key"] == key_id(made.public)
    assert signer_of(path).public == made.public


def test_the_file_may_be_the_configurations(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CONDOR_CONFIG", "ONLY_ENV")
    assert main(["gateway-key"]) == 1
    assert "ROOST_GATEWAY_KEY" in capsys.readouterr().err
    monkeypatch.setenv("_CONDOR_ROOST_GATEWAY_KEY", str(tmp_path / "k"))
    assert main(["gateway-key"]) == 0
    assert (tmp_path / "k.pub").exists()


def test_what_holds_no_key_is_kept_and_told(tmp_path, capsys):
    (tmp_path / "k").write_text("mine")
    assert main(["gateway-key", str(tmp_path / "k")]) == 1
    assert "no private key" in capsys.readouterr().err
    assert (tmp_path / "k").read_text() == "mine"
    assert main(["gateway-key", str(tmp_path / "k" / "below")]) == 1
    assert str(tmp_path / "k") in capsys.readouterr().err
