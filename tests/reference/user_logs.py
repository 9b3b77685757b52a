"""Logs of jobs (`log = file`) as the whole pool writes them: made-up submit files whose jobs end, fail, are killed,
held by their policies, retried, evicted, checkpoint, and so on, with what users do to them meanwhile (hold, release,
rm, suspend, vacate, qedit, prio). A side's answers: the events in each job's log, in order, each with its whole text;
what differs in every run (times, hosts, numbers of jobs, amounts) is masked. Transfers (040) are compared apart:
between them and the others the reference has no order, as two processes write.

Both sides are a pool with real jobs: HTCondor's own daemons (`pool`), and a personal pool of ours. A case takes half a
minute, and has several jobs for that reason.
"""

from __future__ import annotations

import re
import shlex
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from tests.integration.inside import InsidePool
from tests.reference.daemons import Daemons
from tests.reference.drawn_jobs import Job, make
from tests.reference.family import Case, Facts, Family
from tests.reference.pool import Shell
from tests.waiting import too_long

#: Seconds that a job has to come to its end; what its log says by then is compared.
PATIENCE_S: Final = 45.0


class _Pool(Protocol):
    """What a case needs of a pool."""

    place: str  # the directory of a job's files, with {n}

    def write(self, number: int, name: str, text: str) -> None: ...
    def remove(self, number: int, name: str) -> None: ...
    def submit(self, number: int) -> str: ...
    def order(self, words: list[str]) -> None: ...
    def logs(self, count: int) -> list[str]: ...


def _submit_file(job: Job) -> str:
    lines = ["executable = job.sh", "universe = vanilla", "log = log", "should_transfer_files = YES"]
    lines += [f"request_{what} = 1" for what in ("cpus", "memory", "disk")]
    return "\n".join([*lines, *job["lines"], job["queue"]])


def play(pool: _Pool, jobs: list[Job]) -> list[str]:
    """Submit these, do to each what its steps say, and wait for their ends: their logs. What a job did not come to in
    time is missing there."""
    clusters = []
    for number, job in enumerate(jobs):
        here = pool.place.format(n=number)
        script = job["script"] if job["script"].startswith("#!") else f"#!/bin/sh\n{job['script']}"
        pool.write(number, "job.sh", script + "\n")
        pool.write(number, "submit", f"here = {here}\n" + _submit_file(job))
        if "gone" in job:
            pool.write(number, job["gone"], "")
        clusters.append(pool.submit(number))
        if "gone" in job:
            pool.remove(number, job["gone"])
    steps = [list(job["steps"]) for job in jobs]
    began = time.monotonic()
    while True:
        logs = pool.logs(len(jobs))
        for number, log in enumerate(logs):
            while steps[number] and _happened(log, *steps[number][0][:2]):
                command, *words = shlex.split(steps[number].pop(0)[2])
                target = [clusters[number]]
                pool.order([command, *target, *words] if command == "qedit" else [command, *words, *target])
        done = [not steps[n] and _happened(logs[n], *job["until"]) for n, job in enumerate(jobs)]
        if all(done) or too_long(began, PATIENCE_S):
            return logs
        time.sleep(0.3)


def _happened(log: str, kind: str, times: int) -> bool:
    return len(re.findall(rf"^{kind} \(", log, re.MULTILINE)) >= times


class UserLogsReference:
    """A pool of HTCondor's own daemons for each case."""

    place = "/pool/jobs/{n}"

    def __init__(self) -> None:
        self._daemons = Daemons(alone=False)
        self._shell: Shell | None = None

    def __enter__(self) -> UserLogsReference:
        self._daemons.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._daemons.__exit__()

    def ask(self, case: Case) -> Facts | None:
        with Shell(self._daemons, [*_CONFIG, *_OF_REFERENCE]) as self._shell:
            self._shell.run("chmod 1777 /pool/execute; mkdir -p /pool/jobs; chown 65534:65534 /pool/jobs")
            self._shell.start("collector", "negotiator", "schedd", "startd")
            self._shell.until('[ -n "$(condor_status -af Name)" ]')
            return answers(play(self, case["jobs"]))

    def write(self, number: int, name: str, text: str) -> None:
        place = self.place.format(n=number)
        self._sh(f"mkdir -p {place} && chown 65534:65534 {place}")
        assert self._shell is not None
        self._shell.write(f"jobs/{number}/{name}", text)
        self._sh(f"chown 65534:65534 {place}/{name}; chmod 755 {place}/{name}")

    def remove(self, number: int, name: str) -> None:
        self._sh(f"rm {self.place.format(n=number)}/{name}")

    def submit(self, number: int) -> str:
        said = self._sh(f"cd {self.place.format(n=number)} && {_AS_USER} condor_submit submit")
        return said.split("cluster ")[1].split(".")[0]

    def order(self, words: list[str]) -> None:
        self._sh(f"{_AS_USER} condor_{shlex.join(words)} || true")

    def logs(self, count: int) -> list[str]:
        said = self._sh(f"cd /pool/jobs; for n in $(seq 0 {count - 1}); do cat $n/log; printf '\\002'; done")
        return said.split("\x02")[:count]

    def _sh(self, script: str) -> str:
        assert self._shell is not None
        return self._shell.run(script)


