"""What only a whole pool shows of the negotiator's rules: limits, quotas, constraints and books with real jobs, also
while negotiators are killed and others take over."""

import asyncio
import contextlib
import time

import pytest

from engine.queue.jobs import JobStatus
from shared.bus.api import Exchange
from shared.classad import ClassAd
from shared.config import load_config
from shared.messages.events import PreemptionLoop
from shared.messages.negotiation import GetPriorities, Reschedule
from shared.messages.queue import ActOnJobs
from tests.spec import spec
from tests.waiting import eventually
from tests.wholepool import USER, WholePool

#: Runs until it finds a token with its name, or one for everybody.
JOB = """#!/bin/sh
echo "$1" >> log
while [ ! -e all.go ]; do
    for token in "$1".go.*; do
        rm "$token" 2>/dev/null && exit 0
    done
    sleep 0.03
done
"""
LATER = {"NEGOTIATOR_SUBMITTER_CONSTRAINT": "false"}
STATIC = {"NUM_SLOTS_TYPE_1": "1", "SLOT_TYPE_1": "100%"}


class Pool(WholePool):
    """Jobs that run until they are let go."""

    def __init__(self, directory, cpus=8, **config):
        super().__init__(
            directory, cpus, **{"NUM_CPUS": str(cpus), "ROOST_SCHEDD_FILE_USERS": "alice, bob, carol"} | config
        )
        self.script = directory / "job"
        self.script.write_text(JOB)
        self.script.chmod(0o755)
        self.tokens = 0

    async def __aexit__(self, *exc):
        (self.directory / "all.go").touch()
        await super().__aexit__(*exc)

    async def queue(self, name, procs=1, user="", **attributes):
        """Submit jobs of this name; gives the cluster."""
        more = {"user": f"{user}@pool"} if user else {}
        return await self.submit(self.job(str(self.script), Arguments=name, **attributes), procs, **more)

    def end_one(self, name):
        """Let one job of this name end."""
        self.tokens += 1
        (self.directory / f"{name}.go.{self.tokens}").touch()

    def jobs(self, status=JobStatus.RUNNING):
        return [job for job in self.schedd.table.jobs() if job.status == status]

    def running(self):
        """How many jobs run, by cluster."""
        counts = {}
        for job in self.jobs():
            counts[job.cluster.id] = counts.get(job.cluster.id, 0) + 1
        return counts

    def leader(self):
        daemons = [daemon for key, daemon in self.daemons.items() if key.startswith("negotiator")]
        return next((daemon for daemon in daemons if daemon.leading() and not daemon.ready()), None)

    async def cycles(self, number=2):
        """So many cycles, from beginning to end; gives the negotiator."""
        await eventually(self.leader, what="a leader")
        daemon = self.leader()
        for _ in range(number):
            asked = time.monotonic()
            await self.call("negotiator", Reschedule(by="test"))
            await eventually(
                lambda at=asked: daemon.last_cycle is not None and daemon.last_cycle.start >= at, what="a cycle"
            )
        return daemon

    async def runs(self, **expected):
        """Wait until this runs, by cluster (as `_1=3`), and see that it stays so while cycles go on."""
        wanted = {int(key[1:]): count for key, count in expected.items()}
        await eventually(lambda: self.running() == wanted, what=f"{wanted} running")
        negotiator = await self.cycles()
        await eventually(lambda: not negotiator.table.pending, what="no match on its way")
        assert self.running() == wanted
        assert not self.dead(), self.dead()

    async def crash(self, key):
        """The end of a process: nothing is drained, nothing said."""
        life = self.lives[key]
        life.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await life
        await self.daemons[key].context.bus.stop()

    async def end(self, key):
        if not self.lives[key].cancelled():
            await super().end(key)

    def dead(self):
        return {name: why for name, why in super().dead().items() if not self.lives[name].cancelled()}

    async def together(self, jobs):
        """A pool that began with NEGOTIATOR_SUBMITTER_CONSTRAINT = false: let so many jobs be asked for at once."""

        def asked():
            rows = self.negotiator.ads.rows("Submitter")
            return sum(ClassAd.unpack(row.packed()).eval("IdleJobs") for _, _, row in rows)

        await eventually(lambda: asked() == jobs, what="all jobs in the submitter ads")
        await self.read_again(NEGOTIATOR_SUBMITTER_CONSTRAINT="true")

    async def read_again(self, **config):
        """Another configuration for the negotiator, as SIGHUP brings it."""
        self.negotiator.context.config = self.read(**config)
        await self.negotiator.reconfigure()

    def read(self, **config):
        env = {f"_CONDOR_{name}": value for name, value in (self.config | config).items()}
        return load_config([], subsystem="NEGOTIATOR", env=env)


