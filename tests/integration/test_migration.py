"""The steps of docs/migration.md, as they are written there: a personal HTCondor with groups, policies and cron jobs,
its users and its queue of a thousand jobs. Nothing is lost, and what does nothing here is told, and nothing else."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from shared.classad import parse_expr, unparse
from tests.integration.inside import InsidePool
from tests.integration.test_import import NOW, accountant_log, queue_log, shared, users
from tests.spec import spec
from tests.waiting import PATIENCE_S, wait_until

PAGE = Path(__file__).parents[2] / "docs" / "migration.md"
STEPS = [
    "CONDOR_CONFIG=/etc/condor/condor_config roost config-val -check",
    "roost import accountant -dry-run /var/lib/condor/spool/Accountantnew.log",
    "roost import accountant /var/lib/condor/spool/Accountantnew.log",
    "roost import queue -dry-run /var/lib/condor/spool/job_queue.log",
    "roost import queue /var/lib/condor/spool/job_queue.log",
    "roost userprio -allusers",
    "roost q -allusers",
]
#: In a user's shell.
USERS_STEPS = [
    "roost condor-names ~/bin",
    "export PATH=~/bin:$PATH",
    "condor_submit solve.sub",
    "condor_q",
    "condor_wait -wait 300 solve.log",
    "condor_history -limit 1",
]
#: As a distribution's package and its administrator would have it. `!` in front: a line that does nothing here.
CONFIG = """\
  RELEASE_DIR = /usr
  LOCAL_DIR = /var
! RUN_DIR_OF_OURS = $(LOCAL_DIR)/run/condor
  LOG = $(LOCAL_DIR)/log/condor
  SPOOL = $(LOCAL_DIR)/lib/condor/spool
  EXECUTE = $(LOCAL_DIR)/lib/condor/execute
  ETC = /etc/condor
! PROCD_ADDRESS = $(LOCAL_DIR)/run/condor/procd_pipe
  CONDOR_HOST = $(FULL_HOSTNAME)
  COLLECTOR_HOST = $(CONDOR_HOST)
! CONDOR_IDS = 64.64
! CONDOR_ADMIN = root@elsewhere.example
  UID_DOMAIN = elsewhere
  FILESYSTEM_DOMAIN = elsewhere
! NETWORK_INTERFACE = 127.0.0.1
! COLLECTOR_PORT = 9618
! USE_SHARED_PORT = true
  DAEMON_LIST = MASTER, COLLECTOR, NEGOTIATOR, SCHEDD, STARTD
  ALLOW_READ = *
  ALLOW_WRITE = *@elsewhere
  ALLOW_ADMINISTRATOR = root@elsewhere
! SEC_DEFAULT_ENCRYPTION = REQUIRED
! SEC_CLIENT_AUTHENTICATION = OPTIONAL

  # Who may have how much
  GROUP_NAMES = group_physics, group_physics.hep, group_bio
  GROUP_QUOTA_group_physics = 20
  GROUP_QUOTA_group_physics.hep = 5
  GROUP_QUOTA_DYNAMIC_group_bio = 0.25
  GROUP_ACCEPT_SURPLUS = true
  GROUP_PRIO_FACTOR_group_bio = 10
  PRIORITY_HALFLIFE = 43200
  DEFAULT_PRIO_FACTOR = 100
  NICE_USER_PRIO_FACTOR = 10000000