class _Ours:
    """A personal pool, below a directory."""

    def __init__(self, directory: Path) -> None:
        self.place = str(directory / "{n}")
        knobs = dict(line.split(" = ", 1) for line in [*_CONFIG, *_OF_OURS])
        self.pool = InsidePool(directory / "pool", **knobs)

    def write(self, number: int, name: str, text: str) -> None:
        path = Path(self.place.format(n=number)) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def remove(self, number: int, name: str) -> None:
        (Path(self.place.format(n=number)) / name).unlink()

    def submit(self, number: int) -> str:
        said = self.pool.roost("submit", "submit", cwd=Path(self.place.format(n=number)))
        found = re.search(r"cluster (\d+)", said)
        assert found is not None, said
        return found[1]

    def order(self, words: list[str]) -> None:
        self.pool.roost(words[0].replace("_", "-"), *words[1:])

    def logs(self, count: int) -> list[str]:
        paths = [Path(self.place.format(n=number)) / "log" for number in range(count)]
        return [path.read_text() if path.exists() else "" for path in paths]


_AS_USER: Final = "chroot --userspec=65534:65534 --skip-chdir /"
_CONFIG: Final = (
    *("NEGOTIATOR_INTERVAL = 1", "NEGOTIATOR_MIN_INTERVAL = 1", "NEGOTIATOR_CYCLE_DELAY = 1"),
    *("SCHEDD_INTERVAL = 2", "SCHEDD_MIN_INTERVAL = 1", "PERIODIC_EXPR_INTERVAL = 2", "STARTER_UPDATE_INTERVAL = 2"),
    *("NUM_CPUS = 24", "MEMORY = 8000", "NUM_SLOTS_TYPE_1 = 24", "SLOT_TYPE_1 = cpus=1,mem=128"),
    *("SLOT_TYPE_1_PARTITIONABLE = False", "MachineMaxVacateTime = 5"),
)
_OF_REFERENCE: Final = (
    *("MOUNT_UNDER_SCRATCH =", "STARTD_ADDRESS_FILE = /pool/log/startd_address", "JOB_START_COUNT = 100"),
    *("SHADOW_QUEUE_UPDATE_INTERVAL = 2", "MAX_PERIODIC_EXPR_INTERVAL = 2", "PERIODIC_EXPR_TIMESLICE = 1"),
)
_OF_OURS: Final = ("JOB_START_COUNT = 100",)


def ours(case: Case) -> Facts:
    with tempfile.TemporaryDirectory(prefix="roost-user-logs-") as name:
        side = _Ours(Path(name))
        try:
            logs = play(side, case["jobs"])
            side.pool.roost("rm", "-all")
        finally:
            side.pool.close()
    return answers(logs)


def answers(logs: Sequence[str]) -> Facts:
    """The events of each job in each log, in order, and its transfers. Those of the size of its image, which come by
    the clock, are left out."""
    found: Facts = {}
    for number, log in enumerate(logs):
        for event in log.split("...\n")[:-1]:
            head = _HEAD.match(event)
            assert head is not None, event
            kind, proc = int([head[1], *_TRIGGERED.findall(event)][-1]), int(head[2])
            if kind != 6:
                whose = f"{number} {'cluster' if proc < 0 else proc}{' transfers' if kind == 40 else ''}"
                found.setdefault(whose, []).append(masked(event))
    return found


