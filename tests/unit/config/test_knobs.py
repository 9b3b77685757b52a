"""Declared knobs, typed settings, and the page made from them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path

import pytest

from shared.classad import unparse
from shared.config import ConfigError, effects_page, load_config
from shared.config.knobs import (
    KNOBS,
    SETTINGS,
    CollectorSettings,
    GatewaySettings,
    NegotiatorSettings,
    ScheddSettings,
    StartdSettings,
)
from shared.config.knobs.base import Settings, declared, family, knob, knobs_of
from shared.config.reference import page
from tests.cases import each

ROOT = Path(__file__).parents[3]
TABLE = [
    line.split("\t")
    for line in (Path(__file__).parent / "data" / "knobs.tsv").read_text(encoding="utf-8").splitlines()[1:]
]


def settings(kind, text="", tmp_path=None):
    if not text:
        return kind.from_config(load_config([], subsystem=kind.SUBSYSTEM, env={}))
    path = tmp_path / "pool.conf"
    path.write_text(text)
    return kind.from_config(load_config([path], subsystem=kind.SUBSYSTEM, env={}))


def test_knob_has_the_default_of_the_specification():
    def check(row):
        name, default = row
        found = KNOBS[name.lower()]
        assert found.name == name
        if not found.is_family:
            assert (found.default or "") == default

    each(TABLE, check, lambda row: row[0])


@pytest.mark.parametrize("kind", SETTINGS)
def test_defaults_are_valid_settings(kind):
    made = settings(kind)
    assert dataclasses.is_dataclass(made)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.log = "elsewhere"
    with pytest.raises(dataclasses.FrozenInstanceError):
        del made.log


def test_settings_are_values():
    made = settings(StartdSettings)
    assert made == settings(StartdSettings) == copy.copy(made)
    other = dataclasses.replace(made, update_interval=7)
    assert (other.update_interval, other == made, made == settings(ScheddSettings)) == (7, False, False)
    assert "update_interval=7" in repr(other)
    for wrong in ({"update_interval": 7}, {**{one.name: 0 for one in dataclasses.fields(made)}, "nobodys": 1}):
        with pytest.raises(TypeError, match="a value for each of its knobs"):
            StartdSettings(**wrong)


def test_settings_are_read_once_until_something_is_set():
    config = load_config([], subsystem="NEGOTIATOR", env={})
    first = NegotiatorSettings.from_config(config)
    assert NegotiatorSettings.from_config(config) is first
    assert ScheddSettings.from_config(config) is not first
    config.override({"NEGOTIATOR_INTERVAL": "7"})
    assert NegotiatorSettings.from_config(config).negotiator_interval == 7
    assert first.negotiator_interval != 7
    config.override({"NEGOTIATOR_INTERVAL": "soon"})
    for _ in range(2):
        with pytest.raises(ConfigError, match="soon"):
            NegotiatorSettings.from_config(config)


@pytest.mark.parametrize("kind", SETTINGS)
def test_field_is_named_like_its_knob(kind):
    for one in knobs_of(kind):
        if not one.is_family:
            fields = {field.name for field in dataclasses.fields(kind)}
            assert one.name.lower() in fields or f"{one.name.lower()}_" in fields
        assert one.meaning


def test_arithmetic_and_helpers_are_evaluated(tmp_path):
    made = settings(
        NegotiatorSettings, "NEGOTIATOR_INTERVAL = 15 * $(MINUTE)\nPRIORITY_HALFLIFE = (2 * $(HOUR))\n", tmp_path
    )
    assert made.negotiator_interval == 900
    assert made.priority_halflife == 7200.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TRUE", True),
        ("true", True),
        ("t", True),
        ("1", True),
        ("2 > 1", True),
        ("False", False),
        ("0", False),
        ("no", False),
    ],
)
def test_booleans_are_read_as_the_reference_does(tmp_path, text, value):
    assert settings(NegotiatorSettings, f"NEGOTIATOR_DEPTH_FIRST = {text}\n", tmp_path).negotiator_depth_first is value


def test_lists_take_commas_and_blanks(tmp_path):
    made = settings(NegotiatorSettings, "GROUP_NAMES = a, b.c d ,e\n", tmp_path)
    assert made.group_names == ("a", "b.c", "d", "e")


def test_expressions_are_parsed(tmp_path):
    made = settings(StartdSettings, 'START = TARGET.Owner == $(WHO)\nWHO = "ann"\n', tmp_path)
    assert unparse(made.start) == 'TARGET.Owner == "ann"'


def test_families_are_maps_by_what_stands_for_the_blank(tmp_path):
    text = (
        "GROUP_QUOTA_Physics.hep = 2 * 5\nGROUP_QUOTA_DYNAMIC_chem = 0.25\nNEGOTIATOR.GROUP_QUOTA_bio = 1\n"
        "GROUP_QUOTA_ROUND_ROBIN_RATE = 3\nXSW_LIMIT = 3\n"
    )
    made = settings(NegotiatorSettings, text, tmp_path)
    assert dict(made.group_quota_by_groupname) == {"physics.hep": 10.0, "bio": 1.0}
    assert dict(made.group_quota_dynamic_by_groupname) == {"chem": 0.25}
    assert made.group_quota_round_robin_rate == 3.0
    assert dict(made.limit_by_name) == {"xsw": "3"}


def test_what_is_set_to_nothing_is_nothing_where_that_means_something(tmp_path):
    text = "NUM_SLOTS =\nMOUNT_UNDER_SCRATCH =\nBASE_CGROUP =\nBENCHMARKS_JOBLIST = $(NOBODY)\nPOLLING_INTERVAL =\n"
    made = settings(StartdSettings, text, tmp_path)
    assert (made.num_slots, made.mount_under_scratch, made.base_cgroup) == (None, None, None)
    assert made.benchmarks_joblist == ()
    assert made.polling_interval == 5  # a number has to be one: the default, and a warning
    unset = settings(StartdSettings, "", tmp_path)
    assert unset.mount_under_scratch is not None
    assert (unset.base_cgroup, unset.benchmarks_joblist) == ("htcondor", ("mips", "kflops"))


def test_all_problems_come_at_once_with_place_and_mend(tmp_path):
    text = (
        "NEGOTIATOR_INTERVAL = soon\n\nNEGOTIATOR_CYCLE_DELAY = -1\nNEGOTIATOR_INFORM_STARTD = perhaps\n"
        "PREEMPTION_RANK = 1 +\nGROUP_QUOTA_a = -2\nNEGOTIATION_CYCLE_STATS_LENGTH = 101\n"
        "LOG = $(SPOOL)\nSPOOL = $(LOG)\n"
    )
    with pytest.raises(ConfigError) as caught:
        settings(NegotiatorSettings, text, tmp_path)
    told = str(caught.value)
    for line, mend in (
        (1, "give a number"),
        (3, "give at least 0"),
        (4, "give true or false"),
        (5, "give a ClassAd expression"),
        (6, "give at least 0"),
        (7, "give at most 100"),
    ):
        assert any(f"pool.conf, line {line}:" in row and mend in row for row in told.splitlines()), (line, mend)
    assert "refers to itself" in told


def test_words_are_checked(tmp_path):
    assert (
        settings(StartdSettings, "CGROUP_MEMORY_LIMIT_POLICY = SOFT\n", tmp_path).cgroup_memory_limit_policy == "SOFT"
    )
    with pytest.raises(ConfigError, match="one of hard, soft"):
        settings(StartdSettings, "CGROUP_MEMORY_LIMIT_POLICY = loose\n", tmp_path)


def test_agreed_defaults_of_our_own_knobs():
    assert settings(GatewaySettings).roost_gateway_port == 9680
    assert settings(NegotiatorSettings).roost_negotiator_coalesce == 0.2
    common = settings(ScheddSettings)
    assert (common.roost_amqp_url, common.roost_redis_url, common.roost_health_port) == (None, None, 0)


def test_adding_a_knob_is_one_line():
    @declared
    class Small(Settings):
        SUBSYSTEM = "SMALL"
        pause: float = knob("SMALL_PAUSE", "1.5", unit="s", least=0, meaning="wait")
        by_name: Mapping[str, bool] = family("SMALL_<Name>_ON", meaning="whether")

    config = load_config([], subsystem="SMALL", env={}, overrides={"SMALL_x_ON": "true"})
    made = Small.from_config(config)
    assert (made.pause, dict(made.by_name)) == (1.5, {"x": True})


def test_collector_knows_how_long_an_ad_lives():
    assert settings(CollectorSettings).classad_lifetime == 900


def test_page_of_effects_is_fresh():
    written = (ROOT / "docs" / "effects.md").read_text(encoding="utf-8")
    assert written == effects_page.page(), "run: python -m shared.config.effects_page > docs/effects.md"


def test_page_of_knobs_is_fresh():
    written = (ROOT / "docs" / "knobs.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m shared.config.reference > docs/knobs.md"
