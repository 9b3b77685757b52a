"""The programs on the page about consumers run as they stand there."""

import re
import sys

import pytest

from tests.integration.pools import ROOT, EmbeddedPool
from tests.servers import Leashed
from tests.waiting import wait_until

PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "consumers.md").read_text(), re.S)
pytestmark = pytest.mark.xdist_group("examples")


def test_every_program_of_the_page_does_what_it_says(tmp_path):
    pool = EmbeddedPool(tmp_path / "pool")
    running = []
    try:
        pool.start("-cpus", "2")
        for number, text in enumerate(PROGRAMS):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / "program.py").write_text(text.replace('owner="alice"', f'owner="{owner()}"'))
            environment = {**pool.environment(), "PYTHONUNBUFFERED": "1"}
            log = folder / "log"
            running.append(Leashed([sys.executable, "program.py"], log=log, env=environment, cwd=folder))
        (tmp_path / "job.sub").write_text("executable = /bin/true\ntransfer_executable = false\nqueue\n")
        follow, small, picture, once = running

        def told(process, text):
            assert process.returncode is None, process.tail()
            return re.search(text, process.tail())

        def all_told():
            """Each listens from its own moment on."""
            pool.roost("wait", str(pool.submit(tmp_path / "job.sub")))
            return (
                told(follow, r"\d+\.0 ended with 0")
                and told(small, r"\d+\.0 ended after \d+ s")
                and told(picture, "jobs are in the queues")
                and counted(tmp_path / str(running.index(once)) / "ended.sqlite")
            )

        wait_until(all_told, 100, "what the programs say")
        for process in (small, once):
            process.terminate()
            wait_until(lambda process=process: process.returncode is not None, 60, "its end")
            assert process.returncode == 0, process.tail()
    finally:
        for process in running:
            process.close()
        pool.close()


def owner():
    import getpass

    return getpass.getuser()


def counted(path):
    from roost import Once

    if not path.exists():
        return False
    store = Once(path)
    try:
        return bool(store.query("SELECT name FROM sqlite_master WHERE name = 'ended'")) and bool(
            store.query("SELECT * FROM ended")
        )
    finally:
        store.close()
