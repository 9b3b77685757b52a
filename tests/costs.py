"""What each test costs in processor time, its servers, daemons and jobs included.

    .venv/bin/pytest -p tests.costs --costs=costs.tsv -n 2 tests/integration
    python -m tests.costs costs.tsv

Every worker puts itself into a control group of its own (cgroup v1 with cpuacct; takes root), where all that it starts
stays, what it starts warm too: what others do on the machine hardly changes the figures, as it changes those of
--durations. Containers are in groups of their engine, so what happens in them is not counted. The file has a line for
each test: processor seconds, seconds of the clock, phase (setup, call, teardown), test, when it began (seconds of the
clock since the machine did), worker. The second command sums it up: modules by what they cost, groups by how long they
kept their worker, and how long each worker was busy.
"""

import contextlib
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests import warm

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


def _name() -> str:
    return os.environ.get("PYTEST_XDIST_WORKER", "alone")


class Costs:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.group = ACCOUNTS / f"roost-costs-{os.getpid()}"
        self.before = ACCOUNTS / Path("/proc/self/cgroup").read_text().partition("cpuacct:/")[2].splitlines()[0]
        self.group.mkdir()
        (self.group / "cgroup.procs").write_text(str(os.getpid()))
        warm.alone()

    def used_s(self) -> float:
        return int((self.group / "cpuacct.usage").read_text()) / 1e9

    @contextlib.contextmanager
    def measured(self, phase: str, item: pytest.Item) -> Iterator[None]:
        used_s, began_s = self.used_s(), time.monotonic()
        try:
            yield
        finally:
            used_s, clock_s = self.used_s() - used_s, time.monotonic() - began_s
            # One write of a line: workers share the file.
            line = f"{used_s:.3f}\t{clock_s:.3f}\t{phase}\t{item.nodeid}\t{began_s:.3f}\t{_name()}\n"
            with self.path.open("ab", buffering=0) as file:
                file.write(line.encode())

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


#: Modules and groups that are told.
MOST = 25


def summed_up(lines: Iterable[str]) -> str:
    """Of the lines of the file."""
    used_s: Counter[str] = Counter()
    modules_s: Counter[str] = Counter()
    groups_s: Counter[str] = Counter()
    busy_s: Counter[str] = Counter()
    first, last = math.inf, -math.inf
    for line in lines:
        used, clock, _, test, began, worker = line.rstrip("\n").split("\t")
        module = test.partition("::")[0]
        used_s[module] += float(used)
        modules_s[module] += float(clock)
        group = test.rpartition("@")[2] if test.rfind("@") > test.rfind("]") else ""
        groups_s[group] += float(clock)
        busy_s[worker] += float(clock)
        first, last = min(first, float(began)), max(last, float(began) + float(clock))
    del groups_s[""]
    told = [f"{used_s.total():.0f} s of the processors in {last - first:.0f} s of the clock"]
    told += [f"{worker}: busy for {seconds:.0f} s" for worker, seconds in sorted(busy_s.items())]
    told += ["", "processors, clock, module"]
    told += [f"{used:8.1f} {modules_s[module]:8.1f} {module}" for module, used in used_s.most_common(MOST)]
    told += ["", "clock, group"]
    told += [f"{seconds:8.1f} {group}" for group, seconds in groups_s.most_common(MOST)]
    return "\n".join(told)


if __name__ == "__main__":
    print(summed_up(Path(sys.argv[1]).read_text().splitlines()))
