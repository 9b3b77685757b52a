"""Intervals replayed under virtual time, through the real negotiator."""

import base64
import io
import random

import pytest

from bench.replay import interval
from engine.match import slot_finder
from engine.match.allocation import Allocation
from roost.cli.progress import LOG_S, TERMINAL_S, Progress
from roost.errors import ClientError
from roost.replay import model
from roost.replay.compare import by_group, compare, to_map
from roost.replay.model import Pool
from roost.replay.recorded import read
from shared.classad import ClassAd, parse_ad
from shared.config import load_config
from tests.spec import spec

START, END = 1_700_000_000.0, 1_700_003_600.0
SLOT = (
    'MyType = "Machine"\nState = "Unclaimed"\nActivity = "Idle"\nCpus = {cpus}\nTotalSlotCpus = {cpus}\nMemory = 4096\n'
    "TotalSlotMemory = 4096\nDisk = 1000000\nTotalSlotDisk = 1000000\nPartitionableSlot = {parts}\nSlotWeight = Cpus\n"
    'MachineResources = "Cpus Memory Disk"\nStart = true\nRequirements = START\nMyAddress = "startd.a"\nRank = 0\n'
)
JOB = "RequestCpus = 1\nRequestMemory = 100\nRequestDisk = 1\nRequirements = {}\n"


def packed(ad: ClassAd) -> str:
    return base64.b64encode(ad.pack()).decode()


def slot(cpus: int = 1, parts: bool = False) -> str:
    return packed(parse_ad(SLOT.format(cpus=cpus, parts=str(parts).lower()), "old"))


def offer(submitter: str, cluster: int, at: float, runs_s: float | None = 100.0, **more) -> list:
    """One of `submitter`, at seconds after the start."""
    told = {"until": None, "slot": "", "waited": 0.0, "ran": 0.0, "started": 0.0, "ended": False, **more}
    return ["ap", cluster, 0, submitter, 1, START + at, told["until"], runs_s, *list(told.values())[1:]]


def standing(name: str, **more) -> dict:
    known = {"at": START, "priority": 0.5, "factor": 1000.0, "in_use": 0.0, "slots": 0, "floor": 0.0, "ceiling": -1.0}
    return {"submitter": name, "group": "<none>", **known, **more}


def recording(
    slots: dict,
    offers: list,
    standings: tuple = (),
    knobs: dict | None = None,
    requirements: str = "true",
    more: str = "",
):
    first = {
        "start": START,
        "end": END,
        "shard": "",
        "policy": {"at": 0.0, "knobs": knobs or {}},
        "policy_changes": [],
        "standings": {one["submitter"]: one for one in standings},
        "cycles": 7,
        "start_s": 0.0,
        "recorded_since": START - 1,
    }
    kinds = {"ap/1": packed(parse_ad(JOB.format(requirements) + more, "old"))}
    named = {name: [[START, ad]] if isinstance(ad, str) else ad for name, ad in slots.items()}
    return read([first, {"slots": named}, {"offers": offers, "kinds": kinds}])


def config(**knobs: str):
    return load_config([], subsystem="NEGOTIATOR", env={}, overrides=knobs)


def played(record, **knobs: str):
    return Pool(record, config(**knobs), step=1.0).run()


def test_jobs_wait_for_one_slot_one_after_the_other():
    record = recording({"slot1@a": slot()}, [offer("ada@p", number, 0) for number in range(1, 4)])
    outcome = played(record).outcomes["ada@p"]
    assert (outcome.offered, outcome.started, outcome.finished, outcome.waiting) == (3, 3, 3, 0)
    assert outcome.waited_s == pytest.approx(0 + 100 + 200)
    assert outcome.used == pytest.approx(300)


def test_a_partitionable_slot_holds_as_many_as_fit():
    record = recording({"slot1@a": slot(4, parts=True)}, [offer("ada@p", number, 0) for number in range(1, 9)])
    outcome = played(record).outcomes["ada@p"]
    assert (outcome.finished, outcome.waited_s) == (8, pytest.approx(400))


