"""The examples do what they say, in a personal pool."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.integration.pools import ROOT, EmbeddedPool
from tests.readme import block
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
    programs = f"{warm.programs()}:{Path(sys.executable).parent}"
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


#: What each command of README's tour shows, as an expression for its output. The shell and the pool are there already.
TOUR = {
    "roost status": r"slot1@\S+ +LINUX +X86_64 +\w+ +\w+ .* Total +\d+ ",
    "roost submit roost/demo/hello.sub": r"5 job\(s\) submitted to cluster \d+\.",
    "roost q": r"OWNER +BATCH_NAME +SUBMITTED +DONE +RUN +IDLE.*Total for query: ",
    "roost wait 1 && cat hello.*.out": r"5 jobs: 5 completed\nHello from job 0 on \S+\n.*Hello from job 4 on \S+\n$",
    "roost history": r" ID +OWNER +SUBMITTED.*\n\d+\.4 .*/bin/echo Hello from job 4",
    "roost explain 1.0": r"completed\n.*submitted by .*matched with slot1@.*started on .*with exit code 0",
    "roost dashboard": r"^http://127\.0\.0\.1:\d+/#token=\S+\n$",
    "roost events 'job.*'": r"job\.submitted +schedd=\S+ owner=.*job\.ended +schedd=\S+ job_id=\d+\.\d+ ",
    "roost userprio": r"User Name +Priority.*@.*Number of users: 1",
    "roost config-val -verbose NUM_CPUS": r"^NUM_CPUS = 2\n # at: ",
    "roost help": r"^usage: roost COMMAND.*\n  submit +queue the jobs",
}


def test_the_tour_of_the_readme_shows_what_it_says(pool, tmp_path):
    (tmp_path / "roost").symlink_to(ROOT / "roost")
    env = surroundings(pool)
    lines = block("In another terminal, in the same directory:")
    assert lines[0] == ". .venv/bin/activate"
    assert lines[1:] == list(TOUR)
    one = shutil.copy(EXAMPLES / "hello.sub", tmp_path / "one.sub")
    cluster, said = "", ""
    for line in lines[1:]:
        typed = re.sub(r"(wait|explain) 1\b", rf"\1 {cluster}", line)
        if line.startswith("roost events"):
            with (tmp_path / "events").open("wb") as file:
                following = subprocess.Popen(typed, shell=True, env=env, cwd=tmp_path, stdout=file, process_group=0)
                try:
                    # It tells what comes from the moment on that it listens, which is soon; so until it has told.
                    def told(wanted: str = TOUR[line]) -> bool:
                        pool.submit(one)
                        return re.search(wanted, (tmp_path / "events").read_text(), re.DOTALL) is not None

                    wait_until(told, 60, "a whole job among the events")
                finally:
                    os.killpg(following.pid, signal.SIGINT)
                    following.wait(60)
            said = (tmp_path / "events").read_text()
        else:
            done = subprocess.run(
                typed, shell=True, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
            )
            assert (done.returncode, done.stderr) == (0, ""), line
            said = done.stdout
        assert re.search(TOUR[line], said, re.DOTALL), f"{line}:\n{said}"
        if line.startswith("roost submit"):
            cluster = re.search(r"cluster (\d+)", said)[1]
