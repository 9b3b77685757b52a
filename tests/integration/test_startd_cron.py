"""Startd cron with real programs (CRN-01 to CRN-10)."""

import signal

import pytest
import structlog

from shared.bus.api import Exchange
from shared.classad import ClassAd
from tests.spec import spec
from tests.startd_pool import Machine, Pool
from tests.waiting import eventually


def script(path, name, text):
    program = path / name
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return program


def cron(*jobs, **knobs):
    """Knobs of jobs: (name, executable, {knob: value})."""
    macros = {"STARTD_CRON_JOBLIST": " ".join(name for name, *_ in jobs)}
    for name, executable, own in jobs:
        values = {"EXECUTABLE": executable, "MODE": "OneShot"} | own
        macros |= {f"STARTD_CRON_{name.upper()}_{knob}": value for knob, value in values.items()}
    return macros | knobs


def ad(pool, slot="slot1@node1"):
    startd = pool.startd
    return startd.shared.ads.ad_of(startd.shared.slot_manager.slots[slot])


def value(pool, name, slot="slot1@node1"):
    return ad(pool, slot).eval(name)


def runs_of(file):
    return file.read_text().count("run") if file.exists() else 0


async def launchers_tried(pool):
    """Until then, the startd may tell the pool of its slots at any moment, with all that their ads say."""
    launchers = pool.startd.shared.launchers
    await eventually(lambda: all(launchers[name].found is not None for name in ("apptainer", "vm")))


@spec("CRN-01", "CRN-02", "CRN-03", "CRN-04", "CRN-05", "CRN-08", "W-65")
@pytest.mark.parametrize(
    ("dash", "autopublish", "told"),
    [
        ("- update:true", "Never", True),
        ("-", "Never", False),
        ("-", "If_Changed", True),
        ("-", "Always", True),
        ("- update:false", "Always", False),
    ],
)
async def test_output_selects_slots_and_the_pool_hears_of_it_as_it_says(tmp_path, dash, autopublish, told):
    """CRN-01 to CRN-05, CRN-08: the manual's example; CRN-02: who decides about the update."""
    go, runs = tmp_path / "go", tmp_path / "runs"
    lines = f"Value=1\\nSlotId=1\\n-s1 update:false\\nValue=2\\nSlotId=2\\n-s2 update:false\\nValue=10\\n{dash}\\n"
    program = script(tmp_path, "value", f'echo run >>{runs}; [ -e {go} ] && printf "{lines}"')
    heard = {}  # by slot: what the pool knows of it

    async def hear(envelope):
        body = envelope.body
        ads = getattr(body, "ads", None) or getattr(body, "changes", None) or []
        for name, packed in zip(getattr(body, "names", []), ads, strict=False):
            heard.setdefault(name, {}).update(ClassAd.unpack(packed).items())

    def known(name):
        return {one.get(name) for one in heard.values()}

    job = ("x", program, {"PREFIX": "My", "MODE": "Periodic", "PERIOD": "1s"})
    macros = cron(job, NUM_SLOTS_TYPE_1=3, SLOT_TYPE_1="auto", STARTD_CRON_AUTOPUBLISH=autopublish)
    async with Pool(tmp_path, Machine(cpus=3), **macros) as pool:
        await pool.schedd.bus.listen(Exchange.ADS, ["#"], hear)
        await eventually(lambda: len(heard) == 3 and known("State") == {"Unclaimed"})
        await launchers_tried(pool)
        before = runs_of(runs)
        await eventually(lambda: runs_of(runs) > before + 1)  # what was to be told of the launchers has been told
        go.touch()
        await eventually(lambda: value(pool, "MyValue", "slot3@node1") == 10)
        assert [value(pool, "MyValue", f"slot{n}@node1") for n in (1, 2, 3)] == [1, 2, 10]
        assert isinstance(value(pool, "MyLastUpdate"), int)
        assert not {"slotmergeconstraint", "mynslotid", "myslotid"} & {name.lower() for name in ad(pool)}
        if told:
            await eventually(lambda: known("MyValue") == {1, 2, 10})
        else:
            last = value(pool, "MyLastUpdate")
            await eventually(lambda: value(pool, "MyLastUpdate") > last)
            assert known("MyValue") == {None}


