"""A job in a container of the compose pool gets its credentials, and no disk of the execution point has them."""

import hashlib
import os
import re
import secrets
from pathlib import Path

import pytest

from services.startd.isolation.host_capabilities import mountinfo
from services.startd.run.credentials import IN_MEMORY, file_system_of
from tests.containers.pool import ComposePool
from tests.waiting import wait_until

SUBMIT = """
universe = docker
docker_image = debian:bookworm-slim
executable = work.sh
use_oauth_services = box
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
output = out
error = err
request_memory = 64
queue
"""
#: It tells what it got in a way that does not bring that to a disk.
WORK = """#!/bin/sh
sha256sum <$_CONDOR_CREDS/box.use | cut -d' ' -f1
touch $_CONDOR_CREDS/x $_CONDOR_CREDS/box.use 2>/dev/null && echo wrote
touch there
while [ ! -e go ]; do sleep 0.1; done
"""


@pytest.mark.timeout(300)
def test_a_job_in_a_container_gets_its_credentials_in_memory(compose_pool: ComposePool, tmp_path: Path):
    compose_pool.wait_ready()
    secret = f"planted-{secrets.token_hex(16)}".encode()
    for name, text in {"token.txt": secret, "work.sh": WORK.encode(), "job.sub": SUBMIT.encode()}.items():
        (tmp_path / name).write_bytes(text)
    stored = compose_pool.roost("store-cred", "add-oauth", "-s", "box", "-i", "token.txt", cwd=tmp_path)
    assert stored.returncode == 0, stored.stderr
    done = compose_pool.roost("submit", "-spool", "-terse", "job.sub", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cluster = re.match(r"(\d+)", done.stdout)[1]

    def runs() -> list[Path]:
        return list(compose_pool.execute.glob("*/dir_*/there"))

    wait_until(runs, 120, "the job to run")
    (there,) = runs()
    in_memory = Path("/dev/shm") / f"{compose_pool.project}-{there.parents[1].name}"
    assert in_memory.stat().st_mode & 0o777 == 0o700
    kept = in_memory / there.parent.name / "box.use"
    assert kept.read_bytes() == secret
    assert file_system_of(mountinfo(), kept.stat().st_dev) in IN_MEMORY
    on_disk = [Path(folder) / name for folder, _, names in os.walk(compose_pool.execute) for name in names]
    assert there in on_disk
    assert not [file for file in on_disk if file.is_file() and secret in file.read_bytes()]
    client = compose_pool.engine.client
    for container in client.containers.list():
        assert secret.decode() not in str(client.api.inspect_container(container.id))
    chunks, _ = compose_pool.container("startd1").get_archive("/var/lib/roost/spool")
    assert secret not in b"".join(chunks)

    (there.parent / "go").touch()
    waited = compose_pool.roost("wait", cluster, "-timeout", "120")
    assert waited.returncode == 0, waited.stdout + waited.stderr
    fetched = compose_pool.roost("transfer-data", cluster, cwd=tmp_path)
    assert fetched.returncode == 0, fetched.stderr
    assert (tmp_path / "out").read_text() == hashlib.sha256(secret).hexdigest() + "\n"
    wait_until(lambda: not list(in_memory.iterdir()), 60, "the job's directory in memory to go")
