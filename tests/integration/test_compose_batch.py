"""The batch of jobs, each in a Docker container of its own, in the compose pool: the same results as elsewhere."""

import io
import tarfile
from pathlib import Path

import pytest

from tests.containers.pool import ComposePool
from tests.integration import batch
from tests.integration.pools import final
from tests.waiting import wait_until

IMAGE = "debian:bookworm-slim"
WORK = "/var/lib/roost/spool/work"  # in the schedd's volume: its jobs' files are used in place
DAEMON_USER = 10001


def put(container, directory: Path, target: str) -> None:
    """Copy a directory into a container, owned by the daemons' user."""

    def owned(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = DAEMON_USER
        return member

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(directory, arcname=Path(target).name, filter=owned)
    assert container.put_archive(str(Path(target).parent), stream.getvalue())


def get(container, source: str, directory: Path) -> None:
    chunks, _ = container.get_archive(source)
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
        archive.extractall(directory)


@pytest.mark.timeout(600)
def test_batch_in_docker_containers(compose_pool: ComposePool, tmp_path: Path):
    compose_pool.wait_ready()
    prepared = batch.prepare(tmp_path / "work", batch.ONCE, image=IMAGE)
    schedd = compose_pool.container("schedd")
    put(schedd, prepared.directory, WORK)
    said = schedd.exec_run(
        ["roost", "submit", "batch.sub"],
        workdir=WORK,
        environment={"ROOST_URL": "https://gateway:9680", "ROOST_TOKEN": compose_pool.token},
    )
    text = said.output.decode()
    assert said.exit_code == 0, text
    cluster = int(text.rpartition("cluster ")[2].strip().rstrip("."))

    def at_rest() -> bool:
        with compose_pool.client() as client:
            return len(final(client, cluster)) >= prepared.total

    wait_until(at_rest, 540, f"{prepared.total} jobs at rest")
    get(schedd, WORK, tmp_path / "back")
    with compose_pool.client() as client:
        assert batch.problems(batch.Batch(tmp_path / "back" / "work", prepared.total), final(client, cluster)) == []
