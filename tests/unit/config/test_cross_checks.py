"""What is told of knobs that do not fit each other, of paths, and of knobs that nothing goes by."""

import pytest

from shared.config import load_config
from shared.config.errors import warning_lines
from shared.config.knobs import SETTINGS
from tests.spec import spec


@pytest.fixture
def told(tmp_path):
    """What a daemon of this kind is told of this text, each with its line number; the text begins at line 1."""

    def warnings(subsystem, text):
        file = tmp_path / "condor_config"
        file.write_text(text)
        found = load_config([file], subsystem=subsystem, env={}).warnings
        return [(one.source.line if one.source is not None else 0, one.message) for one in found]

    return warnings


@spec("CFG-21")
@pytest.mark.parametrize("subsystem", [settings.SUBSYSTEM for settings in SETTINGS])
def test_nothing_is_told_of_the_defaults(told, subsystem):
    assert told(subsystem, "") == []


@spec("CFG-21")
def test_an_ad_that_ends_before_its_update_is_told_to_the_daemon_whose_it_is(told):
    text = "CLASSAD_LIFETIME = 400\nSCHEDD_INTERVAL = 400\n"
    assert told("STARTD", text) == []
    [(line, message)] = told("SCHEDD", text)
    assert line == 1
    assert message.startswith("CLASSAD_LIFETIME (400 s) is not above SCHEDD_INTERVAL (400 s)")
    assert told("SCHEDD", "CLASSAD_LIFETIME = 401\nSCHEDD_INTERVAL = 400\n") == []


@spec("CFG-21")
def test_the_longer_least_interval_of_a_negotiator(told):
    [(line, message)] = told("NEGOTIATOR", "NEGOTIATOR_INTERVAL = 20\nNEGOTIATOR_MIN_INTERVAL = 21\n")
    assert (line, "NEGOTIATOR_INTERVAL (20 s) has no effect" in message) == (2, True)
    assert told("NEGOTIATOR", "NEGOTIATOR_INTERVAL = 20\nNEGOTIATOR_MIN_INTERVAL = 20\n") == []


@spec("CFG-21", "CFG-23")
def test_an_attribute_that_is_no_expression(told):
    text = 'STARTD_ATTRS = Good, Bad, Colour\nGood = 1\nBad = (1 +\nColour = 1\nSLOT_TYPE_1_Colour = "red\n'
    found = told("STARTD", text)
    assert [(line, message.partition(" = ")[0]) for line, message in found] == [(3, "BAD"), (5, "SLOT_TYPE_1_COLOUR")]
    assert told("SCHEDD", text) == []


@spec("CFG-21")
def test_an_attribute_of_a_daemons_ad_that_is_no_expression_or_not_there(told):
    text = 'SCHEDD_ATTRS = Good, Bad\nGood = 1\nBad = "no end\nSUBMITTER_ATTRS = Gone, Good\n'
    found = told("SCHEDD", text)
    assert [(line, message.partition(" is ")[0]) for line, message in found] == [
        (3, 'Bad = "no end'),
        (4, "SUBMITTER_ATTRS names Gone, which"),
    ]
    assert told("NEGOTIATOR", text) == []


GROUPS = "GROUP_NAMES = a, b, b.c, b.d\n"


