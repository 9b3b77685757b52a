"""What each test costs in processor time, its servers, daemons and jobs included.

    .venv/bin/pytest -p tests.costs --costs costs.tsv -n 2 tests/integration

Every worker puts itself into a control group of its own (cgroup v1 with cpuacct; takes root), where all that it starts
stays: what others do on the machine hardly changes the figures, as it changes those of --durations. Containers are in
groups of their engine, so what happens in them is not counted. The file has a line for each test:
processor seconds, seconds of the clock, phase (setup, call, teardown), test.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ACCOUNTS = Path("/sys/fs/cgroup/cpuacct")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", type=Path, help="file that the processor time of each test is written to")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--costs")
    if path is None or (hasattr(config.option, "numprocesses") and config.option.numprocesses and not _worker(config)):
        return
    config.pluginmanager.register(Costs(path.absolute()))


def _worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


class Costs:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.group = ACCOUNTS / f"roost-costs-{os.getpid()}"
        self.before = ACCOUNTS / Path("/proc/self/cgroup").read_text().partition("cpuacct:/")[2].splitlines()[0]
        self.group.mkdir()
        (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def used_s(self) -> float:
        return int((self.group / "cpuacct.usage").read_text()) / 1e9

    @contextlib.contextmanager
    def measured(self, phase: str, item: pytest.Item) -> Iterator[None]:
        used_s, clock_s = self.used_s(), time.monotonic()
        try:
            yield
        finally:
            used_s, clock_s = self.used_s() - used_s, time.monotonic() - clock_s
            # One write of a line: workers share the file.
            with self.path.open("ab", buffering=0) as file:
                file.write(f"{used_s:.3f}\t{clock_s:.3f}\t{phase}\t{item.nodeid}\n".encode())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        with self.measured("setup", item):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        with self.measured("call", item):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        with self.measured("teardown", item):
            return (yield)

    def pytest_unconfigure(self) -> None:
        # What still runs is the next one's: a group with processes can not be removed.
        for pid in (self.group / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (self.before / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):
            self.group.rmdir()
