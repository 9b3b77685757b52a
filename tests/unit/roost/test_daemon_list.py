"""What DAEMON_LIST comes to in a personal pool."""

from types import SimpleNamespace

import pytest

from roost.cli import up
from roost.daemon_list import OPTIONAL, Member, choose, load, views_within
from roost.up import DAEMONS, PersonalPool, Plan, prepare
from shared.config import load_config
from shared.daemon.base import Daemon
from tests.spec import spec

STANDING = [one.subsystem for one in DAEMONS]
SOME = {"DEFRAG": "services.defrag.daemon:Defrag", "ROOSTER": "services.rooster.daemon:Rooster"}


@pytest.fixture
def read(tmp_path):
    def chosen(text, optional=SOME):
        path = tmp_path / "pool.conf"
        path.write_text(text)
        return choose(load_config([path], subsystem="MASTER", env={}), STANDING, optional)

    return chosen


def others(chosen):
    """What is started besides the standing daemons."""
    return tuple(one.word for one in chosen.members if one.word not in STANDING)


@spec("CFG-06", "CFG-20")
@pytest.mark.parametrize(
    ("listed", "optional"),
    [
        ("MASTER", ()),
        ("MASTER COLLECTOR NEGOTIATOR STARTD SCHEDD", ()),
        ("MASTER, SCHEDD, DEFRAG", ("DEFRAG",)),
        ("master rooster defrag ROOSTER", ("ROOSTER", "DEFRAG")),
        ("HAD REPLICATION SHARED_PORT NEGOTIATOR DEFRAG", ("DEFRAG",)),
    ],
)
def test_known_names_are_taken_without_a_word(read, listed, optional):
    """Separated by commas, blanks or both; standing daemons run whether they are named or not."""
    chosen = read(f"DAEMON_LIST = {listed}\n")
    assert others(chosen) == optional
    assert [one.word for one in chosen.members if one.word in STANDING] == STANDING
    assert chosen.members[-1].word == STANDING[-1]
    assert chosen.warnings == ()


def test_a_name_that_nobody_knows_is_told_with_those_there_are(read):
    chosen = read("DAEMON_LIST = DEFRAG DEFRAGG\n")
    assert others(chosen) == ("DEFRAG",)
    (warning,) = chosen.warnings
    assert "pool.conf, line 1: DAEMON_LIST names DEFRAGG" in warning
    assert "SCHEDD" in warning
    assert "of choice DEFRAG, ROOSTER" in warning


#: The manual's view server beside the pool's collector, and its two view servers on one machine.
VIEW_SERVER = """
      VIEW_SERVER = $(COLLECTOR)
      VIEW_SERVER_ARGS = -f -p 12345
      VIEW_SERVER_ENVIRONMENT = "_CONDOR_COLLECTOR_LOG=$(LOG)/ViewServerLog"
      DAEMON_LIST = MASTER, NEGOTIATOR, COLLECTOR, VIEW_SERVER
"""
VIEW_SERVERS = """
    VIEWSERV01 = $(COLLECTOR)
    VIEWSERV01_ARGS = -f -p 12345 -local-name VIEWSERV01
    VIEWSERV01_ENVIRONMENT = "_CONDOR_COLLECTOR_LOG=$(LOG)/ViewServerLog01"
    VIEWSERV01.POOL_HISTORY_DIR = $(LOCAL_DIR)/poolhist01
    VIEWSERV01.KEEP_POOL_HISTORY = TRUE
    VIEWSERV01.CONDOR_VIEW_HOST =

    VIEWSERV02 = $(COLLECTOR)
    VIEWSERV02_ARGS = -f -p 24680 -local-name VIEWSERV02
    VIEWSERV02_ENVIRONMENT = "_CONDOR_COLLECTOR_LOG=$(LOG)/ViewServerLog02"
    VIEWSERV02.POOL_HISTORY_DIR = $(LOCAL_DIR)/poolhist02
    VIEWSERV02.KEEP_POOL_HISTORY = TRUE
    VIEWSERV02.CONDOR_VIEW_HOST =

    CONDOR_VIEW_HOST = localhost.localdomain:12345 localhost.localdomain:24680
    DAEMON_LIST = $(DAEMON_LIST) VIEWSERV01 VIEWSERV02
"""


