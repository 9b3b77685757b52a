"""Fetched work with real hooks (FHK-01 to FHK-14)."""

import os

import pytest
import structlog

from services.startd.components.fetch_work import FetchWork
from shared.classad import ClassAd, parse_ad, parse_ads
from shared.messages.orders import UpdateMachineAd
from tests.spec import spec
from tests.startd_pool import Machine, Pool
from tests.waiting import eventually

STATIC = {"NUM_SLOTS_TYPE_1": 1, "SLOT_TYPE_1": "auto"}


class Factory:
    """A source of work: each fetch takes the first file of `todo`; hooks note what they are told in files."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("todo", "told", "hooks"):
            (folder / name).mkdir()
        self._jobs = 0
        self.fetch = self.script(
            "fetch",
            f"cat > {folder}/told/.$$; mv {folder}/told/.$$ {folder}/told/fetch.$$; "
            f'f=$(ls {folder}/todo | head -n 1); [ -n "$f" ] && cat {folder}/todo/$f && rm {folder}/todo/$f',
        )
        self.reply = self.script("reply", self._note("reply"))
        self.evict = self.script("evict", self._note("evict"))

    def _note(self, name):
        return f'(echo "$@"; cat) > {self.folder}/told/.$$; mv {self.folder}/told/.$$ {self.folder}/told/{name}.$$'

    def script(self, name, text):
        program = self.folder / "hooks" / name
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        return program

    @property
    def macros(self):
        return {
            "STARTD_JOB_HOOK_KEYWORD": "work",
            "WORK_HOOK_FETCH_WORK": self.fetch,
            "WORK_HOOK_REPLY_FETCH": self.reply,
            "WORK_HOOK_EVICT_CLAIM": self.evict,
            "FetchWorkDelay": 'ifThenElse(Activity == "Busy", 1000, 0)',
        }

    def job(self, cmd="/bin/true", **attrs):
        self._jobs += 1
        ad = {
            "Cmd": str(cmd),
            "Owner": "root" if os.geteuid() == 0 else "me",
            "Iwd": str(self.folder),
            "ClusterId": self._jobs,
        }
        lines = [f"{name} = {ClassAd({name: value}).lookup(name)}" for name, value in (ad | attrs).items()]
        path = self.folder / f".job{self._jobs}"
        path.write_text("\n".join(lines) + "\n")
        path.rename(self.folder / "todo" / f"{self._jobs:03d}")

    def told(self, name):
        """What hooks of this name were told: (argument, job ad, slot ad)."""
        found = []
        for path in sorted((self.folder / "told").glob(f"{name}.*"), key=lambda path: path.stat().st_mtime_ns):
            word, _, rest = path.read_text().partition("\n")
            assert "\n-----\n" in rest
            found.append((word, *parse_ads(rest)))
        return found

    def slots(self):
        """The ads that FETCH_WORK was told."""
        return [parse_ad(path.read_text(), "old") for path in (self.folder / "told").glob("fetch.*")]


@pytest.fixture
def factory(tmp_path):
    folder = tmp_path / "factory"
    folder.mkdir()
    return Factory(folder)


@spec("FHK-02", "FHK-04", "FHK-05", "FHK-07", "FHK-11", "FHK-13")
async def test_a_fetched_job_runs_without_an_access_point(tmp_path, factory):
    """It is claimed, run, replied to; more work goes on the same claim,
    and when there is none the claim ends."""
    script = factory.script("job", 'echo "$A $B $* in $(pwd -P)"; cat; echo err >&2')
    (factory.folder / "in").write_text("input\n")
    streams = {"In": "in", "Out": "out", "Err": "err"}
    factory.job(script, Args="1 2", Env="A=b;B=d", **streams)
    factory.job(script, Args="3", **(streams | {"Out": "out2"}))
    async with Pool(tmp_path, **factory.macros, **STATIC) as pool:
        seen = set()
        original = pool.startd.shared.runs.activate

        def noted(claim_id, activation, job):
            seen.add(claim_id)
            return original(claim_id, activation, job)

        pool.startd.shared.runs.activate = noted
        await eventually(
            lambda: (factory.folder / "out2").exists() and "input" in (factory.folder / "out2").read_text()
        )
        assert (factory.folder / "out").read_text() == f"b d 1 2 in {factory.folder.resolve()}\ninput\n"
        await eventually(lambda: (factory.folder / "err").read_text() == "err\n")
        await eventually(
            lambda: (
                pool.conditions() == {"slot1@node1": "Unclaimed/Idle"} and not pool.startd.shared.slot_manager.claims
            )
        )
        assert len(seen) == 1
        await eventually(lambda: len(factory.told("reply")) == 2)
        for word, job, slot in factory.told("reply"):
            assert (word, job.eval("HookKeyword")) == ("accept", "WORK")
            assert slot.eval("Name") == "slot1@node1"
        assert factory.slots()[0].eval("Name") == "slot1@node1"
        assert not any("ClaimId" in one for one in factory.slots())
        assert pool.schedd.reports == []
        assert pool.schedd.lost == []


@spec("FHK-04", "FHK-11", "FHK-06")
async def test_the_ad_of_the_slot_says_whose_job_it_is(tmp_path, factory):
    """FHK-04: a claim like any other; FHK-11: KillSig by name."""
    mark = factory.folder / "asked"
    factory.job(
        factory.script("job", f"trap 'touch {mark}; exit 0' USR1; while :; do sleep 0.1; done"), KillSig="SIGUSR1"
    )
    async with Pool(tmp_path, **factory.macros, **STATIC, UID_DOMAIN="here") as pool:
        await eventually(lambda: pool.conditions() == {"slot1@node1": "Claimed/Busy"})
        ad = pool.startd.shared.ads.ad_of(pool.startd.shared.slot_manager.slots["slot1@node1"])
        assert ad.eval("RemoteUser") == f"{'root' if os.geteuid() == 0 else 'me'}@here"
        claim = next(iter(pool.startd.shared.slot_manager.claims))
        await eventually(lambda: any(run.record.launched for run in pool.startd.shared.runs.by_key.values()))
        # Its shell sets the trap first; a signal before that would end it unasked.
        await eventually(lambda: sum(run.record.pid > 0 for run in pool.startd.shared.runs.by_key.values()))
        await eventually(lambda: _traps(next(iter(pool.startd.shared.runs.by_key.values())).record.pid))
        startd = pool.startd.shared
        _, effects = startd.slot_manager.vacate(claim, "test", graceful=True, now=startd.now())
        startd.effects.carry_out(effects)
        await eventually(mark.exists)
        await eventually(lambda: len(factory.told("evict")) == 1)  # FHK-06
        _, job, slot = factory.told("evict")[0]
        assert (job.eval("KillSig"), slot.eval("Name")) == ("SIGUSR1", "slot1@node1")


def _traps(pid):
    """Whether a process catches SIGUSR1."""
    with open(f"/proc/{pid}/status") as file:
        caught = next(line for line in file if line.startswith("SigCgt:"))
    return int(caught.split()[1], 16) & 1 << 9


@spec("FHK-12")
async def test_the_event_log(tmp_path, factory):
    factory.job("/bin/true", StarterUserLog="log")
    factory.job("/bin/sh", Args="-c exit", StarterUserLog="log.xml", StarterUserLogUseXML=True)
    async with Pool(tmp_path, **factory.macros, **STATIC):
        await eventually(lambda: _count(factory, "log", "...\n") == 2 and _count(factory, "log.xml", "\n</c>\n") == 2)
    text = (factory.folder / "log").read_text()
    assert [line[:17] for line in text.splitlines() if line[:3] in ("001", "005")] == [
        "001 (001.000.000)",
        "005 (001.000.000)",
    ]
    assert "Normal termination (return value 0)" in text
    text = (factory.folder / "log.xml").read_text()
    assert text.index("ExecuteEvent") < text.index("JobTerminatedEvent")


def _count(factory, name, words):
    path = factory.folder / name
    return path.read_text().count(words) if path.exists() else 0


@spec("FHK-10")
async def test_a_partitionable_slot_is_divided_for_fetched_work(tmp_path, factory):
    amounts = {"RequestCpus": 2, "RequestMemory": 100, "RequestDisk": 1024}
    factory.job("/bin/sleep", Args="1000")  # without: refused
    factory.job("/bin/sleep", Args="1000", **amounts)
    factory.job("/bin/sleep", Args="1000", **amounts)
    async with Pool(tmp_path, Machine(cpus=4), **factory.macros) as pool:
        await eventually(lambda: len([one for one in pool.conditions().values() if one == "Claimed/Busy"]) == 2)
        assert pool.startd.shared.slot_manager.slots["slot1@node1"].free["Cpus"] == 0
        await eventually(lambda: len(factory.told("reply")) == 3)
        assert sorted(word for word, *_ in factory.told("reply")) == ["accept", "accept", "reject"]


@spec("FHK-04", "FHK-05", "FHK-10")
@pytest.mark.parametrize(
    ("policy", "attrs"),
    [
        ({"START": 'TARGET.Color == "red"'}, {"Color": "blue"}),
        ({"START": "undefined"}, {}),
        ({}, {"Cmd": ""}),
        ({}, {"JobUniverse": 9}),
    ],
)
async def test_work_that_does_not_fit_is_refused(tmp_path, factory, policy, attrs):
    """The next is taken if it does."""
    factory.job(**attrs)
    macros = factory.macros | policy
    async with Pool(tmp_path, **macros, **STATIC) as pool:
        await eventually(lambda: factory.told("reply"))
        assert factory.told("reply")[0][0] == "reject"
        assert pool.conditions() == {"slot1@node1": "Unclaimed/Idle"}


@spec("FHK-04", "FHK-06")
async def test_only_work_of_a_higher_rank_takes_a_claimed_slot(tmp_path, factory):
    macros = factory.macros | {"FetchWorkDelay": "0", "RANK": "TARGET.Weight ?: 0"}
    async with Pool(tmp_path, **macros, **STATIC) as pool:
        activation, _ = await pool.run("/bin/sleep", Args="1000", Weight=5)
        await pool.running(activation.job_id)
        factory.job("/bin/sleep", Args="1000", Weight=5)
        await eventually(lambda: len(factory.told("reply")) == 1)
        assert factory.told("reply")[0][0] == "reject"
        factory.job("/bin/sleep", Args="1000", Weight=6)
        end = await pool.schedd.end_of(activation.job_id)
        assert end.exit.reason == "evicted"
        await eventually(lambda: pool.conditions() == {"slot1@node1": "Claimed/Busy"} and _fetched(pool))
        await eventually(lambda: len(factory.told("reply")) == 2)
        assert factory.told("reply")[1][0] == "accept"


def _fetched(pool):
    return [claim for claim in pool.startd.shared.slot_manager.claims.values() if not claim.schedd]


@spec("FHK-08", "FHK-06")
async def test_a_better_job_of_an_access_point_takes_the_slot_from_fetched_work(tmp_path, factory):
    factory.job("/bin/sleep", Args="1000")
    macros = factory.macros | {"FetchWorkDelay": "3600"}
    async with Pool(tmp_path, **macros, **STATIC, RANK="TARGET.Weight ?: 0") as pool:
        await eventually(lambda: pool.conditions() == {"slot1@node1": "Claimed/Busy"} and _fetched(pool))
        activation = pool.activation(cmd="/bin/true", Weight=1)
        request = pool.request(activation)
        assert (await pool.call(request)).type == "claim.waiting"
        await pool.schedd.until(lambda: pool.schedd.ready)
        assert (await pool.call(request)).type == "claim.granted"
        end = await pool.schedd.end_of(activation.job_id)
        assert end.exit.exit_code == 0
        await eventually(lambda: len(factory.told("evict")) == 1)


@spec("FHK-09")
async def test_the_delay_counts_from_the_end_of_the_last_fetch(tmp_path, factory):
    """A timer fires when it is over, without anything else happening."""
    macros = factory.macros | {"FetchWorkDelay": "1"}
    async with Pool(tmp_path, **macros, **STATIC) as pool:
        await eventually(lambda: len(factory.slots()) == 1)
        part = next(part for part in pool.startd.components if type(part).__name__ == "FetchWork")
        await eventually(lambda: "slot1@node1" in part._ended)
        first = part._ended["slot1@node1"]
        await eventually(lambda: len(factory.slots()) == 2)
        assert pool.startd.context.clock.monotonic() - first >= 1


@spec("FHK-02", "FHK-14")
async def test_a_hook_that_hangs_floods_or_fails_does_no_harm(tmp_path, factory):
    """FHK-02: its exit status is ignored; FHK-14: its stderr is in the log."""
    hang = factory.script("hang", "sleep 1000")
    flood = factory.script("flood", "yes 'A = 1'")
    fail = factory.script("fail", "echo trouble >&2; cat > /dev/null; echo rubbish; exit 1")
    macros = {f"SLOT{n}_JOB_HOOK_KEYWORD": f"k{n}" for n in (1, 2, 3, 4)}
    macros |= {"K1_HOOK_FETCH_WORK": hang, "K2_HOOK_FETCH_WORK": flood, "K3_HOOK_FETCH_WORK": fail}
    macros |= {"K4_HOOK_FETCH_WORK": factory.fetch, "ROOST_HOOK_TIMEOUT": "1", "FetchWorkDelay": "0"}
    factory.job("/bin/sh", Args="-c exit", StarterUserLog="log")
    with structlog.testing.capture_logs() as logs:
        async with Pool(tmp_path, Machine(cpus=4), **macros, NUM_SLOTS_TYPE_1=4, SLOT_TYPE_1="auto") as pool:
            await eventually(lambda: _count(factory, "log", "...\n") == 2)
            await eventually(lambda: sum("too long" in str(one.get("ended")) for one in logs) >= 2)
            await eventually(lambda: any("trouble" in str(one.get("stderr")) for one in logs))
            await eventually(lambda: any(one["event"] == "fetched_work_unreadable" for one in logs))
            assert {pool.conditions()[f"slot{n}@node1"] for n in (1, 2, 3)} == {"Unclaimed/Idle"}


async def test_fetched_work_goes_on_when_the_startd_comes_back(tmp_path, factory):
    """A claim of no access point has no lease: it outlives a restart, and is asked for more work."""
    go = factory.folder / "go"
    job = factory.script("job", f"while [ ! -e {go} ]; do sleep 0.05; done; echo done")
    factory.job(job, Out="out", StarterUserLog="log")
    async with Pool(tmp_path, **factory.macros, **STATIC) as pool:
        await eventually(lambda: any(run.record.launched for run in pool.startd.shared.runs.by_key.values()))
        await pool.restart()
        assert pool.conditions() == {"slot1@node1": "Claimed/Busy"}
        assert not any(claim in pool.startd.shared.leases for claim in pool.startd.shared.slot_manager.claims)
        go.touch()
        await eventually(lambda: _count(factory, "out", "done") == 1)
        await eventually(lambda: pool.conditions() == {"slot1@node1": "Unclaimed/Idle"})
        await eventually(lambda: "005 (" in (factory.folder / "log").read_text())


@spec("FHK-01", "FHK-03")
async def test_without_a_keyword_nothing_is_fetched(tmp_path, factory):
    factory.job()
    macros = factory.macros | {"STARTD_JOB_HOOK_KEYWORD": "none"}
    async with Pool(tmp_path, **macros, **STATIC) as pool:
        activation, _ = await pool.run("/bin/true")
        await pool.schedd.end_of(activation.job_id)
        assert factory.slots() == []
        assert len(list((factory.folder / "todo").iterdir())) == 1


@spec("FHK-03")
async def test_nothing_is_fetched_for_a_slot_that_takes_no_job(tmp_path, factory):
    """Until its START may be true, which is found out by looking: nothing of the slot has changed."""
    factory.job()
    macros = factory.macros | {"START": "MY.HasVM", "POLLING_INTERVAL": 1}
    async with Pool(tmp_path, **macros, **STATIC) as pool:
        fetch = next(one for one in pool.startd.components if isinstance(one, FetchWork))
        now = pool.startd.context.clock.monotonic()
        assert fetch._look(now) == now + 1
        assert (fetch._fetching, factory.slots()) == (set(), [])
        await pool.call(UpdateMachineAd(attributes=ClassAd({"HasVM": True}).pack()))
        await eventually(lambda: factory.told("reply"))
        assert factory.told("reply")[0][0] == "accept"
        assert [ad.eval("HasVM") for ad in factory.slots()] == [True] * len(factory.slots())
