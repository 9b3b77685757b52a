"""docs/how-to.md: its commands, as they are written there, in a personal pool."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.integration.pools import ROOT, EmbeddedPool

PAGE = (ROOT / "docs" / "how-to.md").read_text()
SECTIONS = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
RUN = {name: found for name, text in SECTIONS.items() if (found := re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S))}
#: It stops its pool.
LAST = "Back up a pool and restore it"
pytestmark = [pytest.mark.xdist_group("how-to"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    pool = EmbeddedPool(tmp_path_factory.mktemp("how-to") / "pool")
    pool.directory.mkdir(parents=True, exist_ok=True)
    (pool.directory / "config").write_text("")
    try:
        pool.start("-cpus", "4")
        yield pool
    finally:
        pool.close()


def run(pool: EmbeddedPool, commands: str, place: Path) -> str:
    done = subprocess.run(
        ["sh", "-e", "-c", commands],
        cwd=place,
        env={
            **pool.environment(),
            "PATH": f"{warm.programs()}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "ROOST_POOL_DIR": str(pool.directory),
        },
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("name", [name for name in RUN if name != LAST])
def test_the_commands_do_what_they_say(pool, tmp_path, name):
    said = "".join(run(pool, commands, tmp_path) for commands in RUN[name])
    expected = EXPECTED.get(name, "")
    assert re.search(expected, said), said


#: What is to be seen.
EXPECTED = {
    "Run a program on many inputs": r"1 a.txt\n2 b.txt",
    "See what a job writes while it runs": "begun",
    "Find out why a job is idle": "No slot satisfies its Requirements: RequestMemory is 9999999",
    "See what failed and run it again": r"2 jobs run again",
    "See why jobs are held and let them go on": "2 jobs: 2 completed",
    "Give jobs that wait more memory or cpus": "1 completed",
    "Ask for a GPU": "RequestGPUs",
    "Run a job in a container": "ContainerImage",
    "Remove all my jobs": r"marked for removal",
    "Limit a user to ten slots": r"\nann@example\.org .* 10\.00\n",
    "Let a user go first": r"\nann@example\.org .* 10\.00 ",
    "Give a group a quota": r"\nphysics +4\.00 ",
    "Share a few licences": "3 jobs: 3 completed",
    "Empty a machine for a kernel update": "true",
    "Get whole machines for large jobs": r"^2$|\n2\n",
    "See whether the pool is well": "with level ADMINISTRATOR",
}


def test_a_pool_is_backed_up_and_restored(tmp_path):
    """One of its own, while it works."""
    pool = EmbeddedPool(tmp_path / "pool")
    (pool.directory / "config").write_text("")
    try:
        pool.start("-cpus", "1")
        said = "".join(run(pool, commands, tmp_path) for commands in RUN[LAST])
        assert "pool-backup is whole" in said
        assert {"config", "spool", "token"} <= {one.name for one in (tmp_path / "restored").iterdir()}
    finally:
        pool.close()


def test_there_are_twenty_questions_that_the_page_lists():
    assert len(SECTIONS) == 20
    for name in SECTIONS:
        anchor = re.sub(r"[^a-z0-9 -]", "", name.lower()).replace(" ", "-")
        assert f"(#{anchor})" in PAGE, name
    assert len(RUN) == 18
    assert sorted(EXPECTED.keys() - RUN.keys()) == []
