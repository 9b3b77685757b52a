"""The language of configuration, row by row of the specification (CFG-01 to CFG-18), with the manual's own examples
where it has some. CFG-12 and CFG-16 are as far as they go without a master; CFG-13 is in
tests/unit/roost/test_daemon_list.py, CFG-17 in tests/unit/negotiator/test_cycle_runner.py, CFG-20 in
tests/unit/daemon/test_runner.py. Comparisons with the reference: test_reader.py, test_macros.py, test_reference.py."""

import pytest

from engine.slots.amounts import CPUS
from engine.slots.carving import SlotKind
from services.schedd.daemon import Schedd
from services.startd.core.machine.detected import Detected
from services.startd.core.machine.slot_plan import plan_slots
from services.startd.core.machine.slot_types import Partition
from services.startd.daemon import Startd
from shared.config import Config, load_config
from shared.config.knobs import CollectorSettings, NegotiatorSettings, StartdSettings
from shared.daemon import main
from shared.daemon.orders import AT_START, waits_for_restart
from tests.spec import spec


@pytest.fixture
def load(tmp_path):
    def made(text: str, subsystem: str = "TOOL", **more) -> Config:
        path = tmp_path / "condor_config"
        path.write_text(text)
        return load_config([path], subsystem=subsystem, **{"env": {}, **more})

    return made


@spec("CFG-01")
def test_names_of_any_case_and_the_last_definition_counts(load):
    config = load("Start_Local = 1\nSTART_LOCAL = 2\nstart_local=3\n")
    assert {config.get(name) for name in ("start_local", "START_LOCAL", "Start_Local")} == {"3"}


@spec("CFG-02")
def test_a_later_definition_changes_who_used_the_macro_before(load):
    """The manual's MachineBusy, whose parts are defined again below it."""
    config = load("BUSY = ($(CPU) || $(KEYBOARD))\nCPU = old\nKEYBOARD = old\nCPU = load\nKEYBOARD = typed\n")
    assert config.get("BUSY") == "(load || typed)"


@spec("CFG-03")
def test_what_refers_to_itself_adds_to_what_was_there(load):
    config = load("STARTD_ATTRS = A\nSTARTD_ATTRS = $(STARTD_ATTRS) NETWORK\nSTARTD_ATTRS = $(STARTD_ATTRS), X\n")
    assert StartdSettings.from_config(config).startd_attrs == ("A", "NETWORK", "X")


@spec("CFG-04", "CFG-05")
def test_a_backslash_goes_on_and_a_number_sign_says_nothing(load):
    """As the manual's HAD_LIST is written."""
    text = "# of the pool\n\nHAD_LIST = \\\n$(ONE):1, \\\n$(TWO):2\n   # indented\nONE = a # b\nTWO=c\n"
    config = load(text)
    assert config.get("HAD_LIST").split() == ["a", "#", "b:1,", "c:2"]
    assert config.get("ONE") == "a # b"  # only a line's beginning makes a comment


@spec("CFG-06")
@pytest.mark.parametrize("text", ["a:1, b", "a:1 b", "a:1,b", " a:1 ,  b ,", "a:1\tb"])
def test_lists_have_commas_or_blanks(load, text):
    config = load(f"CONDOR_VIEW_HOST = {text}\nGROUP_NAMES = {text}\n")
    assert CollectorSettings.from_config(config).condor_view_host == ("a:1", "b")
    assert NegotiatorSettings.from_config(config).group_names == ("a:1", "b")


@spec("CFG-07", "CFG-19")
@pytest.mark.parametrize(
    "use", ["use POLICY : Desktop", "use policy:desktop", "USE Policy :DESKTOP", "Use pOLICY: DeskTop"]
)
def test_templates_of_any_case(load, use):
    config = load(f"{use}\n")
    assert config.get("IS_OWNER") == "(START =?= False)"
    assert config.get("MaxJobRetirementTime") == "0"


@spec("CFG-08")
def test_arguments_of_templates(load):
    """Through templates that use them: a default, a number, all from one on."""
    config = load("use FEATURE : PartitionableSlot\nuse FEATURE : PartitionableSlot(3, 25%)\n", "STARTD")
    assert (config.get("SLOT_TYPE_1"), config.get("SLOT_TYPE_3")) == ("100%", "25%")
    assert config.get("SLOT_TYPE_3_PARTITIONABLE").lower() == "true"


@spec("CFG-09")
def test_lines_for_where_a_macro_is_defined(load):
    text = "if defined A\nX = there\nelse\nX = not there\nendif\n"
    assert load(text).get("X") == "not there"
    assert load("A = 1\n" + text).get("X") == "there"
    assert load("A =\n" + text).get("X") == "not there"


