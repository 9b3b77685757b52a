"""Fixtures that every suite may use. docs/testing.md is the guide to them."""

import asyncio
import contextlib
import gc
import inspect
import logging
import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from shared.call_stack import in_one_piece
from tests import locked, made_up, reports, spec, warm
from tests.garbage import Collections
from tests.servers import Rabbit, Redis, Server, ServerError

if TYPE_CHECKING:
    from tests.containers.apptainer import Apptainer
    from tests.containers.engine import Engine
    from tests.containers.pool import ComposePool

NEEDS = {
    "servers": ("rabbit_server", "redis_server"),
    "docker": ("docker_engine", "compose_pool"),
    "podman": (),  # by its marker
    "apptainer": ("apptainer",),
    "reference": ("reference",),
    "clients": ("clients",),
    "mounts": ("small_disk",),
    "browser": ("chromium",),
    "prometheus": ("promtool", "prometheus_program"),
    "shells": (),  # by its marker
    "vms": ("qemu",),
    "ha": (),  # by its marker
    "kubernetes": (),
    "dear": (),  # by its marker
}
# Daemons that tests start as processes need not measure this machine: what shares it for that second must wait. One
# in a container does, and those of test_startd_benchmarks.py.
os.environ.setdefault("_CONDOR_RUNBENCHMARKS", "false")
# Daemons check after every operation that what they hold agrees with itself, and fail if it does not.
os.environ.setdefault("ROOST_STRICT_INVARIANTS", "1")
warm.use()
# Nothing of what is read to find the tests is garbage before pytest_collection_finish.
gc.disable()
COLLECTIONS = Collections()
# Whoever begins the suite in the background of a shell has it, and all that it starts, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
made_up.set_up()
# Making the images, when nobody has made them before, takes longer than a test may.
DOCKER_TIMEOUT_S = 600
COMPOSE = pytest.StashKey[contextlib.ExitStack]()
COMPOSE_DONE = pytest.StashKey[set[pytest.Item]]()
UNITS = "tests/unit/"  # as ids begin
# A task that will not be cancelled must not keep the suite waiting as well.
UNWILLING_S = 5.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--without",
        action="append",
        default=[],
        choices=sorted(NEEDS),
        help="leave out the tests that need real servers, a Docker engine, Apptainer, the reference "
        "implementation, clients of its modules, mounts, a browser, Prometheus, zsh and fish, QEMU, Podman and "
        "rootless engines, or cost most; without this flag they fail where it is missing (may be given several times)",
    )
    parser.addoption(
        "--spec",
        action="append",
        default=[],
        metavar="ROW",
        help="run only the tests that hold these rows of docs/spec: NEG-21, or NEG for a whole group "
        "(with commas between them, and several times)",
    )
    parser.addoption("--browser-slots", default=20_000, type=int, help="slots of the made-up pool of tests/browser")
    parser.addoption(
        "--browser-pictures", action="store_true", help="keep what tests/browser sees in test-artifacts/browser"
    )


def pytest_configure(config: pytest.Config) -> None:
    made_up.choose(config.getoption("--hypothesis-profile", ""))
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        warm.share()