! ACCOUNTANT_DATABASE_FILE = $(SPOOL)/Accountantnew.log
! MAX_ACCOUNTANT_DATABASE_SIZE = 1000000
  CLAIM_WORKLIFE = 3600
  NEGOTIATOR_INTERVAL = 30
  NEGOTIATOR_PRE_JOB_RANK = (10000000 * My.Rank) - (100000 * Cpus)
  PREEMPTION_REQUIREMENTS = RemoteUserPrio > SubmitterUserPrio * 1.2

  # What the machine does
  use FEATURE : PartitionableSlot
  use POLICY : Hold_If_Memory_Exceeded
  use POLICY : Preempt_If_Disk_Exceeded
  SITE_HOURS = ClockHour < 8 || ClockHour >= 18
  START = TARGET.Owner =!= "nobody"
  RANK = TARGET.AcctGroup =?= "group_bio"
  MAXJOBRETIREMENTTIME = 3600
  Site = "Elsewhere"
  STARTD_ATTRS = $(STARTD_ATTRS) Site
  STARTD_CRON_AUTOPUBLISH = If_Changed
  STARTD_CRON_JOBLIST = $(STARTD_CRON_JOBLIST) rack
  STARTD_CRON_rack_EXECUTABLE = {program}
  STARTD_CRON_rack_MODE = Periodic
  STARTD_CRON_rack_PERIOD = 1h
  STARTD_CRON_rack_PREFIX = Site

  # What the access point does
  SYSTEM_PERIODIC_REMOVE = JobStatus == 5 && time() - EnteredCurrentStatus > 3600 * 24 * 30
  SCHEDD_CRON_JOBLIST = motd
  SCHEDD_CRON_motd_EXECUTABLE = {motd}
  SCHEDD_CRON_motd_PERIOD = 1h
  SCHEDD_CRON_motd_PREFIX = Message
  JOB_TRANSFORM_NAMES = site
  JOB_TRANSFORM_site @=end
     SET WantedSite "Elsewhere"
  @end
  SUBMIT_REQUIREMENT_NAMES = small
  SUBMIT_REQUIREMENT_small = RequestMemory <= 64000
  JOB_DEFAULT_REQUESTMEMORY = 256
! SCHEDD_CLUSTER_INITIAL_VALUE = 100
! JOB_QUEUE_LOG = $(SPOOL)/job_queue.log
! MAX_SCHEDD_LOG = 10000000
! SHADOW_LOG = $(LOG)/ShadowLog
! FLOCK_COLLECTOR_HOSTS = other.example
  DAGMAN_MAX_JOBS_IDLE = 1000