# --- concurrency limits


@spec("LIM-01", "W-27")
async def test_a_fourth_job_starts_when_one_of_three_ends(tmp_path):
    async with Pool(tmp_path, XSW_LIMIT="3") as pool:
        await pool.queue("x", 5, ConcurrencyLimits="xsw")
        await pool.runs(_1=3)
        pool.end_one("x")
        await eventually(lambda: len(pool.jobs(JobStatus.IDLE)) == 1)
        await pool.runs(_1=3)


@spec("LIM-04", "LIM-05", "LIM-06", "W-28", "W-29", "W-30")
async def test_limits_by_default_by_set_and_by_units(tmp_path):
    limits = {
        "CONCURRENCY_LIMIT_DEFAULT": "1",
        "CONCURRENCY_LIMIT_DEFAULT_LARGE": "3",
        "FILESERVER_LIMIT": "7",
        "XSW_LIMIT": "9",
        "DATABASE_LIMIT": "9",
    }
    async with Pool(tmp_path, 16, **limits) as pool:
        for wanted in ("unnamed", "large.license", "large.sessions", "xsw,database,fileserver:3"):
            await pool.queue(wanted.partition(",")[0], 4, ConcurrencyLimits=wanted)
        await pool.runs(_1=1, _2=3, _3=3, _4=2)


@spec("LIM-08", "LIM-09", "W-31")
async def test_a_full_limit_skips_the_slots_of_that_network_only(tmp_path):
    limits = {"NETWORK_A_LIMIT": "2", "NETWORK_B_LIMIT": "1", "SWX_LIMIT": "5"}
    async with Pool(tmp_path, 4, STARTD_ATTRS="NETWORK", NETWORK='"network_a"', **limits) as pool:
        await pool.begin("startd", "ep2", "startd2", NETWORK='"network_b"')
        await eventually(lambda: len(pool.negotiator.table.claims) == 2)
        await pool.queue("n", 6, ConcurrencyLimits="=TARGET.NETWORK")
        await pool.runs(_1=3)
        networks = [str(job.ad.eval("RemoteHost")).rpartition("@")[2] for job in pool.jobs()]
        assert sorted(networks) == ["ep", "ep", "ep2"]
        await pool.queue("s", 6, ConcurrencyLimits='=strcat("SWX:2 ", TARGET.NETWORK)')
        await pool.call("schedd.ap", ActOnJobs(user=USER, action="remove", ids=["1"]))
        await pool.runs(_2=2)  # the fifth unit is not enough for a third, though a network has room


@contextlib.asynccontextmanager
async def two_central_managers(tmp_path, **config):
    async with Pool(tmp_path, HAD_LIST="cm:1, cm2:1", ROOST_HAD_LEASE="1", **config) as pool:
        await pool.begin("negotiator", "cm2", "negotiator2")
        await pool.begin("had", "cm2", "had2")
        yield pool


async def fail_over(pool):
    """Kill the machine with the negotiator that leads; returns when the other one leads, and the first is back."""
    await eventually(pool.leader)
    first = pool.leader()
    one = "" if first is pool.negotiator else "2"
    for kind in ("had", "negotiator"):
        await pool.crash(f"{kind}{one}")
    await eventually(lambda: pool.leader() not in (None, first), what="another leader")
    for kind in ("negotiator", "had"):
        await pool.begin(kind, f"cm{one}", f"{kind}{one}")


@spec("LIM-12")
async def test_counts_outlive_a_kill_of_the_negotiator_and_a_fail_over(tmp_path):
    async with two_central_managers(tmp_path, XSW_LIMIT="3") as pool:
        await pool.queue("x", 6, ConcurrencyLimits="xsw")
        await pool.runs(_1=3)
        await fail_over(pool)
        await pool.runs(_1=3)
        pool.end_one("x")
        await eventually(lambda: len(pool.jobs(JobStatus.IDLE)) == 2)
        await pool.runs(_1=3)
        leader = pool.leader()
        key = "negotiator" if leader is pool.negotiator else "negotiator2"
        await pool.crash(key)
        await pool.begin("negotiator", leader.context.name, key)
        await pool.runs(_1=3)
        assert pool.consistent() == []


# --- books


async def usage(pool, name=USER):
    answer = await pool.call("negotiator", GetPriorities())
    found = {ad.eval("Name"): ad for ad in map(ClassAd.unpack, answer.ads)}
    return found[name].eval("WeightedAccumulatedUsage"), found[name].eval("Priority")