def test_what_ran_at_the_beginning_goes_on_and_slots_come_and_go():
    offers = [offer("ada@p", 1, 0, 50.0, slot="slot1_1@a"), offer("bob@p", 2, 0), offer("bob@p", 3, 0, 10_000.0)]
    slots = {"slot1@a": slot(1, parts=True), "slot1@b": [[START + 1000, slot()], [START + 2000, ""]]}
    outcomes = played(recording(slots, offers)).outcomes
    assert (outcomes["ada@p"].waited_s, outcomes["ada@p"].finished) == (0.0, 1)
    # One begins at 50 on a, the other at 150 there too, as it is done; b comes too late.
    assert outcomes["bob@p"].waited_s == pytest.approx(50 + 150)
    gone = recording({"slot1@a": [[START, slot()], [START + 500, ""]]}, [offer("ada@p", 1, 0, 1000.0)])
    outcome = played(gone).outcomes["ada@p"]
    assert (outcome.waiting, outcome.finished, outcome.waited_s) == (1, 0, pytest.approx(3100))


@pytest.mark.parametrize("parts", [False, True])
def test_a_machine_that_drained_takes_nobody_meanwhile_and_keeps_whom_it_has(parts):
    """As its slots' ads said then: START is false, whatever the state is that a replay gives them."""
    drained = parse_ad(SLOT.format(cpus=1, parts=str(parts).lower()), "old")
    drained.update({"State": "Drained", "Activity": "Retiring", "Draining": True, "Start": False})
    drained["DrainReason"] = "a new kernel"
    ads = [[START, slot(1, parts)], [START + 50, packed(drained)], [START + 500, slot(1, parts)]]
    record = recording({"slot1@a": ads}, [offer("ada@p", 1, 0), offer("bob@p", 2, 10), offer("bob@p", 3, 600)])
    outcomes = played(record).outcomes
    assert (outcomes["ada@p"].finished, outcomes["ada@p"].waited_s, outcomes["ada@p"].used) == (1, 0.0, 100.0)
    assert (outcomes["bob@p"].finished, outcomes["bob@p"].waited_s) == (2, pytest.approx(490))


def test_withdrawn_jobs_leave_and_unknown_lengths_are_guessed():
    offers = [
        offer("ada@p", 1, 0, 600.0),
        offer("ada@p", 2, 0, None, until=START + 200),
        offer("ada@p", 3, 10, None),
    ]
    record = recording({"slot1@a": slot()}, offers)
    assert (record.guesses, record.odd) == (1, 0)
    outcome = played(record).outcomes["ada@p"]
    assert outcome.waited_s == pytest.approx(200 + 590)
    assert (outcome.finished, outcome.started) == (2, 2)


def test_priorities_of_the_beginning_decide_and_factors_follow_the_configuration():
    offers = [offer(who, number, 0) for number, who in enumerate(("ada@p", "bob@p") * 5, 1)]
    slots = {"slot1@a": slot()}
    bad = recording(slots, offers, (standing("ada@p", priority=50.0), standing("bob@p")))
    outcomes = played(bad).outcomes
    assert outcomes["bob@p"].waited_s < outcomes["ada@p"].waited_s
    tree = {"GROUP_NAMES": "group_x", "GROUP_PRIO_FACTOR_group_x": "1", "ACCOUNTANT_LOCAL_DOMAIN": "p"}
    even = recording(
        slots, [offer("ada@elsewhere", 1, 0), offer("bob@p", 2, 0)], (standing("ada@elsewhere"), standing("bob@p"))
    )
    recorded = config()
    found = compare(even, recorded, config(**tree), step=1.0)
    assert found.baseline.outcomes["ada@elsewhere"].priority == pytest.approx(
        found.baseline.outcomes["bob@p"].priority, rel=0.1
    )
    changed = found.changed.outcomes
    assert changed["ada@elsewhere"].priority > 1000 * changed["bob@p"].priority  # REMOTE_PRIO_FACTOR now
    kept = recording(slots, offers, (standing("ada@p", factor=7.0), standing("bob@p")))
    found = compare(kept, recorded, config(DEFAULT_PRIO_FACTOR="10"), step=1.0)
    ratio = found.changed.outcomes["ada@p"].priority / found.changed.outcomes["bob@p"].priority
    assert ratio == pytest.approx(0.7, rel=0.3)  # an administrator's 7 stays, the usual 1000 is 10 now


