"""An administrator's rules for submitted jobs: transforms, submit requirements, immutable attributes, and the
accounting groups that are assigned by them (GRP-26, GRP-27; worked example W-26)."""

from __future__ import annotations

import pytest

from engine.queue.jobs import BadSubmit
from engine.queue.submitters import submitter_of
from services.schedd.core.acceptance import check_edits
from services.schedd.core.rules import BadRule, Rules, parse_transform, read_rules
from shared.classad import UNDEFINED, ClassAd, parse_ad
from shared.config import Config, ConfigError, load_config
from shared.daemon import user_maps
from tests.spec import spec

NOW = 1_000_000_000.0
MAP = """\
* Alice group_physics
* Bob group_atlas
* Carol group_physics
* /^student_.*/ group_students
* Eve g1,g2
"""


def config_of(tmp_path, text: str) -> Config:
    file = tmp_path / "config"
    file.write_text(text)
    return load_config([file], subsystem="SCHEDD", env={})


def rules_of(tmp_path, text: str) -> Rules:
    return read_rules(config_of(tmp_path, text))


@pytest.fixture
def assigning(tmp_path):
    """The rules of a schedd that assigns accounting groups."""
    file = tmp_path / "map"
    file.write_text(MAP)
    config = config_of(tmp_path, f"use FEATURE : AssignAccountingGroup({file})\n")
    assert user_maps.install("schedd.here", *user_maps.read(config, "SCHEDD")) == []
    yield read_rules(config)
    user_maps.remove("schedd.here")


def config_domain() -> str:
    return load_config([], subsystem="SCHEDD", env={})["UID_DOMAIN"]


def submitted(rules: Rules, owner: str, **more: object) -> ClassAd:
    ad = ClassAd({"Owner": owner, "JobUniverse": 5, **more})
    rules.transform(ad, NOW)
    rules.check(ad, NOW)
    return ad


@spec("GRP-26", "W-26")
@pytest.mark.parametrize(
    ("owner", "asked", "group"),
    [
        ("Alice", None, "group_physics"),
        ("Carol", "group_physics", "group_physics"),
        ("student_7", None, "group_students"),
        ("student_7", "GROUP_Students", "group_students"),
        ("Eve", None, "g1"),
        ("Eve", "g2", "g2"),
    ],
)
def test_the_map_assigns_the_group(assigning, owner, asked, group):
    more = {} if asked is None else {"AcctGroup": asked, "AccountingGroup": f"{asked}.{owner}"}
    ad = submitted(assigning, owner, **more)
    assert (ad["AcctGroup"], ad["AcctGroupUser"]) == (group, owner)
    assert submitter_of(ad, f"{owner}@pool") == f"{group}.{owner}@pool"


@spec("GRP-27", "W-26")
@pytest.mark.parametrize(
    ("owner", "asked", "told"),
    [
        ("Bob", "group_physics", "You may not use accounting group group_physics"),
        ("Eve", "g3", "You may not use accounting group g3"),
        ("dave", None, "No accounting group is known for dave"),
        ("dave", "g1", "You may not use accounting group g1"),
        ("alice", None, "No accounting group is known for alice"),
        ("teacher_student_7", None, "No accounting group is known for teacher_student_7"),
    ],
)
def test_no_line_or_another_group_is_refused(assigning, owner, asked, told):
    with pytest.raises(BadSubmit, match=told):
        submitted(assigning, owner, **({} if asked is None else {"AcctGroup": asked}))


@spec("GRP-26")
def test_a_namesake_of_another_domain_has_not_the_line_of_a_user(assigning):
    domain = config_domain()
    assert submitted(assigning, "Alice", User=f"Alice@{domain}")["AccountingGroup"] == "group_physics.Alice"
    with pytest.raises(BadSubmit, match="No accounting group is known"):
        submitted(assigning, "Alice", User="Alice@evil.example")