"""
#: A macro of somebody's own is not told of, whatever its name.
OWN = "RUN_DIR_OF_OURS"
LINES = [line[2:] for line in CONFIG.splitlines()]
VAIN = {n: line.split()[1] for n, line in enumerate(CONFIG.splitlines(), 1) if line[:1] == "!" and OWN not in line}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("migration")


@pytest.fixture(scope="module")
def pool(place):
    """The same file, which the personal pool reads as its own."""
    programs = {"program": "Rack = 17", "motd": 'Text = "moved"'}
    for name, said in programs.items():
        (place / name).write_text(f"#!/bin/sh\necho '{said}'\n")
        (place / name).chmod(0o755)
    text = "\n".join(LINES).replace("{program}", str(place / "program")).replace("{motd}", str(place / "motd"))
    (place / "condor_config").write_text(text + "\n")
    (place / "pool").mkdir()
    (place / "pool" / "config").write_text(text + "\n")
    made = InsidePool(place / "pool")
    yield made
    made.close()


def test_the_page_has_these_steps():
    found = re.findall(r"^    ((?:[A-Z_]+=\S+ )?roost .*)$", PAGE.read_text(), re.MULTILINE)
    assert found == STEPS
    assert re.findall(r"^    \$ (.*)$", PAGE.read_text(), re.MULTILINE) == USERS_STEPS


def test_a_user_goes_on_with_the_commands_and_files_of_before(pool, tmp_path):
    (tmp_path / "installed").mkdir()
    command = tmp_path / "installed" / "roost"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m roost "$@"\n')
    command.chmod(0o755)
    (tmp_path / "solve.sub").write_text(
        "executable = /bin/echo\ntransfer_executable = false\narguments = moved\n"
        "output = solve.out\nlog = solve.log\nqueue\n"
    )
    path = f"{command.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-ec", "\n".join(USERS_STEPS)],
        cwd=tmp_path,
        env={**pool.environment(), "HOME": str(tmp_path), "PATH": path},
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "solve.out").read_text() == "moved\n"
    assert "1 job(s) submitted" in done.stdout
    assert "All jobs done." in done.stdout
    assert "/bin/echo" in done.stdout


def test_a_program_for_htcondors_modules_goes_on(pool, tmp_path):
    """The page's own, with the modules as `pip install ./roost ./roost/bindings` has them."""
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "words.py").write_text(program)
    root = PAGE.parents[1]
    paths = os.pathsep.join(map(str, (root / "bindings" / "modules", root / "bindings", root)))
    done = subprocess.run(
        [sys.executable, "words.py"], cwd=tmp_path, env={**pool.environment(), "PYTHONPATH": paths},
        capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.stdout == "['a\\n', 'b\\n']\n", done.stdout + done.stderr


HELD = {"JobStatus": "5", "HoldReason": '"by hand"', "HoldReasonCode": "1", "HoldReasonSubCode": "0"}
#: What a job of a kind has in HTCondor's queue, and what becomes of it here (None: it stays behind).
KINDS = {
    "idle": ({"JobStatus": "1"}, 1),
    "held": (HELD, 5),
    "running": ({"JobStatus": "2", "RemoteHost": '"slot1@elsewhere"', "ShadowBday": str(NOW - 60)}, 1),
    "suspended": ({"JobStatus": "7"}, 1),
    "bringing its output": ({"JobStatus": "6"}, 1),
    "over": ({"JobStatus": "4", "ExitCode": "0"}, None),
    "removed": ({"JobStatus": "3"}, None),
}
GROUPS = ("group_physics.hep", "group_bio", "")


def a_queue(rng):
    """A thousand jobs of twenty users: {cluster: what queue_log takes}, {job id: (user, kind, all its attributes)}."""
    clusters, jobs = {}, {}
    for number in range(7000, 7100):
        user = f"user{number % 20}@elsewhere"
        group = rng.choice(GROUPS)
        common = shared(user, WhoSaid='"moved"', RequestCpus="1", RequestDisk="1024", Args='"-n $$(Cpus)"')
        common |= {"Environment": "\"A=1 B='x y'\"", "JobLeaseDuration": "2400", "ConcurrencyLimits": '"licence:2"'}
        common |= {"PeriodicRemove": "JobStatus == 5 && NumHolds > 9", "OnExitRemove": "ExitCode =!= 85"}
        if group:
            common |= {"AcctGroup": f'"{group}"', "AcctGroupUser": f'"user{number % 20}"'}
            common |= {"AccountingGroup": f'"{group}.user{number % 20}"'}
        procs = {}
        for proc in range(10):
            kind = rng.choice(list(KINDS))
            own = {**KINDS[kind][0], "JobPrio": str(rng.randrange(-5, 5)), "NumJobStarts": str(rng.randrange(9))}
            own |= {"RemoteWallClockTime": f"{rng.randrange(10**6)}.0", "Rank": "Memory + 0.5"}
            procs[proc] = own
            jobs[f"{number}.{proc}"] = (user, kind, common | own)
        clusters[number] = (common, procs)
    return clusters, jobs


@spec("ACC-23", "TLS-19")
def test_nothing_is_lost_on_the_way(pool, place, monkeypatch):
    rng = random.Random(5)
    records = users(20, rng, "elsewhere") | {
        "group_physics.hep": {"Priority": "9.0", "WeightedAccumulatedUsage": "3600.0"},
        "group_bio": {"Priority": "4.0", "WeightedAccumulatedUsage": "7200.0"},
    }
    (place / "Accountantnew.log").write_text(accountant_log(records, NOW))
    clusters, jobs = a_queue(rng)
    assert len(jobs) == 1000
    (place / "job_queue.log").write_text(queue_log(clusters))
    told = walked(pool, place, monkeypatch)

    # The configuration: every line that does nothing is told with its place, and no other.
    lines = told["config-val -check"].splitlines()
    warned = {}
    for line in lines:
        found = re.match(rf"WARNING: {place}/condor_config, line (\d+): (\S+?):? ", line)
        if found:
            warned[int(found[1])] = found[2]
    assert warned == VAIN
    assert [line for line in lines if "WARNING" not in line] == [
        f"Read {place}/condor_config: 0 errors, {len(VAIN)} warnings."
    ]

    # Priorities
    assert "22 records: 22 taken in" in told["import accountant /var/lib/condor/spool/Accountantnew.log"]
    for name in records:
        assert name.partition("@")[0] in told["userprio -allusers"]

    # The queue
    coming = {name: job for name, job in jobs.items() if KINDS[job[1]][1] is not None}
    said = told["import queue /var/lib/condor/spool/job_queue.log"]
    assert f"100 clusters: {len(coming)} jobs taken in, 0 known already" in said
    for kind, why in (("over", "completed"), ("removed", "removed")):
        assert re.search(rf"\b{sum(one[1] == kind for one in jobs.values())} left out {why}", said), said
    assert "WARNING" not in said
    assert f"{len(coming)} jobs" in told["q -allusers"].splitlines()[-2] or f"{len(coming)} jobs" in told["q -allusers"]
    with pool.client() as client:
        there = {f"{ad['ClusterId']}.{ad['ProcId']}": ad for ad in client.jobs(constraint='WhoSaid == "moved"')}
        assert there.keys() == coming.keys()
        for name, (user, kind, was) in coming.items():
            ad = there[name]
            assert (ad["User"], ad["JobStatus"]) == (user, KINDS[kind][1])
            for attribute, text in was.items():
                if attribute not in CHANGED:
                    assert same(ad.text(attribute), text), (name, attribute)
            if kind == "held":
                assert (ad["HoldReason"], ad["HoldReasonCode"], ad["HoldReasonSubCode"]) == ("by hand", 1, 0)
        groups = {ad.eval("Name"): ad for ad in client.priorities()}
        assert groups["group_physics.hep"].eval("WeightedAccumulatedUsage") == pytest.approx(3600.0)
        assert groups["group_bio"].eval("WeightedAccumulatedUsage") == pytest.approx(7200.0)
        for name, values in records.items():
            if "@" in name:
                assert groups[name].eval("PriorityFactor") == float(values["PriorityFactor"])
                assert groups[name].eval("AccumulatedUsage") == pytest.approx(float(values["AccumulatedUsage"]))
        # What the configuration makes of machine and access point.
        wait_until(lambda: list(client.ads("Machine", constraint="SiteRack == 17")), what="what a cron job found")
        wait_until(lambda: list(client.ads("Scheduler", constraint='MessageText == "moved"')), what="what another said")
        [slot] = client.ads("Machine", constraint="PartitionableSlot")
        assert slot.eval("Site") == "Elsewhere"
        assert groups["group_bio"].eval("ConfigQuota") == pytest.approx(0.25)
        # New jobs of those users go on where the old ones were: the access point's rules, the next number.
        (place / "new.sub").write_text("executable = /bin/true\nrequirements = false\nqueue\n")
        new = int(re.search(r"cluster (\d+)", pool.roost("submit", str(place / "new.sub")))[1])
        assert new > max(clusters)
        [ad] = client.jobs(str(new))
        assert (ad["WantedSite"], ad["RequestMemory"]) == ("Elsewhere", 256)


#: What a job of HTCondor's queue has that its place here changes.
CHANGED = frozenset(("JobStatus", "RemoteHost", "ShadowBday", "HoldReason", "HoldReasonCode", "HoldReasonSubCode"))


def same(text, was):
    """Whether two texts are one expression."""
    return text is not None and unparse(parse_expr(text)) == unparse(parse_expr(was, syntax="old"))


def walked(pool, place, monkeypatch):
    """What each step said, by its words."""
    told = {}
    for step in STEPS:
        setting, _, words = step.rpartition("roost ")
        if setting:
            with monkeypatch.context() as patch:
                changed = {**pool.environment(), "CONDOR_CONFIG": str(place / "condor_config")}
                patch.setattr(pool, "environment", lambda changed=changed: changed)
                told[words] = pool.roost(*words.split())
        else:
            told[words] = pool.roost(*words.replace("/var/lib/condor/spool", str(place)).split())
    return told
