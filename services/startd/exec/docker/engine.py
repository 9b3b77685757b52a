"""The engine of Docker jobs (Docker or Podman), asked from threads; the only place that knows the SDK's errors.

One connection listens to the engine's events. Where it breaks, the engine is taken for lost until a probe has found it.
The engine tells its errors apart by their words only: `EngineErrorKind` is what they mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from threading import Thread
from typing import Any, TypeVar

from services.startd.exec.docker.connection import connect, ping
from services.startd.exec.docker.engines import EngineFacts, path_of, read_facts, read_podman_facts


class EngineErrorKind(Enum):
    NO_IMAGE = "the image is not here, or not to be had"
    TRANSIENT = "the registry is away: another attempt may go well"
    DISK_FULL = "there is no room on the engine's disk"
    EXISTS = "a container of this name is there"
    NO_PROGRAM = "the image has no such program"
    NO_VOLUME = "a directory to be mounted is not on this machine"
    NO_NETWORK = "the engine has no such network"
    OTHER = "whatever else"


_FULL = re.compile(r"no space left on device|disk quota exceeded|not enough space", re.IGNORECASE)
_TRANSIENT = re.compile(
    r"connection (refused|reset|timed out)|i/o timeout|TLS handshake timeout|deadline exceeded|unexpected EOF|\bEOF$"
    r"|no route to host|network is unreachable|temporary failure|server misbehaving|no such host|too ?many ?requests"
    r"|request canceled|unexpected HTTP status: 5\d\d|service unavailable|bad gateway|error reading from server",
    re.IGNORECASE,
)
_NO_PROGRAM = re.compile(
    r"executable file not found|exec format error"
    r"|exec: .*(no such file or directory|permission denied|is a directory)"
    r"|starting container process caused.*exec",
    re.IGNORECASE,
)
_NO_NETWORK = re.compile(r"network \S+ not found|(could not|unable to) find (a |the )?network", re.IGNORECASE)
_NO_VOLUME = re.compile(r"bind source path does not exist|making volume mountpoint for volume", re.IGNORECASE)
_EXISTS = re.compile(r"name .* is already in use", re.IGNORECASE)


def kind_of_create_error(status: int, text: str) -> EngineErrorKind:
    """What an error of `POST /containers/create` means."""
    if _FULL.search(text):
        return EngineErrorKind.DISK_FULL
    if status == 404 and "image" in text.lower():
        return EngineErrorKind.NO_IMAGE
    if status == 409 or _EXISTS.search(text):
        return EngineErrorKind.EXISTS
    if _NO_VOLUME.search(text):
        return EngineErrorKind.NO_VOLUME
    if _NO_NETWORK.search(text):
        return EngineErrorKind.NO_NETWORK
    if "invalid reference format" in text.lower():
        return EngineErrorKind.NO_IMAGE
    return EngineErrorKind.OTHER


def kind_of_start_error(status: int, text: str) -> EngineErrorKind:
    """What an error of `POST /containers/{id}/start` means."""
    if _FULL.search(text):
        return EngineErrorKind.DISK_FULL
    if _NO_PROGRAM.search(text):
        return EngineErrorKind.NO_PROGRAM
    if _NO_VOLUME.search(text):
        return EngineErrorKind.NO_VOLUME
    if _NO_NETWORK.search(text):
        return EngineErrorKind.NO_NETWORK
    return EngineErrorKind.OTHER


def kind_of_pull_error(status: int, text: str) -> EngineErrorKind:
    """What an error of a pull means: by the status of its answer, 0 for an error that came in the midst of it."""
    if _FULL.search(text):
        return EngineErrorKind.DISK_FULL
    if status in (429, 502, 503, 504) or _TRANSIENT.search(text):
        return EngineErrorKind.TRANSIENT
    return EngineErrorKind.NO_IMAGE


#: For ordinary requests to the engine, seconds.
REQUEST_S = 60
#: Images being pulled at a time: more would take turns at the same line.
PULLS = 8
#: What is listened to. `destroy` comes when somebody removes a container; those of images end what is known of them.
#: Podman has to be asked by its own names: it calls `die` what it was asked for as `died`, and `destroy` is `remove`.
EVENTS = {
    "type": ["container", "image"],
    "event": [
        *("start", "kill", "oom", "die", "died", "destroy", "remove"),
        *("delete", "untag", "tag", "pull", "load", "loadfromarchive", "import"),
    ],
}
#: The engine answers before it begins to note events for us: what happened in these seconds before, it tells as well.
BEFORE_S = 2
#: That many ends of its events in a row, less one a second, are the end of an engine.
ENDS = 4.0
#: How long (s) the engine may take to note that a container stands still, or goes on.
NOTED_S = 10.0
#: How Podman's init begins to say that it can not execute what it was given; it ends with 1 then.
PODMANS_INIT = b"ERROR (catatonit:"
#: An image without any file, for the test container: the engine's own init is all it runs.
TEST_IMAGE = "roost-probe:1"
TEST_COMMAND = ("/sbin/docker-init", "--version")

#: Of an answer to a ping, by Podman only.
PODMANS_HEADER = "libpod-api-version"

T = TypeVar("T")
Event = Mapping[str, Any]


class EngineAway(Exception):
    """The engine does not answer."""


class EngineRefused(Exception):
    """The engine answered, but not so: status of its answer (0: in the midst of one), and its words."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Engine:
    """find: gives addresses of engines, best first; the first that can be connected to is used from then on. on_event:
    called in the loop with every event; on_heard: with whether they are heard from now on, and if not, the reason. What
    happened before may have been missed."""

    def __init__(
        self,
        find: Callable[[], Sequence[str]],
        on_event: Callable[[Event], None],
        on_heard: Callable[[tuple[bool, str]], None],
    ) -> None:
        self.listening = False
        self.address = ""  # of the engine that is used; empty: none was found yet
        self.facts = EngineFacts()
        self._looked = False
        self._find = find
        self._on_event = on_event
        self._on_heard = on_heard
        self._client: Any = None
        self._threads = ThreadPoolExecutor(16, thread_name_prefix="docker")
        self._pulls = ThreadPoolExecutor(PULLS, thread_name_prefix="docker-pull")
        self._events: Any = None
        self._watching: Thread | None = None
        self._stopping = False

    # ---------------------------------------------------------------- requests

    async def ask(self, work: Callable[[Any], T], *, pulling: bool = False) -> T:
        """Do something with the SDK's low-level client. Raises EngineAway, Refused."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pulls if pulling else self._threads, self._do, work)

    def _choose(self) -> str:
        """The address of the engine. Raises EngineAway."""
        if self.address:
            path = path_of(self.address)
            if path and not os.path.exists(path):
                raise EngineAway(f"there is no socket {path}")
            return self.address
        trouble = []
        for address in self._find():
            path = path_of(address)
            if not path or os.access(path, os.W_OK, effective_ids=True):
                return address
            trouble.append(f"{path} may not be used by this account" if os.path.exists(path) else path)
        if len(trouble) == 1:
            raise EngineAway(f"there is no socket {trouble[0]}" if " " not in trouble[0] else trouble[0])
        raise EngineAway(f"there is no socket of an engine: {', '.join(trouble)}")

    def _do(self, work: Callable[[Any], T]) -> T:
        address = self._choose()
        import docker

        try:
            if self._client is None:
                self._client = connect(address, REQUEST_S)
                self.address = address
            return work(self._client.api)
        except docker.errors.APIError as error:
            raise EngineRefused(error.status_code or 500, _said(error)) from error
        except (docker.errors.DockerException, OSError) as error:
            raise EngineAway(f"{type(error).__name__}: {error}") from error

    async def look(self) -> EngineFacts:
        """What engine it is. Asked once, until its events end: then it may be another one. Raises EngineAway,
        Refused."""
        headers = await self.ask(ping)
        if not self._looked:
            self.facts = await self.ask(_look_at_podman if PODMANS_HEADER in headers else _look_at_docker)
            self._looked = True
        return self.facts

    def owner(self) -> int | None:
        """Whose the engine's socket is; none: it has none."""
        try:
            return os.stat(path_of(self.address)).st_uid
        except OSError:
            return None

    # ---------------------------------------------------------------- pulls

    async def pull(self, image: str, silence_s: float) -> None:
        """Have the engine fetch an image. Cancelling ends the pull. Raises EngineAway, Refused."""
        pull = _Pull(self.address, image, silence_s)
        try:
            await self.ask(lambda api: pull.run(), pulling=True)
        finally:
            pull.cancel()

    # ---------------------------------------------------------------- the test

    async def test(self, labels: Mapping[str, str], name: str) -> None:
        """Run a container, to the end. Raises EngineAway, Refused."""
        await self.ask(lambda api: _test(api, dict(labels), name))

    # ---------------------------------------------------------------- events

    def listen(self) -> None:
        """Begin to listen, unless that goes on."""
        if self._watching is None or not self._watching.is_alive():
            loop = asyncio.get_running_loop()
            self._watching = Thread(target=self._listen, args=(loop,), name="docker-events", daemon=True)
            self._watching.start()

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        import docker

        told, ends = 0, 0.0
        reason = "its events ended"
        try:
            # Podman ends them when it reads one that is half written. Those of an engine that is gone can not be begun.
            while not self._stopping and ends < ENDS:
                began = time.monotonic()
                told = self._hear(loop, told)
                ends = max(0.0, ends - (time.monotonic() - began)) + 1
        except EngineAway as error:
            reason = str(error)
        except (docker.errors.DockerException, OSError, ValueError, RuntimeError, AttributeError) as error:
            # AttributeError is what the SDK's stream raises when `close` closes it under our hands.
            reason = f"{type(error).__name__}: {error}"
        self.listening = self._looked = False
        if not self._stopping:
            _tell(loop, self._on_heard, (False, reason))

    def _hear(self, loop: asyncio.AbstractEventLoop, told: int) -> int:
        """Tell of events later than that, until no more come; the time (ns) of the last one."""
        with contextlib.closing(connect(self._choose(), None)) as client:
            self._events = client.events(decode=True, filters=EVENTS, since=int(time.time()) - BEFORE_S)
            # Closing the stream alone leaves its socket to the garbage collector.
            with contextlib.closing(self._events._response):
                self.listening = True
                _tell(loop, self._on_heard, (True, ""))
                after = told
                for event in self._events:
                    at = int(event.get("timeNano") or 0)
                    if not after or at > after:
                        told = max(told, at)
                        _tell(loop, self._on_event, event)
        return told

    async def close(self) -> None:
        self._stopping = True
        if self._client is not None:
            await asyncio.get_running_loop().run_in_executor(self._threads, self._hang_up)
        for threads in (self._threads, self._pulls):
            threads.shutdown(wait=False, cancel_futures=True)

    def _hang_up(self) -> None:
        if self._events is not None:
            with contextlib.suppress(OSError, AttributeError):  # it has ended by itself
                self._events.close()
        if self._watching is not None:
            self._watching.join(timeout=5)
        self._client.close()


