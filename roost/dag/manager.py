"""Runs a DAG: submits its nodes, runs its scripts, and follows its jobs by the pool's events. It is a job of the
scheduler universe itself, which the schedd starts, and starts again when it was killed.

Every fact is written into the journal before anything is done about it, and every submit has a name of its own
(DAG, node, attempt) by which the schedd knows it again: a manager that is killed at any moment is followed by one that
makes the run anew, asks how the jobs stand, and does once more what was wanted and is not known to be done.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from engine.dag import picture
from engine.dag.files import dot_lines, jobstate_line, metrics_text, status_lines
from engine.dag.model import Kind, Node, Script, When
from engine.dag.run import (
    JOB_REMOVED,
    Action,
    Begin,
    DagRun,
    Ended,
    Fact,
    Halt,
    JobEnded,
    JobIs,
    NodeEvent,
    ProvisionerReady,
    Remove,
    RemoveJobs,
    Resume,
    RunScript,
    SavePoint,
    ScriptEnded,
    StopScript,
    Submit,
    SubmitFailed,
    Submitted,
    TimePassed,
)
from engine.queue.jobs import JobId
from roost.aio import AsyncClient
from roost.dag import beginning
from roost.dag.descriptions import LOGGED, description_of, log_of, script_words
from roost.dag.journal import Header, Journal, read_journal
from roost.dag.rescue_files import (
    halt_path,
    save_point_path,
    write_lines,
    write_rescue,
    write_save_point,
)
from roost.dag.settings import Options
from roost.errors import ClientError, UsageError
from roost.following import EventFollower, until_done
from roost.protocol import Event
from roost.submit import Description
from shared import job_log
from shared.classad import ClassAd
from shared.config.errors import ConfigError
from shared.programs import Programs
from shared.version import VERSION

#: What DAGMan writes for the job of a node that has none.
NO_JOB: Final = "0.2147483647"
#: Submits at a time.
SUBMITS: Final = 4
#: Seconds between two looks at a provisioner.
LOOK_S: Final = 2.0
#: The line in the queue is brought up to date so often, seconds.
TELL_S: Final = 1.0
#: JobStatus -> how a job in the queue is.
_STATES: Final = {1: "I", 2: "R", 6: "R", 7: "R", 5: "H"}
_EVENTS: Final = {"job.started": "R", "job.evicted": "I", "job.released": "I", "job.held": "H"}
_ASKED: Final = ("ClusterId", "ProcId", "JobStatus", "ExitCode", "ExitBySignal", "ExitSignal")


T = TypeVar("T")


@dataclass(slots=True)
class Manager:
    """One DAG's. header, run: as the journal has them; job, schedd: the DAG's line in the queue, which is this process;
    recovered: a manager before this one had begun; log: what is told of its work."""

    journal: Journal
    header: Header
    run: DagRun
    client: AsyncClient
    job: int
    schedd: str
    recovered: bool
    log: IO[str]
    _nodes: dict[int, tuple[int, int]] = field(default_factory=dict)  # cluster -> (node, attempt)
    _early: dict[int, list[Event]] = field(default_factory=dict)  # by clusters whose submit may not be answered yet
    _submitting: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _whole: set[asyncio.Task[None]] = field(default_factory=set)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _events: EventFollower = field(init=False)
    _shape: dict[str, str] = field(init=False)
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SUBMITS))
    _problem: BaseException | None = None
    _written: int = 0  # facts, and how many of them are on the disk
    _synced: int = 0
    _disk: asyncio.Lock = field(default_factory=asyncio.Lock)
    _unsynced: asyncio.Event = field(default_factory=asyncio.Event)
    _status_at: float = 0.0
    _sequence_before: int = 0  # tries of nodes that an earlier run wrote into the job state log
    _heard_at: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self._shape = picture.shape(self.run.dag)
        self._events = EventFollower(self.client, ("job.*",), self._heard, lambda: self._spawn(self._look()))

    @property
    def options(self) -> Options:
        return Options(**self.header.options)

    @property
    def _file(self) -> Path:
        return Path(self.header.files[0])

    @property
    def _programs(self) -> Programs:
        return Programs(Path(f"{self._file}.programs"))

    async def manage(self) -> int:
        """Run the DAG to its end: its exit code."""
        self._log(f"DAG {', '.join(self.header.files)} is job {self.job}.0, process {os.getpid()}")
        self._sequence_before = self._last_sequence()
        self._jobstate("INTERNAL *** DAGMAN_STARTED " + f"{self.job}.0 ***")
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self._remove_all)
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._leave, name)
        self._spawn(self._events.follow())
        await self._wait_for(self._events.opened)
        await self._begin()
        self._spawn(self._keep_time())
        self._spawn(self._keep_on_disk())
        self._spawn(self._tell())
        if self.run.provisioning:
            self._spawn(self._look_at_provisioner())
        await self._wait_for(self._over)
        return await self._end()

    def _remove_all(self) -> None:
        """The DAG's line is removed."""
        self._log("the DAG is removed")
        self._fact(Remove())

    def _leave(self, name: signal.Signals) -> None:
        """End this process, and nothing else: jobs and scripts go on, and so does the DAG when it is managed again."""
        self._fail(ClientError(name.name, "interrupted"))

    async def _wait_for(self, event: asyncio.Event) -> None:
        await event.wait()
        if self._problem is not None:
            raise self._problem

    def _look_for_halt(self) -> None:
        path = halt_path(self._file)
        if path.exists() == self.run.halted:
            return
        if self.run.halted:
            self._log("the DAG goes on")
            self._fact(Resume())
            return
        why = ""
        with contextlib.suppress(OSError):  # gone already
            why = path.read_text(errors="replace").strip()[:1000]
        self._log(f"the DAG is halted by {path}{f': {why}' if why else ''}")
        self._fact(Halt())

    async def _begin(self) -> None:
        self._look_for_halt()
        if not self.recovered:
            self._write_picture()
            self._fact(Begin())
            return
        self._jobstate("INTERNAL *** RECOVERY_STARTED ***")
        for index, progress in enumerate(self.run.progress):
            if progress.jobs and progress.cluster:
                self._nodes[progress.cluster] = (index, progress.attempt)
        wanted = list(self.run.outstanding)
        found = await self._submitted() if wanted else {}
        for one in wanted:
            if one not in self.run.outstanding:
                continue  # what was found of others has ended it
            key = (self.run.dag.nodes[one.node].name, one.attempt)
            if isinstance(one, Submit) and key in found:
                cluster, jobs = found[key]
                self._nodes[cluster] = (one.node, one.attempt)
                self._fact(Submitted(one.node, one.attempt, cluster, jobs))
            else:
                self._do(one)
        await self._look()
        if self.run.ended is not None:
            self._over.set()
        self._jobstate("INTERNAL *** RECOVERY_FINISHED ***")

    async def _submitted(self) -> dict[tuple[str, int], tuple[int, int]]:
        """What the DAG has submitted, by name of the node and attempt: cluster and its jobs."""
        found: dict[tuple[str, int], tuple[int, int]] = {}
        names = ("ClusterId", "DAGNodeName", "DAGManNodeRetry", "TotalSubmitProcs")
        mine = f"DAGManJobId == {self.job}"
        for history in (False, True):
            for ad in await self._again(lambda history=history: self._ads((), history, names, mine)):  # type: ignore[misc]
                cluster, node, attempt, jobs = (ad.eval(name) for name in names)
                found[str(node), int(str(attempt))] = (int(str(cluster)), int(str(jobs)))
        return found

    # Facts

    def _fact(self, fact: Fact) -> None:
        """Write it down, then do what follows."""
        self._heard_at = now = time.time()
        self.journal.write(fact, now)
        self._written += 1
        self._unsynced.set()
        for action in self.run.apply(fact, now):
            self._do(action)
        self._changed.set()

    def _heard(self, event: Event) -> None:
        if "job_id" not in event.body or event.body.get("schedd") != self.schedd:
            return
        cluster, _, proc = str(event.body["job_id"]).partition(".")
        if int(cluster) in self._nodes:
            self._of_node(*self._nodes[int(cluster)], int(proc), event)
        elif self._submitting and int(cluster) > self.job:
            self._early.setdefault(int(cluster), []).append(event)

    def _of_node(self, node: int, attempt: int, proc: int, event: Event) -> None:
        if event.type in _EVENTS:
            self._fact(JobIs(node, attempt, proc, _EVENTS[event.type]))
        elif event.type == "job.removed":
            self._fact(JobEnded(node, attempt, proc, JOB_REMOVED))
        elif event.type == "job.ended":
            killed = event.body.get("exit_signal")
            self._fact(JobEnded(node, attempt, proc, -killed if killed else int(event.body.get("exit_code") or 0)))

    async def _look(self) -> None:
        """Ask how the jobs of its nodes stand, in the queue or out of it."""
        watched = {cluster: key for cluster, key in self._nodes.items() if self._is_live(*key)}
        if not watched:
            return
        ids = [str(cluster) for cluster in watched]
        left = {(cluster, proc) for cluster, key in watched.items() for proc in self.run.progress[key[0]].jobs or ()}
        for history in (False, True):
            for ad in await self._again(lambda history=history: self._ads(ids, history)):  # type: ignore[misc]
                cluster, proc, status = (int(str(ad.eval(name))) for name in _ASKED[:3])
                if (cluster, proc) in left:
                    left.discard((cluster, proc))
                    state = None if history else _STATES.get(status)
                    node, attempt = watched[cluster]
                    if state is not None:
                        self._fact(JobIs(node, attempt, proc, state))
                    else:
                        self._fact(JobEnded(node, attempt, proc, _exit_of(ad, status)))
        for cluster, proc in left:
            self._log(f"job {cluster}.{proc} is neither in the queue nor in the history: taken for removed")
            self._fact(JobEnded(*watched[cluster], proc, JOB_REMOVED))

    async def _ads(
        self, ids: Sequence[str], history: bool, names: Sequence[str] = _ASKED, constraint: str = ""
    ) -> list[ClassAd]:
        asked = self.client.jobs(*ids, projection=names, history=history, constraint=constraint, schedd=self.schedd)
        return [ad async for ad in asked]

    def _is_live(self, node: int, attempt: int) -> bool:
        progress = self.run.progress[node]
        return progress.attempt == attempt and bool(progress.jobs)

    # Actions

    def _do(self, action: Action) -> None:
        nodes = self.run.dag.nodes
        match action:
            case Submit():
                self._submitting += 1
                self._spawn(self._submit(action), whole=True)
            case RunScript():
                self._spawn(self._script(action))
            case RemoveJobs(_, _, cluster):
                self._spawn(self._remove(cluster), whole=True)
            case StopScript(script):
                self._programs.stop(_key_of_script(script))
            case SavePoint(node):
                write_save_point(self.run, save_point_path(self._file, nodes[node].save_point or ""))
            case NodeEvent():
                self._node_event(action)
            case Ended():
                self._over.set()

    async def _submit(self, wanted: Submit) -> None:
        node = self.run.dag.nodes[wanted.node]
        fact: Fact = SubmitFailed(wanted.node, wanted.attempt)
        key = f"{self.header.dag}.{wanted.node}.{wanted.attempt}"
        try:
            async with self._slots:
                made = await self._made(node, wanted)
                queued = await self._again(lambda: self.client.submit_once(made, key, schedd=self.schedd))
            self._nodes[queued.cluster] = (wanted.node, wanted.attempt)
            fact = Submitted(wanted.node, wanted.attempt, queued.cluster, queued.count)
            self._log(f"node {node.name}: job {queued.cluster}")
        except (ConfigError, ClientError, UsageError, OSError) as error:
            self._log(f"node {node.name} could not be submitted: {error}")
        self._fact(fact)
        self._submitting -= 1
        if isinstance(fact, Submitted):
            for event in self._early.pop(fact.cluster, ()):
                self._heard(event)
        if not self._submitting:
            self._early.clear()

    async def _made(self, node: Node, wanted: Submit) -> Description | ClassAd:
        """What is submitted for a node. Raises ConfigError, ClientError."""
        if node.kind is not Kind.SUBDAG:
            return description_of(self.run, node, self.job, time.time(), self.options)
        directory = _directory(node)
        before = read_journal(directory / f"{node.submit}.journal")
        lines = await self._ads([str(before.job)], history=False) if before is not None and before.job else []
        line = beginning.begin([node.submit], directory, beginning.Wishes(), lambda _: bool(lines)).ad
        line.update({"DAGNodeName": node.name, "DAGManJobId": self.job, "DAGManNodeRetry": wanted.attempt})
        if log := log_of(self.options, self.job):
            line.update({"DAGManNodesLog": log, "DAGManNodesMask": LOGGED})
        return line

    async def _script(self, asked: RunScript) -> None:
        node = self.run.dag.nodes[asked.node]
        script = node.scripts[asked.when]
        progress = self.run.progress[asked.node]
        job = f"{progress.cluster}.{progress.last_proc}" if progress.cluster else "-1.-1"
        directory = _directory(node)
        key = _key_of_script(asked)
        with contextlib.ExitStack() as files:
            output = _debug_files(script, directory, files)
            code = await self._programs.run(key, script_words(self.run, asked, job), directory, output=output)
        self._log(f"node {node.name}: {asked.when.upper()} script ended with {code}")
        if asked.when is When.POST and progress.cluster and self.options.node_log:
            self._log_post_script(JobId(progress.cluster, progress.last_proc), node.name, code)
        if asked.when is not When.HOLD:
            self._fact(ScriptEnded(asked.node, asked.attempt, asked.when, code))
            await self._on_disk()
        self._programs.forget(key)

    async def _remove(self, cluster: int) -> None:
        why = f"by its DAG, job {self.job}"
        await self._again(lambda: self.client.act("remove", [str(cluster)], reason=why, schedd=self.schedd))

    async def _look_at_provisioner(self) -> None:
        index = self.run.dag.provisioner
        assert index is not None
        while self.run.provisioning and self.run.ended is None:
            await asyncio.sleep(LOOK_S)
            cluster = self.run.progress[index].cluster
            if cluster:
                ids, names = [str(cluster)], ("ProvisionerState",)
                ads = await self._again(lambda ids=ids, names=names: self._ads(ids, False, names))  # type: ignore[misc]
                if any(ad.eval("ProvisionerState") == 2 for ad in ads):
                    self._fact(ProvisionerReady())

    # What runs beside

    def _spawn(self, work: Coroutine[Any, Any, None], *, whole: bool = False) -> None:
        """whole: the manager does not end before it has."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        if whole:
            self._whole.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._whole.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._problem = error
        self._events.opened.set()
        self._over.set()

    async def _again(self, deed: Callable[[], Awaitable[T]]) -> T:
        return await until_done(deed, self._log)

    async def _keep_time(self) -> None:
        while True:
            due = self.run.next_look
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), None if due is None else max(0.0, due - time.time()))
            self._changed.clear()
            if self.run.next_look is not None and self.run.next_look <= time.time():
                self._fact(TimePassed())

    async def _keep_on_disk(self) -> None:
        """Nothing waits for it but what only the journal knows then: how a job stands can be asked again."""
        while True:
            await self._unsynced.wait()
            self._unsynced.clear()
            await self._on_disk()

    async def _on_disk(self) -> None:
        """All facts so far are on the disk when this returns."""
        wanted = self._written
        async with self._disk:
            if self._synced < wanted:
                so_far = self._written
                await asyncio.to_thread(self.journal.sync)
                self._synced = so_far

    async def _tell(self) -> None:
        """Bring the line in the queue and the status file up to date, when something has changed."""
        told: dict[str, str] = {}
        while True:
            await asyncio.sleep(TELL_S)
            now = self._attributes()
            if now != told:
                if self.run.dag.dot is not None and self.run.dag.dot.update:
                    self._write_picture()
                changed = {name: value for name, value in now.items() if told.get(name) != value}
                with contextlib.suppress(ClientError):  # only shown; the next change tells it again
                    await self.client.edit([f"{self.job}.0"], changed, schedd=self.schedd)
                    told = now
            self._write_status(final=False)
            self._look_for_halt()
            self._report_pending()

    def _report_pending(self) -> None:
        """When nothing has happened for a while."""
        every, now, run = self.options.pending_report_s, time.time(), self.run
        if every and now - self._heard_at >= every:
            self._heard_at = now
            scripts = sum(isinstance(one, RunScript) for one in run.outstanding)
            self._log(
                f"pending: {run.queued} nodes in the queue, with {run.idle} idle and {run.held} held jobs; {scripts} "
                f"scripts run; {run.done} of {run.dag.counted} nodes are done, {len(run.failed)} failed"
            )

    def _attributes(self) -> dict[str, str]:
        return {**self._shape, **picture.states(self.run, drawn=bool(self._shape))}

    # The end

    async def _end(self) -> int:
        ended = self.run.ended
        assert ended is not None
        while self._whole:
            await asyncio.wait(self._whole)
        if ended.rescue:
            options = self.options
            path = write_rescue(self.run, self._file, most=options.max_rescue, anew=options.reset_retries)
            self._log(f"rescue file {path} written" if path else "no rescue file: DAGMAN_MAX_RESCUE_NUM is 0")
        self._write_status(final=True)
        if self.run.dag.dot is not None and self.run.dag.dot.update:
            self._write_picture()
        self._write_metrics(ended)
        self._jobstate(f"INTERNAL *** DAGMAN_FINISHED {ended.exit_code} ***")
        self._log(f"EXITING WITH STATUS {ended.exit_code}")
        mine = f"DAGManJobId == {self.job}"  # there are none, but after a kill while they were being removed
        why = f"the DAG has ended with status {ended.exit_code} ({ended.status.name})"
        line, told = [f"{self.job}.0"], self._attributes()
        await self._again(lambda: self.client.act("remove", constraint=mine, reason=why, schedd=self.schedd))
        await self._again(lambda: self.client.edit(line, told, schedd=self.schedd))
        self.journal.finish(ended.exit_code)
        await self.close()
        return ended.exit_code

    async def close(self) -> None:
        """End what runs beside. Programs go on."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Files

    def _log(self, text: str) -> None:
        now = time.strftime("%m/%d/%y %H:%M:%S")
        self.log.write(f"{now} {text}\n")
        self.log.flush()

    def _log_post_script(self, job: JobId, node: str, code: int) -> None:
        """In the log of all nodes, where the schedd tells of their jobs."""
        told = job_log.post_script_terminated(job, time.time(), node, code)
        path = log_of(self.options, self.job)
        for reason in job_log.append([(0, path, job_log.written(told))]).values():
            self._log(f"{path}: {reason}")

    def _jobstate(self, text: str) -> None:
        if self.run.dag.jobstate_log:
            with Path(self.run.dag.jobstate_log).open("a") as file:
                file.write(f"{int(time.time())} {text}\n")

    def _last_sequence(self) -> int:
        """Of the tries that an earlier run of this DAG wrote into its log."""
        path, last = Path(self.run.dag.jobstate_log), 0
        if self.run.dag.jobstate_log and path.exists():
            for line in path.read_text(errors="replace").splitlines():
                words = line.split()
                if words[1:2] == ["INTERNAL"]:
                    if words[3:5] == ["DAGMAN_STARTED", f"{self.job}.0"]:
                        break  # what follows is of this run
                elif words and words[-1].isdigit():
                    last = max(last, int(words[-1]))
        return last

    def _node_event(self, told: NodeEvent) -> None:
        progress = self.run.progress[told.node]
        proc = progress.last_proc if told.proc is None else told.proc
        job = f"{progress.cluster}.{proc}" if progress.cluster else "-"
        node = self.run.dag.nodes[told.node]
        if told.event == "PRESKIP" or (node.noop and not told.event.startswith("PRE_")):
            job = NO_JOB
        job = str(told.code) if told.code is not None else job
        line = jobstate_line(time.time(), node.name, told.event, job, self._sequence_before + told.sequence)
        self._jobstate(line.split(" ", 1)[1])

    def _write_status(self, *, final: bool) -> None:
        wanted, now = self.run.dag.status_file, time.time()
        if wanted is not None and (final or now - self._status_at >= wanted.every_s):
            self._status_at = now
            write_lines(Path(wanted.file), status_lines(self.run, now, now + wanted.every_s))

    def _write_metrics(self, ended: Ended) -> None:
        header, job = self.header, str(self.job)
        text = metrics_text(
            self.run, ended, began=header.began, now=time.time(), job=job, rescue=header.number, version=VERSION
        )
        write_lines(Path(f"{self._file}.metrics"), text.splitlines())

    def _write_picture(self) -> None:
        dot = self.run.dag.dot
        if dot is None:
            return
        path, number = Path(dot.file), 0
        while not dot.overwrite and path.exists():
            path, number = Path(f"{dot.file}.{number}"), number + 1
        include = Path(dot.include).read_text() if dot.include and Path(dot.include).exists() else ""
        write_lines(path, dot_lines(self.run, time.time(), include))


def _exit_of(ad: ClassAd, status: int) -> int:
    if status == 3:
        return JOB_REMOVED
    if ad.eval("ExitBySignal") is True:
        return -int(str(ad.eval("ExitSignal")))
    code = ad.eval("ExitCode")
    return code if isinstance(code, int) else 0


def _directory(node: Node) -> Path:
    return Path(node.directory).absolute()


def _key_of_script(script: RunScript) -> str:
    number = script.tries if script.when is not When.HOLD else time.time_ns()
    return f"{script.node}.{script.attempt}.{script.when}.{number}"


def _debug_files(script: Script, directory: Path, files: contextlib.ExitStack) -> dict[str, IO[bytes]]:
    if not script.debug_file:
        return {}
    file = files.enter_context((directory / script.debug_file).open("ab"))
    streams = ("stdout", "stderr") if script.debug_type == "ALL" else (script.debug_type.lower(),)
    return dict.fromkeys(streams, file)