@spec("GRP-26")
def test_what_a_user_writes_himself_does_not_get_round_the_map(assigning):
    ad = submitted(
        assigning, "Bob", AccountingGroup="group_physics.Carol", AcctGroupUser="Carol", RequestedAcctGroup="group_atlas"
    )
    assert submitter_of(ad, "Bob@pool") == "group_atlas.Bob@pool"
    for name in ("AcctGroup", "AcctGroupUser", "AccountingGroup"):
        with pytest.raises(BadSubmit, match=f"{name}: this pool lets nobody change it"):
            check_edits(ClassAd({name: "x"}).pack(), admin=True, immutable=assigning.immutable)
    assert check_edits(ClassAd({"Custom": 1}).pack(), admin=False, immutable=assigning.immutable)


@spec("GRP-26")
def test_a_job_that_says_it_itself_is_ruled_by_itself(assigning):
    before = ClassAd({"Owner": "Eve"})
    after = before.copy()
    assigning.transform(after, NOW)
    own = ClassAd({"AcctGroup": "g2", "Args": "7"})
    assigning.rule(own, before, after, NOW)
    assert dict(own) == {
        "Args": "7",
        "RequestedAcctGroup": "g2",
        "AcctGroup": "g2",
        "AccountingGroup": "g2.Eve",
    }
    same = ClassAd({"AccountingGroup": "whatever"})
    assigning.rule(same, before, after, NOW)
    assert dict(same) == {}  # as its cluster says
    with pytest.raises(BadSubmit, match="may not use"):
        assigning.rule(ClassAd({"AcctGroup": "g3"}), before, after, NOW)


LINES = """\
# comment
NAME for everybody
REQUIREMENTS JobUniverse == 5
SET Extra = 1 + 1
EVALSET Sum RequestCpus + 1
DEFAULT RequestCpus 7
DEFAULT RequestDisk = 8
COPY Args Copied
RENAME Old New
DELETE Gone
COPY Nothing Copied
"""
OLD_WAY = """[
  Name = "for everybody"; Requirements = JobUniverse == 5; eval_set_Sum = RequestCpus + 1; set_Extra = 1 + 1;
  default_RequestCpus = 7; default_RequestDisk = 8; copy_Args = "Copied"; rename_Old = "New"; delete_Gone = true
]"""


@pytest.mark.parametrize("text", [LINES, OLD_WAY])
def test_the_statements_of_a_transform(text):
    rules = Rules((parse_transform("t", text),))
    ad = parse_ad('[JobUniverse = 5; RequestCpus = 2; Args = "a"; Old = x + 1; Gone = 3]')
    rules.transform(ad, NOW)
    assert ad == parse_ad(
        '[JobUniverse = 5; RequestCpus = 2; Args = "a"; Extra = 1 + 1; Sum = 3; RequestDisk = 8; Copied = "a"; '
        "New = x + 1]"
    )
    other = parse_ad("[JobUniverse = 7; Gone = 3]")
    rules.transform(other, NOW)
    assert other == parse_ad("[JobUniverse = 7; Gone = 3]")


def test_what_comes_from_the_cluster_is_covered_where_it_is_deleted():
    rules = Rules((parse_transform("t", "DELETE Gone\nRENAME Old New"),))
    before = parse_ad("[Gone = 1; Old = 2; Args = 3]")
    after = parse_ad("[Gone = 1; Old = 2; Args = 3]")
    own = parse_ad("[Old = 5]")
    rules.rule(own, before, after, NOW)
    own.chain(after)
    assert own.eval("Gone") is UNDEFINED
    assert own.eval("Old") is UNDEFINED
    assert (own.eval("New"), own.eval("Args")) == (5, 3)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SET", "'' is no attribute name"),
        ("SET 9x 1", "'9x' is no attribute name"),
        ("SET X )", "unexpected"),
        ("FROB X 1", "use SET, DEFAULT, EVALSET, COPY, RENAME, DELETE, REQUIREMENTS or NAME"),
        ("COPY X", "'' is no attribute name"),
        ("DELETE X Y", "DELETE takes one attribute"),
        ("REQUIREMENTS", "JOB_TRANSFORM_t: 'REQUIREMENTS'"),
        ("[ set_x ]", "JOB_TRANSFORM_t"),
        ("[ frob_x = 1 ]", "frob_x: use eval_set_"),
        ("[ copy_x = 1 ]", "'' is no attribute name"),
        ("= 3", "use SET"),
    ],
)
def test_a_transform_that_can_not_be_read_says_where_and_why(text, told):
    with pytest.raises(BadRule) as error:
        parse_transform("t", text)
    assert told in str(error.value)
    assert "JOB_TRANSFORM_t" in str(error.value)


