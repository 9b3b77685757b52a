"""Planted secrets are looked for wherever a pool writes or says something: logs, events, the journal, history, users'
logs, ads, the audit log, metrics. None of them may be there."""

import asyncio
import json
import os
import sqlite3
import threading
import urllib.parse
import urllib.request
from pathlib import Path

import aio_pika
import msgpack
import pytest

from roost.client import Client
from services.schedd.core.claim import Claim
from shared.classad import ClassAd
from shared.messages.base import Envelope
from tests.processes import DaemonProcess, daemons
from tests.servers import free_port
from tests.waiting import wait_until

BROKER_PASSWORD = "planted-broker-password-7f3a"
IN_ENVIRONMENT = "planted-environment-91c2"
IN_EDIT = "planted-edit-5d20"
CREDENTIAL = "planted-credential-77aa"
DAEMONS = ("collector", "negotiator", "had", "journal", "gateway", "schedd", "startd")
#: Where secrets are kept, readable by the daemon's account alone (test_files_of_daemons.py): the queue, the startd's
#: claims, the sandboxes, the administrator's token.
KEPT = ("job_queue.db", "one.db", "sandboxes", "execute", "credentials", "admin.token")


@pytest.fixture
def broker_url(rabbit_server, amqp_url):
    """The test's virtual host, for a user of its own with a password to look for."""
    split = urllib.parse.urlsplit(amqp_url)
    vhost = urllib.parse.unquote(split.path[1:])
    rabbit_server.api("PUT", "/api/users/planted", {"password": BROKER_PASSWORD, "tags": ""})
    rabbit_server.api("PUT", f"/api/permissions/{vhost}/planted", {"configure": ".*", "write": ".*", "read": ".*"})
    yield f"amqp://planted:{BROKER_PASSWORD}@{split.hostname}:{split.port}/{vhost}"
    rabbit_server.api("DELETE", "/api/users/planted")


