"""Which states and activities a slot goes through: machines with made-up policies (SUSPEND, CONTINUE, PREEMPT, KILL,
WANT_SUSPEND, WANT_VACATE, MaxJobRetirementTime, ...), each with a job, to which things happen: an attribute flips that
the policies name, the machine drains, its claim is vacated. A side's answers: the conditions of each machine's slot in
order, from the job's start to its claim's end. Times are not compared; what happens is far enough apart that they
decide nothing.

The reference is a pool of its own (`pool`) with real jobs, and a startd for each machine: a case takes half a minute,
and has several machines for that reason. Where it can not be had, what was recorded is replayed
(tests/data/reference_states).
"""

from __future__ import annotations

import datetime
import random
import re
import time
from collections.abc import Iterator
from typing import Any, Final

from tests.reference.daemons import Daemons
from tests.reference.family import Case, Facts, Family
from tests.reference.pool import Shell
from tests.unit.startd import test_reference_states as states

MACHINES: Final = 8
#: When things happen, in seconds since the jobs began, and when nobody looks any more. Retirement (7, 14 s), time to
#: leave (2 s, also after it) and timers of policies (3 s) end well between them.
TIMES_S: Final = (3.0, 10.0, 17.0)
END_S: Final = 23.0
#: Seconds between two looks at a slot's policies.
POLLING_S: Final = 1.0

_RULES: Final = {
    "start": ("True", "True", "Flip != 2"),
    "is_owner": ("False", "False", "False", "(Flip ?: 0) == 1"),  # likewise
    "want_suspend": ("True", "True", "True", "False", "Flip == 1", "NoSuchThing"),
    "suspend": (
        *("Flip == 1", "Flip == 1", "Flip >= 1", "False", "NoSuchThing"),
        "(Flip == 1) && ((Now - EnteredCurrentActivity) > 3)",
    ),
    "continue_": (
        *("Flip == 0", "Flip == 0", "False", "NoSuchThing"),
        "(Flip == 0) && ((Now - EnteredCurrentActivity) > 3)",
    ),
    "preempt": (
        *("Flip == 2", "Flip == 2", "Flip >= 2", "False", "NoSuchThing"),
        '(Flip >= 1) && (Activity == "Suspended") && ((Now - EnteredCurrentActivity) > 3)',
        '(Flip == 2) && (Activity == "Busy")',
    ),
    "kill": ("False", "False", "Flip == 3", "Flip >= 2", "NoSuchThing"),
    "want_vacate": ("True", "True", "True", "False", "Flip == 2"),  # undefined ends the reference
    "max_job_retirement_time": ("0", "0", "7", "14", "100", 'ifThenElse(Activity == "Retiring", 14, 7)'),
    "machine_max_vacate_time": ("2", "2", "30"),
}
_KNOBS: Final = {"continue_": "CONTINUE", "max_job_retirement_time": "MAXJOBRETIREMENTTIME"} | {
    name: name.upper() for name in ("start", "is_owner", "want_suspend", "suspend", "preempt", "kill", "want_vacate")
}
_KNOBS["machine_max_vacate_time"] = "MachineMaxVacateTime"


def make(rng: random.Random) -> Case:
    return {"machines": [_machine(rng) for _ in range(MACHINES)]}


def _machine(rng: random.Random) -> dict[str, Any]:
    rules = {name: rng.choice(texts) for name, texts in _RULES.items() if rng.random() < 0.85}
    events: list[list[Any]] = []
    for at in TIMES_S[: rng.choice((1, 2, 3, 3, 3))]:
        draining = any(what == "drain" for _, what, *_ in events)
        dice = rng.random()
        if dice < 0.14:
            events.append([at, "vacate", rng.choice(("graceful", "fast"))])
        elif dice < 0.3 and not draining:
            how = rng.choice(("graceful", "graceful", "graceful", "quick", "fast"))
            events.append([at, "drain", how, rng.choice(("nothing", "resume"))])
        elif dice < 0.5 and draining:
            events.append([at, "cancel"])
        else:
            events.append([at, "flip", rng.choice((0, 1, 1, 2, 2, 3))])
    jobs = rng.choice(({}, {}, {}, {"MaxJobRetirementTime": 0}, {"MaxJobRetirementTime": 7}))
    return {"rules": rules, "events": events, "jobs": [jobs], "stubborn": rng.random() < 0.4}


# The reference