def _look_at_docker(api: Any) -> EngineFacts:
    return read_facts(api.version(), api.info())


def _look_at_podman(api: Any) -> EngineFacts:
    """Its own interface tells more than Docker's, and all at once."""
    answer = api._get(f"{api.base_url}/v4.0.0/libpod/info")
    api._raise_for_status(answer)
    return read_podman_facts(answer.json())


def _tell(loop: asyncio.AbstractEventLoop, listener: Callable[[T], None], what: T) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody wants to hear it
        loop.call_soon_threadsafe(listener, what)


class _Pull:
    """One pull, in a thread. The engine ends it when its connection is closed."""

    def __init__(self, address: str, image: str, silence_s: float) -> None:
        self.address = address
        self.image = image
        self.silence_s = silence_s
        self._stream: Any = None
        self._cancelled = False

    def run(self) -> None:
        import docker

        repository, tag = repository_and_tag(self.image)
        with contextlib.closing(connect(self.address, self.silence_s)) as client:
            api = client.api
            registry, _ = docker.auth.resolve_repository_name(repository)
            credentials = docker.auth.get_config_header(api, registry)
            # The SDK's own `pull` gives no hold on its connection, so a pull could not be ended.
            response = api._post(
                api._url("/images/create"),
                params={"fromImage": repository, "tag": tag},
                headers={"X-Registry-Auth": credentials} if credentials else {},
                stream=True,
            )
            api._raise_for_status(response)
            self._stream = docker.types.CancellableStream(api._stream_helper(response, decode=True), response)
            with contextlib.closing(response):
                self._follow()

    def _follow(self) -> None:
        if self._cancelled:
            return
        try:
            for line in self._stream:
                if "error" in line:
                    detail = line.get("errorDetail") or {}
                    raise EngineRefused(int(detail.get("code") or 0), str(line["error"]))
        except AttributeError:  # see `_listen`
            if not self._cancelled:
                raise

    def cancel(self) -> None:
        self._cancelled = True
        if self._stream is not None:
            with contextlib.suppress(OSError, AttributeError, ValueError):
                self._stream.close()


