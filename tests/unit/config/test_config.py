"""Where a configuration comes from, and which part of it wins."""

import socket

import psutil
import pytest

from shared.config import ConfigError, load_config


def load(tmp_path, text, *, env=None, **options):
    path = tmp_path / "condor_config"
    path.write_text(text)
    return load_config([path], env=env or {}, **options)


def test_local_name_beats_subsystem_beats_plain(tmp_path):
    text = "X = plain\nSCHEDD.X = sub\nLOC.X = local\n"
    assert load(tmp_path, text).get("X") == "plain"
    assert load(tmp_path, text, subsystem="SCHEDD").get("X") == "sub"
    assert load(tmp_path, text, subsystem="SCHEDD", local_name="LOC").get("X") == "local"
    assert load(tmp_path, text, subsystem="STARTD", local_name="loc").get("x") == "local"


def test_empty_local_value_unsets_the_global_one(tmp_path):
    text = "CONDOR_VIEW_HOST = a:1\nVIEW1.CONDOR_VIEW_HOST =\n"
    assert load(tmp_path, text, subsystem="COLLECTOR", local_name="VIEW1").get("CONDOR_VIEW_HOST") is None


def test_environment_replaces_the_plain_name_only(tmp_path):
    config = load(
        tmp_path, "X = 1\nY = 1\nSTARTD.Y = 2\n", subsystem="STARTD", env={"_CONDOR_x": "9", "_condor_Y": "9"}
    )
    assert config.get("X") == "9"
    assert config.get("Y") == "2"
    assert str(config.origin("X")) == "<environment>"


def test_environment_can_name_a_scope(tmp_path):
    assert load(tmp_path, "X = 1\n", subsystem="STARTD", env={"_CONDOR_STARTD.X": "9"}).get("X") == "9"


def test_environment_in_our_spelling(tmp_path):
    env = {"ROOST_NEGOTIATOR_INTERVAL": "7", "ROOST_AMQP_URL": "amqp://h", "ROOST_CONFIG": "unused"}
    config = load(tmp_path, "NEGOTIATOR_INTERVAL = 1\n", env=env)
    assert config.get("NEGOTIATOR_INTERVAL") == "7"
    assert config.get("ROOST_AMQP_URL") == "amqp://h"
    assert config.get("CONFIG") is None


def test_environment_is_not_seen_by_if(tmp_path):
    config = load(tmp_path, "if defined X\nA = seen\nelse\nA = unseen\nendif\n", env={"_CONDOR_X": "1"})
    assert config.get("A") == "unseen"


def test_overrides_win(tmp_path):
    config = load(tmp_path, "X = 1\n", env={"_CONDOR_X": "2"}, overrides={"X": "3"})
    assert config.get("X") == "3"


def test_local_files_come_after_the_directory_in_byte_order(tmp_path):
    folder = tmp_path / "config.d"
    folder.mkdir()
    for name in ("10-b", "9-c", "Z", "a"):
        (folder / name).write_text(f"ORDER = $(ORDER) {name}\n")
    for name in (".hidden", "x~", "y.rpmsave", "z.dpkg-old"):
        (folder / name).write_text("this is no assignment\n")
    local = tmp_path / "local"
    local.write_text("ORDER = $(ORDER) local\n")
    config = load(tmp_path, f"ORDER = root\nLOCAL_CONFIG_DIR = {folder}\nLOCAL_CONFIG_FILE = {local}\n")
    assert config.get("ORDER") == "root 10-b 9-c Z a local"
    assert config.files[-1] == str(local)


def test_local_file_may_be_a_command(tmp_path):
    config = load(tmp_path, "LOCAL_CONFIG_FILE = /bin/echo A = made |\n")
    assert config.get("A") == "made"


def test_local_file_may_name_another(tmp_path):
    second = tmp_path / "second"
    second.write_text("A = second\n")
    first = tmp_path / "first"
    first.write_text(f"LOCAL_CONFIG_FILE = {second}\n")
    assert load(tmp_path, f"LOCAL_CONFIG_FILE = {first}\n").get("A") == "second"