@spec("ACC-16", "ACC-18")
async def test_use_is_charged_once_through_a_fail_over(tmp_path):
    """Also the seconds in which nobody led."""
    async with two_central_managers(tmp_path, PRIORITY_HALFLIFE="60") as pool:
        began = time.time()
        await pool.queue("x", 3)
        await pool.runs(_1=3)
        started = time.time()
        await fail_over(pool)
        before = time.time()
        used, priority = await usage(pool)
        after = time.time()
        assert 3 * (before - started) <= used <= 3 * (after - began) + 0.1
        assert priority > 500.0  # a newcomer's


# --- groups


QUOTAS = {"GROUP_NAMES": "physics, chemistry", "GROUP_QUOTA_physics": "2", "GROUP_QUOTA_chemistry": "1"}


def member(group, user="ada"):
    return {"AccountingGroup": f"{group}.{user}", "AcctGroup": group, "AcctGroupUser": user}


@spec("GRP-12", "W-18")
async def test_groups_use_their_quotas_and_leave_the_rest_idle(tmp_path):
    async with Pool(tmp_path, 4, **QUOTAS) as pool:
        await pool.queue("p", 4, **member("physics"))
        await pool.queue("c", 4, **member("chemistry"))
        await pool.runs(_1=2, _2=1)


@spec("ACC-04", "GRP-25")
async def test_use_of_members_is_charged_to_the_names_that_schedds_ask_for(tmp_path):
    """Group.user@domain, though the job's own AccountingGroup has no domain."""
    async with Pool(tmp_path, 1, **QUOTAS) as pool:
        await pool.queue("p", 1, **member("physics"))
        await pool.runs(_1=1)
        domain = USER.partition("@")[2]
        submitter = f"physics.ada@{domain}"

        async def in_use():
            answer = await pool.call("negotiator", GetPriorities())
            ads = [ad for ad in map(ClassAd.unpack, answer.ads) if ad.eval("IsAccountingGroup") is not True]
            return {ad.eval("Name"): ad.eval("ResourcesUsed") for ad in ads} == {submitter: 1}

        await eventually(in_use, 30, "one name has the slot")


@spec("GRP-12", "GRP-18", "W-21")
async def test_surplus_is_used_until_its_owner_asks(tmp_path):
    """Nobody loses a slot; the next one that gets free goes to the group that is below its quota."""
    async with Pool(tmp_path, 3, **QUOTAS, GROUP_ACCEPT_SURPLUS_physics="true", CLAIM_WORKLIFE="0") as pool:
        await pool.queue("p", 5, **member("physics"))
        await pool.runs(_1=3)
        await pool.queue("c", 2, **member("chemistry"))
        await pool.runs(_1=3)
        pool.end_one("p")
        await pool.runs(_1=2, _2=1)


@spec("GRP-24")
async def test_members_share_their_groups_quota_by_priority(tmp_path):
    """Two slots for the group: one each, however many jobs one of them has. Outside of it nobody asks for the rest."""
    async with Pool(tmp_path, 4, **QUOTAS, **LATER) as pool:
        await pool.queue("a", 6, **member("physics", "ada"))
        await pool.queue("b", 2, **member("physics", "bert"))
        await pool.together(8)
        await pool.runs(_1=1, _2=1)


@spec("ACC-20", "W-17")
async def test_jobs_of_two_users_under_one_name_run_first_come_first_served(tmp_path):
    """Without it, the two users have half of the pool each."""
    async with Pool(tmp_path, 2, **LATER) as pool:
        for user in ("alice", "bob"):
            await pool.queue(user, 2, user, AccountingGroup="ishmael", AcctGroupUser="ishmael")
        await pool.together(4)
        await pool.runs(_1=2)
        for _ in range(2):
            pool.end_one("alice")
        await pool.runs(_2=2)
    (tmp_path / "apart").mkdir()
    async with Pool(tmp_path / "apart", 2, **LATER) as pool:
        for user in ("alice", "bob"):
            await pool.queue(user, 2, user)
        await pool.together(4)
        await pool.runs(_1=1, _2=1)


@spec("NEG-35", "NEG-36")
@pytest.mark.parametrize("knob", ["NEGOTIATOR_SLOT_POOLSIZE_CONSTRAINT", "GROUP_DYNAMIC_MACH_CONSTRAINT"])
async def test_quotas_are_of_the_slots_that_count(tmp_path, knob):
    """Half of one machine of two; the job runs on the other machine all the same."""
    groups = {"GROUP_NAMES": "physics", "GROUP_QUOTA_DYNAMIC_physics": "0.5"}
    async with Pool(tmp_path, 2, **groups, **{knob: 'regexp("@ep$", Name)'}) as pool:
        await pool.begin("startd", "ep2", "startd2")
        await eventually(lambda: len(pool.negotiator.table.claims) == 2)
        there = '=regexp("@ep2$", TARGET.Name)'
        await pool.queue("p", 4, Requirements=there, **member("physics"))
        await pool.runs(_1=1)


