"""When a machine goes to sleep, and how (PWR-01 to PWR-04): decisions, and the switch of a made-up machine. No machine
of tests can sleep."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.startd.core.machine import detected, power_states
from services.startd.core.machine.power_states import HibernationSettings, Level, Means
from services.startd.machine.power_switch import PowerSwitch, StayedAwake
from shared.classad import ClassAd, evaluate, parse_expr
from shared.config import load_config
from shared.config.knobs import StartdSettings
from tests.spec import spec

MAGIC = detected.Wol(32, 32)
NAMES = {
    Level.NONE: ("NONE", "0", 0),
    Level.S1: ("S1", "1", 1, "standby", "SLEEP"),
    Level.S2: ("s2", "2", 2),
    Level.S3: ("S3", "3", 3, "RAM", "mem", "Suspend"),
    Level.S4: ("S4", "4", 4, "DISK", "hibernate"),
    Level.S5: ("S5", "5", 5, "shutdown", "OFF"),
}


@spec("PWR-03")
@pytest.mark.parametrize(("level", "name"), [(level, name) for level, names in NAMES.items() for name in names])
def test_levels_have_several_names(level, name):
    assert power_states.level_of(name) is level


@pytest.mark.parametrize("value", ["", "S6", "ram and disk", 6, -1, 3.0, True, None])
def test_what_is_no_level_is_none(value):
    assert power_states.level_of(value) is None


@spec("PWR-02", "W-61")
@pytest.mark.parametrize(
    ("values", "level"),
    [
        (["RAM", "RAM"], Level.S3),
        (["RAM", "NONE"], Level.NONE),  # W-61
        (["S3", "S4"], Level.S4),  # W-61
        ([3, "0", 5], Level.NONE),
        (["S3", None], Level.NONE),
        (["S3", "S9"], Level.NONE),
        ([], Level.NONE),
    ],
)
def test_slots_agree_or_one_of_them_vetoes(values, level):
    assert power_states.wanted(values) is level


@spec("PWR-02")
@given(st.lists(st.sampled_from([name for names in NAMES.values() for name in names]), min_size=1, max_size=6))
def test_the_deepest_wins_and_none_vetoes(values):
    """In any order."""
    found = [power_states.level_of(value) for value in values]
    assert power_states.wanted(values) == (0 if Level.NONE in found else max(found))
    assert power_states.wanted(reversed(values)) == power_states.wanted(values)


SAMPLE = """
use POLICY : DESKTOP
TimeToWait  = (2 * $(HOUR))
ShouldHibernate = ( (KeyboardIdle > $(StartIdleTime)) \\
                    && $(CPUIdle) \\
                    && ($(StateTimer) > $(TimeToWait)) )
HibernateState  = "RAM"
HIBERNATE = ifThenElse($(ShouldHibernate), $(HibernateState), "NONE" )
HIBERNATE_CHECK_INTERVAL = 20
"""


@spec("PWR-01", "PWR-02", "W-61")
def test_the_manual_s_sample_puts_the_machine_to_sleep_after_two_hours(tmp_path):
    """With the words that users' files have."""
    (tmp_path / "config").write_text(SAMPLE)
    knobs = StartdSettings.from_config(load_config([tmp_path / "config"], subsystem="STARTD", env={}))
    assert knobs.hibernate_check_interval == 20
    idle = {"State": "Unclaimed", "KeyboardIdle": 901, "LoadAvg": 0.0, "CondorLoadAvg": 0.0}
    now = 1_700_000_000.0

    def wanted(since, **other):
        ad = ClassAd({**idle, "EnteredCurrentState": int(now) - since, **other})
        return power_states.wanted([evaluate(knobs.hibernate, ad, None, now)])

    assert wanted(7201) is Level.S3
    assert wanted(7199) is wanted(7201, KeyboardIdle=900) is wanted(7201, LoadAvg=1.0) is Level.NONE


def test_what_can_not_be_woken_or_has_no_such_state_stays_awake():
    means = Means("/sys", frozenset({Level.S3}))
    assert power_states.hindrance(Level.S3, means, MAGIC, HibernationSettings()) == ""
    assert "knows no state S4 here, only: S3" in power_states.hindrance(Level.S4, means, MAGIC, HibernationSettings())
    assert "HIBERNATION_OVERRIDE_WOL" in power_states.hindrance(Level.S3, means, None, HibernationSettings())
    assert "can not wake it" in power_states.hindrance(Level.S3, means, detected.Wol(32, 2), HibernationSettings())
    assert power_states.hindrance(Level.S3, means, None, HibernationSettings(override_wol=True)) == ""
    assert "no usable method" in power_states.hindrance(
        Level.S3, power_states.choose({}, ""), MAGIC, HibernationSettings()
    )


