"""Random configuration files, read by us and by the reference."""

import random

import pytest

from shared.config import ConfigError, load_config
from tests.reference.asked import Reference
from tests.reference.configuration import ENVIRONMENT, comparable, has_loop, random_file
from tests.spec import spec

pytestmark = pytest.mark.reference


def reference_values(path, names):
    """None: it refuses the file."""
    with Reference("configuration") as reference:
        return reference.ask({"text": path.read_text(), "environment": ENVIRONMENT, "names": names})


@pytest.mark.parametrize("seed", range(20))
def test_random_file_means_the_same(tmp_path, seed):
    chance = random.Random(seed)
    path = tmp_path / "pool.conf"
    while True:
        text = random_file(chance)
        path.write_text(text)
        config = load_config([path], subsystem="TOOL", env=ENVIRONMENT)
        if not has_loop(config):
            break
    names = [name for name in comparable(config) if name != "RANK"]  # which has a written default here
    theirs = reference_values(path, names)
    assert theirs is not None, f"seed {seed}: the reference refuses\n{text}"
    assert {name: config.get(name) for name in names} == {name: theirs[name] for name in names}, f"seed {seed}\n{text}"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "A 1\n",
            "MY-NAME = 3\n",
            "+A = 1\n",
            "A @=end\nx\n",
            "if A == 1\nendif\n",
            "if true # c\nendif\n",
            "endif\n",
        ),
        *("else\n", "if true\n", "if true\nelse\nelse\nendif\n", "use POLICY : Nosuch\n", "use NOSUCH : Desktop\n"),
        *(
            "include : /no/such\n",
            "include Ifexist : /no/such\n",
            "error : stop\n",
            "if !!true\nendif\n",
            "if\nendif\n",
        ),
        *("A = 1 \\\n# ends here\n2\n", "= 3\n", "@A = 3\n", "if version>=8.1\nendif\n", "if version >= 23\nendif\n"),
    ],
)
def test_both_refuse(tmp_path, text):
    path = tmp_path / "pool.conf"
    path.write_text(text)
    with pytest.raises(ConfigError, match="line"):
        load_config([path], env={})
    assert reference_values(path, ["A"]) is None