def test_missing_local_file_is_an_error_unless_told(tmp_path):
    text = "LOCAL_CONFIG_FILE = /no/such/file\n"
    with pytest.raises(ConfigError, match="line 1: can not read /no/such/file"):
        load(tmp_path, text)
    assert load(tmp_path, text + "REQUIRE_LOCAL_CONFIG_FILE = false\nA = 1\n").get("A") == "1"


def test_first_file_is_found(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("A = one\n")
    two.write_text("A = two\n")
    assert load_config(env={"CONDOR_CONFIG": str(one)}).get("A") == "one"
    assert load_config(env={"CONDOR_CONFIG": str(one), "ROOST_CONFIG": str(two)}).get("A") == "two"
    assert load_config(env={"CONDOR_CONFIG": "ONLY_ENV", "_CONDOR_A": "env"}).get("A") == "env"
    with pytest.raises(ConfigError, match="unset CONDOR_CONFIG"):
        load_config(env={"CONDOR_CONFIG": str(tmp_path / "none")})


def test_pool_directory_holds_the_first_file_and_the_state(tmp_path):
    (tmp_path / "condor_config").write_text("A = pool\n")
    config = load_config(env={"ROOST_POOL_DIR": str(tmp_path)})
    assert config.get("A") == "pool"
    assert config.get("SPOOL") == f"{tmp_path}/spool"


def test_machine_is_detected():
    config = load_config([], subsystem="STARTD", env={})
    assert config.get("HOSTNAME") == socket.gethostname().partition(".")[0]
    assert int(config["DETECTED_MEMORY"]) == psutil.virtual_memory().total >> 20
    assert int(config["DETECTED_CORES"]) >= 1
    assert config.get("SUBSYSTEM") == "STARTD"
    assert config.get("LOCALNAME") == "STARTD"


def test_misspelt_knob_is_told_with_its_line(tmp_path):
    config = load(tmp_path, "A = 1\nNEGOTIATOR_INTERVL = 30\n")
    assert [str(problem) for problem in config.warnings] == [
        f"{tmp_path}/condor_config, line 2: NEGOTIATOR_INTERVL is no known knob (did you mean NEGOTIATOR_INTERVAL?)"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "MY_OWN_MACRO = 3\n",
        "XSW_LIMIT = 3\n",
        "GROUP_QUOTA_physics = 3\n",
        "SLOTS_WEIGHT = 2\nSLOT_WEIGHT = $(SLOTS_WEIGHT)\n",
        "STARTD_ATTRS = STRAT\nSTRAT = 1\n",
        "SCHEDD.SCHEDD_INTERVAL = 10\n",
        "use POLICY : Desktop\n",
    ],
)
def test_macros_of_ones_own_are_not_called_misspelt(tmp_path, text):
    assert load(tmp_path, text).warnings == ()


def test_loop_is_told_where_it_stands(tmp_path):
    config = load(tmp_path, "A = $(B)\nB = $(A)\n")
    with pytest.raises(ConfigError, match="condor_config, line 1"):
        config.get("A")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DEFAULT_DOMAIN_NAME = x.org\n", "node7.x.org"),
        ("DEFAULT_DOMAIN_NAME = .x.org.\n", "node7.x.org"),
        ("", "node7"),
        ("DEFAULT_DOMAIN_NAME = x.org\nFULL_HOSTNAME = other\n", "other"),  # somebody knows better
    ],
)
def test_a_host_without_a_domain_gets_the_default_one(tmp_path, monkeypatch, text, expected):
    monkeypatch.setattr(socket, "gethostname", lambda: "node7")
    config = load(tmp_path, text)
    assert config.get("FULL_HOSTNAME") == config.get("UID_DOMAIN") == expected
    monkeypatch.setattr(socket, "gethostname", lambda: "node7.y.org")
    assert load(tmp_path, "DEFAULT_DOMAIN_NAME = x.org\n").get("FULL_HOSTNAME") == "node7.y.org"
