"""The compose pool: brought up, given jobs in containers, crashed, taken down."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.containers.engine import ROOT
from tests.containers.pool import COMPOSE_FILE, DAEMONS, SERVERS, ComposePool, HighlyAvailablePool
from tests.integration.test_visit_commands import Terminal
from tests.readme import block
from tests.spec import spec
from tests.waiting import wait_until

IMAGE = "debian:bookworm-slim"
FAILING = 3

SUBMIT = f"""
universe = docker
docker_image = {IMAGE}
executable = work.sh
arguments = $(n) $(seconds)
transfer_input_files = input.$(n)
transfer_output_files = result
should_transfer_files = YES
when_to_transfer_output = ON_EXIT
output = out.$(n)
error = err.$(n)
transfer_output_remaps = "result=result.$(n)"
request_cpus = 1
request_memory = 64
"""
WORK = f"""#!/bin/sh
sha256sum <input.$1 | cut -d' ' -f1 >result
echo "ran $1 in $(. /etc/os-release; echo $VERSION_CODENAME)"
sleep $2
[ "$1" != {FAILING} ] || exit 7
"""


class Batch:
    """Jobs that hash a file each; the one numbered FAILING exits with 7 all the same."""

    def __init__(self, pool: ComposePool, directory: Path, jobs: int, seconds: float = 0) -> None:
        self.pool, self.directory, self.jobs = pool, directory, jobs
        (directory / "work.sh").write_text(WORK)
        for number in range(jobs):
            (directory / f"input.{number}").write_bytes(self.content(number))
        text = f"seconds = {seconds}\n{SUBMIT}\nqueue n from seq 0 {jobs - 1} |\n"
        (directory / "batch.sub").write_text(text)
        done = pool.roost("submit", "-spool", "-terse", "batch.sub", cwd=directory)
        assert done.returncode == 0, done.stderr
        self.cluster = re.match(r"(\d+)", done.stdout)[1]

    def content(self, number: int) -> bytes:
        return f"input of job {number} of {self.directory}\n".encode() * (1000 + number)

    def wait_until_some_run(self) -> None:
        with self.pool.client() as client:

            def some_run() -> bool:
                return any(ad.eval("JobStatus") == 2 for ad in client.jobs(self.cluster, projection=["JobStatus"]))

            wait_until(some_run, 60, "a running job")

    def check(self) -> None:
        """All are done; every result is right, and there once."""
        waited = self.pool.roost("wait", self.cluster, "-timeout", "240")
        assert waited.returncode == 0, waited.stdout + waited.stderr + self.pool.logs("schedd", "startd1", "startd2")
        fetched = self.pool.roost("transfer-data", self.cluster, cwd=self.directory)
        assert fetched.returncode == 0, fetched.stderr
        for number in range(self.jobs):
            wanted = hashlib.sha256(self.content(number)).hexdigest()
            assert (self.directory / f"result.{number}").read_text() == f"{wanted}\n"
            assert (self.directory / f"out.{number}").read_text() == f"ran {number} in bookworm\n"
        with self.pool.client() as client:
            ads = list(client.jobs(self.cluster, history=True)) or list(client.jobs(self.cluster))
        codes = {ad.eval("ProcId"): ad.eval("ExitCode") for ad in ads}
        assert codes == {number: 7 if number == FAILING else 0 for number in range(self.jobs)}


def test_every_service_is_healthy_and_no_daemon_is_root_or_has_capabilities(compose_pool: ComposePool):
    compose_pool.wait_ready()

    def unhealthy() -> dict[str, str]:
        told = {name: compose_pool.container(name).attrs["State"]["Health"]["Status"] for name in (*SERVERS, *DAEMONS)}
        return {name: status for name, status in told.items() if status != "healthy"}

    # Of what a test before this one crashed, Docker says "starting" until its own next check.
    wait_until(lambda: not unhealthy(), what="Docker to call all of them healthy")
    for service in (*SERVERS, *DAEMONS):
        container = compose_pool.container(service)
        status = compose_pool.status(container)
        assert not re.search(r"^Uid:\s+0\s", status, re.MULTILINE), service
        assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE), service
        assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE), service


def test_no_daemon_sees_the_password_of_another(compose_pool: ComposePool):
    """But the registrar the one of the broker's administrator."""
    for service in DAEMONS:
        look = ["sh", "-c", "grep -rhoE '//[a-z0-9.]+:' /run/roost"]
        found = compose_pool.container(service).exec_run(look).output.decode()
        user = f"{service.rstrip('12')}.{'negotiator' if service == 'had' else service}"
        assert set(found.split()) == {f"//{user}:", *(["//roost:"] if service == "registrar" else [])}