@spec("CFG-13")
def test_the_manuals_view_server(read):
    """Its local name is its name in DAEMON_LIST; what does nothing is told line by line."""
    chosen = read(VIEW_SERVER)
    assert Member("VIEW_SERVER", "COLLECTOR", "VIEW_SERVER", port="12345") in chosen.members
    port, log = chosen.warnings
    assert "line 3: VIEW_SERVER_ARGS: -p 12345 does nothing" in port
    assert "line 4: VIEW_SERVER_ENVIRONMENT: _CONDOR_COLLECTOR_LOG does nothing" in log


@spec("CFG-13", "VIEW-06")
def test_the_manuals_two_view_servers(read):
    """They hear of everything anyway, so nothing is forwarded to them."""
    chosen = read(VIEW_SERVERS)
    assert [(one.local_name, one.port) for one in chosen.members if one.subsystem == "COLLECTOR"] == [
        ("", ""),
        ("VIEWSERV01", "12345"),
        ("VIEWSERV02", "24680"),
    ]
    views = "localhost.localdomain:12345 localhost.localdomain:24680, elsewhere:24680 node1:12345 localhost:9618"
    assert views_within(chosen.members, views, {"node1"}) == "elsewhere:24680, localhost:9618"


@spec("CFG-12", "CFG-13")
def test_arguments_and_environment_of_any_daemon(read):
    chosen = read(
        "SCHEDD_B = /usr/sbin/condor_schedd\nSCHEDD_B_ARGS = -f -t -local-name b -v\nC = $(SCHEDD_B)\n"
        "C_ENVIRONMENT = ;_condor_MAX_JOBS_RUNNING=7;OTHER=1\nSTARTD_ARGS = \"-name 'my node'\"\n"
        'STARTD_ENVIRONMENT = "_CONDOR_NUM_CPUS=3"\nGPUS = $(DEFRAG)\nDAEMON_LIST = SCHEDD_B C GPUS\n'
    )
    by_word = {one.word: one for one in chosen.members}
    assert by_word["SCHEDD_B"] == Member("SCHEDD_B", "SCHEDD", "b")
    assert by_word["C"] == Member("C", "SCHEDD", "C", macros={"MAX_JOBS_RUNNING": "7"})
    assert by_word["STARTD"] == Member("STARTD", "STARTD", name="my node", macros={"NUM_CPUS": "3"})
    assert by_word["GPUS"] == Member("GPUS", "DEFRAG", "GPUS")
    assert [warning.partition(": ")[2].partition(" does ")[0] for warning in chosen.warnings] == [
        "SCHEDD_B_ARGS: -v",
        "C_ENVIRONMENT: OTHER",
    ]


@spec("CFG-13")
def test_what_can_not_be_read_is_told_and_left_out(read):
    chosen = read('STARTD_ARGS = "-name \'x"\nSTARTD_ENVIRONMENT = nothing\nSCHEDD_ARGS = -local-name\n')
    assert Member("STARTD", "STARTD") in chosen.members
    assert Member("SCHEDD", "SCHEDD") in chosen.members
    assert len(chosen.warnings) == 3


@spec("CFG-13", "MUL-01")
def test_each_negotiator_has_a_had_of_its_name(read):
    chosen = read("N2 = $(NEGOTIATOR)\nN2_ARGS = -local-name two\nHAD2 = $(HAD)\nDAEMON_LIST = N2 HAD HAD2\n")
    found = [one for one in chosen.members if one.subsystem in ("HAD", "NEGOTIATOR")]
    assert found == [
        *(Member("HAD", "HAD"), Member("HAD_N2", "HAD", "two")),
        *(Member("NEGOTIATOR", "NEGOTIATOR"), Member("N2", "NEGOTIATOR", "two")),
    ]
    (warning,) = chosen.warnings
    assert "line 4: DAEMON_LIST names HAD2, another HAD" in warning


def test_every_optional_daemon_is_there_under_its_name():
    for subsystem, place in OPTIONAL.items():
        found = load(place)
        assert issubclass(found, Daemon)
        assert found.subsystem == subsystem
        assert subsystem not in STANDING