async def test_policy_goes_by_what_a_program_prints(tmp_path):
    """The point of it all: the slot is its owner's while the program says so."""
    busy = tmp_path / "busy"
    program = script(tmp_path, "look", f'[ -e {busy} ] && echo "Busy = true" || echo "Busy = false"')
    macros = cron(("look", program, {"MODE": "Periodic", "PERIOD": "1s"}), IS_OWNER="Busy =?= true")
    async with Pool(tmp_path, **macros) as pool:
        await eventually(lambda: value(pool, "Busy") is False)
        assert pool.conditions() == {"slot1@node1": "Unclaimed/Idle"}
        busy.touch()
        await eventually(lambda: pool.conditions() == {"slot1@node1": "Owner/Idle"})
        busy.unlink()
        await eventually(lambda: pool.conditions() == {"slot1@node1": "Unclaimed/Idle"})


async def test_requirements_see_what_a_program_prints(tmp_path):
    program = script(tmp_path, "good", 'echo "Healthy = false"')
    async with Pool(tmp_path, **cron(("good", program, {}), START="Healthy =!= false")) as pool:
        await eventually(lambda: value(pool, "Requirements") is False)


@spec("CRN-08")
async def test_arguments_environment_directory_and_what_is_kept_back(tmp_path, monkeypatch):
    monkeypatch.setenv("CONDOR_INHERIT", "12 <1.2.3.4:5>")
    monkeypatch.setenv("ROOST_AMQP_URL", "amqp://u:secret@host/")
    program = script(
        tmp_path,
        "env",
        'echo "Args = \\"$1|$2\\""; echo "Own = \\"$OWN\\""; echo "Here = \\"$(pwd -P)\\""; '
        'echo "Val = \\"$STARTD_CRON_CONFIG_VAL\\""; echo "Leak = \\"$CONDOR_INHERIT$ROOST_AMQP_URL\\""',
    )
    own = {"ARGS": "abc 123", "ENV": "OWN=mine", "CWD": tmp_path}
    async with Pool(tmp_path, **cron(("env", program, own), STARTD_CRON_CONFIG_VAL="/bin/config_val")) as pool:
        await eventually(lambda: value(pool, "Args") == "abc|123")
        names = ("Own", "Here", "Val", "Leak")
        assert [value(pool, name) for name in names] == ["mine", str(tmp_path.resolve()), "/bin/config_val", ""]


@spec("CRN-08")
async def test_kill_ends_an_overdue_run_with_all_of_its_group(tmp_path):
    """The next run comes as soon as the hanging one is gone."""
    pids = tmp_path / "pids"
    program = script(tmp_path, "hang", f"trap '' TERM; sleep 1000 & echo $$ $! >> {pids}; while :; do sleep 1000; done")
    job = ("hang", program, {"MODE": "Periodic", "PERIOD": "1s", "KILL": "true"})
    async with Pool(tmp_path, **cron(job)):
        await eventually(lambda: pids.exists() and len(pids.read_text().splitlines()) >= 2)
        first = pids.read_text().split()[:2]
        await eventually(lambda: not any(alive(pid) for pid in first))
    last = pids.read_text().split()[-2:]
    await eventually(lambda: not any(alive(pid) for pid in last))  # the startd's end is theirs


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@spec("CRN-01", "CRN-09")
async def test_programs_that_flood_hang_or_crash_do_no_harm(tmp_path):
    """The startd answers, the others run."""
    flood = script(tmp_path, "flood", "yes 'A = 1' ")
    endless = script(tmp_path, "endless", "tr '\\0' x < /dev/zero")
    crash = script(tmp_path, "crash", "kill -9 $$")
    dashes = script(
        tmp_path, "dashes", "i=0; while [ $i -lt 3000 ]; do echo 'N = 1'; echo \"-n$i\"; i=$((i+1)); done; sleep 1000"
    )
    good = script(tmp_path, "good", 'echo "Good = true"')
    jobs = [(path.name, path, {"JOB_LOAD": "0.01"}) for path in (flood, endless, crash, dashes)]
    jobs += [("missing", "/no/such/program", {}), ("good", good, {"MODE": "Periodic", "PERIOD": "1s"})]
    async with Pool(tmp_path, **cron(*jobs, STARTD_CRON_MAX_JOB_LOAD="1")) as pool:
        await eventually(lambda: value(pool, "Good") is True)
        await eventually(lambda: value(pool, "N") == 1)
        activation, _ = await pool.run("/bin/true")
        end = await pool.schedd.end_of(activation.job_id)
        assert end.exit.exit_code == 0


