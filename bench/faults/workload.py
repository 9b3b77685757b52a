"""Short jobs that are submitted all the time, one long one that nothing may restart, and questions in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Self

from bench.faults.verdict import Facts, Line, Recorded, Verdict, judge, lines, longest_gap
from bench.pool import description
from roost.client import Client
from roost.errors import ClientError
from tests.waiting import wait_until

#: A job tells when it begins and ends by one short line each, which the kernel adds to the file as a whole.
SHORT = """#!/bin/sh
echo "begin $1 $(date +%s.%N)" >>{runs}
sleep {seconds}
echo "end $1 $(date +%s.%N)" >>{runs}
"""
LONG = """#!/bin/sh
echo "begin $1 $(date +%s.%N)" >>{runs}
while [ ! -e {go} ]; do sleep 0.2; done
echo "end $1 $(date +%s.%N)" >>{runs}
"""
#: After that a request counts as not answered. A busy machine answers slower than a quiet one, but not so slow.
PATIENCE_S = 5.0
#: One job comes twice a second: two cores are left to the daemons.
SUBMIT_EVERY_S = 0.5
ASK_EVERY_S = 0.1
REST_S = 180.0

#: Makes a client of all gateways, whose requests may take so many seconds.
Connect = Callable[[float], Client]


@dataclass(slots=True)
class Service:
    """When requests were answered, seconds since 1970, and what the last that failed said."""

    answered: list[float] = field(default_factory=list)
    refused: int = 0
    last_error: str = ""


class Asker(threading.Thread):
    """Does one thing again and again, through any gateway."""

    def __init__(self, connect: Connect, deed: Callable[[Client], None], every_s: float, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.connect, self.deed, self.every_s, self.stop = connect, deed, every_s, stop
        self.service = Service()
        self.use_first = False  # from the next request on

    def run(self) -> None:
        client = self.connect(PATIENCE_S)
        while not self.stop.is_set():
            if self.use_first:
                self.use_first = False
                client.close()
                client = self.connect(PATIENCE_S)
            try:
                self.deed(client)
            except (ClientError, OSError) as error:
                self.service.refused += 1
                self.service.last_error = str(error)
            else:
                self.service.answered.append(time.time())
            self.stop.wait(self.every_s)
        client.close()


class Workload:
    """directory: for jobs and what they write; its name must be a new one in this pool, as its jobs are known by it.
    connect(timeout): a client. schedds: each has a user of its own, who waits for nobody else's.
    shared: schedds and startds have one file system; else jobs are transferred, though schedds write job event logs to
    the directory. charges: the accountant's are looked at, too."""

    def __init__(
        self,
        directory: Path,
        connect: Connect,
        seconds: float = 0.3,
        *,
        schedds: Sequence[str] = ("",),
        shared: bool = True,
        charges: bool = True,
    ) -> None:
        self.schedds, self.shared, self.charges = schedds, shared, charges
        self.directory, self.connect = directory, connect
        self._charged_before = 0.0
        directory.mkdir(parents=True)
        directory.chmod(0o777)
        self.runs, self.go = directory / "runs", directory / "go"
        self.runs.touch()
        self.runs.chmod(0o666)
        for name, text in (("short", SHORT), ("long", LONG)):
            script = directory / name
            script.write_text(text.format(runs=self.runs, go=self.go, seconds=seconds))
            script.chmod(0o755)
        self.acknowledged: dict[str, str] = {}
        self._numbers = count(1)
        self._stop = threading.Event()
        self.submits = [
            Asker(connect, self._submitter(schedd), SUBMIT_EVERY_S * len(schedds), self._stop) for schedd in schedds
        ]
        self.queries = Asker(connect, _ask, ASK_EVERY_S, self._stop)

    def _submitter(self, schedd: str) -> Callable[[Client], None]:
        return lambda client: self._submit(client, "short", schedd)

    def _submit(self, client: Client, script: str, schedd: str) -> None:
        number = next(self._numbers)
        token = f"{self.directory.name}/{script}/{number}"
        text = (
            f"executable = {self.directory}/{script}\narguments = {token}\ntransfer_executable = false\n"
            f"request_memory = 16\nrequest_disk = 1024\nlog = {self._log(token)}\n"
        )
        if self.shared:
            text += "should_transfer_files = NO\n"
        else:
            text += "should_transfer_files = YES\nwhen_to_transfer_output = ON_EXIT\n"
        text += "queue\n"
        (cluster,) = description(self.directory, text).clusters()
        queued = client.submit(cluster.ad, cluster.jobs(), schedd=schedd)
        self.acknowledged[token] = f"{queued.cluster}.0"

    def _log(self, token: str) -> Path:
        return self.directory / f"{token.rpartition('/')[2]}.log"

    def start(self) -> None:
        """Returns when a long job and some short ones have begun."""
        with self.connect(60.0) as client:
            if self.charges:
                self._charged_before = _charged(client)
            self._submit(client, "long", self.schedds[0])
        for asker in (*self.submits, self.queries):
            asker.start()
        wait_until(lambda: {line.token.split("/")[1] for line in self.lines()} == {"short", "long"}, 120, "jobs")

    def now(self) -> float:
        """Seconds since 1970, by the clock of everything here."""
        return time.time()

    def use_first_gateway(self) -> None:
        """A fault of the first gateway is one of the gateway in use."""
        for asker in (*self.submits, self.queries):
            asker.use_first = True

    def lines(self) -> list[Line]:
        # The last line may be half written.
        text = self.runs.read_text()
        return lines(text[: text.rfind("\n") + 1])

    def durations(self) -> list[float]:
        """How long each run took that came to its end, in seconds, by what the jobs wrote."""
        begun: dict[str, float] = {}
        found = []
        for line in self.lines():
            if line.word == "begin":
                begun[line.token] = line.at
            elif line.token in begun:
                found.append(line.at - begun[line.token])
        return found

    def without(self, since: float, until: float) -> dict[str, float]:
        """The longest time without service between two moments, in seconds, by what was wanted."""
        return {what: longest_gap(moments, since, until) for what, moments in self._served().items()}

    def served(self, since: float) -> bool:
        """Whether a job was submitted, another begun, and a question answered since then."""
        return all(any(moment > since for moment in moments) for moments in self._served().values())

    def _served(self) -> dict[str, list[float]]:
        """When service was had, in seconds since 1970, by what was wanted."""
        return {
            "submit": [moment for asker in self.submits for moment in asker.service.answered],
            "match": [line.at for line in self.lines() if line.word == "begin"],
            "query": list(self.queries.service.answered),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.go.touch()
        for asker in (*self.submits, self.queries):
            if asker.ident is not None:
                asker.join(60)

    def end(self) -> Verdict:
        """Let all jobs end, and judge what became of them."""
        self.__exit__()
        facts = Facts(dict(self.acknowledged))
        ours = f"{self.directory.name}/"
        with self.connect(60.0) as client:

            def rest() -> bool:
                try:
                    facts.history = [
                        entry
                        for schedd in self.schedds
                        for entry in recorded(client, schedd)
                        if entry.token.startswith(ours)
                    ]
                except ClientError:
                    return False
                return {entry.token for entry in facts.history} >= set(facts.acknowledged)

            with suppress(TimeoutError):  # who is missing is in the verdict
                wait_until(rest, REST_S, "the end of all jobs")
            if self.charges:
                facts.charged_s = _charged(client) - self._charged_before
        facts.lines = self.lines()
        facts.logs = {token: log.read_text() for token in facts.acknowledged if (log := self._log(token)).exists()}
        return judge(facts)


def _ask(client: Client) -> None:
    list(client.ads("Machine", projection=["Name"], limit=1))


def recorded(client: Client, schedd: str = "") -> list[Recorded]:
    """All jobs of the schedd's history. Raises ClientError."""
    wanted = [
        "ClusterId",
        "ProcId",
        "Args",
        "Arguments",
        "JobStatus",
        "ExitCode",
        "NumJobStarts",
        "RemoteWallClockTime",
    ]
    found = []
    for ad in client.jobs(projection=wanted, schedd=schedd, history=True):
        code = ad.eval("ExitCode")
        arguments = ad.eval("Arguments")
        found.append(
            Recorded(
                job=f"{ad.eval('ClusterId')}.{ad.eval('ProcId')}",
                token=str(arguments if isinstance(arguments, str) else ad.eval("Args")),
                status=int(str(ad.eval("JobStatus"))),
                exit_code=code if isinstance(code, int) else None,
                starts=int(str(ad.eval("NumJobStarts"))),
                ran_s=float(str(ad.eval("RemoteWallClockTime"))),
            )
        )
    return found


def _charged(client: Client) -> float:
    """What the accountant has charged all submitters, once it charges no more: nobody has a claim then."""
    seen: list[float] = []

    def settled() -> bool:
        try:
            ads = list(client.priorities())
        except ClientError:
            return False
        used = sum(float(str(ad.eval("AccumulatedUsage"))) for ad in ads if not ad.eval("IsAccountingGroup"))
        using = any(float(str(ad.eval("WeightedResourcesUsed"))) for ad in ads)
        seen.append(used)
        return not using

    wait_until(settled, REST_S, "the end of all claims")
    return seen[-1]
