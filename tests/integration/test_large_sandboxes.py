"""Sandboxes that are large in one way or another: they travel, or the job is held with the reason, and nobody waits."""

from pathlib import Path

import pytest

from tests.integration.inside import InsidePool
from tests.waiting import wait_until

MIB = 1 << 20


@pytest.fixture
def pool(tmp_path):
    pool = InsidePool(tmp_path / "pool", NUM_CPUS="2", MEMORY="4096")
    yield pool
    pool.close()


class Sandbox:
    """Runs a shell script as a job whose files are transferred."""

    def __init__(self, pool, folder: Path) -> None:
        self.pool, self.folder = pool, folder
        folder.mkdir()

    def run(self, script: str, *lines: str):
        """The job's ad once it is at rest."""
        from roost.submit import Description, here

        (self.folder / "script").write_text(f"#!/bin/sh\nset -e\n{script}\n")
        text = (
            "executable = script\nshould_transfer_files = YES\nwhen_to_transfer_output = ON_EXIT\nrequest_memory = 10\n"
            "request_disk = 1\noutput = out\n" + "".join(f"{line}\n" for line in lines) + "queue\n"
        )
        cluster = next(Description(text, here("job.sub", self.folder), now=0.0).clusters())
        with self.pool.client() as client:
            queued = client.submit(cluster.ad, cluster.jobs())
            client.wait([str(queued.cluster)], timeout=100)
            return next(iter([*client.jobs(str(queued.cluster)), *client.jobs(str(queued.cluster), history=True)]))


@pytest.fixture
def sandbox(pool, tmp_path):
    return Sandbox(pool, tmp_path / "work")


SIBLING = "tests/integration/test_large_sandboxes.py::test_thousands_of_files_come_back"


@pytest.mark.parametrize(
    "where", [pytest.param("below a directory", marks=pytest.mark.dear(held_by=SIBLING)), "side by side"]
)
def test_thousands_of_files_come_back(sandbox, where):
    script = "for i in $(seq 3000); do echo $i > f$i; done"
    if where == "side by side":
        ad = sandbox.run(script)
        folder = sandbox.folder
    else:
        ad = sandbox.run(f"mkdir d; cd d; {script}", "transfer_output_files = d")
        folder = sandbox.folder / "d"
    assert ad.eval("JobStatus") == 4
    assert {int(file.read_text()) for file in folder.glob("f*")} == set(range(1, 3001))
    wait_until(lambda: not list(sandbox.pool.directory.glob("execute/dir_*")), what="a removed scratch directory")
    wait_until(lambda: not list(sandbox.pool.directory.glob("spool/**/.roost*")), what="an empty spool")


def test_large_files_go_and_come(sandbox):
    with (sandbox.folder / "big").open("wb") as file:
        file.truncate(100 * MIB)
    ad = sandbox.run("wc -c < big; head -c 50000000 /dev/zero", "transfer_input_files = big")
    assert ad.eval("JobStatus") == 4
    with (sandbox.folder / "out").open("rb") as file:
        assert file.readline() == b"104857600\n"
    assert (sandbox.folder / "out").stat().st_size == 50_000_000 + 10


def test_long_names_and_deep_directories_come_back(sandbox):
    name = "n" * 255
    ad = sandbox.run(
        f"echo x > {name}; mkdir d; echo y > d/{name}; mkdir -p e/$(printf %0100d/ $(seq 20)); find e > list",
        f"transfer_output_files = {name}, d, e, list",
    )
    assert ad.eval("JobStatus") == 4
    assert (sandbox.folder / name).read_text() == "x\n"
    assert (sandbox.folder / "d" / name).read_text() == "y\n"
    assert len(list((sandbox.folder / "e").rglob("*"))) == 20


def test_a_path_that_is_too_long_for_the_system_holds_the_job(sandbox):
    """It was taken for a broken connection, and sent again for ever."""
    ad = sandbox.run(
        "for i in $(seq 500); do mkdir dddddddddd; cd dddddddddd; done; echo x > f",
        "transfer_output_files = dddddddddd",
    )
    assert (ad.eval("JobStatus"), ad.eval("HoldReasonCode")) == (5, 12)
    assert ad.eval("HoldReason").endswith("File name too long")
    assert ad.eval("HoldReason").startswith("Transfer output files failure at execution point ")
