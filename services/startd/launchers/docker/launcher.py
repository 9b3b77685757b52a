"""Jobs in Docker containers, through the engine's SDK; its blocking calls run in threads.

A container's name follows from the run's, so a restarted startd finds what it started. One thread listens to the
engine's events; where an event is missed, the container is looked at again every LOOK_S. What a container printed is
copied from the engine's log when it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from services.startd.launchers.api import Finished, Launch, LaunchFailed, Measured, Started
from services.startd.settings import Settings

#: A container whose end was not told is looked at this often, seconds.
LOOK_S = 10.0
#: For ordinary requests to the engine, seconds.
REQUEST_S = 60
#: The engine's own exit code for a process that was killed by signal 9.
KILLED = 137
HOLD_EXECUTE, HOLD_MEMORY, HOLD_IMAGE = 6, 34, 35
_NOBODY = 65534

T = TypeVar("T")


def container_name(run: str) -> str:
    return f"roost-{sha256(run.encode()).hexdigest()[:32]}"


class DockerLauncher:
    """`trouble`: why the engine can not be used, empty when it can."""

    def __init__(self, startd: str, settings: Settings, execute: Path) -> None:
        self.startd = startd
        self.settings = settings
        self.execute = execute
        self.trouble = "not asked yet"
        self._client: Any = None
        self._threads = ThreadPoolExecutor(16, thread_name_prefix="docker")
        self._runs: dict[str, asyncio.Event] = {}  # set when there may be something new about the run
        self._events: Any = None
        self._stopping = False
        self._peak_kib: dict[str, int] = {}
        self._limits_mib: dict[str, int] = {}
        self._outputs: dict[str, tuple[str, str]] = {}
        self._uneasy = asyncio.Event()
        self._watching: Thread | None = None
        self._strangers_removed = False

    # ---------------------------------------------------------------- the engine

    async def probe(self) -> str:
        """The engine's version as `docker -v` prints it; empty when none answers."""
        return await self._in_thread(self._probe)

    def _probe(self) -> str:
        host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
        if host.startswith("unix://") and not os.path.exists(host.removeprefix("unix://")):
            self.trouble = f"there is no socket {host.removeprefix('unix://')}"
            return ""
        import docker  # slow to import, and most machines of a test pool have no engine

        try:
            if self._client is None:
                self._client = docker.from_env(timeout=REQUEST_S)
            version: Mapping[str, Any] = self._client.version()
            if not self._strangers_removed:
                self._remove_strangers()
            self._watch()
        except (docker.errors.DockerException, OSError) as error:
            self.trouble = f"{type(error).__name__}: {error}"
            return ""
        self.trouble = ""
        return f"Docker version {version.get('Version', '?')}, build {version.get('GitCommit', '?')}"

    async def wait_for_trouble(self, timeout_s: float) -> None:
        """Return when the engine seems to have gone away, at the latest after timeout_s."""
        self._uneasy.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._uneasy.wait(), timeout_s)
            await asyncio.sleep(1.0)  # an engine that restarts is back in a moment

    def _watch(self) -> None:
        if self._watching is None or not self._watching.is_alive():
            loop = self._loop
            self._watching = Thread(target=self._listen, args=(loop,), name="docker-events", daemon=True)
            self._watching.start()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        import docker

        filters = {"label": f"roost.startd={self.startd}", "event": ["die", "oom"]}
        try:
            with contextlib.closing(docker.from_env(timeout=None)) as client:
                self._events = client.events(decode=True, filters=filters)
                # Closing the stream alone leaves its socket to the garbage collector.
                with contextlib.closing(self._events._response):
                    for event in self._events:
                        run = event.get("Actor", {}).get("Attributes", {}).get("roost.run", "")
                        loop.call_soon_threadsafe(self._wake, run)
        except (docker.errors.DockerException, OSError, ValueError, RuntimeError, AttributeError) as error:
            # AttributeError is what the SDK's stream raises when `stop` closes it under our hands.
            if not self._stopping:
                self.trouble = f"{type(error).__name__}: {error}"
        if not self._stopping:
            loop.call_soon_threadsafe(self._uneasy.set)

    def _wake(self, run: str) -> None:
        event = self._runs.get(run)
        if event is not None:
            event.set()

    def _remove_strangers(self) -> None:
        """Remove containers of an earlier life whose runs nobody knows any more."""
        for found in self._client.api.containers(all=True, filters={"label": f"roost.startd={self.startd}"}):
            if found.get("Labels", {}).get("roost.run", "") not in self._runs:
                self._client.api.remove_container(found["Id"], force=True, v=True)
        self._strangers_removed = True

    async def _in_thread(self, work: Callable[..., T], *args: Any) -> T:
        self._loop = asyncio.get_running_loop()
        return await self._loop.run_in_executor(self._threads, work, *args)

    # ---------------------------------------------------------------- runs

    async def adopt(self, runs: set[str]) -> None:
        """Runs of an earlier life, whose containers are to be looked for."""
        for run in runs:
            self._runs.setdefault(run, asyncio.Event())

    async def prepare(self, launch: Launch) -> None:
        if self._client is None and not await self.probe():
            raise LaunchFailed("failed", f"the Docker engine can not be used: {self.trouble}")
        await self._in_thread(self._have_image, launch.image)

    async def start(self, launch: Launch) -> Started:
        self._runs[launch.run] = asyncio.Event()
        self._limits_mib[launch.run] = launch.memory_mib
        try:
            return await self._in_thread(self._start, launch)
        except LaunchFailed:
            await self.forget(launch.run)
            raise

    def _start(self, launch: Launch) -> Started:
        from docker.errors import APIError, DockerException, NotFound

        try:
            name = self._create(launch)
            try:
                self._begin(name, launch)
            except NotFound as error:
                raise LaunchFailed("hold", f"the container does not start: {_said(error)}", HOLD_EXECUTE, 2) from error
            except APIError as error:
                if error.is_server_error() and "OCI runtime" not in _said(error):
                    raise
                raise LaunchFailed("hold", f"the container does not start: {_said(error)}", HOLD_EXECUTE) from error
            state = self._client.api.inspect_container(name)
        except APIError as error:
            raise LaunchFailed("failed", f"the Docker engine refuses: {_said(error)}") from error
        except (DockerException, OSError) as error:
            raise self._went_away(error) from error
        updates = {"ContainerID": state["Id"], "DockerImageID": state.get("Image", "")}
        return Started(state["State"].get("Pid", 0), _seconds(state["State"]["StartedAt"]), updates)

    def _have_image(self, image: str) -> None:
        from docker.errors import APIError, DockerException, ImageNotFound

        try:
            self._client.images.get(image)
            return
        except ImageNotFound:
            pass
        except APIError as error:
            raise LaunchFailed("hold", f"image {image} can not be had: {_said(error)}", HOLD_IMAGE) from error
        except (DockerException, OSError) as error:
            raise self._went_away(error) from error
        import docker

        with contextlib.closing(docker.from_env(timeout=self.settings.docker_pull_timeout)) as puller:
            try:
                repository, tag = _split(image)
                puller.images.pull(repository, tag=tag)
            except APIError as error:
                raise LaunchFailed("hold", f"image {image} can not be had: {_said(error)}", HOLD_IMAGE) from error
            except (DockerException, OSError) as error:
                raise self._went_away(error) from error

    def _went_away(self, error: Exception) -> LaunchFailed:
        self.trouble = f"{type(error).__name__}: {error}"
        self._loop.call_soon_threadsafe(self._uneasy.set)
        return LaunchFailed("failed", f"the Docker engine went away: {error}")

    def _create(self, launch: Launch) -> str:
        from docker.errors import APIError, ImageNotFound

        settings, api = self.settings, self._client.api
        outside = Path(settings.docker_host_execute or self.execute) / launch.scratch.name
        host_config = api.create_host_config(
            binds={str(outside): {"bind": str(launch.scratch), "mode": "rw"}},
            cap_drop=["ALL"] if settings.docker_drop_capabilities else None,
            security_opt=["no-new-privileges"] if settings.docker_drop_capabilities else None,
            mem_limit=f"{launch.memory_mib}m",
            memswap_limit=f"{launch.memory_mib}m",
            nano_cpus=int(launch.cpus * 1e9),
            cpu_shares=max(2, int(100 * launch.cpus)),
            network_mode=launch.network or None,
            init=True,
        )
        name = container_name(launch.run)
        user = settings.docker_user or self._user(launch.scratch)
        try:
            api.create_container(
                launch.image,
                command=list(launch.argv) or None,
                environment=dict(launch.env),
                working_dir=launch.cwd,
                user=user,
                name=name,
                labels={"roost.startd": self.startd, "roost.run": launch.run, **launch.labels},
                stdin_open=bool(launch.stdin),
                host_config=host_config,
            )
        except ImageNotFound as error:
            raise LaunchFailed("hold", f"image {launch.image} can not be had: {_said(error)}", HOLD_IMAGE) from error
        except APIError as error:
            if error.status_code == 409:  # made by a life that was killed before it could write that down
                return name
            raise
        return name

    def _user(self, scratch: Path) -> str:
        """Who runs in the container: this user, or nobody when that is root."""
        uid, gid = os.getuid(), os.getgid()
        if uid != 0:
            return f"{uid}:{gid}"
        for folder, folders, files in os.walk(scratch):
            for name in (*folders, *files):
                os.chown(os.path.join(folder, name), _NOBODY, _NOBODY, follow_symlinks=False)
        os.chown(scratch, _NOBODY, _NOBODY)
        return f"{_NOBODY}:{_NOBODY}"

    def _begin(self, name: str, launch: Launch) -> None:
        self._outputs[launch.run] = (launch.stdout, launch.stderr)
        if not launch.stdin:
            self._client.api.start(name)
            return
        try:
            source = open(launch.stdin, "rb")  # noqa: SIM115  the thread below closes it
        except OSError as error:
            raise LaunchFailed("hold", f"the input file can not be read: {error}", 8, error.errno or 0) from error
        attached = self._client.api.attach_socket(name, params={"stdin": 1, "stream": 1})
        self._client.api.start(name)
        Thread(target=_feed, args=(source, attached), name="docker-stdin", daemon=True).start()

    async def finished(self, run: str) -> Finished:
        while True:
            event = self._runs.get(run)
            if event is None:
                return Finished(0.0, 0.0, trouble="its container was removed")
            event.clear()
            end = await self._in_thread(self._look, run)
            if end is not None:
                return end
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), LOOK_S)

    def _look(self, run: str) -> Finished | None:
        """How the run ended; None while it goes on, or while the engine is away."""
        from docker.errors import DockerException, NotFound

        name = container_name(run)
        if self._client is None and not self._probe():
            return None
        try:
            found = self._client.api.inspect_container(name)
            state = found["State"]
            if state["Status"] == "created":
                return Finished(0.0, 0.0, trouble="its container was never started")
            if state["Status"] not in ("exited", "dead"):
                return None
            self._copy_logs(name, run, found)
            not_executed = self._init_failed(name, int(state["ExitCode"]))
        except NotFound:
            return Finished(0.0, 0.0, trouble="its container is gone")
        except (DockerException, OSError) as error:
            self.trouble = f"{type(error).__name__}: {error}"
            self._loop.call_soon_threadsafe(self._uneasy.set)
            return None
        code = int(state["ExitCode"])
        limit = int(found["HostConfig"].get("Memory", 0)) // 2**20 or self._limits_mib.get(run, 0)
        peak = -(-self._peak_kib.get(run, 0) // 1024)
        # The flag alone also says that some child was killed while the job went on and ended by itself.
        oom = bool(state.get("OOMKilled")) and code == KILLED
        hold = (0, 0, "")
        if oom:
            hold = (
                HOLD_MEMORY,
                102,
                f"the job used {max(peak, limit)} MiB of memory, its limit is {limit} MiB",
            )
        elif not_executed:
            hold = (HOLD_EXECUTE, 2, f"the executable can not be run in the container: {not_executed}")
        return Finished(
            at=_seconds(state["FinishedAt"]),
            started_at=_seconds(state["StartedAt"]),
            exit_code=code,
            max_rss_kib=max(self._peak_kib.get(run, 0), limit * 1024 if oom else 0),
            hold_code=hold[0],
            hold_subcode=hold[1],
            hold_message=hold[2],
        )

    def _init_failed(self, name: str, code: int) -> str:
        """What the container's init says when it could not execute the job; empty when it could."""
        if code not in (126, 127):
            return ""
        last = bytes(self._client.api.logs(name, stdout=False, stderr=True, tail=1)).decode("utf-8", "replace")
        return last.strip() if last.startswith("[FATAL tini") else ""

    def _copy_logs(self, name: str, run: str, found: Mapping[str, Any]) -> None:
        scratch = str(found["Config"].get("WorkingDir", ""))
        known = self._outputs.get(run)
        stdout, stderr = known or (f"{scratch}/_condor_stdout", f"{scratch}/_condor_stderr")
        both = stdout == stderr
        for path, streams in (
            (stdout, {"stdout": True, "stderr": both}),
            (stderr, {"stdout": False, "stderr": True}),
        ):
            if not path or (both and not streams["stdout"]):
                continue
            with open(path, "wb", opener=_no_link) as file:
                for chunk in self._client.api.logs(name, stream=True, follow=False, **streams):
                    file.write(chunk)

    def knows(self, run: str) -> bool:
        return run in self._runs

    async def signal(self, run: str, number: int) -> None:
        await self._in_thread(self._kill, run, number)

    async def kill(self, run: str) -> None:
        await self._in_thread(self._kill, run, 9)

    def _kill(self, run: str, number: int) -> None:
        from docker.errors import APIError, DockerException

        try:
            if self._client is not None:
                self._client.api.kill(container_name(run), number)
        except APIError:
            return  # it has ended meanwhile, or was never there
        except (DockerException, OSError) as error:
            self.trouble = f"{type(error).__name__}: {error}"

    async def suspend(self, run: str) -> None:
        await self._in_thread(self._pause, run, True)

    async def continue_(self, run: str) -> None:
        await self._in_thread(self._pause, run, False)

    def _pause(self, run: str, pause: bool) -> None:
        from docker.errors import APIError, DockerException

        try:
            if self._client is not None:
                (self._client.api.pause if pause else self._client.api.unpause)(container_name(run))
        except APIError:
            return  # it has ended meanwhile, or is so already
        except (DockerException, OSError) as error:
            self.trouble = f"{type(error).__name__}: {error}"

    async def measure(self, run: str) -> Measured:
        return await self._in_thread(self._measure, run)

    def _measure(self, run: str) -> Measured:
        from docker.errors import DockerException

        try:
            stats = self._client.api.stats(container_name(run), stream=False)
        except (DockerException, OSError, AttributeError):
            return Measured()
        cpu = stats.get("cpu_stats", {}).get("cpu_usage", {})
        memory = stats.get("memory_stats", {})
        inactive = memory.get("stats", {}).get("total_inactive_file", 0) or memory.get("stats", {}).get(
            "inactive_file", 0
        )
        used = max(0, int(memory.get("usage", 0)) - int(inactive)) // 1024
        self._peak_kib[run] = max(self._peak_kib.get(run, 0), used)
        return Measured(
            user_cpu_s=cpu.get("usage_in_usermode", 0) / 1e9,
            sys_cpu_s=cpu.get("usage_in_kernelmode", 0) / 1e9,
            image_size_kib=int(memory.get("usage", 0)) // 1024,
            resident_set_kib=used,
            procs=int(stats.get("pids_stats", {}).get("current", 0) or 0),
        )

    async def forget(self, run: str) -> None:
        self._runs.pop(run, None)
        self._limits_mib.pop(run, None)
        self._peak_kib.pop(run, None)
        self._outputs.pop(run, None)
        await self._in_thread(self._remove, run)

    def _remove(self, run: str) -> None:
        from docker.errors import DockerException, NotFound

        try:
            if self._client is not None:
                self._client.api.remove_container(container_name(run), force=True, v=True)
        except NotFound:
            return
        except (DockerException, OSError) as error:
            self.trouble = f"{type(error).__name__}: {error}"
            self._strangers_removed = False  # the next probe that succeeds removes it

    def _hang_up(self) -> None:
        if self._events is not None:
            with contextlib.suppress(OSError, AttributeError):  # it has ended by itself
                self._events.close()
        if self._watching is not None:
            self._watching.join(timeout=5)
        self._client.close()

    async def stop(self) -> None:
        self._stopping = True
        if self._client is not None:
            await self._in_thread(self._hang_up)
        self._threads.shutdown(wait=False, cancel_futures=True)


def _no_link(path: str, flags: int) -> int:
    # The job could have left a link there, to have the startd write where the job may not.
    return os.open(path, flags | os.O_NOFOLLOW, 0o644)


def _feed(source: Any, attached: Any) -> None:
    """Send a file to a container's standard input."""
    raw = getattr(attached, "_sock", attached)
    try:
        while chunk := source.read(1 << 16):
            raw.sendall(chunk)
        raw.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the job closed its input or ended
    finally:
        source.close()
        attached._response.close()
        raw.close()


def _split(image: str) -> tuple[str, str | None]:
    """Repository and tag or digest; `latest` when neither is given."""
    if "@" in image:
        repository, _, digest = image.partition("@")
        return repository, digest
    head, colon, tag = image.rpartition(":")
    if colon and "/" not in tag:
        return head, tag
    return image, "latest"


def _said(error: Exception) -> str:
    return str(getattr(error, "explanation", None) or error)


def _seconds(text: str) -> float:
    """Docker's timestamps have nanoseconds, Python's microseconds."""
    head, _, tail = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{head}.{(tail + '000000')[:6]}+00:00").timestamp()
