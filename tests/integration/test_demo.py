"""`roost demo` as a newcomer sees it: in a terminal, to its end and stopped in the middle."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.integration.pools import ROOT
from tests.waiting import wait_until

#: Of a machine that others load: it starts a pool, waits for jobs and for the end, each with patience of its own.
pytestmark = pytest.mark.timeout(300)


class Demo:
    """The command in a terminal of its own. `said`: everything it has printed."""

    def __init__(self, place: Path, *arguments: str) -> None:
        self.place = place
        self.said = ""
        self._terminal, theirs = pty.openpty()
        os.set_blocking(self._terminal, False)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "roost", "demo", *arguments],
            env={**os.environ, "TMPDIR": str(place), "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def read(self) -> str:
        with contextlib.suppress(OSError):  # nothing new, or it has ended
            while new := os.read(self._terminal, 65536):
                self.said += new.decode()
        return self.said

    def wait(self) -> int:
        wait_until(lambda: self.read() is not None and self.process.poll() is not None, 120, "the end of the demo")
        self.read()
        return self.process.returncode

    def left(self) -> list[str]:
        """Processes that were started under its directory, and files there."""
        found = [str(path) for path in self.place.iterdir()]
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if str(self.place) in words:
                    found.append(words)
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)
        os.close(self._terminal)


@pytest.fixture
def demo():
    with tempfile.TemporaryDirectory(prefix="roost-test-") as place, contextlib.ExitStack() as stack:

        def started(*arguments: str) -> Demo:
            made = Demo(Path(place), *arguments)
            stack.callback(made.close)
            return made

        yield started


def test_it_runs_jobs_checks_them_and_says_what_to_type_next(demo):
    shown = demo("-jobs", "3")
    assert shown.wait() == 0, shown.said
    assert "3 job(s) submitted to cluster 1." in shown.said
    assert "  3 done   0 running    0 idle\r\n" in shown.said
    assert "\r\nAll 3 jobs completed in " in shown.said
    assert "ms after it was submitted." in shown.said
    assert "roost up " in shown.said.partition("Try next:")[2]
    wait_until(lambda: not shown.left(), 60, "nothing is left behind")


def test_who_stops_it_in_the_middle_is_left_with_nothing_to_clean_up(demo):
    shown = demo()
    wait_until(lambda: " 2 running" in shown.read() or " 1 running" in shown.said, 90, "running jobs")
    # As the terminal does at Ctrl-C: to everybody in the foreground.
    os.killpg(shown.process.pid, signal.SIGINT)
    assert shown.wait() == 130, shown.said
    assert shown.said.endswith("Stopped. The pool is down, and nothing of it is left.\r\n")
    assert "Traceback" not in shown.said
    wait_until(lambda: not shown.left(), 60, "nothing is left behind")