def test_only_servers_hold_keys(compose_pool: ComposePool):
    """Those of their certificates, and the gateway the one it signs with; nobody in the pool the authority's."""
    for service in DAEMONS:
        look = ["sh", "-c", "grep -rlE 'PRIVATE KEY' /run/roost /var/lib/roost/spool/tls"]
        found = compose_pool.container(service).exec_run(look, stderr=False).output.decode()
        held = {"gateway": {"statements.key", "server.pem"}, "schedd": {"server.pem"}}.get(service, set())
        assert {Path(path).name for path in found.split()} == held, service


@pytest.mark.parametrize("files", [(COMPOSE_FILE,), HighlyAvailablePool.files], ids=["one", "ha"])
def test_the_files_are_whole_as_docker_compose_reads_them(compose_pool: ComposePool, files):
    """With all profiles; and no volume with a daemon's password is in a second daemon."""
    words = [word for file in files for word in ("--file", str(file))]
    said = compose_pool.engine.docker(
        "compose", *words, "--profile", "*", "config", "--format", "json", env=compose_pool.env
    )
    services = json.loads(said)["services"]
    holders: dict[str, list[str]] = {}
    for name, service in services.items():
        for mount in service.get("volumes", []):
            if mount["target"] == "/run/roost/key":
                assert mount["read_only"]
                holders.setdefault(mount["source"], []).append(name)
    assert {volume: names for volume, names in holders.items() if len(names) > 1} == {}
    assert len(holders) == len([name for name in services if is_daemon(name, services)]) + 1  # and the functions'
    given = {mount["source"] for mount in services["prepare"]["volumes"]}
    assert set(holders) <= given


def is_daemon(name: str, services: dict) -> bool:
    return any(str(word).startswith("services.") for word in services[name].get("command") or [])


def test_redis_refuses_a_role_the_keys_of_another(compose_pool: ComposePool):
    attempt = (
        "import os, redis\n"
        "client = redis.Redis.from_url(open('/run/roost/key/redis_url').read())\n"
        "client.hset('roost:had:lease', 'owner', 'me')\n"
    )
    refused = compose_pool.container("collector").exec_run(["python3", "-c", attempt])
    assert refused.exit_code == 1
    assert b"No permissions to access a key" in refused.output


def test_another_run_of_prepare_keeps_the_keys(compose_pool: ComposePool):
    def keys() -> bytes:
        return compose_pool.container("schedd").exec_run(["cat", "/run/roost/key/amqp_url"]).output

    before = keys()
    compose_pool.compose("run", "--rm", "-T", "prepare")
    assert keys() == before


def test_jobs_in_containers_bring_back_their_results(compose_pool: ComposePool, tmp_path):
    compose_pool.wait_ready()
    Batch(compose_pool, tmp_path, jobs=8).check()


#: Their crashes are tried as processes'; what Docker does in one the others show.
DEAR = pytest.mark.dear(
    held_by="tests/integration/test_batch.py::test_killing_a_daemon_in_the_middle_loses_and_duplicates_nothing"
)


@pytest.mark.parametrize(
    "service",
    ["schedd", "startd1", *(pytest.param(name, marks=DEAR) for name in ("negotiator", "collector", "gateway"))],
)
def test_a_batch_survives_the_crash_of(service, compose_pool: ComposePool, tmp_path):
    compose_pool.wait_ready()
    batch = Batch(compose_pool, tmp_path, jobs=4, seconds=2)  # as many again as run at a time
    batch.wait_until_some_run()
    compose_pool.crash(service)
    compose_pool.find_gateway()
    compose_pool.wait_ready()
    batch.check()


