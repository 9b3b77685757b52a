"""The maps of userMap(): from the configuration into the process, and anew at a reconfiguration (GRP-26)."""

from __future__ import annotations

import os

import pytest

from shared.classad import UNDEFINED, evaluate, parse_expr
from shared.config import load_config
from shared.daemon import user_maps
from shared.daemon.ad_table import daemon_name
from shared.daemon.lifecycle import install_user_maps
from tests.daemons import make_context


def install(daemon: str, config: dict[str, str], subsystem: str = "SCHEDD") -> list[str]:
    loaded = load_config([], subsystem=subsystem, env={}, overrides={key: str(value) for key, value in config.items()})
    return user_maps.install(daemon, *user_maps.read(loaded, subsystem))


@pytest.fixture(autouse=True)
def _clean():
    yield
    for daemon in ("schedd.a", "schedd.b", "negotiator.n", daemon_name("SCHEDD", "a")):
        user_maps.remove(daemon)


def group(name: str, user: str = "alice") -> object:
    return evaluate(parse_expr(f'userMap("{name}", "{user}")'))


def test_maps_come_from_files_and_from_texts(tmp_path):
    file = tmp_path / "map"
    file.write_text("* alice gold\n")
    told = install(
        "schedd.a",
        {
            "SCHEDD_CLASSAD_USER_MAP_NAMES": "Files",
            "CLASSAD_USER_MAP_NAMES": "texts, Files",
            "NEGOTIATOR_CLASSAD_USER_MAP_NAMES": "others",
            "CLASSAD_USER_MAPFILE_Files": file,
            "CLASSAD_USER_MAPDATA_Texts": "* alice silver\n* /^b/ bronze",
            "CLASSAD_USER_MAPDATA_others": "* alice tin",
        },
    )
    assert told == []
    assert (group("files"), group("TEXTS"), group("texts", "bob")) == ("gold", "silver", "bronze")
    assert group("others") is UNDEFINED


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: None, "there is no such file"),
        (lambda path: path.mkdir(), "it is no regular file"),
        (lambda path: os.mkfifo(path), "it is no regular file"),
        (lambda path: path.write_text("* /(/ x"), "line 1: /(/ is not a regular expression"),
        (lambda path: path.write_text("* alice"), "line 1: expected `* user groups`"),
    ],
)
def test_a_map_that_can_not_be_read_is_told_of_and_is_not_there(tmp_path, make, told):
    file = tmp_path / "map"
    make(file)
    problems = install("schedd.a", {"CLASSAD_USER_MAP_NAMES": "m", "CLASSAD_USER_MAPFILE_m": file})
    assert len(problems) == 1
    assert problems[0].startswith(f"CLASSAD_USER_MAPFILE_m = {file}: ")
    assert told in problems[0]
    assert problems[0].endswith("; there is no such map now")
    assert group("m") is UNDEFINED


def test_a_name_without_a_map_is_told_of():
    assert install("schedd.a", {"CLASSAD_USER_MAP_NAMES": "m"}) == [
        "CLASSAD_USER_MAP_NAMES has the user map m: set CLASSAD_USER_MAPFILE_m or CLASSAD_USER_MAPDATA_m; "
        "there is no such map now"
    ]


def test_a_map_that_is_spoilt_stays_as_it_was_and_one_taken_out_goes(tmp_path):
    file = tmp_path / "map"
    file.write_text("* alice gold\n")
    config = {"CLASSAD_USER_MAP_NAMES": "m", "CLASSAD_USER_MAPFILE_m": file}
    install("schedd.a", config)
    file.write_text("* alice\n")
    assert "the map stays as it was" in install("schedd.a", config)[0]
    assert group("m") == "gold"
    file.write_text("* alice lead\n")
    assert install("schedd.a", config) == []
    assert group("m") == "lead"
    assert install("schedd.a", {}) == []
    assert group("m") is UNDEFINED


def test_daemons_of_one_process_keep_theirs_beside_each_other():
    install("schedd.a", {"CLASSAD_USER_MAP_NAMES": "a", "CLASSAD_USER_MAPDATA_a": "* alice one"})
    install("schedd.b", {})
    install("negotiator.n", {"CLASSAD_USER_MAP_NAMES": "n", "CLASSAD_USER_MAPDATA_n": "* alice two"}, "NEGOTIATOR")
    assert (group("a"), group("n")) == ("one", "two")
    user_maps.remove("schedd.a")
    assert (group("a"), group("n")) == (UNDEFINED, "two")


async def test_a_daemon_installs_its_maps_when_it_begins_and_when_it_is_reconfigured(tmp_path):
    file = tmp_path / "map"
    file.write_text("* alice gold\n")

    class Some:
        subsystem = "SCHEDD"
        context = make_context(
            "SCHEDD", "a", config={"SCHEDD_CLASSAD_USER_MAP_NAMES": "m", "CLASSAD_USER_MAPFILE_m": str(file)}
        )

    await install_user_maps(Some())
    assert group("m") == "gold"
    file.write_text("* alice tin\n")
    await install_user_maps(Some())
    assert group("m") == "tin"