@spec("CFG-21")
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("GROUP_QUOTA_DYNAMIC_a = 0.5\nGROUP_QUOTA_DYNAMIC_b = 0.5\n", []),
        (
            "GROUP_QUOTA_DYNAMIC_a = 0.6\nGROUP_QUOTA_DYNAMIC_b = 0.5\n",
            [(2, "the dynamic quotas of a, b come to 1.1 of the pool, and are scaled down to 1")],
        ),
        # Shares of different parents are not added up.
        ("GROUP_QUOTA_DYNAMIC_a = 0.6\nGROUP_QUOTA_DYNAMIC_b.c = 0.6\n", []),
        (
            "GROUP_QUOTA_DYNAMIC_b.c = 0.6\nGROUP_QUOTA_DYNAMIC_b.d = 0.6\n",
            [(2, "the dynamic quotas of b.c, b.d come to 1.2 of b, and are scaled down to 1")],
        ),
        ("GROUP_QUOTA_x = 3\n", [(2, "GROUP_QUOTA_X has no effect: GROUP_NAMES has no x")]),
        ("GROUP_ACCEPT_SURPLUS_x = true\n", [(2, "GROUP_ACCEPT_SURPLUS_X has no effect: GROUP_NAMES has no x")]),
        ("GROUP_QUOTA_ROUND_ROBIN_RATE = 3\n", []),  # a knob of its own, and no group's
    ],
)
def test_quotas(told, lines, expected):
    assert told("NEGOTIATOR", GROUPS + lines) == expected
    assert told("COLLECTOR", GROUPS + lines) == []


@spec("CFG-21")
def test_a_group_without_its_parent(told):
    assert told("NEGOTIATOR", "GROUP_NAMES = b.c\n") == [(1, "GROUP_NAMES has b.c without b")]


@spec("CFG-21")
def test_a_slot_type_without_a_number(told):
    text = "SLOT_TYPE_2 = cpus=1\n"
    assert told("STARTD", text) == [(1, "SLOT_TYPE_2 makes no slot: NUM_SLOTS_TYPE_2 is not set")]
    assert told("STARTD", text + "NUM_SLOTS_TYPE_2 = 1\n") == []


@spec("CFG-21")
@pytest.mark.parametrize(
    ("start", "value"),
    [
        ("false", "FALSE"),
        ("false && TARGET.ImageSize > 3", "FALSE"),
        ("1 == 2", "FALSE"),
        ("undefined", "UNDEFINED"),
        ('error || "x"', "ERROR"),
        ("true", None),
        ("1", None),
        ('TARGET.Owner == "alice"', None),
        ("Foo", None),  # STARTD_ATTRS may name it, or a job
        ("time() > 5", None),
    ],
)
def test_a_start_that_no_job_meets(told, start, value):
    expected = [] if value is None else [f"START is {value} for every job: these slots never take one"]
    assert [message for _, message in told("STARTD", f"START = {start}\n")] == expected
    named = f"NUM_SLOTS_TYPE_1 = 1\nSLOT_TYPE_1 = cpus=1\nSLOT_TYPE_1_START = {start}\n"
    assert [line for line, _ in told("STARTD", named)] == ([] if value is None else [3])


NEGOTIATORS = "N1.NEGOTIATOR_NAME = n1\nN2.NEGOTIATOR_NAME = n2\n"


@spec("CFG-21")
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("N1.NEGOTIATOR_SLOT_CONSTRAINT = Cpus > 1\nN2.NEGOTIATOR_SLOT_CONSTRAINT = Cpus <= 1\n", ""),
        ("N1.NEGOTIATOR_SLOT_CONSTRAINT = Cpus > 1\n", "N2 has no NEGOTIATOR_SLOT_CONSTRAINT"),
        ("", "N1 has no NEGOTIATOR_SLOT_CONSTRAINT"),
        ("NEGOTIATOR_SLOT_CONSTRAINT = Cpus>1\n", "NEGOTIATOR_SLOT_CONSTRAINT is Cpus > 1 for both"),
    ],
)
def test_negotiators_that_look_at_the_same_slots(told, lines, expected):
    found = [message for _, message in told("NEGOTIATOR", NEGOTIATORS + lines)]
    looks = "the negotiators N1 and N2 look at the same slots: "
    assert found == ([looks + expected] if expected else [])


@spec("CFG-21")
def test_negotiators_of_one_name_stand_by_for_each_other(told):
    assert told("NEGOTIATOR", "N1.NEGOTIATOR_NAME = n\nN2.NEGOTIATOR_NAME = n\nN2.NEGOTIATOR_INTERVAL = 9\n") == []