_HEAD: Final = re.compile(r"(\d{3}) \(\d+\.(-?\d+)\.-?\d+\) ")
#: 028 follows another event.
_TRIGGERED: Final = re.compile(r"^TriggerEventTypeNumber = (\d+)$", re.MULTILINE)
_MASKS: Final = (
    (r"^(\d{3}) \(\d+\.(-?\d+\.-?\d+)\) \S+ \S+ ", r"\1 "),
    (r"via (condor_|roost )", "via "),
    (r"\(by user \S+\)", "(by user USER)"),
    # What exactly is wrong is told in words of one's own.
    (r"(Error from \S+: |Transfer (?:in|out)put files failure).*", r"\1WHY"),
    (r"(Error from starter on \S+:\n\t).*", r"\1WHY"),
    (r"<[^<>\n]*>", "<HOST>"),
    (r"(Usr|Sys) \d+ \d\d:\d\d:\d\d", r"\1 TIME"),
    (r"^(\s+)\d+(  -  )", r"\1N\2"),
    (r"^(\s+(?:Cpus|Disk \(KB\)|Memory \(MB\)|TimeExecute \(s\)|TimeSlotBusy \(s\)) +: ).*", r"\1AMOUNTS"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"slot\d+@[^\s:\"]+", "SLOT"),
    (r"(processes actually suspended: )\d+", r"\1N"),
    # What 028 repeats of its event.
    (
        r"^(Cluster|Disk|DiskUsage|CpusUsage|Memory|MemoryUsage|NumberOfPIDs|TimeExecuteUsage|TimeSlotBusyUsage) = .*",
        r"\1 = N",
    ),
    (r"^((?:Total)?(?:Sent|Received)Bytes|EventTime) = .*", r"\1 = N"),
    (r"^CpusUsage = N\n", ""),  # the reference has none of a run that took no whole second
    (r"^(\w+) = \[.*\]$", r"\1 = AD"),
    (r'(CondorScratchDir = )".*"', r"\1DIR"),
    (r"^(\t(?:Disk|Memory|Cpus) = )\S+", r"\1N"),
    (r"(Seconds spent in queue: )\d+", r"\1N"),
    (r"(?<=[ \"(])/\S*/\d+/", "/JOBS/N/"),
    (r"dir_\d+", "dir_N"),
    (r"/\S*/execute/", "/EXECUTE/"),
)


def masked(event: str) -> str:
    """An event's text without what differs in every run."""
    for pattern, with_ in _MASKS:
        event = re.sub(pattern, with_, event, flags=re.MULTILINE)
    return event


_ITEMS: Final = "036 of a queue without items tells of none in the reference, and here of as many as jobs"
_CODE: Final = "021 of output that is missing has the code of the hold here, and 13 in the reference"
_FINISHED: Final = "whether output that is missing was transferred (040) is told by the reference as it falls"
_QEDIT: Final = "033 of a JobPrio that `qedit` sets is told here, and in the reference that of `prio` alone"
_BEGAN: Final = "a program that can not be started has not begun here"


def known(case: Case, question: str, mine: Any, theirs: Any) -> str:
    if not mine or not theirs:
        return ""
    if _NUMBER_OF_ITEMS.sub("", "".join(mine)) == _NUMBER_OF_ITEMS.sub("", "".join(theirs)):
        return _ITEMS
    if mine == [event.replace("Code 13", "Code 12") if event.startswith("021") else event for event in theirs]:
        return _CODE
    job = case["jobs"][int(question.split()[0])]
    if job["kind"] == "no_output" and mine == [*theirs, "040 Finished transferring output files\n"]:
        return _FINISHED
    if any("qedit JobPrio" in step[2] for step in job.get("steps", ())) and theirs == [
        event for event in mine if not event.startswith("033")
    ]:
        return _QEDIT
    without = [event for event in theirs if not event.startswith("001")]
    return _BEGAN if job["kind"] == "no_interpreter" and mine == without else ""


_NUMBER_OF_ITEMS: Final = re.compile(r"(?<= from )\d+(?= items)")


def _cause(question: str, mine: Any, theirs: Any) -> str:
    mine, theirs = mine or [], theirs or []
    if [event[:3] for event in mine] != [event[:3] for event in theirs]:
        return f"{' '.join(e[:3] for e in mine)}, the reference: {' '.join(e[:3] for e in theirs)}"
    first = next((one, other) for one, other in zip(mine, theirs, strict=True) if one != other)
    return f"{first[0]!r}, the reference: {first[1]!r}"


USER_LOGS: Final = Family("user-logs", make, ours, known, cause=_cause, reference=UserLogsReference)
