"""Runs pytest; when a handful of tests fail, runs exactly these once more, alone, and names the unsteady ones.

Usage: python -m tests.second_try LAST_WORDS [ARGUMENT...]

The arguments are pytest's. LAST_WORDS is a file for the caller to show when all else has been printed: a list of the
tests that passed only the second time, and a summary like pytest's. Exit status: 0 if every test has passed, on either
try, else pytest's. docs/testing.md says why there is a second try, and why not more.

pytest loads this module as a plugin too: it notes what becomes of each test, and keeps those to be tried again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

#: More failures than this, three of a thousand tests, are no hiccup of the machine.
MOST = 20
REPORT = "ROOST_TEST_REPORT"  # environment variable: file that outcomes are written to
ONLY = "ROOST_TEST_ONLY"  # environment variable: file with the ids of the only tests to run
TESTS_FAILED = 1  # pytest's exit status when it ran to its end and a test failed
ORDER = ("failed", "passed", "skipped", "xfailed", "xpassed")

Outcomes = dict[str, str]


class Notes:
    """The plugin: outcomes by test id, and whether anything but a test failed."""

    def __init__(self) -> None:
        self.outcomes: Outcomes = {}
        self.broken = False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.broken |= report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = plain_id(report.nodeid)
        if report.failed:
            self.outcomes[test] = "failed"
        elif self.outcomes.get(test) != "failed":
            if hasattr(report, "wasxfail"):
                self.outcomes[test] = "xfailed" if report.skipped else "xpassed"
            elif report.skipped or report.when == "call":
                self.outcomes[test] = report.outcome

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if ONLY in os.environ:
            wanted = set(json.loads(Path(os.environ[ONLY]).read_text()))
            config.hook.pytest_deselected(items=[item for item in items if plain_id(item.nodeid) not in wanted])
            items[:] = [item for item in items if plain_id(item.nodeid) in wanted]

    def pytest_sessionfinish(self) -> None:
        Path(os.environ[REPORT]).write_text(json.dumps({"outcomes": self.outcomes, "broken": self.broken}))


def pytest_configure(config: pytest.Config) -> None:
    if REPORT in os.environ and not hasattr(config, "workerinput"):  # xdist's workers report to this process
        config.pluginmanager.register(Notes())


def plain_id(test: str) -> str:
    """A test's id without the group that xdist adds to it (`--dist=loadgroup`)."""
    return test.rpartition("@")[0] if test.rfind("@") > max(test.rfind("]"), test.rfind(":")) else test


def run(arguments: list[str], only: list[str] | None = None) -> tuple[int, Outcomes, bool]:
    """Run pytest; its exit status, the outcomes, and whether something else than a test failed."""
    with tempfile.TemporaryDirectory(prefix="roost-tests-") as folder:
        report, selection = Path(folder, "report"), Path(folder, "only")
        env = {**os.environ, REPORT: str(report)}
        env.pop(ONLY, None)
        if only is not None:
            selection.write_text(json.dumps(only))
            env[ONLY] = str(selection)
        process = subprocess.Popen([sys.executable, "-m", "pytest", "-p", "tests.second_try", *arguments], env=env)
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest, which ends in good order
        try:
            status = process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
        if not report.exists():
            return status or TESTS_FAILED, {}, True
        told = json.loads(report.read_text())
        return status, told["outcomes"], told["broken"]


def main(last_words: Path, arguments: list[str]) -> int:
    began = time.monotonic()
    status, outcomes, broken = run(arguments)
    failed = sorted(test for test, outcome in outcomes.items() if outcome == "failed")
    if status != TESTS_FAILED or broken or not 0 < len(failed) <= MOST:
        return status
    print(f"\nsecond try: {len(failed)} failed, once more and alone:", *failed, sep="\n  ", flush=True)
    # The last of several -n counts. Read are their modules only, beside those that the arguments name.
    modules = sorted({test.partition("::")[0] for test in failed})
    named = modules if all(map(os.path.exists, modules)) else []  # ids begin at pytest's root, which may be elsewhere
    status, again, broken = run([*arguments, "-n", "0", *named], only=failed)
    unsteady = [test for test in failed if again.get(test) == "passed"]
    outcomes.update(dict.fromkeys(unsteady, "passed"))
    if broken or (status == 0 and len(unsteady) < len(failed)):
        status = status or TESTS_FAILED  # one was not found again, or skipped
    lines = [f"unsteady: {test}: failed among the others, passed alone" for test in unsteady]
    lines.append(summary(outcomes, len(unsteady), time.monotonic() - began))
    last_words.write_text("\n".join(lines) + "\n")
    return status


def summary(outcomes: Outcomes, unsteady: int, seconds: float) -> str:
    """As pytest's last line: "1 failed, 20 passed (2 of them the second time), 3 skipped in 1.25s"."""
    counts = Counter(outcomes.values())
    parts = [f"{counts[kind]} {kind}" for kind in ORDER if counts[kind]]
    told = [f"{part} ({unsteady} of them the second time)" if part.endswith(" passed") else part for part in parts]
    return f"{', '.join(told if unsteady else parts)} in {seconds:.2f}s"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