def test_a_pool_reads_the_list_of_its_configuration(tmp_path, monkeypatch):
    monkeypatch.delenv("CONDOR_CONFIG", raising=False)
    prepare(tmp_path)
    (tmp_path / "config").write_text(
        "use ROLE : Personal\nDAEMON_LIST = $(DAEMON_LIST), VIEW1, AGAIN, NONSUCH\nVIEW1 = $(COLLECTOR)\n"
        "AGAIN = $(COLLECTOR)\nAGAIN_ARGS = -local-name view1\n"
    )
    pool = PersonalPool(Plan(tmp_path))
    members = pool._choose()
    assert [one.word for one in members] == [one for word in STANDING for one in _with_view(word)]
    unknown, again = pool.warnings
    assert "names NONSUCH" in unknown
    assert "names AGAIN, which would have the name" in again


#: The manual's central manager with fixed ports, without its comments.
AVAILABLE = r"""
CENTRAL_MANAGER1 = cm1.domain.name
CENTRAL_MANAGER2 = cm2.domain.name
CONDOR_HOST = $(CENTRAL_MANAGER1),$(CENTRAL_MANAGER2)
HAD_PORT = 51450
HAD_ARGS = -f -p $(HAD_PORT)
REPLICATION_PORT = 41450
REPLICATION_ARGS = -p $(REPLICATION_PORT)
HAD_LIST = \
$(CENTRAL_MANAGER1):$(HAD_PORT), \
$(CENTRAL_MANAGER2):$(HAD_PORT)
REPLICATION_LIST = \
$(CENTRAL_MANAGER1):$(REPLICATION_PORT), \
$(CENTRAL_MANAGER2):$(REPLICATION_PORT)
HAD_CONTROLLEE = NEGOTIATOR
HAD_CONNECTION_TIMEOUT = 2
HAD_USE_PRIMARY = true
DAEMON_LIST = MASTER, COLLECTOR, NEGOTIATOR, HAD, REPLICATION
HAD_USE_REPLICATION = true
STATE_FILE = $(SPOOL)/Accountantnew.log
REPLICATION_INTERVAL = 300
MAX_TRANSFER_LIFETIME = 300
HAD_UPDATE_INTERVAL = 300
MASTER_NEGOTIATOR_CONTROLLER = HAD
MASTER_HAD_BACKOFF_CONSTANT = 360
"""


@spec("CFG-13")
def test_the_manuals_high_availability(tmp_path, monkeypatch):
    """It starts as it is written, and what does nothing is told with its line."""
    monkeypatch.delenv("CONDOR_CONFIG", raising=False)
    prepare(tmp_path)
    (tmp_path / "config").write_text(AVAILABLE)
    pool = PersonalPool(Plan(tmp_path))
    assert [member.word for member in pool._choose()] == STANDING
    assert pool.warnings == ()
    told = {problem.partition(": ")[2].split()[0]: problem.partition(": ")[0] for problem in pool.problems}
    lines = {name: int(place.rpartition(" ")[2]) for name, place in told.items()}
    assert {
        name: lines[name]
        for name in ("HAD_ARGS", "REPLICATION_ARGS", "REPLICATION_LIST", "MASTER_NEGOTIATOR_CONTROLLER")
    } == {"HAD_ARGS": 6, "REPLICATION_ARGS": 8, "REPLICATION_LIST": 12, "MASTER_NEGOTIATOR_CONTROLLER": 24}


def _with_view(word):
    return (word, "VIEW1") if word == "COLLECTOR" else (word,)


def test_problems_of_all_daemons_are_told_once(tmp_path, monkeypatch):
    monkeypatch.delenv("CONDOR_CONFIG", raising=False)
    prepare(tmp_path)
    (tmp_path / "config").write_text("STARTD_ATTRS = Bad\nBad = 1 +\nWANT_UDP_COMMAND_SOCKET = true\n")
    pool = PersonalPool(Plan(tmp_path))
    pool._choose()
    assert sorted(problem.partition(": ")[2].split()[0] for problem in pool.problems) == [
        "BAD",
        "WANT_UDP_COMMAND_SOCKET",
    ]


def test_what_nothing_is_started_for_is_told_on_the_terminal(tmp_path, capsys):
    """By `roost up`, once the pool is up."""
    pool = SimpleNamespace(
        plan=Plan(tmp_path), url="http://127.0.0.1:1", warnings=("DAEMON_LIST names NONSUCH",), problems=("X is bad",)
    )
    up._announce(pool)
    told = capsys.readouterr()
    assert told.err == "WARNING: X is bad\nWARNING: DAEMON_LIST names NONSUCH\n"
    assert "The pool is up" in told.out