@spec("CFG-21")
def test_directories_that_can_not_be_made(told, tmp_path):
    (tmp_path / "file").write_text("")
    assert told("SCHEDD", f"SPOOL = {tmp_path}/new/spool\n") == []
    assert told("SCHEDD", f"SPOOL = {tmp_path}/file\n") == [
        (1, f"SPOOL = {tmp_path}/file: {tmp_path}/file is no directory")
    ]
    assert told("SCHEDD", f"EXECUTE = {tmp_path}/file\n") == []
    assert [line for line, _ in told("STARTD", f"EXECUTE = {tmp_path}/file/deep\n")] == [1]


@spec("CFG-21")
def test_programs_that_can_not_be_run(told, tmp_path):
    wrapper = tmp_path / "wrapper"
    text = f"USER_JOB_WRAPPER = {wrapper}\nSTARTD_CRON_x_EXECUTABLE = {wrapper}\nK_HOOK_PREPARE_JOB = {wrapper}\n"
    assert [(line, message.endswith("there is no such file")) for line, message in told("STARTD", text)] == [
        (1, True),
        (2, True),
        (3, True),
    ]
    wrapper.write_text("#!/bin/sh\n")
    assert [message.endswith("it is not executable") for _, message in told("STARTD", text)] == [True] * 3
    wrapper.chmod(0o755)
    assert told("STARTD", text) == []
    assert told("SCHEDD", text) == []


@spec("CFG-21")
def test_knobs_that_nothing_goes_by_are_told_where_they_are_set(told):
    [(line, message)] = told("STARTD", "\nUSE_PROCD = false\nNEGOTIATOR_NUM_THREADS = 4\n")
    assert (line, message.startswith("USE_PROCD has no effect: ")) == (2, True)
    assert [line for line, _ in told("NEGOTIATOR", "\nUSE_PROCD = false\nNEGOTIATOR_NUM_THREADS = 4\n")] == [3]


@pytest.mark.parametrize("daemon", ["SCHEDD", "STARTD", "NEGOTIATOR"])
def test_that_leftovers_of_slots_are_not_claimed_is_told_by_all_who_would(told, daemon):
    """Whatever it says: the negotiator gives out parts of a slot, and nothing is left over (docs/negotiation.md)."""
    for value in ("true", "false"):
        [(line, message)] = told(daemon, f"\nCLAIM_PARTITIONABLE_LEFTOVERS = {value}\n")
        assert line == 2
        assert message == (
            "CLAIM_PARTITIONABLE_LEFTOVERS has no effect: a claim of a partitionable slot is for one carved slot, and "
            "the negotiator gives out the rest at once"
        )


@spec("CFG-21")
def test_knobs_that_no_daemon_of_ours_knows_are_told_by_those_whose_work_they_are_of(told):
    text = "FLOCK_FROM = other\nSTARTER_UPLOAD_TIMEOUT = 1\nSHADOW_LOCK =\nCCB_TIMEOUT = 5\nJAVA_MAXHEAP_ARGUMENT = 3\n"
    assert [line for line, _ in told("SCHEDD", text)] == [1, 2, 4]
    assert [line for line, _ in told("STARTD", text)] == [2, 4, 5]
    assert [line for line, _ in told("COLLECTOR", text)] == [2, 4]
    message = dict(told("SCHEDD", text))[1]
    assert message == (
        "FLOCK_FROM has no effect: access points of other pools are let in by join tokens: roost enroll -create -role "
        "schedd -name NAME"
    )


@spec("CFG-21")
def test_a_name_with_a_scope_is_told_by_whose_scope_it_is(told):
    text = "SCHEDD.DAGMAN_VERBOSITY = 1\nNEGOTIATOR.CCB_TIMEOUT = 2\nN2.USE_PROCD = false\nSHADOW.UPDATE_INTERVAL = 5\n"
    assert [line for line, _ in told("SCHEDD", text)] == [1, 4]
    assert [line for line, _ in told("NEGOTIATOR", text)] == [2, 4]
    assert [line for line, _ in told("STARTD", text)] == [3, 4]
    assert told("SCHEDD", text)[1][1].endswith(
        "no daemon here is called SHADOW, so nothing goes by names that begin with that"
    )