#: Templates with their arguments, and the macros that they set.
USED = {
    "FEATURE : PartitionableSlot": "SLOT_TYPE_1 NUM_SLOTS_TYPE_1",
    "FEATURE : PartitionableSlot(2, cpus=4, memory=50%)": "SLOT_TYPE_2 NUM_SLOTS_TYPE_2 SLOT_TYPE_2_PARTITIONABLE",
    "FEATURE : PartitionableSlot(2,cpus=4,  memory=max({1,2}) ,disk=1%)": "SLOT_TYPE_2",
    "FEATURE : StaticSlots(2, 3, cpus=1, memory=10)": "SLOT_TYPE_2 NUM_SLOTS_TYPE_2 SLOT_TYPE_2_PARTITIONABLE",
    "FEATURE : StaticSlots(2,3)": "SLOT_TYPE_2 NUM_SLOTS_TYPE_2",
    'POLICY : Want_Hold_If(COND, 5, too big, so "sorry", really)': "WANT_HOLD WANT_HOLD_SUBCODE WANT_HOLD_REASON",
    "POLICY : Want_Hold_If(COND)": "",
    "POLICY : Want_Hold_If(COND, 5)": "",
    "POLICY : Preempt_If": "",
    "FEATURE : Monitor(gpu, periodic, 60, /bin/true, SUM:A, PEAK:B)": "STARTD_CRON_JOBLIST "
    "STARTD_CRON_gpu_MONITOR_MODE STARTD_CRON_gpu_MONITOR_PERIOD "
    "STARTD_CRON_gpu_MONITOR_EXECUTABLE STARTD_CRON_gpu_MONITOR_METRICS",
    "FEATURE : Monitor(gpu, periodic, 60, /bin/true)": "",
    "FEATURE : StartdCronPeriodic(a, 5, /bin/true, x y)": "STARTD_CRON_JOBLIST STARTD_CRON_a_PERIOD "
    "STARTD_CRON_a_EXECUTABLE STARTD_CRON_a_ARGS STARTD_CRON_a_MODE",
    "FEATURE : StartdCronPeriodic(a, 5)": "",
    "FEATURE : ScheddCronOneShot(a)": "",
    "FEATURE : OneShotCronHook(STARTD_CRON, a, /bin/true, x)": "STARTD_CRON_a_EXECUTABLE STARTD_CRON_a_ARGS",
    "FEATURE : ContinuousCronHook(STARTD_CRON, a)": "",
    "FEATURE : ScheddUserMapFile(a)": "",
    "FEATURE : ScheddUserMapFile(a, /b)": "SCHEDD_CLASSAD_USER_MAP_NAMES CLASSAD_USER_MAPFILE_a",
    "FEATURE : SetJobAttrFromUserMap(A, B)": "",
    "FEATURE : SetJobAttrFromUserMap(A, B, m)": "SCHEDD_CLASSAD_USER_MAP_NAMES",
    "FEATURE : SetJobAttrFromUserMap(A, B, m, /f)": "SCHEDD_CLASSAD_USER_MAP_NAMES CLASSAD_USER_MAPFILE_m",
    "FEATURE : AssignAccountingGroup": "",
    "FEATURE : AssignAccountingGroup(/f)": "SUBMIT_REQUIREMENT_NAMES",
    "FEATURE : AssignAccountingGroup(/f, False)": "SUBMIT_REQUIREMENT_NAMES",
    "FEATURE : Remote_Runtime_Config": "ENABLE_RUNTIME_CONFIG SETTABLE_ATTRS_CONFIG",
    "FEATURE : Remote_Runtime_Config(A, B)": "SETTABLE_ATTRS_CONFIG",
    "FEATURE : Remote_Config(A, B)": "SETTABLE_ATTRS_CONFIG ENABLE_PERSISTENT_CONFIG",
    "FEATURE : ChildCollector(2, 9619)": "COLLECTOR2_ARGS DAEMON_LIST COLLECTOR2.COLLECTOR_NAME",
    "FEATURE : CommonCloudAttributesAWS(-x, y)": "STARTD_CRON_JOBLIST STARTD_CRON_cloud_ARGS STARTD_CRON_cloud_PREFIX",
    "FEATURE : Policy_Hours_To_Start(9, 18, 2)": "RunJobsHours NoJobsHours WorkweekLastDay",
    "POLICY : Desktop_Hours": "START PREEMPT MaxJobRetirementTime IS_OWNER STARTD_LATCH_EXPRS",
    "POLICY : Desktop_Idle": "START PREEMPT WANT_VACATE CpuBusyTimer SLOTS_CONNECTED_TO_KEYBOARD",
    "POLICY : Desktop_Idle(8, 17, 1, 5)": "START PREEMPT",
    "POLICY : OnlyRegisteredCheckpointDestinations": "SCHEDD_CLASSAD_USER_MAP_NAMES SUBMIT_REQUIREMENT_NAMES "
    "CLASSAD_USER_MAP_PREFIX_checkpoint_destination_map JOB_TRANSFORM_ValidateCheckpointDestination "
    "SUBMIT_REQUIREMENT_RejectInvalidCheckpointDestination IMMUTABLE_JOB_ATTRS",
    "SECURITY : recommended": "ALLOW_ADMINISTRATOR ALLOW_DAEMON ALLOW_NEGOTIATOR ALLOW_WRITE ALLOW_READ SECURITY_MODEL "
    "SEC_DEFAULT_ENCRYPTION SEC_READ_AUTHENTICATION SEC_CLIENT_AUTHENTICATION",
    "SECURITY : recommended(pool, admin@x, b@y c@z)": "ALLOW_ADMINISTRATOR ALLOW_DAEMON",
    "SECURITY : recommended_v9_0(pool, admin@x)": "ALLOW_ADMINISTRATOR ALLOW_DAEMON",
}


@spec("CFG-22")
def test_detected_macros_are_the_same(tmp_path):
    path = tmp_path / "pool.conf"
    path.write_text("A = 1\n")
    kinds = ("", "LEGACY", "NAME", "SHORTNAME", "LONGNAME", "ANDVER", "MAJORVER", "VER")
    names = [
        *(f"OPSYS{kind}" for kind in kinds),
        *(f"UTSNAME_{part}" for part in ("SYSNAME", "NODENAME", "RELEASE", "VERSION", "MACHINE")),
        *("UNAME_ARCH", "UNAME_OPSYS", "ARCH", "HAD_ARGS", "REPLICATION_ARGS"),
    ]
    config = load_config([path], subsystem="TOOL", env=ENVIRONMENT)
    assert {name: config.get(name) for name in names} == reference_values(path, names)


@pytest.mark.parametrize("used", USED)
def test_templates_mean_the_same(tmp_path, used):
    """No names of macros: the template is refused."""
    path = tmp_path / "pool.conf"
    path.write_text(f"COND = Memory > 5\nuse {used}\n")
    names = USED[used].split()
    theirs = reference_values(path, names)
    if not names:
        assert theirs is None
        with pytest.raises(ConfigError, match=r"pool.conf, line 2.* needs "):
            load_config([path], subsystem="TOOL", env=ENVIRONMENT)
        return
    config = load_config([path], subsystem="TOOL", env=ENVIRONMENT)
    ours = {name: config.get(name) for name in names}
    assert {n: str(v).split() for n, v in ours.items()} == {n: str(v).split() for n, v in theirs.items()}