_CONFIG: Final = (
    *("NEGOTIATOR_INTERVAL = 1", "NEGOTIATOR_MIN_INTERVAL = 1", "NEGOTIATOR_CYCLE_DELAY = 1"),
    *("SCHEDD_INTERVAL = 1", "SCHEDD_MIN_INTERVAL = 1", f"POLLING_INTERVAL = {POLLING_S:g}", "UPDATE_INTERVAL = 300"),
    *(
        "NUM_CPUS = 1",
        "MEMORY = 1024",
        "NUM_SLOTS_TYPE_1 = 1",
        "SLOT_TYPE_1 = 100%",
        "SLOT_TYPE_1_PARTITIONABLE = False",
    ),
    "STARTD_DEBUG = D_SUB_SECOND",
    "MOUNT_UNDER_SCRATCH =",  # no namespaces of its own: the root is no mount
    *("STARTD_CRON_JOBLIST = FLIP", "STARTD_CRON_FLIP_MODE = WaitForExit", "STARTD_CRON_FLIP_PERIOD = 3600"),
)
#: Tells the startd what Flip is, as soon as that changes.
_FLIP: Final = """#!/bin/sh
was=
while now=$(cat {place}/flip); do
    [ "$now" = "$was" ] || printf 'Flip = %s\\n-\\n' "$now"
    was=$now
    sleep 0.2
done
"""
_JOBS: Final = {False: "#!/bin/sh\nexec sleep 1000\n", True: "#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 0.3; done\n"}
_MOVED: Final = re.compile(
    r"^(\S+ \S+) slot1: Changing (state and activity|state|activity): \S+ -> (\S+)$", re.MULTILINE
)


class StatesReference:
    """A pool of the reference for each case."""

    def __init__(self) -> None:
        self._daemons = Daemons(alone=False)

    def __enter__(self) -> StatesReference:
        self._daemons.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._daemons.__exit__()

    def ask(self, case: Case) -> Facts | None:
        """The case learns each machine's facts and conditions, as tests/data/reference_states has them."""
        machines = case["machines"]
        with Shell(self._daemons, _CONFIG) as shell:
            shell.start("collector", "schedd")
            for number, machine in enumerate(machines):
                _start(shell, number, machine)
            shell.until(f'[ "$(condor_status -af Flip | grep -c 0)" = {len(machines)} ]')
            shell.write("jobs.sub", _submit_file(machines))
            shell.run("chroot --userspec=65534:65534 --skip-chdir / condor_submit /pool/jobs.sub")
            shell.start("negotiator")
            shell.until(f"[ \"$(cat /pool/m*/StartLog | grep -c 'Idle -> Busy')\" = {len(machines)} ]")
            fired = _play(shell, machines)
            for number, machine in enumerate(machines):
                _read(machine, fired[number], shell.run(f"cat /pool/m{number}/StartLog"))
        return {f"machine {n}": _way(machine["conditions"]["slot1"]) for n, machine in enumerate(machines)}


def _start(shell: Shell, number: int, machine: dict[str, Any]) -> None:
    place = f"/pool/m{number}"
    shell.run(f"mkdir -p {place}/execute && chown 64:64 {place} {place}/execute && echo 0 > {place}/flip")
    shell.write(f"m{number}/flip.sh", _FLIP.format(place=place))
    rules = [f"{_KNOBS[name]} = {text.replace('Now -', 'time() -')}" for name, text in machine["rules"].items()]
    own = [
        *("include : /pool/condor_config", f"LOG = {place}", f"LOCK = {place}", f"RUN = {place}"),
        *(f"EXECUTE = {place}/execute", f"STARTD_ADDRESS_FILE = {place}/address", f"NETWORK_HOSTNAME = m{number}.ref"),
        *(f"STARTD_CRON_FLIP_EXECUTABLE = {place}/flip.sh", *rules),
    ]
    shell.write(f"m{number}/job.sh", _JOBS[machine["stubborn"]])
    shell.write(f"m{number}/condor_config", "\n".join(own))
    shell.run(
        f"chmod 755 {place} {place}/* && (CONDOR_CONFIG={place}/condor_config condor_startd -f > {place}/out 2>&1 &)"
    )


def _submit_file(machines: list[dict[str, Any]]) -> str:
    lines = ["should_transfer_files = NO", "request_memory = 1", "request_disk = 1", "request_cpus = 1"]
    lines.append("universe = vanilla")
    for number, machine in enumerate(machines):
        lines.append(f"executable = /pool/m{number}/job.sh")
        lines.append(f'requirements = (TARGET.Machine == "m{number}.ref") && ((NumJobStarts ?: 0) < 1)')
        retirement = machine["jobs"][0].get("MaxJobRetirementTime", "undefined")
        lines += [f"+MaxJobRetirementTime = {retirement}", "queue"]
    return "\n".join(lines)


def _play(shell: Shell, machines: list[dict[str, Any]]) -> list[list[list[Any]]]:
    """Let happen what happens. Each machine's events with when they did, in seconds since 1970."""
    fired: list[list[list[Any]]] = [[] for _ in machines]
    began = time.time()
    for at in TIMES_S:
        time.sleep(max(0.0, began + at - time.time()))
        for number, machine in enumerate(machines):
            for when, what, *how in machine["events"]:
                if when == at:
                    fired[number].append([time.time(), what, *how])
                    shell.run(_command(number, what, *how))
    time.sleep(max(0.0, began + END_S - time.time()))
    return fired