@spec("CFG-21")
def test_macros_of_ones_own_are_never_told_nor_what_they_take_in(told):
    text = (
        "JAVA = /usr/bin/java\nUSER_JOB_WRAPPER = $(JAVA_EXTRA_ARGUMENTS)\nJAVA_EXTRA_ARGUMENTS = $(MINE)\n"
        "MINE = 1\nTEST_URL = x\nSITE_ARGS = y\nMY_LOG = z\nFLOCK_FRIENDS = $(JAVA)\nBOX_CLIENT_ID = me\n"
    )
    assert told("STARTD", text) == []
    # What only such knobs take in that do nothing does nothing either.
    idle = "FLOCK_FROM = a\nFLOCK_COLLECTOR_HOSTS = $(FLOCK_FROM)\n"
    assert [line for line, _ in told("SCHEDD", idle)] == [1, 2]
    assert told("SCHEDD", idle + "ALLOW_READ = $(FLOCK_COLLECTOR_HOSTS)\n") == []


@spec("CFG-21")
def test_what_is_agreed_between_daemons_of_htcondor_is_told_with_where_the_walls_are(told):
    text = "ALLOW_WRITE = *\nSEC_DEFAULT_ENCRYPTION = REQUIRED\nSEC_DAEMON_INTEGRITY = REQUIRED\nALLOW_CLIENT = *\n"
    for subsystem in ("STARTD", "SCHEDD", "NEGOTIATOR"):
        found = dict(told(subsystem, text))
        assert sorted(found) == [2, 3, 4]
        assert all("docs/security.md" in message for message in found.values())


@spec("CFG-21")
def test_warnings_of_knobs_without_effect_come_in_one_line_and_once(tmp_path):
    file = tmp_path / "condor_config"
    file.write_text("CCB_ADDRESS = x\nUSE_SHARED_PORT = true\nCCB_TIMEOUT = 1\nCLASSAD_LIFETIME = 5\n")
    warnings = load_config([file], subsystem="COLLECTOR", env={}).warnings
    before = set()
    first, gathered = warning_lines(warnings, before)
    assert "CLASSAD_LIFETIME (5 s) is not above" in first
    assert gathered.startswith(
        f"3 knobs have no effect: CCB_ADDRESS, CCB_TIMEOUT ({file}, lines 1, 3): machines behind"
    )
    assert f". USE_SHARED_PORT ({file}, line 2): daemons speak over RabbitMQ" in gathered
    assert warning_lines(warnings, before) == []


def test_what_can_not_be_expanded_is_left_to_who_reads_it(told):
    assert told("STARTD", "START = $INT(x\nSPOOL = $(SPOOL)x\nCLASSAD_LIFETIME = abc\n") == []


def test_a_knob_that_needs_a_value_and_is_set_to_nothing_is_told(told):
    text = "\nPOLLING_INTERVAL = $(NOTHING)\nBASE_CGROUP =\nBENCHMARKS_JOBLIST =\nNUM_SLOTS =\nuse POLICY : Desktop\n"
    [(line, message)] = told("STARTD", text)
    assert (line, message) == (2, "POLLING_INTERVAL is set to nothing, and can not be: its default, 5, is in force")
    assert told("NEGOTIATOR", text) == []


def test_an_empty_variable_of_the_environment_is_how_a_compose_file_leaves_a_knob_alone(tmp_path):
    (tmp_path / "pool.conf").write_text("")
    environment = {"_CONDOR_POLLING_INTERVAL": "", "ROOST_UPDATE_INTERVAL": ""}
    assert load_config([tmp_path / "pool.conf"], subsystem="STARTD", env=environment).warnings == ()