def test_a_ceiling_of_the_books_and_a_quota_of_the_configuration_hold():
    offers = [offer("group_x.ada@p", number, 0) for number in range(1, 5)]
    slots = {f"slot{number}@a": slot() for number in range(1, 5)}
    free = played(recording(slots, offers)).outcomes["group_x.ada@p"]
    assert free.waited_s == pytest.approx(0)
    ceiling = recording(slots, offers, (standing("group_x.ada@p", ceiling=2.0),))
    assert played(ceiling).outcomes["group_x.ada@p"].waited_s == pytest.approx(200)
    quota = {"GROUP_NAMES": "group_x", "GROUP_QUOTA_group_x": "1"}
    found = compare(recording(slots, offers), config(), config(**quota), step=1.0)
    assert found.changed.outcomes["group_x.ada@p"].waited_s == pytest.approx(100 + 200 + 300)
    assert by_group(found.changed.outcomes)["group_x"].waited_s == pytest.approx(600)
    told = to_map(found)
    assert told["changed"]["submitters"]["group_x.ada@p"]["finished"] == 4


def test_preemption_puts_a_job_back_and_it_begins_anew():
    offers = [offer("ada@p", 1, 0, 1000.0), offer("bob@p", 2, 100, 100.0)]
    standings = (standing("ada@p", priority=100.0), standing("bob@p"))
    knobs = {"PREEMPTION_REQUIREMENTS": "true", "NEGOTIATOR_CONSIDER_PREEMPTION": "true"}
    outcomes = played(recording({"slot1@a": slot()}, offers, standings), **knobs).outcomes
    assert outcomes["ada@p"].preempted == 1
    assert outcomes["bob@p"].waited_s == pytest.approx(0)
    assert outcomes["ada@p"].waited_s == pytest.approx(100)
    assert outcomes["ada@p"].used == pytest.approx(100 + 1000)


def test_equal_recordings_have_equal_outcomes():
    def once():
        offers = [offer(f"u{number % 5}@p", number, number * 7 % 300, 50.0 + number) for number in range(1, 25)]
        slots = {f"slot1@{name}": slot(2, parts=True) for name in "abc"}
        return to_map(compare(recording(slots, offers), config(), config(PRIORITY_HALFLIFE="60"), step=1.0))

    assert once() == once()


def test_jobs_of_which_nothing_is_known_are_left_out_and_told():
    offers = [offer("ada@p", 1, 0), ["ap", 2, 0, "", None, *offer("ada@p", 2, 0)[5:]]]
    record = recording({"slot1@a": slot()}, offers)
    assert (len(record.work), record.odd) == (1, 1)
    with pytest.raises(ClientError, match="can not be read"):
        read([{"start": START}])


def test_a_concurrency_limit_holds_from_one_cycle_to_the_next():
    offers = [offer("ada@p", number, 10 * number, 100.0) for number in range(1, 4)]
    slots = {f"slot1@{name}": slot(4, parts=True) for name in "abc"}
    record = recording(slots, offers, more='ConcurrencyLimits = "licence"\n')
    free = played(record).outcomes["ada@p"]
    assert free.waited_s == pytest.approx(0)
    limited = played(record, LICENCE_LIMIT="1").outcomes["ada@p"]
    assert limited.waited_s == pytest.approx(90 + 180)
    whole = recording({f"slot1@{name}": slot() for name in "abc"}, offers, more='ConcurrencyLimits = "licence"\n')
    assert played(whole, LICENCE_LIMIT="1").outcomes["ada@p"].waited_s == pytest.approx(90 + 180)


def test_a_limit_counts_what_ran_as_the_interval_began():
    offers = [offer("ada@p", 1, 0, 50.0, slot="slot1_1@a"), offer("ada@p", 2, 0, 100.0)]
    record = recording({"slot1@a": slot(4, parts=True)}, offers, more='ConcurrencyLimits = "licence"\n')
    assert played(record, LICENCE_LIMIT="1").outcomes["ada@p"].waited_s == pytest.approx(50)


@pytest.mark.parametrize("parts", [False, True])
def test_a_jobs_own_rank_keeps_nobody_from_being_preempted(parts):
    offers = [offer("ada@p", 1, 0, 1000.0), offer("bob@p", 2, 100, 100.0)]
    standings = (standing("ada@p", priority=100.0), standing("bob@p"))
    knobs = {"PREEMPTION_REQUIREMENTS": "true"}
    record = recording({"slot1@a": slot(1, parts)}, offers, standings, more="Rank = TARGET.Memory\n")
    outcomes = played(record, **knobs).outcomes
    assert (outcomes["ada@p"].preempted, outcomes["bob@p"].waited_s) == (1, pytest.approx(0))