@spec("CRN-10")
async def test_a_failing_program_is_logged_with_what_it_printed(tmp_path):
    program = script(tmp_path, "bad", "echo 'A = 1'; echo '-'; echo 'it is wrong'; echo 'because' >&2; exit 3")
    with structlog.testing.capture_logs() as logs:
        async with Pool(tmp_path, **cron(("bad", program, {}), STARTD_CRON_LOG_NON_ZERO_EXIT="true")) as pool:
            await eventually(lambda: any(one["event"] == "cron_job_exit" for one in logs))
            await eventually(lambda: value(pool, "A") == 1)
    (told,) = (one for one in logs if one["event"] == "cron_job_exit")
    assert (told["cron_job"], told["status"]) == ("bad", 3)
    assert told["stdout"].strip() == "it is wrong"
    assert told["stderr"].strip() == "because"
    assert any("is not Attribute = value" in str(one.get("problems")) for one in logs)


async def test_a_job_left_out_is_logged(tmp_path):
    with structlog.testing.capture_logs() as logs:
        async with Pool(tmp_path, **cron(("x", "relative/path", {}))):
            pass
    assert any("give the full path" in one.get("problem", "") for one in logs)


@spec("CRN-06", "CRN-08")
async def test_reconfiguration_runs_again_adds_and_takes_away(tmp_path):
    count = tmp_path / "count"
    count.touch()  # either may be the first to run
    again = script(tmp_path, "again", f'echo x >> {count}; echo "Runs = $(wc -l < {count})"')
    once = script(tmp_path, "once", f'echo "Once = $(wc -l < {count})"')
    new = script(tmp_path, "new", 'echo "New = 1"')
    jobs = [("again", again, {"RECONFIG_RERUN": "true"}), ("once", once, {})]
    async with Pool(tmp_path, **cron(*jobs)) as pool:
        await eventually(lambda: value(pool, "Runs") == 1 and isinstance(value(pool, "Once"), int))
        from tests.daemons import make_context

        jobs = [jobs[0], ("new", new, {})]
        context = pool.startd.context
        context.config = make_context("STARTD", config=pool.macros | cron(*jobs)).config
        await pool.startd.reconfigure()
        await eventually(lambda: value(pool, "Runs") == 2 and value(pool, "New") == 1)
        assert "Once" not in ad(pool)


async def test_a_condition_decides_at_each_start(tmp_path):
    yes = script(tmp_path, "yes", 'echo "Yes = 1"')
    no = script(tmp_path, "no", 'echo "No = 1"')
    jobs = [("no", no, {"CONDITION": 'OpSys == "WINDOWS"'}), ("yes", yes, {"CONDITION": 'OpSys == "LINUX"'})]
    async with Pool(tmp_path, **cron(*jobs)) as pool:
        await eventually(lambda: value(pool, "Yes") == 1)
        assert "No" not in ad(pool)


async def test_ignored_signals_of_the_daemon_do_not_reach_programs(tmp_path):
    """A program that ends itself with a signal ends, whatever the daemon ignores."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        program = script(tmp_path, "hup", 'trap "echo Hup = 1" HUP; kill -HUP $$; echo "Lived = 1"')
        async with Pool(tmp_path, **cron(("hup", program, {}))) as pool:
            await eventually(lambda: value(pool, "Hup") == 1)
    finally:
        signal.signal(signal.SIGHUP, before)
