"""The examples do what they say, in a personal pool."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.pools import ROOT, EmbeddedPool
from tests.servers import Leashed
from tests.waiting import wait_until

EXAMPLES = ROOT / "examples"
pytestmark = pytest.mark.xdist_group("examples")  # one pool for all of them


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    pool = EmbeddedPool(tmp_path_factory.mktemp("examples") / "pool")
    try:
        pool.start("-cpus", "2")
        yield pool
    finally:
        pool.close()


def surroundings(pool):
    programs = Path(sys.executable).parent
    return {**pool.environment(), "PATH": f"{programs}:{os.environ['PATH']}"}


def test_a_sweep_gives_a_line_for_each_row(pool, tmp_path):
    place = shutil.copytree(EXAMPLES / "sweep", tmp_path / "sweep")
    cluster = pool.submit(place / "sweep.sub")
    assert pool.roost("wait", str(cluster)).stdout == "6 jobs: 6 completed\n"
    found = {path.read_text() for path in place.glob("out.*.txt")}
    assert found == {
        "0.8 0.4: 0.0000\n",
        "2.0 0.4: 0.5000\n",
        "2.8 0.4: 0.6429\n",
        "3.2 0.4: 0.5130,0.7995\n",
        "3.2 0.9: 0.5130,0.7995\n",
        "3.5 0.4: 0.3828,0.5009,0.8269,0.8750\n",
    }


def test_words_are_counted_over_all_files(pool, tmp_path):
    for name, text in (("one", "A house, a mouse"), ("two", "The house is a home.")):
        (tmp_path / f"{name}.txt").write_text(text)
    said = subprocess.run(
        ["sh", EXAMPLES / "wordcount" / "wordcount.sh", "one.txt", "two.txt"],
        cwd=tmp_path,
        env=surroundings(pool),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines() == ["3 a", "2 house", "1 home", "1 is", "1 mouse", "1 the"]


def test_a_command_is_told_when_a_cluster_is_done(pool, tmp_path):
    ready = tmp_path / "told"
    tell = f'read line; echo "$line $ROOST_CLUSTER $ROOST_COMPLETED $ROOST_FAILED $ROOST_HELD" >> {ready}'
    log = tmp_path / "log"
    notify = Leashed([sys.executable, EXAMPLES / "notify.py", "sh", "-c", tell], log=log, env=surroundings(pool))
    (tmp_path / "job.sub").write_text(
        "executable = /bin/sh\ntransfer_executable = false\narguments = \"-c 'exit $(Process)'\"\nqueue 2\n"
    )
    try:
        # When the consumer listens is its own business: it tells of the first cluster that ends after that.
        clusters = []

        def told():
            assert notify.returncode is None, notify.tail()
            clusters.append(pool.submit(tmp_path / "job.sub"))
            pool.roost("wait", str(clusters[-1]))
            return ready.exists()

        wait_until(told, 60, "word of a cluster")
        first = ready.read_text().splitlines()[0]
        cluster = int(first.split()[1])
        assert cluster in clusters
        assert first == f"cluster {cluster} is done: 1 completed, 1 failed {cluster} 1 1 0"
    finally:
        notify.close()