def test_ads_say_what_the_machine_can_and_that_it_sleeps():
    rules = HibernationSettings(interval_s=20, unhibernate=parse_expr("MachineLastMatchTime =!= UNDEFINED"))
    means = Means("/sys", frozenset({Level.S4, Level.S3}))
    awake = ClassAd(power_states.hibernation_attributes(rules, means, MAGIC, Level.NONE))
    assert awake.eval("CanHibernate") is True
    assert awake.eval("HibernationSupportedStates") == "S3,S4"
    assert (awake.eval("HibernationLevel"), awake.eval("HibernationState")) == (0, "NONE")
    assert awake.eval("Unhibernate") is False
    assert awake.lookup("Offline") is None
    assert awake.eval("IsWakeAble") is True
    assert awake.eval("WakeOnLanSupportedFlags") == "Magic Packet"
    asleep = ClassAd(power_states.hibernation_attributes(rules, means, MAGIC, Level.S4) | {"MachineLastMatchTime": 5})
    assert evaluate(parse_expr("Offline && Unhibernate"), asleep) is True
    assert (asleep.eval("HibernationLevel"), asleep.eval("HibernationState")) == (4, "S4")
    nothing = ClassAd(power_states.hibernation_attributes(rules, Means(), None, Level.NONE))
    assert nothing.eval("CanHibernate") is False
    assert nothing.eval("WakeOnLanEnabledFlags") == "NONE"


def test_the_kernel_s_answer_about_the_interface_is_read():
    answer = struct.pack("=III6sxx", detected.GET_WOL, 0b101110, 0b100000, b"")
    assert len(detected.wolinfo_query()) == len(answer) == 20
    told = detected.parse_wolinfo(answer)
    assert told.wakeable
    assert told.attributes()["WakeOnLanSupportedFlags"] == (
        "UniCast Packet,MultiCast Packet,BroadCast Packet,Magic Packet"
    )
    assert not detected.parse_wolinfo(struct.pack("=III6sxx", detected.GET_WOL, 0b101110, 0b000010, b"")).wakeable


# -- how Linux is told


S34 = frozenset({Level.S3, Level.S4})
ONLY_S3 = frozenset({Level.S3})


@spec("PWR-04")
@pytest.mark.parametrize(
    ("found", "wish", "method", "says"),
    [
        ({"pm-utils": ONLY_S3, "/sys": S34, "/proc": S34}, "", "pm-utils", ""),
        ({"pm-utils": frozenset(), "/sys": S34, "/proc": S34}, "", "/sys", ""),
        ({"/proc": S34}, "", "/proc", ""),
        ({"pm-utils": ONLY_S3, "/sys": S34}, "/SYS", "/sys", ""),
        ({"pm-utils": ONLY_S3, "/sys": S34}, "/proc", "", "lets no other be tried"),
        ({"pm-utils": ONLY_S3, "/sys": S34}, "swsusp", "", "is no method: want pm-utils, /sys, /proc"),
        ({}, "", "", "no usable method among pm-utils, /sys, /proc"),
    ],
)
def test_methods_are_tried_in_order_unless_one_is_forced(found, wish, method, says):
    means = power_states.choose(found, wish)
    assert means.method == method
    assert means.levels == (found[method] if method else frozenset())
    assert says in means.reason


@spec("PWR-04")
@pytest.mark.parametrize(
    ("state", "disk", "known"),
    [
        ("freeze standby mem disk\n", "[platform] shutdown reboot\n", {Level.S1, Level.S3, Level.S4}),
        ("freeze mem disk\n", "[shutdown] reboot\n", {Level.S3}),
        ("mem disk\n", "", {Level.S3, Level.S4}),
        ("freeze\n", "[disabled]\n", set()),
        ("", "", set()),
    ],
)
def test_the_states_of_sys_power(state, disk, known):
    assert power_states.sys_levels(state, disk) == known


@spec("PWR-04")
def test_the_states_of_proc_acpi():
    assert power_states.proc_levels("S0 S3 S4 S4bios S5\n") == {Level.S3, Level.S4, Level.S5}


@pytest.mark.parametrize(
    ("printed", "known", "says"),
    [
        ('HibernationSupportedStates = "S3,S4"\nHibernationMethod = "mine"\n', S34, ""),
        ('HibernationSupportedStates = "NONE"\n', frozenset(), "knows no state"),
        ('HibernationSupportedStates = "S3,S7"\n', frozenset(), "S7 in HibernationSupportedStates is no state"),
        ("", frozenset(), "does not print HibernationSupportedStates"),
        ("no ad at all\n", frozenset(), "is no ad"),
    ],
)
def test_what_a_plugin_says_it_can(printed, known, says):
    means = power_states.of_plugin("/bin/mine", printed)
    assert means.levels == known
    assert (means.method == "") == bool(says) or "knows no state" in says
    assert says in means.reason