def test_all_bad_rules_are_told_at_once(tmp_path):
    with pytest.raises(ConfigError) as error:
        rules_of(
            tmp_path,
            'JOB_TRANSFORM_NAMES = a, none, own\nJOB_TRANSFORM_a = FROB\nJOB_TRANSFORM_own = SET Owner "root"\n'
            "SUBMIT_REQUIREMENT_NAMES = r, q\nSUBMIT_REQUIREMENT_r = )\n",
        )
    told = str(error.value)
    for part in (
        "FROB",
        "JOB_TRANSFORM_none is not defined",
        "SET Owner: the schedd keeps this attribute itself",
        "SUBMIT_REQUIREMENT_r: ",
        "SUBMIT_REQUIREMENT_q is not defined",
    ):
        assert part in told
    assert "config, line 2" in told


def test_requirements_are_asked_in_order_and_only_true_is_enough(tmp_path):
    rules = rules_of(
        tmp_path,
        "SUBMIT_REQUIREMENT_NAMES = mem, soft, group\n"
        "SUBMIT_REQUIREMENT_mem = TARGET.RequestMemory >= 1024\n"
        'SUBMIT_REQUIREMENT_mem_REASON = strcat("asks for ", RequestMemory, " MiB; 1024 is the least")\n'
        "SUBMIT_REQUIREMENT_soft = Soft\nSUBMIT_REQUIREMENT_soft_IS_WARNING = True\n"
        "SUBMIT_REQUIREMENT_group = Group isnt undefined\n",
    )
    assert rules.check(ClassAd({"RequestMemory": 1024, "Group": "g", "Soft": True}), NOW) == []
    assert rules.check(ClassAd({"RequestMemory": 1024, "Group": "g"}), NOW) == [
        "Soft is not true of this job (submit requirement soft)"
    ]
    for ad, told in (
        ({"RequestMemory": 5, "Group": "g"}, "asks for 5 MiB; 1024 is the least (submit requirement mem)"),
        ({"Group": "g"}, "TARGET.RequestMemory >= 1024 is not true of this job (submit requirement mem)"),
        ({"RequestMemory": 1024}, "Group isnt undefined is not true of this job (submit requirement group)"),
    ):
        with pytest.raises(BadSubmit) as error:
            rules.check(ClassAd(ad), NOW)
        assert str(error.value) == told


def test_another_attribute_by_a_map_as_the_template_writes_it(tmp_path):
    file = tmp_path / "map"
    file.write_text("* alice gold\n")
    config = config_of(tmp_path, f"use FEATURE : SetJobAttrFromUserMap(Class, Owner, Classes, {file})\n")
    user_maps.install("schedd.here", *user_maps.read(config, "SCHEDD"))
    try:
        rules = read_rules(config)
        assert submitted(rules, "alice")["Class"] == "gold"
        with pytest.raises(BadSubmit, match="No Class is known for bob"):
            submitted(rules, "bob")
    finally:
        user_maps.remove("schedd.here")


def test_without_rules_nothing_is_touched():
    rules = Rules()
    assert not rules
    assert rules.touched == frozenset()
    assert rules.check(ClassAd(), NOW) == []