@spec("CFG-10")
def test_a_value_of_several_lines(load):
    config = load("B = 7\nJOB @=end\nSET A $(B)\nDEFAULT C = 1\n@end\nD = 1\n")
    assert config.get("JOB") == "SET A 7\nDEFAULT C = 1"
    assert config.get("D") == "1"


VIEWS = """
VIEWSERV01.POOL_HISTORY_DIR = $(LOCAL_DIR)/poolhist01
VIEWSERV01.KEEP_POOL_HISTORY = TRUE
VIEWSERV01.CONDOR_VIEW_HOST =
CONDOR_VIEW_HOST = localhost.localdomain:12345 localhost.localdomain:24680
LOCAL_DIR = /pool
"""


@spec("CFG-11")
def test_macros_of_one_daemon_by_its_local_name(load):
    """The manual's view server, and the collector beside it, as their command lines are read."""
    words = main._arguments("COLLECTOR").parse_args(["-f", "-local-name", "VIEWSERV01"])
    view = CollectorSettings.from_config(load(VIEWS, "COLLECTOR", local_name=words.local_name))
    assert (view.pool_history_dir, view.keep_pool_history, view.condor_view_host) == ("/pool/poolhist01", True, ())
    other = CollectorSettings.from_config(load(VIEWS, "COLLECTOR"))
    assert (other.pool_history_dir, other.keep_pool_history, len(other.condor_view_host)) == (None, False, 2)


@spec("CFG-12")
def test_the_environment_of_a_daemon_replaces_macros(load):
    """What <NAME>_ENVIRONMENT would set, whoever starts the daemon sets."""
    text = "NEGOTIATOR_INTERVAL = 60\nLOG = /log\n"
    env = {"_CONDOR_NEGOTIATOR_INTERVAL": "17", "_condor_log": "/elsewhere/ViewServerLog"}
    config = load(text, "NEGOTIATOR", env=env)
    made = NegotiatorSettings.from_config(config)
    assert (made.negotiator_interval, made.log) == (17, "/elsewhere/ViewServerLog")


@spec("CFG-14")
@pytest.mark.parametrize(
    ("text", "value"), [("15 * $(MINUTE)", 900), ("(60 * $(MINUTE))", 3600), ("2*$(N)+1", 9), ("1.5e1", 15)]
)
def test_numbers_may_be_expressions(load, text, value):
    assert NegotiatorSettings.from_config(load(f"N = 4\nNEGOTIATOR_INTERVAL = {text}\n")).negotiator_interval == value


@spec("CFG-15")
@pytest.mark.parametrize(
    ("text", "value"), [(w, w.lower() == "true") for w in ["TRUE", "true", "True", "FALSE", "false", "False"]]
)
def test_booleans(load, text, value):
    assert CollectorSettings.from_config(load(f"KEEP_POOL_HISTORY = {text}\n")).keep_pool_history is value


@spec("CFG-16")
@pytest.mark.parametrize(
    ("daemon", "name", "waits"),
    [
        (Startd, "SLOT_TYPE_1", True),
        (Startd, "NUM_SLOTS_TYPE_1", True),
        (Startd, "NUM_SLOTS", True),
        (Startd, "STARTD_ENFORCE_DISK_LIMITS", True),
        (Startd, "START", False),
        (Startd, "STARTD_ATTRS", False),
        (Schedd, "SCHEDD_CRON_JOBLIST", True),
        (Schedd, "MAX_JOBS_RUNNING", False),
    ],
)
def test_what_a_reconfiguration_leaves_to_a_restart(daemon, name, waits):
    """Says so. That the others take effect: tests/integration/test_tools.py."""
    assert waits_for_restart(name, (*AT_START, *daemon.at_start)) is waits


@spec("CFG-18")
@pytest.mark.parametrize(
    ("use", "slots"), [("StaticSlots", 6), ("StaticSlots(1,3)", 3), ("StaticSlots(2, 2, cpus=2)", 2)]
)
def test_static_slots(load, use, slots):
    """One slot of one core for each core, none of them partitionable."""
    config = load(f"use FEATURE : {use}\nNUM_CPUS = 6\n", "STARTD", overrides={"DETECTED_CORES": "6"})
    detected = Detected(hostname="h", cpus=6, cores=6, memory_mib=6000, swap_kib=0, arch="X86_64")
    found = plan_slots(config, detected, lambda path: Partition(path, 6_000_000)).slots
    assert [plan.kind for plan in found] == [SlotKind.STATIC] * slots
    if use == "StaticSlots":
        assert [plan.amounts.of[CPUS] for plan in found] == [1] * 6