# -- the switch, on a made-up machine


@pytest.fixture
def machine(tmp_path):
    """Files by their paths; programs are shell."""

    def make(files, programs=()):
        for path, text in {**files, **dict(programs)}.items():
            there = tmp_path / path
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_text(text)
            if path in dict(programs):
                there.chmod(0o755)
        return tmp_path

    return make


@spec("PWR-04")
async def test_the_kernel_is_told_by_sys_power(machine):
    root = machine({power_states.SYS_STATE: "freeze mem disk\n", power_states.SYS_DISK: "[platform] shutdown\n"})
    switch = PowerSwitch(root)
    means = await switch.means()
    assert means == Means("/sys", S34)
    await switch.enter(means, Level.S3)
    assert (root / power_states.SYS_STATE).read_text().startswith("mem")
    assert (root / power_states.SYS_DISK).read_text() == "[platform] shutdown\n"
    await switch.enter(means, Level.S4)
    assert (root / power_states.SYS_STATE).read_text().startswith("disk")
    assert (root / power_states.SYS_DISK).read_text().startswith("platform")
    with pytest.raises(StayedAwake, match="/sys knows no state S2"):
        await switch.enter(means, Level.S2)


@spec("PWR-04")
async def test_proc_acpi_is_what_remains(machine):
    switch = PowerSwitch(machine({power_states.PROC_SLEEP: "S0 S3 S5\n"}))
    means = await switch.means()
    assert means == Means("/proc", frozenset({Level.S3, Level.S5}))
    await switch.enter(means, Level.S5)
    assert (switch.root / power_states.PROC_SLEEP).read_text().startswith("5")


@spec("PWR-04")
async def test_pm_utils_come_first_and_are_run(machine):
    note = '#!/bin/sh\necho "$0 $1" >> "$(dirname "$0")/../../ran"\n'
    root = machine(
        {power_states.SYS_STATE: "mem disk"},
        {
            power_states.PM_CHECK: '#!/bin/sh\n[ "$1" = --suspend ]\n',
            "usr/sbin/pm-suspend": note,
            power_states.POWER_OFF: "#!/bin/sh\necho off is broken >&2; exit 3\n",
        },
    )
    switch = PowerSwitch(root)
    means = await switch.means()
    assert means == Means("pm-utils", frozenset({Level.S3, Level.S5}))
    await switch.enter(means, Level.S3)
    assert "pm-suspend" in (root / "ran").read_text()
    with pytest.raises(StayedAwake, match=r"poweroff: exit status 3: off is broken"):
        await switch.enter(means, Level.S5)
    assert (root / power_states.SYS_STATE).read_text() == "mem disk"
    switch.wish = "/sys"
    assert (await switch.means()).method == "/sys"


@spec("PWR-04")
async def test_a_machine_that_can_only_be_switched_off_has_no_method(machine):
    """None usable, hibernation off."""
    switch = PowerSwitch(machine({power_states.SYS_STATE: "freeze\n"}, {power_states.POWER_OFF: "#!/bin/sh\n"}))
    means = await switch.means()
    assert not means.method
    assert "no usable method" in means.reason


async def test_a_file_that_is_gone_is_told_and_not_made(machine):
    root = machine({power_states.SYS_STATE: "mem\n"})
    switch = PowerSwitch(root)
    means = await switch.means()
    (root / power_states.SYS_STATE).unlink()
    with pytest.raises(StayedAwake, match="sys/power/state: No such file"):
        await switch.enter(means, Level.S3)
    assert not (root / power_states.SYS_STATE).exists()


async def test_a_plugin_is_asked_instead_of_the_machine(machine):
    """As condor_power_state is: `ad`, and `set S4`."""
    script = """#!/bin/sh
case "$2" in
ad) echo 'HibernationSupportedStates = "S4"';;
set) echo "$1 $2 $3" > "$(dirname "$0")/was-told";;
esac
"""
    root = machine({power_states.SYS_STATE: "mem\n"}, {"mine": script})
    switch = PowerSwitch(root, plugin=(str(root / "mine"), "-quietly"))
    means = await switch.means()
    assert means.levels == {Level.S4}
    await switch.enter(means, Level.S4)
    assert (root / "was-told").read_text() == "-quietly set S4\n"
    switch.plugin = (str(root / "none-such"),)
    assert "is not there" in (await switch.means()).reason
