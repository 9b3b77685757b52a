"""What DAEMON_LIST comes to in a personal pool."""

from types import SimpleNamespace

import pytest

from roost import daemon_list
from roost.cli import up
from roost.daemon_list import OPTIONAL, choose, load
from roost.up import DAEMONS, PersonalPool, Plan, prepare
from shared.daemon.base import Daemon
from tests.spec import spec

STANDING = [one.subsystem for one in DAEMONS]
SOME = {"DEFRAG": "services.defrag.daemon:Defrag", "ROOSTER": "services.rooster.daemon:Rooster"}


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
def test_known_names_are_taken_without_a_word(listed, optional):
    """Separated by commas, blanks or both; standing daemons run whether they are named or not."""
    chosen = choose(listed.replace(",", " ").split(), STANDING, {}, SOME)
    assert chosen.optional == optional
    assert chosen.warnings == ()


def test_a_name_that_nobody_knows_is_told_with_those_there_are():
    chosen = choose(["DEFRAG", "DEFRAGG"], STANDING, {}, SOME)
    assert chosen.optional == ("DEFRAG",)
    (warning,) = chosen.warnings
    assert "names DEFRAGG" in warning
    assert "SCHEDD" in warning
    assert "of choice DEFRAG, ROOSTER" in warning


@spec("CFG-13")
def test_a_second_daemon_of_a_kind_is_told_how_to_start():
    """VIEW_SERVER = $(COLLECTOR)."""
    chosen = choose(["VIEW_SERVER"], STANDING, {"VIEW_SERVER": "/usr/sbin/condor_collector"}, SOME)
    assert chosen.optional == ()
    (warning,) = chosen.warnings
    assert "a second collector" in warning
    assert "python -m services.collector -local-name VIEW_SERVER" in warning


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
        "use ROLE : Personal\nDAEMON_LIST = $(DAEMON_LIST), VIEW1, NONSUCH\nVIEW1 = $(COLLECTOR)\n"
    )
    pool = PersonalPool(Plan(tmp_path))
    assert pool._daemons() == DAEMONS
    second, unknown = pool.warnings
    assert "a second collector" in second
    assert "names NONSUCH" in unknown


def test_an_optional_daemon_starts_before_the_gateway(tmp_path, monkeypatch):
    monkeypatch.delenv("CONDOR_CONFIG", raising=False)
    monkeypatch.setattr(daemon_list, "OPTIONAL", {"SOMEBODY": "roost.up:PersonalPool"})
    prepare(tmp_path)
    (tmp_path / "config").write_text("DAEMON_LIST = $(DAEMON_LIST) SOMEBODY\n")
    assert PersonalPool(Plan(tmp_path))._daemons() == (*DAEMONS[:-1], PersonalPool, DAEMONS[-1])


def test_what_nothing_is_started_for_is_told_on_the_terminal(tmp_path, capsys):
    """By `roost up`, once the pool is up."""
    pool = SimpleNamespace(plan=Plan(tmp_path), url="http://127.0.0.1:1", warnings=("DAEMON_LIST names NONSUCH",))
    up._announce(pool)
    told = capsys.readouterr()
    assert told.err == "WARNING: DAEMON_LIST names NONSUCH\n"
    assert "The pool is up" in told.out