def _command(number: int, what: str, *how: Any) -> str:
    startd = f'"$(head -n 1 /pool/m{number}/address)"'  # tools do not find these made-up hosts by name
    if what == "flip":
        return f"echo {how[0]} > /pool/m{number}/flip"
    if what == "vacate":
        return f"condor_vacate -{how[0]} -addr {startd}"
    if what == "cancel":
        return f"condor_drain -cancel {startd}"
    return f"condor_drain -{how[0]} {'-resume-on-completion' if how[1] == 'resume' else ''} {startd}"


def _read(machine: dict[str, Any], fired: list[list[Any]], log: str) -> None:
    """Of a startd's log: facts and conditions, in seconds since the job began."""
    steps: list[tuple[float, str]] = []
    state, activity = "Owner", "Idle"
    for at, what, to in _MOVED.findall(log):
        if what == "activity":
            activity = to
        elif what == "state":
            state = to
        else:
            state, _, activity = to.partition("/")
        steps.append((_time(at), f"{state}/{activity}"))
    began = next(at for at, condition in steps if condition == "Claimed/Busy")
    claimed = next(at for at, condition in steps if condition == "Claimed/Idle")
    facts = [[claimed - began, "claim", "slot1"], [0.0, "start", "slot1"]]
    machine["facts"] = facts + [[at - began, *what] for at, *what in fired]
    machine["until"] = END_S
    machine["conditions"] = {"slot1": [[at - began, condition] for at, condition in steps]}


def _time(text: str) -> float:
    return datetime.datetime.strptime(text, "%m/%d/%y %H:%M:%S.%f").replace(tzinfo=datetime.UTC).timestamp()


def _is_left(condition: str) -> bool:
    return condition.split("/")[0] in ("Owner", "Unclaimed", "Drained")


# Answers


class _WithJob(states.Replay):
    """Our book, with a job that ends when it is asked to, or only when it is killed."""

    def __init__(self, machine: dict[str, Any]) -> None:
        super().__init__({"name": "drawn", **machine})
        self._ends_at = ("kill",) if machine["stubborn"] else ("ask", "kill")
        self._running = True

    def note(self) -> None:
        if self._running and any(how in self._ends_at for _, how in self.slots.stops):
            self._running = False
            self.slots.gone(self.claims["slot1"][0])
        super().note()


def _way(steps: list[Any]) -> list[str]:
    """From the job's start to the end of its claim. What goes to and fro (SUSPEND and CONTINUE are both true) does so
    once: how often is a matter of time."""
    found: list[str] = []
    for _, condition in steps:
        if found and _is_left(condition):
            return [*found, "left"]
        if found or condition == "Claimed/Busy":
            found.append(condition)
            if len(found) > 3 and found[-4:-2] == found[-2:]:
                del found[-2:]
    return found


def ours(case: Case) -> Facts:
    if "conditions" in case:  # one that was recorded
        return {name: [what for _, what in states.compared(case, name)[0]] for name in case["conditions"]}
    return {f"machine {n}": _way(_WithJob(machine).run()["slot1"]) for n, machine in enumerate(case["machines"])}


def recorded_histories() -> Iterator[tuple[Case, Facts]]:
    for history in states.HISTORIES:
        yield history, {name: [what for _, what in states.compared(history, name)[1]] for name in history["conditions"]}


_PASSING: Final = "a suspended job that is asked to leave is Retiring for no time in the reference (STM-16, STM-17)"
_KILLED: Final = "the reference's starter kills a job whose time to leave is over, before the startd does (STM-21)"
_LOOKED: Final = "KILL is true already: whether the next look comes before the job has left is a matter of time"


def known(case: Case, question: str, mine: Any, theirs: Any) -> str:
    if "machines" not in case:
        return ""
    machine = case["machines"][int(question.split()[1])]
    steps = machine["conditions"]["slot1"]
    ends = [*(at for at, _ in steps[1:]), END_S]
    passing = _way(
        [
            (at, condition)
            for (at, condition), end in zip(steps, ends, strict=True)
            if condition != "Claimed/Retiring" or end - at >= states.PASSING_S
        ]
    )
    without = [*mine[:-2], "left"] if mine[-3:] == ["Preempting/Vacating", "Preempting/Killing", "left"] else mine
    if not machine["stubborn"]:
        without = mine
    for one, why in ((mine, ""), (without, _KILLED)):
        if one == theirs:
            return why
    if without == passing and theirs == _way(steps):
        return _PASSING
    left_at_once = not machine["stubborn"] and mine[-2:] == ["Preempting/Vacating", "left"]
    killed = [*mine[:-1], "Preempting/Killing", "left"]
    return _LOOKED if left_at_once and killed == theirs and _is_killed_at_once(steps) else ""


def _is_killed_at_once(steps: list[Any]) -> bool:
    """Whether the job was killed before the time to leave of any machine here was over."""
    began = next(at for at, condition in steps if condition == "Preempting/Vacating")
    return any(condition == "Preempting/Killing" and at - began < POLLING_S + 0.5 for at, condition in steps)


def _cause(question: str, mine: Any, theirs: Any) -> str:
    return f"{mine}, the reference: {theirs}"


STATES: Final = Family(
    "states", make, ours, known, cause=_cause, recorded=recorded_histories, reference=StatesReference
)