def pytest_unconfigure(config: pytest.Config) -> None:
    """What was left out for its cost is told last."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", ()) if reporter else ()
    if dear := sum("--without dear" in str(report.longrepr) for report in skipped):
        reporter.write_line(f"{dear} dear tests left out, whose promises others hold: bin/test --dear runs them too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Whoever uses a server's fixture carries its marker, and is skipped where the user said so."""
    _choose_rows(config, items)
    without = config.getoption("--without")
    profile = config.getoption("--hypothesis-profile", "") or ""
    groups = []
    for item in items:
        made_up.fit(getattr(item, "obj", None), profile)
        used = set(getattr(item, "fixturenames", ()))
        marked = {mark.name for mark in item.iter_markers()}  # looked for once: there are many tests
        for name, fixtures in NEEDS.items():
            if name not in marked and not used.isdisjoint(fixtures):
                item.add_marker(name)
                marked.add(name)
            if name in without and name in marked:
                item.add_marker(pytest.mark.skip(reason=f"--without {name}"))
        if not marked.isdisjoint(("docker", "apptainer")) and "timeout" not in marked:
            item.add_marker(pytest.mark.timeout(DOCKER_TIMEOUT_S))
        if "compose_pool" in used:
            item.add_marker(pytest.mark.xdist_group("compose"))
            marked.add("xdist_group")
        elif "xdist_group" not in marked and _shares(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
            marked.add("xdist_group")
        groups.append(_group(item) if "xdist_group" in marked else "")
        _name_group(config, item, groups[-1])
    # Tests of whole pools wait as much as they work: last come those that only work, which fill what is left. What one
    # worker has to run alone comes first, the longest of it before the rest.
    sizes = Counter(filter(None, groups))
    places = [(item.nodeid.startswith(UNITS), -sizes[group]) for item, group in zip(items, groups, strict=True)]
    items[:] = [items[number] for number in sorted(range(len(items)), key=places.__getitem__)]


def pytest_collection_finish() -> None:
    """What was read to find the tests stays to the end, so no collection of garbage looks at it again."""
    COLLECTIONS.begin()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    COLLECTIONS.between_tests()
    # Both log a traceback for every connection that a test cuts. Not a fixture: that would be dearer than many a test.
    for name in ("aiormq", "aio_pika"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """pytest's own, with the stack of calls that a daemon has: what tests measure is so dear as it is there."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    in_one_piece(reports.run, item, nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    if config.getoption("dist") != "loadgroup":
        return None
    from tests.scheduling import Scheduling  # not where pytest-xdist is left out

    return Scheduling(config, log)


def _configuration() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in ("ROOST_CONFIG", "CONDOR_CONFIG")}


CONFIGURATION = _configuration()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Take the compose pool down after the last test that uses it: it works as long as it is there, for nobody. And see
    that the next test's pools read their own files."""
    _take_down_compose(item)
    if (left := _configuration()) != CONFIGURATION:
        for name, path in CONFIGURATION.items():
            os.environ.pop(name, None)
            if path is not None:
                os.environ[name] = path
        pytest.fail(f"the test left {left} in the environment, for all later tests of this process", pytrace=False)


def _take_down_compose(item: pytest.Item) -> None:
    if "compose_pool" not in getattr(item, "fixturenames", ()):
        return
    done = item.config.stash.setdefault(COMPOSE_DONE, set())
    done.add(item)
    if COMPOSE in item.config.stash and done.issuperset(
        other for other in item.session.items if "compose_pool" in getattr(other, "fixturenames", ())
    ):
        item.config.stash[COMPOSE].close()


def _choose_rows(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the rows that tests are marked with, and leave those only that `--spec` asks for."""
    for item in items:
        if wrong := spec.unknown(spec.held_by(item)):
            raise pytest.UsageError(f"{item.nodeid}: docs/spec has no row {', '.join(wrong)}")
    if not config.getoption("--spec"):
        return
    try:
        rows = spec.wanted(config.getoption("--spec"))
    except ValueError as wrong_row:
        raise pytest.UsageError(str(wrong_row)) from None
    config.hook.pytest_deselected(items=[item for item in items if not rows & spec.held_by(item)])
    items[:] = [item for item in items if rows & spec.held_by(item)]


def _shares(item: pytest.Item) -> bool:
    """Whether it uses a fixture of its module's: a pool, often, which each worker that gets one of the module's tests
    would start for itself."""
    info = getattr(item, "_fixtureinfo", None)
    return info is not None and any(
        found[-1].scope in ("module", "package") for found in info.name2fixturedefs.values() if found
    )


def _name_group(config: pytest.Config, item: pytest.Item, group: str) -> None:
    """Say the group in the id, by which pytest-xdist keeps a group in one worker. Its own way, up to 3.8, sets an
    attribute that pytest 9.2 does not read: then every worker makes its own of what a group shares."""
    if getattr(config.option, "loadgroup", False) and group and "@" not in item.nodeid.rpartition("]")[2]:
        item._id = type(item._id).parse(f"{item.nodeid}@{group}")


def _group(item: pytest.Item) -> str:
    """Name of what keeps it with others in one worker; empty: nothing."""
    return "_".join(sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")}))


def need(request: pytest.FixtureRequest, name: str) -> None:
    """Skip when left out by flag: for fixtures that a test asks for while it runs."""
    if name in request.config.getoption("--without"):
        pytest.skip(f"--without {name}")


def _of_prometheus(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.fail(
            f"no {program}: install Debian's package prometheus (bin/install-packages prometheus), or leave these "
            "tests out with --without prometheus",
            pytrace=False,
        )
    return found


@pytest.fixture
def promtool() -> str:
    """Path of the program that checks metrics, rules and queries."""
    return _of_prometheus("promtool")


@pytest.fixture
def prometheus_program() -> str:
    return _of_prometheus("prometheus")


def _started(server_type: type[Server]) -> Iterator[Server]:
    try:
        server = server_type()
    except ServerError as missing:
        pytest.fail(str(missing), pytrace=False)
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def _rabbit_session(request: pytest.FixtureRequest) -> Iterator[Server]:
    need(request, "servers")
    yield from _started(Rabbit)


@pytest.fixture(scope="session")
def _redis_session(request: pytest.FixtureRequest) -> Iterator[Server]:
    need(request, "servers")
    yield from _started(Redis)


@pytest.fixture
def rabbit_server(_rabbit_session: Rabbit) -> Iterator[Rabbit]:
    """This worker's own RabbitMQ, running. Tests may kill, freeze or restart it: the next finds it mended."""
    _rabbit_session.ensure_running()
    yield _rabbit_session
    _rabbit_session.ensure_running()


@pytest.fixture
def amqp_url(rabbit_server: Rabbit) -> Iterator[str]:
    """URL of a virtual host that only this test uses."""
    with rabbit_server.vhost() as url:
        yield url


@pytest.fixture
def redis_server(_redis_session: Redis) -> Iterator[Redis]:
    """This worker's own redis-server, running and empty. A test may kill, freeze or restart it."""
    _redis_session.ensure_running()
    _redis_session.flush()
    yield _redis_session
    _redis_session.ensure_running()


@pytest.fixture
def redis_url(redis_server: Redis) -> str:
    """URL of an empty Redis database that only this test uses."""
    return redis_server.url


@pytest.fixture(scope="session")
def docker_engine(request: pytest.FixtureRequest) -> Iterator["Engine"]:
    """A Docker engine, shared by all workers: name what you make in it after your test, and remove it."""
    need(request, "docker")
    from tests.containers.engine import Engine

    with contextlib.ExitStack() as stack:
        try:
            engine = stack.enter_context(Engine.join())
        except ServerError as missing:
            pytest.fail(str(missing), pytrace=False)
        yield engine


@pytest.fixture(scope="session")
def compose_pool(request: pytest.FixtureRequest, docker_engine: "Engine") -> Iterator["ComposePool"]:
    """The pool of compose/compose.yaml, up and healthy. A test that crashes a service waits until it is ready again."""
    from tests.containers.pool import ComposePool

    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(ComposePool.up(docker_engine))
        request.config.stash[COMPOSE] = stack
        yield pool


@pytest.fixture(scope="session")
def apptainer(request: pytest.FixtureRequest) -> "Apptainer":
    """A real Apptainer and an image for it. Only to be read: all workers and sessions share them."""
    need(request, "apptainer")
    from tests.containers.apptainer import Apptainer

    try:
        return Apptainer.ensure()
    except ServerError as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="session")
def clients(request: pytest.FixtureRequest) -> Path:
    """A folder of programs for HTCondor's Python modules, for PYTHONPATH."""
    need(request, "clients")
    try:
        return locked.folder_of("requirements-clients.lock", "roost-clients", built=("connection-pool", "law"))
    except locked.Missing as missing:
        pytest.fail(f"{missing}. Or leave these tests out with --without clients.", pytrace=False)


@pytest.fixture(scope="session")
def reference(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The reference implementation: .htcondor (module htcondor2) and .classad (module classad2)."""
    need(request, "reference")
    before = dict(os.environ)
    try:
        import htcondor2  # must come before classad2

        import classad2  # isort: skip
    except ImportError as missing:
        pytest.fail(
            f"{missing}. The reference implementation is the wheel 'htcondor', a development dependency that "
            "bin/setup installs; or leave these tests out with --without reference.",
            pytrace=False,
        )
    # It sets CONDOR_CONFIG to /dev/null: pools of later tests in this process would not read their files.
    os.environ.clear()
    os.environ.update(before)
    return SimpleNamespace(htcondor=htcondor2, classad=classad2)


@pytest.fixture
def small_disk(request: pytest.FixtureRequest) -> Iterator[Callable[[Path, int], Path]]:
    """small_disk(directory, mib): an empty file system of so many MiB is mounted there for the time of the test."""
    need(request, "mounts")
    with contextlib.ExitStack() as stack:

        def mount(directory: Path, mib: int) -> Path:
            directory.mkdir(parents=True, exist_ok=True)
            command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0755", "tmpfs", str(directory)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                pytest.fail(
                    f"{done.stderr.strip()}: the test fills a disk of its own, and mounting one takes root and "
                    "CAP_SYS_ADMIN; or leave such tests out with --without mounts.",
                    pytrace=False,
                )
            # Lazily: what the test started may need a moment to let go of it.
            stack.callback(subprocess.run, ["umount", "--lazy", str(directory)], check=True)
            return directory

        yield mount


@pytest.fixture
async def _no_task_left_behind() -> Iterator[None]:
    before = asyncio.all_tasks()
    yield
    # Only tasks that are already on their way out get the time for it.
    for _ in range(10):
        left = {task for task in asyncio.all_tasks() - before if task is not asyncio.current_task()}
        if not left:
            return
        await asyncio.sleep(0)
    names = "\n".join(sorted(f"  {task.get_name()}: {task.get_coro()!r}" for task in left))
    for task in left:
        task.cancel()
    await asyncio.wait(left, timeout=UNWILLING_S)
    pytest.fail(f"the test left {len(left)} asyncio task(s) running:\n{names}", pytrace=False)


@pytest.fixture(autouse=True)
def _task_watch(request: pytest.FixtureRequest) -> None:
    """An asynchronous test that leaves tasks running, its fixtures torn down, fails."""
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("_no_task_left_behind")
