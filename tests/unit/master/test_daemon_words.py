import pytest

from services.master.core.daemon_words import read
from shared.config import load_config


def listed(tmp_path, text):
    path = tmp_path / "condor_config"
    path.write_text(text)
    return read(load_config([path], subsystem="MASTER", env={}))


def programs(tmp_path, text):
    return [(one.word, one.module, one.arguments) for one in listed(tmp_path, text).programs]


def test_daemons_start_as_they_are_listed_and_a_negotiator_has_a_had(tmp_path):
    assert programs(tmp_path, "DAEMON_LIST = MASTER, COLLECTOR NEGOTIATOR, STARTD, SHARED_PORT") == [
        ("COLLECTOR", "services.collector", ()),
        ("NEGOTIATOR", "services.negotiator", ()),
        ("STARTD", "services.startd", ()),
        ("HAD", "services.had", ()),
    ]
    ours = [word for word, _, _ in programs(tmp_path, "DAEMON_LIST = HAD NEGOTIATOR REPLICATION GATEWAY GANGLIAD")]
    assert ours == ["HAD", "NEGOTIATOR", "GATEWAY", "GANGLIAD"]


@pytest.mark.parametrize("program", ["$(COLLECTOR)", "/usr/sbin/condor_collector"])
def test_another_of_a_kind_has_a_name_of_its_own(tmp_path, program):
    text = f"VIEW_SERVER = {program}\nDAEMON_LIST = COLLECTOR VIEW_SERVER\n"
    assert programs(tmp_path, text)[1] == ("VIEW_SERVER", "services.collector", ("-local-name", "VIEW_SERVER"))
    text += 'VIEW_SERVER_ARGS = -f -local-name view\nVIEW_SERVER_ENVIRONMENT = "A=1 _CONDOR_B=2"\n'
    found = listed(tmp_path, text).programs[1]
    assert found.arguments == ("-f", "-local-name", "view")
    assert found.environment == {"A": "1", "_CONDOR_B": "2"}


def test_what_is_no_daemon_and_what_can_not_be_read_is_told(tmp_path):
    found = listed(tmp_path, 'DAEMON_LIST = STARTD TRAIN\nSTARTD_ARGS = "a \'b"\n')
    assert [one.word for one in found.programs] == ["STARTD"]
    assert found.programs[0].arguments == ()
    assert "STARTD_ARGS can not be read" in found.warnings[0]
    assert "names TRAIN, which is no daemon here" in found.warnings[1]