# --- constraints and what surrounds a match


@spec("NEG-06", "NEG-31", "NEG-32", "W-06")
async def test_who_and_what_is_outside_the_constraints_waits(tmp_path):
    knobs = {
        "NEGOTIATOR_SUBMITTER_CONSTRAINT": 'regexp("^alice@", Name)',
        "NEGOTIATOR_JOB_CONSTRAINT": "Size < 5",
        "NEGOTIATOR_MATCH_EXPRS": "NegotiatorName",
        "NegotiatorName": '"My Negotiator"',
    }
    async with Pool(tmp_path, 4, **knobs) as pool:
        await pool.queue("large", user="alice", Size=9)
        await pool.queue("bobs", user="bob", Size=1)
        await pool.queue("small", user="alice", Size=1)
        await pool.runs(_3=1)
        (job,) = pool.jobs()
        assert job.ad.eval("NegotiatorMatchExprNegotiatorName") == "My Negotiator"
        assert [submitter.name for submitter in pool.negotiator.ad_intake.submitters()] == ["alice@pool"]
        await pool.read_again(NEGOTIATOR_SUBMITTER_CONSTRAINT="true", NEGOTIATOR_JOB_CONSTRAINT="true")
        await pool.runs(_1=1, _2=1, _3=1)


@spec("NEG-40")
@pytest.mark.parametrize("how", ["SIGHUP", "cycle"])
async def test_a_higher_limit_lets_the_next_job_start(tmp_path, how):
    async with Pool(tmp_path, 4, XSW_LIMIT="1", NEGOTIATOR_READ_CONFIG_BEFORE_CYCLE=str(how == "cycle")) as pool:
        await pool.queue("x", 4, ConcurrencyLimits="xsw")
        await pool.runs(_1=1)
        if how == "cycle":
            pool.negotiator.context.reread = lambda: pool.read(XSW_LIMIT="3")
            await pool.cycles(1)
        else:
            await pool.read_again(XSW_LIMIT="3")  # and nothing else: a new configuration starts a cycle
        await pool.runs(_1=3)


@spec("NEG-39")
@pytest.mark.parametrize("informs", [True, False])
async def test_a_slot_is_matched_before_it_is_claimed_where_startds_are_informed(tmp_path, monkeypatch, informs):
    async with Pool(tmp_path, 1, NEGOTIATOR_INFORM_STARTD=str(informs), **STATIC) as pool:
        manager, states = pool.startd.shared.slot_manager, []
        matched = manager.matched

        def note(slot, *more):
            ignored, effects = matched(slot, *more)
            states.append((ignored, manager.slots[slot].state))
            return ignored, effects

        monkeypatch.setattr(manager, "matched", note)
        await pool.queue("x")
        await pool.runs(_1=1)
        assert states == ([("", "Matched")] if informs else [])
        assert manager.slots["slot1@ep"].state == "Claimed"


# --- to and fro


async def loops(pool):
    """The preemption loops that are told from now on."""
    bus, seen = await pool.bus("listener.test"), []

    async def hear(envelope):
        seen.append(envelope.body)

    await bus.listen(Exchange.EVENTS, [PreemptionLoop.type], hear)
    return seen


async def test_users_that_take_a_slot_from_each_other_are_told_of(tmp_path):
    """Priorities that change about with each preemption: the policy below lets the better one take the slot at once."""
    policy = {"PREEMPTION_REQUIREMENTS": "true", "NEGOTIATOR_INTERVAL": "1", "MaxJobRetirementTime": "0"}
    async with Pool(tmp_path, 1, **STATIC, **policy) as pool:
        seen = await loops(pool)
        clusters = {user: await pool.queue(user, user=user) for user in ("alice", "bob")}
        for turn in range(4):
            best, other = (("alice", "bob"), ("bob", "alice"))[turn % 2]
            now = pool.negotiator.context.clock.now()
            pool.negotiator.accountant.change(f"{other}@pool", "factor", 1e6, now)
            pool.negotiator.accountant.change(f"{best}@pool", "factor", 1.0, now)
            await pool.cycles(1)
            await eventually(lambda user=best: pool.running() == {clusters[user]: 1}, what=f"{best} running")
        await eventually(lambda: seen, what="the event")
        assert (seen[0].slot, seen[0].users, seen[0].times) == ("slot1@ep", ["alice@pool", "bob@pool"], 3)
        assert pool.consistent() == []