@pytest.mark.parametrize("service", SERVERS)
def test_a_batch_survives_the_crash_of_the_server(service, compose_pool: ComposePool, tmp_path):
    compose_pool.wait_ready()
    batch = Batch(compose_pool, tmp_path, jobs=4, seconds=2)  # as many again as run at a time
    batch.wait_until_some_run()
    compose_pool.crash(service)
    compose_pool.wait_ready()
    batch.check()
    assert b"CRITICAL" not in compose_pool.container(service).logs()  # Redis: what it could not read back


def test_nothing_of_a_job_stays_behind(compose_pool: ComposePool, tmp_path):
    compose_pool.wait_ready()
    Batch(compose_pool, tmp_path, jobs=4).check()

    def gone() -> bool:
        jobs = compose_pool.engine.client.containers.list(all=True, filters={"label": "roost.run"}, ignore_removed=True)
        place = str(compose_pool.execute)
        ours = [job for job in jobs if any(place in bind for bind in job.attrs["HostConfig"]["Binds"] or ())]
        return not ours and not [path for startd in compose_pool.execute.iterdir() for path in startd.glob("dir_*")]

    wait_until(gone, what="no container and no scratch directory of a job")


def test_a_consumer_follows_the_pool_as_docs_consumers_says(compose_pool: ComposePool, tmp_path):
    """The first program of the page, in the container that its last section describes."""
    page = (ROOT / "docs" / "consumers.md").read_text()
    (program,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "@consumer.on(JobEnded, owner" in block
    ]
    (command,) = re.findall(r"^    docker run .*\n.*$", page, re.MULTILINE)
    file = tmp_path / "bill.py"
    file.write_text(
        program.replace('owner="alice"', 'owner="roost"').replace("Consumer()", 'Consumer(name="bill", durable=True)')
    )
    file.chmod(0o644)
    words = command.replace("\\\n", " ").replace("roost_", f"{compose_pool.project}_").split()
    assert words[:3] == ["docker", "run", "--rm"]
    words = [word.replace("my/consumer", "roost/pool:test") for word in words[3:]]
    name = f"{compose_pool.project}-bill"
    started = [
        "run",
        "--detach",
        "--name",
        name,
        "--volume",
        f"{file}:/bill.py:ro",
        *words,
        "python3",
        "-u",
        "/bill.py",
    ]
    compose_pool.wait_ready()
    docker = compose_pool.engine.docker
    docker(*started)
    try:

        def heard(cluster: str) -> bool:
            return f"{cluster}.0 ended after" in docker("logs", name)

        def submit() -> str:
            done = compose_pool.roost(
                "submit", "-terse", "-spool", str(ROOT / "roost" / "demo" / "hello.sub"), cwd=tmp_path
            )
            assert done.returncode == 0, done.stderr
            return done.stdout.split(".")[0]

        ask = ("exec", "-T", "rabbitmq", "rabbitmqctl", "-q", "list_consumers")
        wait_until(lambda: "consumer.bill" in compose_pool.compose(*ask), 90, "a consumer at the broker")
        first = submit()
        wait_until(lambda: heard(first), 90, f"the end of job {first}.0, told to the consumer")
        # What happens while it is away is told afterwards.
        docker("kill", name)
        second = submit()
        assert compose_pool.roost("wait", second, "-timeout", "120").returncode == 0
        docker("start", name)
        wait_until(lambda: heard(second), 90, f"the end of job {second}.0, told to the consumer")
    finally:
        docker("rm", "--force", name)