def test_a_slots_rank_preempts_whom_it_likes_less():
    liking = SLOT.format(cpus=1, parts="false").replace("Rank = 0", "Rank = TARGET.RequestMemory == 100 ? 1 : 2")
    first = offer("ada@p", 1, 0, 1000.0)
    second = [*offer("bob@p", 2, 100, 100.0)]
    second[4] = 2
    record = read(
        [
            {
                "start": START,
                "end": END,
                "shard": "",
                "policy": {"at": 0.0, "knobs": {}},
                "policy_changes": [],
                "standings": {},
                "cycles": 0,
                "start_s": 0.0,
                "recorded_since": START,
            },
            {"slots": {"slot1@a": [[START, packed(parse_ad(liking, "old"))]]}},
            {
                "offers": [first, second],
                "kinds": {
                    "ap/1": packed(parse_ad(JOB.format("true"), "old")),
                    "ap/2": packed(parse_ad(JOB.format("true").replace("100", "200"), "old")),
                },
            },
        ]
    )
    outcomes = played(record).outcomes
    assert (outcomes["ada@p"].preempted, outcomes["bob@p"].waited_s) == (1, pytest.approx(0))


@pytest.mark.parametrize(
    ("weight", "groups"), [("Cpus", {}), ("Cpus * 0.25", {"GROUP_NAMES": "group_x", "GROUP_QUOTA_group_x": "3"})]
)
def test_leaving_dynamic_slots_out_of_the_table_changes_nothing(monkeypatch, weight, groups):
    """What nobody can be given needs no row, but for its weight."""
    rng = random.Random(7)
    text = SLOT.format(cpus=4, parts="true").replace("SlotWeight = Cpus", f"SlotWeight = {weight}")
    slots = {f"slot1@{name}": packed(parse_ad(text, "old")) for name in "abc"} | {"slot1@d": slot(), "slot1@e": slot()}
    users = ("ada@p", "bob@p", "group_x.eve@p")
    offers = [offer(users[number % 3], number, rng.randrange(1000), rng.randrange(30, 900)) for number in range(1, 50)]
    offers[0][8], offers[1][8] = "slot1_1@a", "slot1@d"
    record = recording(slots, offers, more='ConcurrencyLimits = "licence:0.5"\n')

    def once():
        outcomes = played(record, LICENCE_LIMIT="4", **groups)
        return {name: (one.waited_s, one.used, one.finished) for name, one in outcomes.outcomes.items()}

    left_out = once()
    monkeypatch.setattr(model, "spares", lambda config, ads: False)
    assert once() == left_out


def test_progress_tells_how_far_a_replay_is():
    record = recording({"slot1@a": slot()}, [offer("ada@p", number, 30 * number, 60.0) for number in range(1, 20)])
    told = []
    compare(record, config(), config(), step=1.0, progress=lambda what, part: told.append((what, part)))
    assert {what for what, _ in told} == {"as it was", "with the change"}
    parts = [part for what, part in told if what == "as it was"]
    assert parts == sorted(parts)
    assert parts[0] < 0.1
    assert 0.3 < parts[-1] < 1


class Screen(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def test_progress_is_one_line_on_a_terminal_and_seldom_elsewhere():
    now = [0.0]
    for terminal, pause in ((True, TERMINAL_S), (False, LOG_S)):
        screen = Screen(terminal)
        progress = Progress(screen, lambda: now[0])
        progress.show("at once: nothing")
        now[0] += pause * 1.01
        progress.show("10 %")
        progress.show("too soon")
        now[0] += pause * 1.01
        progress.show("5 %")
        progress.clear()
        progress.clear()
        assert screen.getvalue() == ("\r10 %\r5 % \r   \r" if terminal else "10 %\n5 %\n")


@spec("NEG-13", "NEG-14")
def test_who_has_used_up_its_slice_is_told_so_without_dividing_machines_in_thought(monkeypatch):
    """The same matches, waiting and priorities as with every slot looked at job by job."""
    record = interval(jobs=300, users=4, machines=2, cores=8, kinds=6)
    taken = []
    allocate = Allocation.allocate
    monkeypatch.setattr(Allocation, "allocate", lambda *given: taken.append(given[1]) or allocate(*given))

    def once():
        taken.clear()
        replayed = Pool(record, config(), step=20.0).run()
        return replayed.cycles, replayed.matches, replayed.outcomes, replayed.first_starts, len(taken)

    *quick, tries = once()
    monkeypatch.setattr(slot_finder, "parts_cost", lambda board, config: False)
    *slow, more = once()
    assert quick == slow
    assert tries < more / 2