class Spy:
    """A consumer that hears all events and ads."""

    def __init__(self, url):
        self.heard = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._connection = asyncio.run_coroutine_threadsafe(self._open(url), self._loop).result(30)

    async def _open(self, url):
        connection = await aio_pika.connect(url)
        channel = await connection.channel()
        queue = await channel.declare_queue("", exclusive=True)
        for exchange in ("roost.events", "roost.ads"):
            await channel.declare_exchange(exchange, "topic", durable=True)
            await queue.bind(exchange, "#")

        async def hear(message):
            self.heard.append((message.routing_key, repr(message.headers).encode() + unpacked(message)))

        await queue.consume(hear, no_ack=True)
        return connection

    def close(self):
        asyncio.run_coroutine_threadsafe(self._connection.close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


def unpacked(message) -> bytes:
    return repr(Envelope.unpack(message.body)).encode() + message.body


def secrets_of(schedd: Path) -> dict[str, str]:
    """Claim ids and tokens of runs, as the schedd's database has them at this moment."""
    found = {}
    with sqlite3.connect(f"file:{next(schedd.rglob('job_queue.db'))}?mode=ro", uri=True) as database:
        rows = list(database.execute("SELECT id, body FROM claims"))
    database.close()
    for key, body in rows:
        claim = Claim.unpack(key, body)
        found["claim id"] = claim.claim_id
        if claim.shadow is not None:
            found["run's token"] = claim.shadow.token
    return found


def holding(root: Path, needle: bytes) -> list[str]:
    """Files below root that hold these bytes, but for those where secrets are kept."""
    found = []
    for folder, directories, files in os.walk(root):
        directories[:] = [name for name in directories if name not in KEPT]
        for name in files:
            path = Path(folder, name)
            if not name.startswith(KEPT) and path.is_file() and needle in path.read_bytes():
                found.append(str(path.relative_to(root)))
    return found


@pytest.mark.servers
def test_no_planted_secret_is_found(tmp_path, broker_url, redis_url):
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o700)
    port = free_port()
    config = {
        "HISTORY": kept / "history",
        "EVENT_LOG": kept / "EventLog",
        "STARTD_HISTORY": kept / "startd_history",
        "KEEP_POOL_HISTORY": "true",
        "POOL_HISTORY_DIR": kept / "pool_history",
        "GATEWAY_AUDIT_LOG": kept / "audit.log",
        "ROOST_GATEWAY_PORT": port,
        "ROOST_TOKEN_FILE": tmp_path / "admin.token",
        "ROOST_STARTD_DOCKER": "false",
        "STARTD_JOB_ATTRS": "Environment, Args",
        "NEGOTIATOR_MIN_INTERVAL": "0",
        "NUM_CPUS": "1",
        "ROOST_CREDENTIALS_ON_DISK": "true",
        "ALL_DEBUG": "D_FULLDEBUG",
    }
    processes = [
        DaemonProcess(daemon, "one", tmp_path, amqp_url=broker_url, redis_url=redis_url, config=config)
        for daemon in DAEMONS
    ]
    go = tmp_path / "go"
    log = tmp_path / "user.log"
    planted = {
        "credential": CREDENTIAL,
        "environment": IN_ENVIRONMENT,
        "edit": IN_EDIT,
        "broker's password": BROKER_PASSWORD,
    }
    said = {}
    with daemons(*processes):
        spy = Spy(broker_url)
        try:
            planted["administrator's token"] = (tmp_path / "admin.token").read_text().strip()
            with Client(f"http://127.0.0.1:{port}", planted["administrator's token"]) as client:
                planted["user's token"] = client.create_token("alice@elsewhere", "WRITE")
                wait_until(lambda: list(client.ads("Machine")), what="slots")
                ad = ClassAd(
                    {
                        "Cmd": "/bin/sh",
                        "Iwd": str(tmp_path),
                        "UserLog": str(log),
                        "Arguments": f"-c 'while [ ! -e {go} ]; do sleep 0.1; done'",
                        "Environment": f"PASSWORD={IN_ENVIRONMENT}",
                        "ShouldTransferFiles": "YES",
                        "OAuthServicesNeeded": "box",
                        "TransferExecutable": False,
                        "RequestMemory": 16,
                        "RequestDisk": 1024,
                    }
                )
                client.store_credential("box", CREDENTIAL.encode())
                cluster = submit(port, planted["administrator's token"], ad)
                wait_until(lambda: states(client, cluster) == {"2": 1}, what="the job to run")
                planted |= secrets_of(tmp_path / "schedd-one")
                assert len(planted) == 8, planted.keys()
                client.edit([f"{cluster}.0"], {"Environment": f'"PASSWORD={IN_EDIT}"'})
                with Client(f"http://127.0.0.1:{port}", planted["user's token"]) as other:
                    for kind in ("Machine", "Submitter", "Scheduler", "Negotiator", "Any"):
                        said[f"ads {kind}"] = repr([dict(one.exprs()) for one in other.ads(kind)]).encode()
                    said["jobs"] = repr([dict(one.exprs()) for one in other.jobs()]).encode()
                go.touch()
                wait_until(lambda: not states(client, cluster), what="the job's end")
                wait_until((kept / "history").exists, what="the history")
                said["audit"] = json.dumps(client.audit()).encode()
                wait_until(lambda: b"jobs.edit" in json.dumps(client.audit()).encode(), what="the audit's record")
            for process in processes:
                for page in ("/metrics", "/healthz", "/readyz"):
                    said[f"{process.daemon}{page}"] = process.ask(page)[1].encode()
            wait_until(lambda: any(key == "job.ended" for key, _ in spy.heard), what="the event of the job's end")
        finally:
            spy.close()
    assert holding(tmp_path, b"/bin/sh"), "nothing is looked through"
    assert b"Job terminated" in log.read_bytes() or b"terminated" in log.read_bytes()
    leaks = []
    for what, secret in planted.items():
        needle = secret.encode()
        leaks += [f"{what}: file {name}" for name in holding(tmp_path, needle)]
        leaks += [f"{what}: {where}" for where, text in said.items() if needle in text]
        leaks += [f"{what}: event {key}" for key, text in spy.heard if needle in text]
    assert leaks == []


def submit(port, token, ad) -> int:
    body = msgpack.packb({"submit_id": "planted", "cluster_ad": ad.pack(), "procs": [ClassAd().pack()]})
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/jobs",
        data=body,
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/x-msgpack"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["cluster"]


def states(client, cluster) -> dict[str, int]:
    found: dict[str, int] = {}
    for job in client.jobs(str(cluster), projection=["JobStatus"]):
        key = str(job.eval("JobStatus"))
        found[key] = found.get(key, 0) + 1
    return found
