"""Plans of walls between jobs, without building any (rows ISO, worked example W-72)."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.startd.core import isolation
from services.startd.core.isolation import (
    BadIsolationSetting,
    DiskSettings,
    HostCapabilities,
    Login,
    NoAccount,
    cgroup_limits,
    files_of_version_1,
    files_of_version_2,
    group_name,
    read_isolation_settings,
)
from services.startd.core.run.job_launch import Finished, Launch
from services.startd.isolation import cgroups, scratch_volumes
from services.startd.isolation.cgroups import Cgroups
from services.startd.isolation.manager import IsolationManager
from services.startd.isolation.scratch_volumes import ScratchVolumes
from shared.classad import ClassAd
from shared.config import load_config
from shared.config.knobs import StartdSettings
from tests.spec import spec

MIB = 2**20
ROOT = HostCapabilities(root=True, mounts=True, pid_namespaces=True)
GRANTS = (("w", "/home"), ("r", "/usr"))
PLAIN = HostCapabilities(root=False, mounts=False, pid_namespaces=False, landlock=True, grants=GRANTS)


def rules(machine_mib=16384, **knobs):
    env = {f"_CONDOR_{name}": str(value) for name, value in knobs.items()}
    settings = StartdSettings.from_config(load_config([], subsystem="STARTD", env=env))
    return read_isolation_settings(settings, uid_domain="pool", machine_memory_mib=machine_mib)


def launch(**fields):
    scratch = Path("/srv/execute/dir_1")
    values = {
        "run": "one",
        "executable": f"{scratch}/condor_exec.exe",
        "argv": (),
        "env": {},
        "cwd": str(scratch),
        "stdin": "",
        "stdout": f"{scratch}/_condor_stdout",
        "stderr": "",
        "scratch": scratch,
        "cpus": 1.0,
        "memory_mib": 2048,
        "account": isolation.Account("nobody", 65534, 65534, shared=True),
    }
    return Launch(**(values | fields))


# ---------------------------------------------------------------- limits


@spec("W-72")
@pytest.mark.parametrize(
    ("policy", "hard", "soft"),
    [("hard", 2147483648, 1932735283), ("soft", 17179869184 - 100 * MIB, 2147483648), ("none", None, None)],
    ids=["ISO-06", "ISO-07", "ISO-08"],
)
def test_limits_of_memory_by_policy(policy, hard, soft):
    found = cgroup_limits(rules(16384 - 100, CGROUP_MEMORY_LIMIT_POLICY=policy), 1, 2048, None)
    assert (found.memory_hard, found.memory_soft) == (hard, soft)


def test_an_administrator_says_what_a_job_may_have_of_the_memory():
    knobs = {"CGROUP_MEMORY_LIMIT_POLICY": "custom", "CGROUP_HARD_MEMORY_LIMIT_EXPR": "2 * TARGET.RequestMemory"}
    custom = rules(**knobs)
    asking = launch(job_ad=ClassAd({"RequestMemory": 700}))
    assert isolation.memory_limit_mib(custom, asking) == 1400
    assert isolation.memory_limit_mib(custom, launch()) == 2048  # no number: the slot's
    assert isolation.memory_limit_mib(rules(), asking) == 2048
    found = cgroup_limits(custom, 1, 1400, None)
    assert (found.memory_hard, found.memory_soft) == (1400 * MIB, 1260 * MIB)
    assert cgroup_limits(custom, 1, 1400, None, 300).memory_soft == 300 * MIB
    with pytest.raises(BadIsolationSetting, match="CGROUP_HARD_MEMORY_LIMIT_EXPR"):
        rules(CGROUP_MEMORY_LIMIT_POLICY="custom")


@spec("ISO-08")
def test_the_policy_is_hard_unless_told_otherwise():
    assert rules().memory_policy == "hard"


@spec("ISO-11", "W-72")
def test_shares_of_cores():
    assert [cgroup_limits(rules(), cpus, 1, None).cpu_shares for cpus in (1, 4, 0.5, 0.001)] == [100, 400, 50, 2]


@spec("ISO-12")
def test_swap_is_what_virtual_memory_is_more_than_memory():
    assert cgroup_limits(rules(), 1, 2048, 3 * 1024 * 1024).swap == 1024 * MIB
    assert cgroup_limits(rules(), 1, 2048, 1024).swap == 0
    assert cgroup_limits(rules(), 1, 2048, None).swap is None
    assert cgroup_limits(rules(DISABLE_SWAP_FOR_JOB="true"), 1, 2048, 3 * 1024 * 1024).swap == 0
    assert cgroup_limits(rules(CGROUP_MEMORY_LIMIT_POLICY="none"), 1, 2048, 3 * 1024 * 1024).swap is None


@spec("ISO-13")
def test_limits_are_those_of_the_slot_as_it_is():
    assert [cgroup_limits(rules(), 1, mib, None).memory_hard for mib in (128, 4096)] == [128 * MIB, 4096 * MIB]


def test_files_are_written_in_an_order_that_the_kernel_takes():
    limits = cgroup_limits(rules(), 2, 100, 200 * 1024)
    old = [(file, text) for _, file, text in files_of_version_1(limits)]
    assert old[:3] == [
        ("memory.memsw.limit_in_bytes", "-1"),
        ("memory.limit_in_bytes", str(100 * MIB)),
        ("memory.memsw.limit_in_bytes", str(200 * MIB)),
    ]
    new = {file: text for _, file, text in files_of_version_2(limits)}
    assert (new["memory.max"], new["memory.swap.max"], new["cpu.weight"]) == (str(100 * MIB), str(100 * MIB), "200")
    nothing = cgroup_limits(rules(CGROUP_MEMORY_LIMIT_POLICY="none", ROOST_JOB_MAX_PROCESSES=0), 1, 100, None)
    new = {file: text for _, file, text in files_of_version_2(nothing)}
    assert (new["memory.max"], new["memory.low"], new["pids.max"]) == ("max", "0", "max")


@spec("ISO-05")
def test_names_of_cgroups():
    assert group_name("/var/lib/condor/execute", "slot1@here", "here") == "condor_var_lib_condor_execute_slot1"
    assert group_name("/x", "slot1_2@other", "here") == "condor_x_slot1_2@other"


def test_an_empty_base_is_none_and_not_the_default():
    assert rules().base_cgroup == "htcondor"
    assert rules(BASE_CGROUP="").base_cgroup == ""
    assert not cgroups.prepare_hierarchies("", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")


V1 = {name: Path("/sys/fs/cgroup", name, "htcondor") for name in ("memory", "cpu", "pids")}
V2 = Path("/sys/fs/cgroup/htcondor")
ALL = frozenset(V1)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (cgroups.Hierarchies(trouble="no cgroups are mounted"), ["no cgroups are mounted", "Delegate=yes"]),
        (cgroups.Hierarchies(V2, frozenset({"pids"})), ["memory and cpu", "cgroup v2", "Delegate=yes"]),
        (cgroups.Hierarchies(None, frozenset(), {"cpu": V1["cpu"]}), ["memory and pids", "unified_cgroup_hierarchy=1"]),
        (cgroups.Hierarchies(V2, ALL), []),
        (cgroups.Hierarchies(None, frozenset(), V1), []),
        (cgroups.Hierarchies(V2, frozenset({"pids"}), {"memory": V1["memory"], "cpu": V1["cpu"]}), []),
    ],
)
def test_a_machine_whose_cgroups_are_set_up_wrong_is_told_with_the_mend(found, words):
    said = cgroups.explain_trouble(found, "htcondor")
    assert bool(said) == bool(words)
    for word in words:
        assert word in said
    assert cgroups.explain_trouble(found, "") == ""


@pytest.mark.parametrize("text", ["../up", "a/../b", "./here"])
def test_a_base_that_leads_elsewhere_is_refused(text):
    with pytest.raises(BadIsolationSetting, match="BASE_CGROUP"):
        rules(BASE_CGROUP=text)


# ---------------------------------------------------------------- cgroups on a made-up tree


def made_up(folder: Path, controllers: str = "cpuset cpu io memory pids") -> str:
    """A version 2 hierarchy as files, and its mountinfo."""
    (folder / "cgroup.controllers").write_text(controllers + "\n")
    (folder / "cgroup.subtree_control").write_text("")
    return f"30 20 0:26 / {folder} rw,nosuid - cgroup2 cgroup2 rw\n"


def test_mountinfo_of_both_versions():
    text = (
        "31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "33 30 0:29 / /sys/fs/cgroup/with\\040blank rw shared:1 - cgroup2 none rw\n"
        "half a line\n"
    )
    unified, old = cgroups.mounted_hierarchies(text)
    assert unified == Path("/sys/fs/cgroup/with blank")
    assert old["cpu"] == old["cpuacct"] == Path("/sys/fs/cgroup/cpu,cpuacct")
    assert old["memory"].name == "memory"


class Tree:
    """Stands for the kernel: what is written to a file of control appears where the kernel would show it."""

    def __init__(self, root: Path, monkeypatch) -> None:
        self.root = root
        monkeypatch.setattr(cgroups, "_write", self.write)
        self.busy = False

    def write(self, path: Path, text: str) -> None:
        if path.name == "cgroup.subtree_control":
            if self.busy and path.parent == self.root and (self.root / "cgroup.procs").read_text():
                raise OSError(16, "Device or resource busy")
            path.write_text(f"{path.read_text() if path.exists() else ''} {text.lstrip('+')}")
            for child in path.parent.iterdir():
                if child.is_dir():
                    (child / "cgroup.controllers").write_text(path.read_text())
                    (child / "cgroup.procs").touch()
        else:
            (self.root / "cgroup.procs").write_text("")
            path.write_text(text)


def test_version_2_gets_its_controllers_handed_on(tmp_path, monkeypatch):
    mountinfo = made_up(tmp_path)
    Tree(tmp_path, monkeypatch)
    found = cgroups.prepare_hierarchies("htcondor", mountinfo)
    assert found.unified == tmp_path / "htcondor"
    assert found.controllers == {"memory", "cpu", "pids"}
    assert not found.trouble
    assert "io" not in (tmp_path / "htcondor/cgroup.subtree_control").read_text()


def test_in_a_container_our_processes_make_way_for_the_controllers(tmp_path, monkeypatch):
    """There the root of the tree is no real root: it has a type, and processes of ours in it."""
    mountinfo = made_up(tmp_path)
    (tmp_path / "cgroup.type").write_text("domain\n")
    (tmp_path / "cgroup.procs").write_text("4711\n")
    tree = Tree(tmp_path, monkeypatch)
    tree.busy = True
    found = cgroups.prepare_hierarchies("htcondor", mountinfo)
    assert found.controllers == {"memory", "cpu", "pids"}
    assert (tmp_path / cgroups.LEAF / "cgroup.procs").read_text() == "4711"


def test_limits_are_written_once_and_again_when_they_change(tmp_path, monkeypatch):
    mountinfo = made_up(tmp_path)
    Tree(tmp_path, monkeypatch)
    groups = Cgroups(cgroups.prepare_hierarchies("htcondor", mountinfo), "condor_x_")
    name = "condor_x_slot1"
    folder = tmp_path / "htcondor" / name
    folder.mkdir()
    # The kernel makes the files; here somebody must.
    monkeypatch.setattr(groups, "_remove", lambda name: True)
    for file in ("memory.max", "memory.low", "memory.oom.group", "cpu.weight", "pids.max"):
        (folder / file).write_text("")
    described = groups.make(name, cgroup_limits(rules(), 1, 100, 200 * 1024))
    assert described["unified"] == str(folder)
    assert (folder / "memory.max").read_text() == str(100 * MIB)
    assert (folder / "memory.oom.group").read_text() == "1"
    assert any("memory.swap.max" in one for one in groups.trouble(name))  # not there: told, not fatal
    (folder / "memory.max").write_text("untouched")
    groups.make(name, cgroup_limits(rules(), 1, 100, 200 * 1024))
    assert (folder / "memory.max").read_text() == "untouched"
    groups.make(name, cgroup_limits(rules(), 1, 300, 400 * 1024))
    assert (folder / "memory.max").read_text().startswith(str(300 * MIB))


def test_use_of_version_2(tmp_path, monkeypatch):
    mountinfo = made_up(tmp_path)
    Tree(tmp_path, monkeypatch)
    groups = Cgroups(cgroups.prepare_hierarchies("htcondor", mountinfo), "condor_x_")
    folder = tmp_path / "htcondor/one"
    folder.mkdir()
    (folder / "memory.stat").write_text("anon 2097152\nfile 9999999\nshmem 1048576\n")
    (folder / "cpu.stat").write_text("usage_usec 3500000\nuser_usec 2500000\nsystem_usec 1000000\n")
    (folder / "cgroup.procs").write_text("1\n2\n3\n")
    use = groups.use("one")
    assert (use.user_cpu_s, use.sys_cpu_s, use.resident_kib, use.procs) == (2.5, 1.0, 3072, 3)
    assert groups.use("gone") is None


# ---------------------------------------------------------------- accounts

LOGINS = {
    "alice": Login("alice", 1001, 1001, (1001, 0, 50), "/home/alice"),
    "slot1": Login("slot1", 2001, 2001, (2001,), "/"),
    "slot2": Login("slot2", 2002, 2002, (2002,), "/"),
    "toor": Login("toor", 0, 0, (0,), "/root"),
    "nobody": Login("nobody", 65534, 65534, (65534,), "/"),
}


def chosen(slot="slot1@here", job=None, **knobs):
    ad = {"User": "alice@pool", "Owner": "alice", **(job or {})}
    return isolation.choose_account(rules(**knobs), slot, ClassAd(ad), LOGINS.get)


def test_the_order_of_accounts():
    assert chosen().name == "alice"
    assert chosen(SLOT1_USER="slot1").name == "alice"
    assert chosen(SLOT1_USER="slot1", STARTER_ALLOW_RUNAS_OWNER="false").name == "slot1"
    assert chosen("big-1@here", SLOT1_USER="slot1", STARTER_ALLOW_RUNAS_OWNER="false").name == "slot1"
    assert chosen(job={"RunAsOwner": False}, SLOT1_USER="slot1").name == "slot1"
    assert chosen(job={"User": "alice@elsewhere"}, SLOT1_USER="slot1").name == "slot1"
    assert chosen(job={"Owner": "unknown"}).name == "nobody"
    assert chosen("slot2@here", STARTER_ALLOW_RUNAS_OWNER="false", SLOT1_USER="slot1").name == "nobody"


def test_a_dynamic_slot_has_its_own_user_or_its_parents():
    knobs = {"STARTER_ALLOW_RUNAS_OWNER": "false", "SLOT1_USER": "slot1", "SLOT1_2_USER": "slot2"}
    assert chosen("slot1_2@here", **knobs).name == "slot2"
    assert chosen("slot1_1@here", **knobs).name == "slot1"


def test_who_shares_an_account_is_known():
    off = {"STARTER_ALLOW_RUNAS_OWNER": "false"}
    assert not chosen().shared
    assert chosen(**off).shared
    assert not chosen(SLOT1_USER="slot1", **off).shared
    assert chosen("slot1_1@here", SLOT1_USER="slot1", **off).shared  # with slot1_2
    assert chosen(SLOT1_USER="slot1", SLOT2_USER="slot1", **off).shared


def test_root_is_no_account_by_any_name_and_no_group():
    assert chosen(job={"Owner": "toor", "User": "toor@pool"}).name == "nobody"
    with pytest.raises(NoAccount, match="SLOT1_USER"):
        chosen(SLOT1_USER="toor", STARTER_ALLOW_RUNAS_OWNER="false")
    assert 0 not in chosen().groups


@spec("ISO-02")
def test_dedicated_accounts():
    off = {"STARTER_ALLOW_RUNAS_OWNER": "false", "SLOT1_USER": "slot1"}
    assert not chosen(**off).dedicated
    assert chosen(**off, DEDICATED_EXECUTE_ACCOUNT_REGEXP="slot[0-9]+").dedicated
    assert not chosen(**off, DEDICATED_EXECUTE_ACCOUNT_REGEXP="slo").dedicated  # the whole name
    assert chosen(**off, EXECUTE_LOGIN_IS_DEDICATED="true").dedicated
    assert not chosen(EXECUTE_LOGIN_IS_DEDICATED="true").dedicated  # alice's own
    with pytest.raises(BadIsolationSetting, match="DEDICATED_EXECUTE_ACCOUNT_REGEXP"):
        rules(DEDICATED_EXECUTE_ACCOUNT_REGEXP="slot[")


@spec("ISO-03", "W-71")
def test_one_gid_for_each_slot():
    gids = rules(USE_GID_PROCESS_TRACKING="true", MIN_TRACKING_GID=750, MAX_TRACKING_GID=757).tracking_gids
    used = []
    for _ in range(8):
        used.append(isolation.free_gid(gids, used))
    assert used == list(range(750, 758))
    assert isolation.free_gid(gids, used) is None
    used.remove(753)
    assert isolation.free_gid(gids, used) == 753


@spec("ISO-03")
@pytest.mark.parametrize("knobs", [{}, {"MIN_TRACKING_GID": 757, "MAX_TRACKING_GID": 750}])
def test_a_range_that_is_none_is_refused(knobs):
    with pytest.raises(BadIsolationSetting, match="MIN_TRACKING_GID"):
        rules(USE_GID_PROCESS_TRACKING="true", **knobs)


# ---------------------------------------------------------------- the plan


@spec("ISO-01")
def test_pid_namespaces_are_for_those_who_want_them_and_who_share_an_account():
    own = replace(launch().account, shared=False)
    assert isolation.isolation_request(rules(), ROOT, launch())["pid_namespace"]
    assert not isolation.isolation_request(rules(), ROOT, launch(account=own))["pid_namespace"]
    assert isolation.isolation_request(rules(USE_PID_NAMESPACES="true"), ROOT, launch(account=own))["pid_namespace"]
    assert not rules().pid_namespaces


def test_private_directories_leave_out_what_the_job_names():
    found = isolation.private_directories
    assert found(rules(), launch()) == ["/tmp", "/var/tmp"]
    assert found(rules(), launch(cwd="/tmp/x")) == ["/var/tmp"]
    assert found(rules(), launch(stdout="/var/tmp/out", executable="/tmp/prog")) == []
    assert found(rules(), launch(scratch=Path("/tmp/execute/dir_1"), cwd="/tmp/execute/dir_1")) == ["/tmp", "/var/tmp"]
    assert found(rules(MOUNT_UNDER_SCRATCH='"/, relative,/scratch//"'), launch()) == ["/scratch"]
    assert found(rules(MOUNT_UNDER_SCRATCH="undefined"), launch()) == []
    assert found(rules(), launch(account=None)) == []


def test_jobs_as_root_get_no_walls_that_they_could_go_through():
    plan = isolation.isolation_request(rules(), ROOT, launch(account=None))
    assert "account" not in plan
    assert "mounts" not in plan
    plan = isolation.isolation_request(rules(USE_PID_NAMESPACES="true"), ROOT, launch(account=None))
    assert plan["pid_namespace"]


def test_a_job_with_the_startds_account_sees_what_is_granted_and_its_own_directory():
    plan = isolation.isolation_request(rules(), PLAIN, launch(account=None))
    assert plan["landlock"] == {"grants": [["w", "/srv/execute/dir_1"], ["w", "/home"], ["r", "/usr"]]}
    # Landlock scopes signals also where files are no concern: other accounts' jobs, and those of own users.
    landlocked = replace(ROOT, landlock=True)
    assert isolation.isolation_request(rules(), landlocked, launch())["landlock"] == {"grants": None}
    mine = launch(account=None, job_ad=ClassAd({"User": "me@pool"}))
    own = rules(ROOST_OWN_USERS="me@pool")
    assert isolation.isolation_request(own, PLAIN, mine)["landlock"] == {"grants": None}
    assert isolation.isolation_request(rules(), PLAIN, mine)["landlock"]["grants"] is not None
    assert "landlock" not in isolation.isolation_request(rules(ROOST_LANDLOCK="false"), PLAIN, launch())
    assert "landlock" not in isolation.isolation_request(rules(), replace(PLAIN, landlock=False), launch())


def test_a_path_that_a_job_names_and_may_not_use_is_found():
    assert isolation.ungranted(rules(), PLAIN, launch(account=None)) == ""
    assert isolation.ungranted(rules(), PLAIN, launch(account=None, cwd="/home/alice", stdin="/usr/share/x")) == ""
    assert isolation.ungranted(rules(), PLAIN, launch(account=None, stdout="/srv/spool/out")) == "/srv/spool/out"
    assert isolation.ungranted(rules(), PLAIN, launch(account=None, cwd="/homes/x")) == "/homes/x"
    assert isolation.ungranted(rules(), ROOT, launch(cwd="/srv")) == ""


def test_jobs_have_no_capabilities_and_a_filter_but_for_container_runtimes():
    plan = isolation.isolation_request(rules(), ROOT, launch())
    assert (plan["capabilities"], plan["no_new_privileges"]) == (0, True)
    assert plan["seccomp"] == {"namespaces": False, "others": True}
    alone = replace(ROOT, pid_namespaces=False)
    assert isolation.isolation_request(rules(), alone, launch())["seccomp"]["others"] is False
    assert isolation.isolation_request(rules(ROOST_JOB_USER_NAMESPACES="true"), ROOT, launch())["seccomp"]["namespaces"]
    assert "seccomp" not in isolation.isolation_request(rules(ROOST_SECCOMP="false"), ROOT, launch())
    as_root = isolation.isolation_request(rules(), ROOT, launch(account=None))["capabilities"]
    assert as_root & 1 << 1  # DAC_OVERRIDE
    assert not as_root & 1 << 21  # SYS_ADMIN
    runtime = isolation.isolation_request(rules(), ROOT, launch(in_container=True))
    assert not {"capabilities", "no_new_privileges", "seccomp"} & runtime.keys()


def test_nice_and_address_space_are_expressions_of_the_job():
    wanted = launch(job_ad=ClassAd({"Size": 7}))
    found = rules(JOB_RENICE_INCREMENT="TARGET.Size * 2", STARTER_RLIMIT_AS="TARGET.Size * 100")
    assert isolation.nice_of(found, wanted) == 14
    assert isolation.limits_of_process(found, wanted) == {"RLIMIT_AS": 700 * MIB}
    assert isolation.nice_of(rules(JOB_RENICE_INCREMENT="-5"), wanted) == 0
    assert isolation.nice_of(rules(JOB_RENICE_INCREMENT="undefined"), wanted) == 0
    assert isolation.limits_of_process(rules(), wanted) == {}


# ---------------------------------------------------------------- verdicts


def manager(**knobs):
    found = rules(**knobs)
    nothing = Cgroups(cgroups.Hierarchies(), "")
    disks = ScratchVolumes(found.disk, Path("/srv/execute"), None, able=False)
    return IsolationManager(
        found, ROOT, nothing, disks, execute=Path("/srv/execute"), hostname="here", find=LOGINS.get, warn=print
    )


@spec("ISO-09", "ISO-10")
def test_a_job_over_its_limit_is_told_from_a_machine_without_memory():
    mine = manager()
    mine.request(launch())
    killed = Finished(10.0, 1.0, exit_signal=9)
    held = mine.explain_end("one", killed, {"killed": 1, "own": True, "peak_bytes": 2040 * MIB})
    assert (held.hold_code, held.hold_subcode) == (34, 102)
    assert held.hold_message == "Job has gone over memory limit of 2048 megabytes. Peak usage: 2040 megabytes."
    lost = mine.explain_end("one", killed, {"killed": 1, "own": False, "peak_bytes": 100 * MIB})
    assert (lost.exit_code, lost.exit_signal, lost.hold_code) == (None, None, 0)
    assert "ran out of memory" in lost.trouble
    assert mine.explain_end("one", killed, None) == killed


# ---------------------------------------------------------------- disks


@spec("SCR-04")
def test_commands_of_volumes():
    group = DiskSettings(True, "condor_vg", "", "/spool/startd_disk.img")
    assert scratch_volumes.create_command(group, "n", 20480)[-3:] == ["--size", "20480k", "condor_vg"]
    thin = replace(group, thin_pool="htcondor")
    assert scratch_volumes.create_command(thin, "n", 20480)[-5:] == [
        "--virtualsize",
        "20480k",
        "--thinpool",
        "htcondor",
        "condor_vg",
    ]
    assert scratch_volumes.remove_command(group, "n")[-1] == "condor_vg/n"


@spec("SCR-04")
def test_thin_provisioning_can_be_turned_off():
    knobs = {"LVM_VOLUME_GROUP_NAME": "vg", "LVM_THINPOOL_NAME": "pool"}
    assert rules(**knobs).disk.thin_pool == "pool"
    assert rules(**knobs, LVM_USE_THIN_PROVISIONING="false").disk.thin_pool == ""


@spec("SCR-05")
def test_the_smallest_volume():
    assert [scratch_volumes.volume_size_kib(kib) for kib in (0, 4095, 4097)] == [4096, 4096, 4097]


@spec("SCR-02")
def test_what_counts_as_a_full_disk():
    spare = scratch_volumes.SPARE_KIB
    assert scratch_volumes.over_volume(scratch_volumes.FreeSpace(8192 + spare, spare + 1, 5)) is None
    for free in (spare, 950, 0):  # 950 is what a write of 1 MiB left of a file system that was full
        found = scratch_volumes.over_volume(scratch_volumes.FreeSpace(8192 + spare, free, 5))
        assert (found.fault.code, found.fault.subcode) == (34, 104)
        assert "of 8192 KB" in found.message
    assert "no more files" in scratch_volumes.over_volume(scratch_volumes.FreeSpace(8192, 4000, 0)).message
    assert scratch_volumes.over_measure(8192, 8192) is None
    assert (
        scratch_volumes.over_measure(8193, 8192).message
        == "Job has gone over disk limit of 8192 KB. Measured usage: 8193 KB."
    )


@spec("SCR-01")
def test_without_root_disks_are_measured():
    disks = ScratchVolumes(DiskSettings(True, "", "", "/x"), Path("/srv"), None, able=False)
    assert not disks.usable
    assert "root" in disks.trouble


def test_devices_that_a_job_must_not_use_are_covered_by_a_file_of_its_own():
    plan = isolation.isolation_request(rules(), ROOT, launch(), hidden=["/dev/nvidia1"])
    assert [isolation.NO_DEVICE, "/dev/nvidia1"] in plan["mounts"]["private"]
    plan = isolation.isolation_request(rules(), ROOT, launch())
    assert isolation.NO_DEVICE not in [name for name, _ in plan["mounts"]["private"]]