def test_further_execution_points_are_asked_for_by_their_number(compose_pool: ComposePool):
    """Each has a name of its own, which it keeps when its container is made anew; startd1 is one of a kind."""

    def names() -> set[str]:
        with compose_pool.client() as client:
            return {ad.eval_string("Machine") for ad in client.ads("Machine", projection=["Machine"])}

    def more() -> set[str]:
        return {name for name in names() if name.startswith("startd-")}

    up = ("up", "--detach", "--no-deps", "--no-build")
    try:
        compose_pool.compose(*up, "--scale", "startd=2", "startd")
        wait_until(lambda: len(more()) == 2, 90, "two more machines")
        before = more()
        compose_pool.compose(*up, "--force-recreate", "--scale", "startd=2", "startd")
        compose_pool.compose(*up, "--scale", "startd1=2", "--no-recreate", "startd1")

        def refused() -> bool:
            return "another startd named startd1 uses" in compose_pool.compose("logs", "startd1")

        wait_until(refused, 90, "the second startd1 to say that there is one")
        wait_until(lambda: more() == before, 90, "the machines that were there before")
        assert names() == before | {"startd1", "startd2"}
    finally:
        compose_pool.compose(*up, "--scale", "startd=0", "--scale", "startd1=1", "--no-recreate", "startd", "startd1")
        wait_until(lambda: not more(), 90, "only the pool's own machines")


@spec("TLS-14")
def test_an_interactive_job_is_a_shell_in_its_container(compose_pool: ComposePool, tmp_path):
    """In a container of a real engine: its files are there, and what is made there comes back."""
    (tmp_path / "note").write_text("brought along\n")
    text = f"universe = docker\ndocker_image = {IMAGE}\nrequest_memory = 64\nshould_transfer_files = YES\n"
    text += "transfer_input_files = note\ntransfer_output_files = made\nwhen_to_transfer_output = ON_EXIT\nqueue\n"
    (tmp_path / "shell.sub").write_text(text)
    compose_pool.wait_ready()
    env = dict(os.environ, PYTHONPATH=str(ROOT), **compose_pool.login)
    words = [sys.executable, "-m", "roost", "submit", "-interactive", "shell.sub"]
    terminal = Terminal(words, 40, 100, cwd=tmp_path, env=env)
    terminal.until(b"Welcome to slot")

    def asked() -> bool:  # what is typed before the shell reads may be lost
        terminal.type(b"cp note made; echo $(cat note) to $(. /etc/os-release; echo $VERSION_CODENAME); stty size\r")
        terminal.read(1.0)
        return b"brought along to bookworm" in terminal.seen and b"\n40 100" in terminal.seen

    wait_until(asked, 90, "the shell")
    terminal.type(b"exit 5\r")
    assert terminal.status() == 5, terminal.seen
    cluster = terminal.seen.split(b"submitted to cluster ")[1].split(b".")[0].decode()
    waited = compose_pool.roost("wait", cluster, "-timeout", "120")
    assert waited.returncode == 0, waited.stdout
    fetched = compose_pool.roost("transfer-data", cluster, cwd=tmp_path)
    assert fetched.returncode == 0, fetched.stderr
    assert (tmp_path / "made").read_text() == "brought along\n"


def test_the_readme_leads_from_nothing_to_a_job_in_a_container(compose_pool: ComposePool, tmp_path):
    """Its commands as they are written there, but for names and numbers that another pool has."""
    lines = block("On machines of your own")
    group, up, status, ca, url, token, submit, fetch, down = lines
    assert up == "docker compose -f compose/compose.yaml up --build --detach --wait"
    assert down == "docker compose -f compose/compose.yaml down"
    env = dict(compose_pool.env, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "compose").mkdir()
    (tmp_path / "compose" / "compose.yaml").symlink_to(COMPOSE_FILE)
    compose = f"docker compose -f {COMPOSE_FILE}"  # what it mounts lies beside it

    def run(*commands: str) -> str:
        text = "\n".join(commands).replace("docker compose -f compose/compose.yaml", compose)
        done = subprocess.run(
            ["sh", "-ec", text], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, text + done.stdout + done.stderr
        return done.stdout

    run(group.replace("/var/run/docker.sock", env["DOCKER_SOCKET"]))
    assert (tmp_path / "compose" / ".env").read_text() == f"DOCKER_GID={env['DOCKER_GID']}\n"
    compose_pool.wait_ready()
    assert "slot1@startd1" in run(status.replace("exec ", "exec -T "))
    run(ca)
    login = (url.replace("https://127.0.0.1:9680", compose_pool.url), token)
    cluster = re.search(r"cluster (\d+)", run(*login, submit))[1]
    assert "VERSION_CODENAME=bookworm" in run(*login, fetch.replace(" 1", f" {cluster}"))