def pause_or_unpause(api: Any, container: str, still: bool) -> None:
    """Have a container stand still, or go on. The engine answers before it has noted that, and refuses the opposite
    until then: a job that was to go on at once stood still for ever."""
    (api.pause if still else api.unpause)(container)
    end = time.monotonic() + NOTED_S
    while time.monotonic() < end:
        state = api.inspect_container(container)["State"]
        if not state.get("Running") or bool(state.get("Paused")) == still:
            return
        time.sleep(0.01)


def has_file(api: Any, container: str, path: str) -> bool:
    """Whether there is such a file in a container, also before it is started. Raises the SDK's errors."""
    answer = api.head(api._url("/containers/{0}/archive", container), params={"path": path}, timeout=REQUEST_S)
    if answer.status_code == 404:
        return False
    api._raise_for_status(answer)
    return True


def ready(api: Any, container: str) -> int:
    """Have Podman make a container's first process, which waits for the start; its number. Raises the SDK's errors."""
    api._raise_for_status(api._post(f"{api.base_url}/v4.0.0/libpod/containers/{container}/init"))
    return int(api.inspect_container(container)["State"]["Pid"] or 0)


def _test(api: Any, labels: dict[str, str], name: str) -> None:
    import docker

    try:
        api.inspect_image(TEST_IMAGE)
    except docker.errors.ImageNotFound:
        repository, tag = TEST_IMAGE.split(":")
        said = api.import_image_from_data(_empty_archive(), repository=repository, tag=tag)
        # Podman does not heed the tag.
        api.tag(json.loads(said.splitlines()[0])["status"], repository, tag)
    with contextlib.suppress(docker.errors.NotFound):
        api.remove_container(name, force=True, v=True)
    host = {"Init": True, "NetworkMode": "none", "CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"]}
    body = {"Image": TEST_IMAGE, "Cmd": list(TEST_COMMAND), "User": "65534:65534", "Labels": labels, "HostConfig": host}
    found = api.create_container_from_config(body, name)
    try:
        api.start(found["Id"])
        code = api.wait(found["Id"], timeout=REQUEST_S)["StatusCode"]
        # 126, 127, Podman's 1: this engine keeps its init elsewhere, but came as far as to look for it.
        if code not in (0, 126, 127) and not (code == 1 and api.logs(found["Id"]).startswith(PODMANS_INIT)):
            raise EngineRefused(500, f"the test container ended with {code}")
    finally:
        with contextlib.suppress(docker.errors.APIError):
            api.remove_container(found["Id"], force=True, v=True)


def _empty_archive() -> bytes:
    buffer = io.BytesIO()
    tarfile.open(fileobj=buffer, mode="w").close()
    return buffer.getvalue()


def _said(error: Exception) -> str:
    return str(getattr(error, "explanation", None) or error)


def repository_and_tag(image: str) -> tuple[str, str]:
    """Repository and tag or digest; `latest` when neither is given."""
    if "@" in image:
        repository, _, digest = image.partition("@")
        return repository, digest
    head, colon, tag = image.rpartition(":")
    if colon and "/" not in tag:
        return head, tag
    return image, "latest"
