"""Jobs in containers of an engine that speaks Docker's interface: Docker's own, or Podman.

A container's name follows from the run's, so a restarted startd finds what it started. A warm start costs three
requests (create, attach, start) and an end none: the engine's events tell of it. Only where a container ended oddly, or
events were missed, it is looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from services.startd.core.run.failures import Fault, RunFailed
from services.startd.core.run.job_launch import Finished, Launch, Measured, Started
from services.startd.exec.api import LOOPBACK, Launcher, LauncherHost, LauncherKind
from services.startd.exec.docker import container_run, usage
from services.startd.exec.docker.container_run import ContainerRun, ExitReader, container_name
from services.startd.exec.docker.credentials import credentials_inside, credentials_outside
from services.startd.exec.docker.engine import (
    Engine,
    EngineAway,
    EngineErrorKind,
    EngineRefused,
    Event,
    has_file,
    kind_of_create_error,
    kind_of_start_error,
    pause_or_unpause,
    ready,
)
from services.startd.exec.docker.engine_health import EngineHealth
from services.startd.exec.docker.engines import container_user, path_of
from services.startd.exec.docker.granted import give, own_limits, put_limits, read_profiles
from services.startd.exec.docker.image_cache import EngineFull, ImageCache
from services.startd.exec.docker.orphan_watcher import OrphanWatcher
from services.startd.exec.docker.plan import (
    COMMON_NETWORKS,
    RUN_LABEL,
    STARTD_LABEL,
    BadRequest,
    ContainerPlan,
    DockerSettings,
    choose_docker,
    gateway_of,
    host_ports,
    make_plan,
    network_mode,
    read_docker_settings,
)
from services.startd.exec.docker.session import DockerSession
from services.startd.exec.docker.streams import Outputs, Streams
from services.startd.exec.job_session import JobSession
from services.startd.exec.process_tree import measure_tree
from services.startd.forkserver import processes
from shared.classad import ClassAd
from shared.messages.visits import Wish

#: A container is looked at this often though no event tells of an end, seconds; where events are not heard.
LOOK_S, LOOK_DEAF_S = 60.0, 10.0
#: And so long after its output ended, seconds; twice as long after each look at one that goes on without.
SILENT_S = 1.0
#: Between attempts to remove a container, seconds.
REMOVE_AGAIN_S = (0.5, 2.0, 5.0)
#: So long the address of a network's gateway is believed, seconds.
GATEWAY_S = 300.0
#: Labels that tell a later life where the output goes.
_OUT_LABEL, _ERR_LABEL = "roost.stdout", "roost.stderr"


class DockerLauncher(Launcher):
    processes_are = "of-an-engine"
    sampled_from_s = 0.25

    def __init__(self, host: LauncherHost) -> None:
        self.host = host
        self.startd = f"{host.startd}-{host.identity}"
        self.rules = self._settings()
        rules, execute = self.rules, host.context.execute
        self.execute = execute
        self._gateways: dict[str, tuple[str, float]] = {}  # by network: its address, and until when that is believed
        self._watcher = OrphanWatcher(self.startd, host.folder, host.orphan_s)
        self._engine = Engine(lambda: self._health.addresses(), self._on_event, self._on_heard)
        self._health = EngineHealth(host, self.startd, self._engine, lambda: self.rules, self._remove_strangers)
        self._exits = ExitReader(self._engine)
        self._runs: dict[str, ContainerRun] = {}
        self._plans: dict[str, ContainerPlan] = {}
        self._images = ImageCache(self._engine, host.journal, host.journal.journal.load("images"), self._images_in_use)
        self._images.adopt(size=rules.cached_images, pull_silence_s=rules.pull_silence)
        self._files = ThreadPoolExecutor(4, thread_name_prefix="docker-files")
        self._tasks: set[asyncio.Task[None]] = set()

    # ---------------------------------------------------------------- the engine

    def _settings(self) -> DockerSettings:
        found = self.host.settings("docker")
        assert isinstance(found, DockerSettings)
        return found

    def reread(self) -> None:
        self.rules = self._settings()
        self._images.adopt(size=self.rules.cached_images, pull_silence_s=self.rules.pull_silence)
        self._health.look_again()

    def attributes(self, jobs: Sequence[ClassAd]) -> Mapping[str, object]:
        return self._health.attributes()

    async def watch(self) -> None:
        """The engine is probed at the start, regularly, and when one that does not work is to be tried again."""
        await self._health.watch()

    def _on_heard(self, news: tuple[bool, str]) -> None:
        """Events are heard from now on, or no more: what ended meanwhile is looked at."""
        listening, why = news
        self._images.changed()
        if not listening:
            self._health.broke(why)
        for run in self._runs.values():
            run.fresh = False
            run.missed |= not listening
            run.changed.set()

    def _on_event(self, event: Event) -> None:
        if event.get("Type") == "image":
            self._images.changed()
            return
        actor = event.get("Actor") or {}
        attributes = actor.get("Attributes") or {}
        run = self._runs.get(attributes.get(RUN_LABEL, ""))
        if run is None or attributes.get(STARTD_LABEL) != self.startd:
            return
        run.container = run.container or str(actor.get("ID", ""))
        if run.container != actor.get("ID"):
            return
        at = int(event.get("timeNano") or 0) / 1e9
        match event.get("Action"):
            case "start":
                run.started_at = at
            case "kill":
                container_run.note_signal(run.events, str(attributes.get("signal", "")))
            case "oom":
                run.events.out_of_memory = True
            case "die" | "died":
                run.events.witnessed = True
                code = str(attributes.get("exitCode", ""))
                if code.isdigit():
                    run.died = container_run.ContainerState(int(code), run.started_at, at)
                run.changed.set()
            case "destroy" | "remove":
                run.changed.set()

    def _remove_strangers(self, api: Any) -> None:
        """Remove containers of an earlier life whose runs nobody knows any more."""
        for found in _ours(api, self.startd):
            if found.get("Labels", {}).get(RUN_LABEL, "") not in self._runs:
                api.remove_container(found["Id"], force=True, v=True)

    # ---------------------------------------------------------------- before the start

    async def adopt(self, runs: set[str]) -> None:
        """Runs of an earlier life. One that has no container was never started, and is begun anew; where the engine
        is away, all are taken for under way."""
        if not runs:
            return
        await self._watch()
        try:
            await self._engine.look()
            found = await self._engine.ask(lambda api: _ours(api, self.startd))
            self._engine.listen()
            there = {one.get("Labels", {}).get(RUN_LABEL, ""): one for one in found}
            runs = {run for run in runs if run in there and there[run].get("State") != "created"}
        except (EngineAway, EngineRefused) as error:
            self._health.broke(str(error))
            there = {}
        for name in runs:
            one = there.get(name, {})
            labels = one.get("Labels", {})
            outputs = (labels.get(_OUT_LABEL, ""), labels.get(_ERR_LABEL, ""))
            self._runs.setdefault(name, ContainerRun(one.get("Id", ""), one.get("Image", ""), outputs))

    async def _watch(self) -> None:
        with contextlib.suppress(OSError):  # no process to be had: the next startd clears up, if one comes
            await asyncio.to_thread(self._watcher.watch, self._engine.address or self._health.addresses()[0])

    def _user(self, launch: Launch) -> tuple[str, list[str]]:
        engine = self._engine
        return container_user(engine.facts, os.getuid(), os.getgid(), engine.owner(), self.rules.user, launch.account)

    def reader(self, launch: Launch) -> tuple[int, int] | None:
        if self._engine.facts.rootless and os.getuid() != 0:
            return None  # root inside is this account
        uid, _, gid = self._user(launch)[0].partition(":")
        if not uid.isdigit() or not gid.isdigit():
            raise Fault.NO_CREDENTIALS.failure(
                f"credentials are delivered to a container's user by its number: ROOST_DOCKER_USER = {self.rules.user} "
                "is no uid:gid"
            )
        return int(uid), int(gid)

    async def reaches(self, launch: Launch) -> str:
        """A container with a network of its own finds this machine at the gateway of it, where the engine is on this
        machine: elsewhere nobody can listen there."""
        try:
            network = network_mode(self.rules, launch.network) or "bridge"
        except BadRequest:
            return ""  # which the plan tells
        if network in COMMON_NETWORKS:
            return LOOPBACK if network == "host" else ""
        known, until = self._gateways.get(network, ("", 0.0))
        if time.monotonic() < until:
            return known
        try:
            found = gateway_of(await self._engine.ask(lambda api: api.inspect_network(network)))
        except (EngineAway, EngineRefused):
            found = ""
        self._gateways[network] = (found, time.monotonic() + GATEWAY_S)
        return found

    async def prepare(self, launch: Launch) -> None:
        await self._health.check()
        plan = await self._plan(launch)
        image_id = await self._have_image(launch.image, plan.pull)
        self._plans[launch.run] = replace(plan, image_id=image_id)

    async def _plan(self, launch: Launch) -> ContainerPlan:
        outside = launch.scratch
        if outside.parent == self.execute:
            outside = Path(self.rules.execute_on_host or self.execute) / launch.scratch.name
        engine = self._engine
        user, groups = self._user(launch)
        try:
            plan = make_plan(
                launch, self.rules, self.startd, str(outside), user, groups, facts=engine.facts, limits=own_limits()
            )
        except BadRequest as error:
            raise Fault.NO_SUCH_REQUEST.failure(str(error)) from error
        plan.body["Labels"] |= {_OUT_LABEL: launch.stdout, _ERR_LABEL: launch.stderr}
        try:
            await asyncio.to_thread(read_profiles, plan.body["HostConfig"])
        except OSError as error:
            raise Fault.VOLUME_MISSING.failure(f"DOCKER_EXTRA_ARGUMENTS: {error}") from error
        if engine.facts.podman and not self.rules.execute_on_host:
            # Podman makes a directory that is not there.
            for mount in plan.body["HostConfig"]["Mounts"]:
                if mount["Type"] == "bind" and not await asyncio.to_thread(os.path.exists, mount["Source"]):
                    message = f"the container can not be made: there is no directory {mount['Source']}"
                    self._health.broke(message)
                    raise Fault.VOLUME_MISSING.failure(message)
        return plan

    async def _have_image(self, image: str, policy: str) -> str:
        """Its id. Raises RunFailed."""
        try:
            return await self._images.have(image, policy)
        except EngineAway as error:
            raise self._health.away(error) from error
        except EngineFull as error:
            raise self._health.full(str(error)) from error

    def _images_in_use(self) -> set[str]:
        waiting = {str(plan.body["Image"]) for plan in self._plans.values()}
        return waiting | {run.image for run in self._runs.values() if run.image}

    # ---------------------------------------------------------------- the start

    async def start(self, launch: Launch) -> Started:
        plan = self._plans.pop(launch.run, None) or await self._plan(launch)
        run = ContainerRun(
            image=launch.image,
            outputs=(launch.stdout, launch.stderr),
            append=launch.append,
            own_network=plan.body["HostConfig"].get("NetworkMode") != "host",
            fresh=self._engine.listening,
        )
        run.events.limit_mib = launch.memory_mib
        self._runs[launch.run] = run
        try:
            await self._watch()
            if launch.lease_s is not None:
                self.lease({launch.run: launch.lease_s})
            await asyncio.to_thread(give, launch.scratch, str(plan.body.get("User", "")))
            await self._start(launch, run, plan)
        except EngineAway as error:
            await self.forget(launch.run)
            raise self._health.away(error) from error
        except RunFailed:
            await self.forget(launch.run)
            raise
        self._images.used(launch.image)
        updates: dict[str, object] = {"ContainerID": run.container}
        if plan.image_id:
            updates["DockerImageID"] = plan.image_id
        if plan.services:
            updates |= await self._services(run, plan)
        pid = await asyncio.to_thread(usage.main_pid, run.container)
        return Started(pid, run.started_at or time.time(), updates)

    async def _start(self, launch: Launch, run: ContainerRun, plan: ContainerPlan) -> None:
        name = container_name(launch.run)
        await self._create(name, launch, run, plan)
        if (inside := credentials_inside(plan.body)) and (outside := credentials_outside(launch)).is_dir():
            await self._look_for_credentials(outside, inside, run)
        run.streams = await self._attach(launch, run)
        if run.streams is not None:
            loop, changed = asyncio.get_running_loop(), run.changed
            run.streams.at_end(lambda: loop.call_later(SILENT_S, changed.set))
        try:
            if plan.rlimits:
                await self._limit(run, plan.rlimits)
            await self._engine.ask(lambda api: api.start(run.container))
        except EngineRefused as error:
            kind = kind_of_start_error(error.status, error.message)
            message = f"the container does not start: {error}"
            if kind is EngineErrorKind.NO_PROGRAM:
                raise Fault.NO_PROGRAM_IN_IMAGE.failure(message) from error
            raise await self._health.judge(kind, error, message, launch.network) from error
        except EngineAway as error:
            # It may have started: who asks when the engine is back learns whether it has. To give it up now would have
            # the job run twice.
            run.fresh = False
            self._health.broke(str(error))
        else:
            self._health.proved()
            if run.events.bad_output:  # so soon that there was no container to kill
                self._background(self.kill(launch.run))

    async def _look_for_credentials(self, outside: Path, inside: str, run: ContainerRun) -> None:
        """Whether the container will have them: an engine in another mount namespace does not see what this process
        mounts. Raises RunFailed, EngineAway."""
        names = [name for name in await asyncio.to_thread(os.listdir, outside) if not name.startswith(".")]
        try:
            seen = await self._engine.ask(lambda api: all(has_file(api, run.container, f"{inside}/{n}") for n in names))
        except EngineRefused as error:
            raise await self._health.judge(
                EngineErrorKind.OTHER, error, f"the container's files: {error}", ""
            ) from error
        if not seen:
            raise Fault.NO_CREDENTIALS.failure(
                "credentials can not be delivered into the container: the engine does not see the file system in "
                "memory that this startd has for them, as one of them is in a container or in a mount namespace. "
                "ROOST_CREDENTIALS_DIR names a directory in memory that both see, and ROOST_CREDENTIALS_ON_DISK = True "
                "has them in the job's directory instead"
            )

    async def _limit(self, run: ContainerRun, rlimits: Mapping[str, int]) -> None:
        """Put limits on the process that is to become the job, which waits for that, where the engine puts none. Raises
        EngineAway, Refused, RunFailed."""
        try:
            await asyncio.to_thread(put_limits, await self._engine.ask(lambda api: ready(api, run.container)), rlimits)
        except (OSError, ValueError) as error:
            message = f"the job's number of processes can not be limited: {error}"
            self._health.broke(message)
            raise Fault.ENGINE_AWAY.failure(message) from error

    async def _create(self, name: str, launch: Launch, run: ContainerRun, plan: ContainerPlan) -> None:
        """Mends what can be mended, once each."""
        mended: set[EngineErrorKind] = set()
        while True:
            try:
                found = await self._engine.ask(lambda api: api.create_container_from_config(plan.body, name))
                run.container = str(found["Id"])
                return
            except EngineRefused as error:
                kind = kind_of_create_error(error.status, error.message)
                first = kind not in mended
                mended.add(kind)
                if kind is EngineErrorKind.NO_IMAGE and first:  # somebody removed it meanwhile
                    self._images.changed()
                    await self._have_image(launch.image, plan.pull)
                elif (
                    kind is EngineErrorKind.EXISTS and first
                ):  # of a life that was killed before it could write that down
                    await self._remove(name)
                elif kind is EngineErrorKind.DISK_FULL and first:
                    await self._images.make_room(all_of_them=True)
                elif kind is EngineErrorKind.NO_IMAGE:
                    raise Fault.NO_IMAGE.failure(f"image {launch.image} can not be had: {error}") from error
                else:
                    message = f"the container can not be made: {error}"
                    raise await self._health.judge(kind, error, message, launch.network) from error

    async def _attach(self, launch: Launch, run: ContainerRun) -> Streams | None:
        """Connect files to the container's streams, where the engine's connection can be shared with the loop."""
        wanted = [name for name, path in zip(("stdin", "stdout", "stderr"), _paths(launch), strict=True) if path]
        if not wanted:
            return None
        source: int | None = None
        try:
            source = os.open(launch.stdin, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK) if launch.stdin else None
        except OSError as error:
            raise Fault.NO_INPUT_FILE.failure(f"the input file can not be read: {error}", error.errno or 0) from error
        try:
            outputs = await asyncio.to_thread(Outputs, launch.stdout, launch.stderr, launch.append)
        except OSError as error:
            _close(source)
            message = f"the output file can not be written: {error}"
            raise Fault.NO_OUTPUT_FILE.failure(message, error.errno or 0) from error
        try:
            params = {"stream": 1, **dict.fromkeys(wanted, 1)}
            attached = await self._engine.ask(lambda api: api.attach_socket(run.container, params=params))
        except (EngineAway, EngineRefused) as error:
            _close(source)
            outputs.close()
            if isinstance(error, EngineAway):
                raise
            raise await self._health.judge(
                EngineErrorKind.OTHER, error, f"the container has no streams: {error}", ""
            ) from error
        if isinstance(getattr(attached, "_sock", attached), ssl.SSLSocket):
            _close(source)
            outputs.close()
            attached.close()
            if launch.stdin:
                message = "standard input needs a Docker engine on a Unix socket, and this one is asked by TLS"
                raise Fault.NO_INPUT_FILE.failure(message)
            return None  # the output is copied from the log
        return Streams(attached, outputs, source, self._files, lambda error: self._bad_output(launch.run, error))

    def _bad_output(self, name: str, error: OSError) -> None:
        run = self._runs.get(name)
        if run is not None:
            run.note_output(error)
            self._background(self.kill(name))

    def _background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="docker")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _services(self, run: ContainerRun, plan: ContainerPlan) -> dict[str, object]:
        try:
            found = await self._engine.ask(lambda api: api.inspect_container(run.container))
        except (EngineAway, EngineRefused):
            return {}
        return dict(host_ports(plan, found.get("NetworkSettings", {}).get("Ports") or {}))

    # ---------------------------------------------------------------- the end

    async def open_session(self, user: str, key: str, run: str, wish: Wish) -> JobSession:
        session = DockerSession(user, key, self._engine, container_name(run))
        await session.start(wish)
        return session

    async def finished(self, run: str) -> Finished:
        silent = SILENT_S
        while True:
            known = self._runs.get(run)
            if known is None:
                return Finished(0.0, 0.0).lost(Fault.CONTAINER_LOST, "its container was removed")
            known.changed.clear()
            try:
                end = await self._exits.of(run, known)
            except EngineAway as error:
                self._health.broke(str(error))
                end = None
            if end is not None:
                return end
            pause = LOOK_S if self._engine.listening else LOOK_DEAF_S
            if known.streams is not None and known.streams.ended:
                pause = min(pause, silent)
                silent *= 2
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await known.changed.wait()

    # ---------------------------------------------------------------- meanwhile

    def knows(self, run: str) -> bool:
        return run in self._runs

    async def signal(self, run: str, number: int) -> None:
        await self._quietly(run, lambda api, where: api.kill(where, number), number)

    async def kill(self, run: str) -> None:
        await self._quietly(run, lambda api, where: api.kill(where, 9), 9)

    def lease(self, runs: Mapping[str, float]) -> None:
        try:
            self._watcher.lease(runs, self._runs)
        except OSError as error:  # then they end by this startd, or with all of its containers
            self.host.context.log.warning("docker_leases_not_written", reason=str(error))

    async def suspend(self, run: str) -> None:
        await self._stand_still(run, True)

    async def continue_(self, run: str) -> None:
        await self._stand_still(run, False)

    async def _stand_still(self, run: str, still: bool) -> None:
        if self._engine.facts.limits("processes"):
            await self._quietly(run, lambda api, where: pause_or_unpause(api, where, still))
        elif (known := self._runs.get(run)) is not None and (pid := await self._first_process(known)):
            # No control group, so nothing that the engine could freeze: the account's own processes, one by one.
            await asyncio.to_thread(processes.signal_tree, pid, signal.SIGSTOP if still else signal.SIGCONT)

    async def _quietly(self, run: str, work: Callable[[Any, str], object], number: int = 0) -> None:
        """Nothing happens when it has ended meanwhile, is so already, or was never there."""
        known = self._runs.get(run)
        if known is None:
            return
        if number:
            known.events.ours.add(number)
            known.events.sent += 1
        where = known.container or container_name(run)
        try:
            await self._engine.ask(lambda api: work(api, where))
        except EngineRefused:
            known.events.sent -= number > 0
        except EngineAway as error:
            self._health.broke(str(error))

    async def measure(self, run: str) -> Measured:
        known = self._runs.get(run)
        if known is None or not known.container:
            return Measured()
        measured = await asyncio.to_thread(usage.from_files, known.container, known.own_network)
        if measured is None and not self._engine.facts.limits("memory"):
            # An engine without control groups would tell of the whole machine.
            pid = await self._first_process(known)
            measured = await asyncio.to_thread(measure_tree, pid) if pid else Measured()
        if measured is None:
            try:
                stats = await self._engine.ask(lambda api: api.stats(known.container, stream=False, one_shot=True))
            except (EngineAway, EngineRefused):
                return Measured()
            measured = usage.from_statistics(stats)
        events = known.events
        events.peak_kib = max(events.peak_kib, measured.resident_set_kib, measured.resident_peak_kib)
        events.user_cpu_s = max(events.user_cpu_s, measured.user_cpu_s)
        events.sys_cpu_s = max(events.sys_cpu_s, measured.sys_cpu_s)
        events.updates |= measured.attributes
        return measured

    async def _first_process(self, known: ContainerRun) -> int:
        """As this machine knows it, where the engine is one of it; 0: it has ended, or nobody knows."""
        if not known.pid and path_of(self._engine.address) and not self.rules.execute_on_host:
            with contextlib.suppress(EngineAway, EngineRefused):
                found = await self._engine.ask(lambda api: api.inspect_container(known.container))
                known.pid = int(found["State"].get("Pid") or 0)
        return known.pid

    async def forget(self, run: str) -> None:
        known = self._runs.pop(run, None)
        self._plans.pop(run, None)
        if known is not None and known.streams is not None:
            await known.streams.close()
        await self._remove(known.container if known is not None and known.container else container_name(run))
        await self._images.make_room()

    async def _remove(self, where: str) -> None:
        """An engine under load may need several attempts to let go of a container's files."""
        for delay in (*REMOVE_AGAIN_S, None):
            try:
                await self._engine.ask(lambda api: api.remove_container(where, force=True, v=True))
                return
            except EngineRefused as error:
                if error.status in (404, 409):  # it is gone, or somebody else removes it at this moment
                    return
            except EngineAway:
                break
            if delay is not None:
                await asyncio.sleep(delay)
        self._health.strangers_left = True  # the next probe that succeeds removes it

    async def stop(self) -> None:
        for run in self._runs.values():
            if run.streams is not None:
                await run.streams.close()
        for task in list(self._tasks):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._images.close()
        self._watcher.close()
        await self._engine.close()
        self._files.shutdown(wait=False, cancel_futures=True)


def _ours(api: Any, startd: str) -> list[dict[str, Any]]:
    return list(api.containers(all=True, filters={"label": f"{STARTD_LABEL}={startd}"}))


def _paths(launch: Launch) -> tuple[str, str, str]:
    return launch.stdin, launch.stdout, launch.stderr


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)


DOCKER = LauncherKind(
    name="docker",
    make=DockerLauncher,
    choose=choose_docker,
    read_settings=read_docker_settings,
    absent={"HasDocker": False},
)
