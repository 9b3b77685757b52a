"""`roost enroll`, `roost identities` and `revoke`, end to end: a real broker with the generated rights, a gateway and a
registrar as processes with users of their own, and a machine that comes with a join token. The gateway signs for whom
it asks, and the registrar believes nothing else."""

import asyncio
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import aio_pika
import pytest
from pamqp.commands import Basic

from roost.client import Client
from roost.errors import ClientError
from roost.setup import access_point, central_manager
from roost.setup.access_point import AccessPoint
from roost.setup.central_manager import CentralManager
from roost.setup.execution_point import UNIT, ExecutionPoint, unit
from roost.setup.layout import unit_name
from shared.bus import connect
from shared.bus.amqp.link import Link, guarded
from shared.bus.api import BusUnavailable, NotAllowed, RemoteFailure
from shared.bus.definitions import ADMINISTRATOR, definitions, password_hash
from shared.bus.statements import signer_of
from shared.bus.topology import ROLES, inbox_queue
from shared.messages.base import Envelope, Person
from shared.messages.negotiation import GetRequests, Match, Matches
from shared.messages.registrar import AskIdentities, CreateJoinToken, Enroll, RevokeIdentity
from tests import warm
from tests.contract.test_bus import Catch
from tests.processes import DaemonProcess, daemons
from tests.scheddpool import USER, FakeStartd, Pool, slot_ad
from tests.servers import Leashed, free_port
from tests.waiting import PATIENCE_S, eventually, wait_until

pytestmark = pytest.mark.servers

PASSWORDS = {f"{role}.cm": f"secret-of-{role}" for role in ROLES} | {ADMINISTRATOR: "secret-of-the-administrator"}
ROOT = Path(__file__).parents[2]


class World:
    """A broker with users of daemons, a registrar and a gateway."""

    def __init__(self, server, vhost, directory, redis_url):
        self.server, self.vhost, self.directory = server, vhost, directory
        self.port = free_port()
        key = directory / "management"
        key.write_text(f"http://{ADMINISTRATOR}:{PASSWORDS[ADMINISTRATOR]}@{server.host}:{server.api_port}\n")
        key.chmod(0o600)
        self.signer = signer_of(directory / "cm.key")
        self.registrar = DaemonProcess(
            "registrar",
            "cm",
            directory,
            amqp_url=self.url("registrar.cm"),
            redis_url=redis_url,
            config={
                "REGISTRAR_BROKER_API_FILE": key,
                "REGISTRAR_INTERVAL": 1,
                "ROOST_GATEWAY_KEYS": directory / "cm.key.pub",
            },
        )
        self.gateway = DaemonProcess(
            "gateway",
            "cm",
            directory,
            amqp_url=self.url("gateway.cm"),
            redis_url=redis_url,
            config={
                "ROOST_GATEWAY_PORT": self.port,
                "ROOST_GATEWAY_BIND": "127.0.0.1",
                "ROOST_TOKEN_FILE": directory / "token",
                "GATEWAY_AUDIT_LOG": directory / "audit.log",
                "ROOST_GATEWAY_KEY": directory / "cm.key",
            },
        )

    def url(self, user, password=None):
        return self.server.url_of(self.vhost, user, password or PASSWORDS[user])

    def roost(self, *words, ok=True, token=True):
        """The command, with the administrator's token or none."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "_CONDOR_", "CONDOR_"))}
        env = {
            **clean,
            "ROOST_URL": f"http://127.0.0.1:{self.port}",
            "CONDOR_CONFIG": "ONLY_ENV",
            "HOME": "/nonexistent",
        }
        if token:
            env["ROOST_TOKEN_FILE"] = str(self.directory / "token")
        done = warm.run(
            [sys.executable, "-m", "roost", *words],
            env=env | {"PYTHONPATH": str(ROOT)},
            cwd=self.directory,
            timeout=100,
        )
        assert (done.returncode == 0) == ok, (words, done.stdout, done.stderr)
        return done.stdout if ok else done.stderr

    def create(self, *words):
        token = self.roost("enroll", "-create", *words).strip()
        (self.directory / "join").write_text(token)
        return token

    def enroll(self, role, name, ok=True, directory="identities"):
        """Comes as a machine: with the join token and nothing else."""
        words = ("enroll", "-role", role, "-name", name, "-token-file", "join", "-directory", directory)
        return self.roost(*words, ok=ok, token=False)

    def amqp_url(self, user, directory="identities"):
        return (self.directory / directory / user / "amqp_url").read_text()

    def users(self):
        return {one["user"]: one for one in json.loads(self.roost("identities", "-json"))["identities"]}


@pytest.fixture
def world(rabbit_server, amqp_url, redis_url, tmp_path):
    vhost = amqp_url.rpartition("/")[2]
    rabbit_server.api("POST", "/api/definitions", definitions(vhost, PASSWORDS))
    made = World(rabbit_server, vhost, tmp_path, redis_url)
    with daemons(made.registrar, made.gateway):
        wait_until((tmp_path / "token").exists, what="the administrator's token")
        yield made
    for user in rabbit_server.api("GET", "/api/users"):
        if user["name"] != rabbit_server.user:
            rabbit_server.api("DELETE", f"/api/users/{user['name']}")


async def test_a_machine_gets_in_with_a_join_token_and_out_by_revocation(world):
    token = await asyncio.to_thread(world.create, "-role", "startd", "-name", "ep*.example.org")
    assert "startd.ep1.example.org is enrolled" in await asyncio.to_thread(world.enroll, "startd", "ep1.example.org")
    kept = world.directory / "identities" / "startd.ep1.example.org"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    for name in ("password", "amqp_url", "config"):
        assert stat.S_IMODE((kept / name).stat().st_mode) == 0o600, name
    url = world.amqp_url("startd.ep1.example.org")
    keys = kept / "gateways.pem"
    assert (kept / "config").read_text() == f"STARTD.ROOST_AMQP_URL = {url}\nSTARTD.ROOST_GATEWAY_KEYS = {keys}\n"
    assert keys.read_text() == (world.directory / "cm.key.pub").read_text()

    # It is who it says it is, and nobody else.
    startd = connect(url, "startd.ep1.example.org")
    await startd.start()
    await startd.serve("startd.ep1.example.org", Catch())
    with pytest.raises(NotAllowed):
        await startd.serve("startd.ep2.example.org", Catch())
    with pytest.raises(NotAllowed):  # nor a gateway's
        await startd.serve("registrar", Catch())

    # With the same join token it comes again, and learns the keys that gateways have now.
    signer_of(world.directory / "new.key")
    both = (world.directory / "cm.key.pub").read_text() + (world.directory / "new.key.pub").read_text()
    (world.directory / "cm.key.pub").write_text(both)
    await asyncio.to_thread(world.enroll, "startd", "ep1.example.org")
    assert keys.read_text() == both
    assert world.amqp_url("startd.ep1.example.org") == url

    # The token is used up, and neither it nor the password lies anywhere else.
    assert "has been used" in await asyncio.to_thread(world.enroll, "startd", "ep3.example.org", False)
    password = (kept / "password").read_text()
    for place in (world.directory / "registrar-cm", world.directory / "gateway-cm", world.directory / "audit.log"):
        for path in [place, *place.rglob("*")]:
            if path.is_file():
                assert token.encode() not in path.read_bytes(), path
                assert password.encode() not in path.read_bytes(), path
    audit = (world.directory / "audit.log").read_text()
    assert '"enroll"' in audit
    assert "ep3.example.org" in audit

    def listed():
        return world.users()["startd.ep1.example.org"]

    row = await asyncio.to_thread(listed)
    assert row["enrolled"]
    assert row["since"] > 0
    assert "@" in row["by"]
    assert row["address"] == "127.0.0.1"
    await eventually(lambda: _connected(world), what="the broker to show the connection")
    assert "ep1.example.org" in await asyncio.to_thread(world.roost, "identities")

    # Out: at once, and it does not get in again.
    assert "startd.ep1.example.org is revoked" in await asyncio.to_thread(
        world.roost, "identities", "revoke", "startd.ep1.example.org"
    )
    await eventually(lambda: not startd.health.connected, what="the connection to be ended")
    with pytest.raises(aio_pika.exceptions.ProbableAuthenticationError):
        await aio_pika.connect(url)
    assert "startd.ep1.example.org" not in await asyncio.to_thread(world.users)
    await startd.stop()


async def _connected(world):
    """Asked in a thread: the startd's own connection needs this loop meanwhile."""
    users = await asyncio.to_thread(world.users)
    return users["startd.ep1.example.org"]["connected"]


def test_a_join_token_lets_in_only_whom_it_was_made_for(world):
    world.create("-role", "startd", "-name", "ep?", "-uses", "2")
    for role, name, why in (
        ("schedd", "ep1", "is for startd, not for schedd"),
        ("gateway", "ep1", "made by hand"),
        ("registrar", "ep1", "made by hand"),
        ("negotiator", "ep1", "made by hand"),
        ("startd", "other", "names that fit 'ep?'"),
        ("startd", "ep10", "names that fit 'ep?'"),
        ("startd", "off.ep1", "can not be the name"),
        ("startd", "a/visits", "can not be the name"),
        ("startd", "#", "can not be the name"),
        ("nobody", "ep1", "is no role"),
    ):
        assert why in world.enroll(role, name, ok=False), (role, name)
    world.enroll("startd", "ep1")
    # Another machine does not get a name that is taken; the same one, whose answer was lost, does.
    assert "has a user already" in world.enroll("startd", "ep1", ok=False, directory="elsewhere")
    before = world.amqp_url("startd.ep1")
    world.enroll("startd", "ep1")
    assert world.amqp_url("startd.ep1") == before
    world.enroll("startd", "ep2")
    assert "has been used" in world.enroll("startd", "ep3", ok=False)
    # A user that was made by hand is nobody's to take over.
    made = {"password_hash": password_hash("x"), "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ""}
    world.server.api("PUT", "/api/users/startd.ep4", made)
    world.create("-role", "startd", "-name", "ep4")
    assert "made by hand" in world.enroll("startd", "ep4", ok=False)
    for roles in (("gateway",), ("startd", "collector"), ("nobody",)):
        options = [word for role in roles for word in ("-role", role)]
        assert "none of these" in world.roost("enroll", "-create", *options, "-name", "x", ok=False)


def test_join_tokens_expire_and_can_be_taken_away(world):
    world.create("-role", "startd", "-name", "*", "-lifetime", "1")
    (listed,) = json.loads(world.roost("identities", "-json"))["tokens"]
    wait_until(lambda: time.time() > listed["expires"], what="its end")
    assert "has expired" in world.enroll("startd", "ep1", ok=False)
    world.create("-role", "startd", "-name", "*", "-lifetime", "0")
    ident = next(one["id"] for one in json.loads(world.roost("identities", "-json"))["tokens"] if not one["expires"])
    assert "1 join token revoked" in world.roost("identities", "revoke", ident)
    assert "does not know the join token" in world.enroll("startd", "ep1", ok=False)
    assert "nobody is called" in world.roost("identities", "revoke", "ep1", ok=False)


def test_guesses_are_limited(world):
    good, said = world.create("-role", "startd", "-name", "*"), []
    with Client(f"http://127.0.0.1:{world.port}", "") as client:
        for guess in (*(f"guess {n}" for n in range(12)), good):  # also one that is good, from there
            with pytest.raises(ClientError) as refused:
                client.enroll(guess, "startd", "ep1", password_hash("x"))
            said.append(str(refused.value))
    assert all("does not know the join token" in one for one in said[:10]), said
    assert all("too many join tokens that are none" in one for one in said[10:]), said


def test_making_and_revoking_are_for_administrators(world):
    token = world.roost("token", "create", "alice@pool", "-level", "WRITE").strip()
    (world.directory / "token.alice").write_text(token)
    admin = (world.directory / "token").read_text()
    (world.directory / "token").write_text(token)
    try:
        for words in (
            ("enroll", "-create", "-role", "startd", "-name", "x"),
            ("identities",),
            ("identities", "revoke", "gateway.cm"),
        ):
            assert "needs ADMINISTRATOR" in world.roost(*words, ok=False)
    finally:
        (world.directory / "token").write_text(admin)


def test_who_was_revoked_stays_out_and_who_is_in_comes_back(world):
    """Whatever the broker reads at its start, and whatever it has lost."""
    world.create("-role", "startd", "-name", "ep?", "-uses", "2")
    world.enroll("startd", "ep1")
    world.enroll("startd", "ep2")
    world.roost("identities", "revoke", "ep1")
    world.roost("identities", "revoke", "had.cm")  # made by hand
    world.registrar.kill()
    world.server.api("POST", "/api/definitions", definitions(world.vhost, {**PASSWORDS, "startd.ep1": "from a file"}))
    world.server.api("DELETE", "/api/users/startd.ep2")
    there = {one["name"] for one in world.server.api("GET", "/api/users")}
    assert {"startd.ep1", "had.cm"} <= there
    world.registrar.start()

    def mended():
        names = {one["name"] for one in world.server.api("GET", "/api/users")}
        return "startd.ep2" in names and names.isdisjoint({"startd.ep1", "had.cm"})

    wait_until(mended, what="the registrar to look")

    async def works():
        async with asyncio.timeout(20):
            await (await aio_pika.connect(world.amqp_url("startd.ep2"))).close()

    asyncio.run(works())
    assert set(world.users()) == {"startd.ep2", *(f"{role}.cm" for role in ROLES if role != "had")} - {ADMINISTRATOR}


async def test_the_registrar_is_asked_by_gateways_only(world):
    """Nobody else reaches its inbox; and what reaches it all the same, by the default exchange, is refused."""
    before = await asyncio.to_thread(world.users)
    guess = Enroll(token="x", role="startd", name="a", broker_hash=password_hash("x"))
    async with speaking(world, "schedd.cm") as schedd, speaking(world, "gateway.cm", "schedd.cm") as forger:
        for bus in (schedd, forger):
            for attack in (RevokeIdentity(name="startd.cm"), guess):
                with pytest.raises((NotAllowed, BusUnavailable)):
                    await bus.call("registrar", attack, timeout=5)
    link = await Link.open(world.url("schedd.cm"), name="burglar", heartbeat_s=10, timeout_s=30)
    async with speaking(world, "gateway.cm", signer=world.signer) as gateway:
        for number, sender in enumerate(("schedd.cm", "gateway.cm")):
            for attack in (RevokeIdentity(name="startd.cm"), AskIdentities(), guess):
                properties = Basic.Properties(user_id="schedd.cm", message_id=f"{attack.type} {number}")
                await guarded(
                    link.confirming.basic_publish(
                        Envelope(attack, sender).pack(),
                        exchange="",
                        routing_key=inbox_queue("registrar"),
                        properties=properties,
                    )
                )
        await link.close()
        # It took up all of them before this: inboxes are read in order.
        with pytest.raises(RemoteFailure, match="does not know the join token"):
            await gateway.call("registrar", guess)
        letters = await eventually(lambda: at_least(6, gateway.dead_letters), what="all of them to be dead letters")
    assert {letter.publisher for letter in letters} == {"schedd.cm"}
    assert all("denied: " in letter.reason for letter in letters), letters
    assert set(await asyncio.to_thread(world.users)) == set(before)


async def test_not_even_a_gateways_password_makes_a_join_token(world):
    """What only administrators may do takes their word, signed with a gateway's key, in their own name."""
    create = {"roles": ["startd"], "names": "*"}
    root, alice = Person("root@pool", "ADMINISTRATOR"), Person("alice@pool", "WRITE")
    async with speaking(world, "gateway.cm") as thief, speaking(world, "gateway.cm", signer=world.signer) as gateway:
        for bus, person, by, why in (
            (thief, None, "root@pool", "the gateway has no key"),
            (thief, root, "root@pool", "the gateway has no key"),
            (gateway, None, "root@pool", "the gateway has no key"),
            (gateway, alice, "alice@pool", "it takes ADMINISTRATOR"),
            (gateway, alice, "root@pool", "it takes ADMINISTRATOR"),
            (gateway, root, "alice@pool", "it says it is from 'alice@pool', its statement from 'root@pool'"),
        ):
            for asked in (CreateJoinToken(**create, by=by), RevokeIdentity(name="startd.cm", by=by)):
                with pytest.raises(RemoteFailure, match=why) as refused:
                    await bus.call("registrar", asked, person=person)
                assert refused.value.code == "denied"
        for bus, person in ((thief, None), (gateway, None), (gateway, alice)):
            with pytest.raises(RemoteFailure, match=r"the gateway has no key|it takes ADMINISTRATOR"):
                await bus.call("registrar", AskIdentities(), person=person)
        found = await gateway.call("registrar", AskIdentities(), person=root)
        assert found.tokens == []
        assert "startd.cm" in {one["user"] for one in found.identities}
        made = await gateway.call("registrar", CreateJoinToken(**create, by="root@pool"), person=root)
        # The machine has no login: its join token is all that is looked at.
        asked = Enroll(token=made.token, role="startd", name="ep1", broker_hash=password_hash("x"))
        assert (await gateway.call("registrar", asked)).user == "startd.ep1"


@asynccontextmanager
async def speaking(world, sender, user=None, **options):
    """A bus of this sender, logged in as that user of the broker."""
    bus = connect(world.url(user or sender), sender, **options)
    await bus.start()
    try:
        yield bus
    finally:
        await bus.stop()


async def at_least(count, ask):
    found = await ask()
    return found if len(found) >= count else None


def test_a_personal_pool_says_that_it_needs_none(tmp_path):
    from tests.integration.pools import EmbeddedPool

    pool = EmbeddedPool(tmp_path / "pool")
    try:
        pool.start("-cpus", "1")
        done = pool.roost("enroll", "-create", "-role", "startd", "-name", "x", ok=False)
        assert done.returncode == 1
        assert "a personal pool needs no users of a broker" in done.stderr
    finally:
        pool.close()


def test_a_machine_that_is_set_up_starts_as_its_unit_says(world, tmp_path):
    """`roost setup execution-point -root`: then what systemd would do, by the files alone."""
    root, name = tmp_path / "machine", "ep7.example.org"
    world.create("-role", "startd", "-name", name)
    words = ("setup", "execution-point", "-root", str(root), "-name", name, "-token-file", "join")
    said = world.roost(*words, token=False)
    assert "wrote /etc/systemd/system/roost-startd.service" in said
    assert world.roost(*words, token=False).count("wrote") == said.count("wrote") - 1  # the first file stays
    unit = dict(
        line.partition("=")[::2]
        for line in (root / "etc/systemd/system/roost-startd.service").read_text().splitlines()
        if "=" in line
    )
    secret = root / unit["EnvironmentFile"].removeprefix("/")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    local = root / "etc/condor/config.d/00-roost-execution-point"
    local.write_text(local.read_text().replace(" /etc/", f" {root}/etc/"))
    first = root / "etc/condor/condor_config"
    first.write_text(first.read_text().replace(" /etc/", f" {root}/etc/").replace(" /var/", f" {root}/var/"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(PATIENCE_S)
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "_CONDOR_", "CONDOR_"))}
        env = clean | dict(word.split("=", 1) for word in unit["Environment"].split())
        env |= dict([secret.read_text().strip().split("=", 1)])
        env |= {"CONDOR_CONFIG": str(first), "NOTIFY_SOCKET": str(tmp_path / "notify"), "PYTHONPATH": str(ROOT)}
        env |= {"_CONDOR_RUNBENCHMARKS": "false"}
        startd = Leashed(unit["ExecStart"].split(), log=tmp_path / "startd.log", env=env, cwd=tmp_path)
        try:
            while "READY=1" not in systemd.recv(4096).decode().splitlines():
                assert startd.returncode is None, startd.tail()
            wait_until(lambda: world.users()[f"startd.{name}"]["connected"], what="the startd at the broker")
            startd.terminate()
            while "STOPPING=1" not in systemd.recv(4096).decode().splitlines():
                pass
            assert startd.wait() == 0
        finally:
            startd.close()


def test_systemd_understands_the_units(tmp_path):
    texts = {UNIT: unit(ExecutionPoint("node1", "/bin/true"))}
    texts[access_point.UNIT] = access_point.unit(AccessPoint("ap", "/bin/true", "", "example.org"))
    manager = CentralManager("cm", "/bin/true", "example.org", "amqps://cm/")
    texts |= {unit_name(role): central_manager.unit(manager, role) for role in central_manager.ROLES}
    for name, text in texts.items():
        (tmp_path / name).write_text(re.sub("User=.*|Group=.*", "", text))  # accounts that this machine has not
    program = shutil.which("systemd-analyze")
    assert program, "systemd-analyze is missing (apt-get install systemd); or leave this out: --without servers"
    paths = [tmp_path / name for name in texts]
    done = subprocess.run([program, "verify", *paths], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


async def test_a_schedd_flocks_with_an_identity_of_the_other_pool_until_that_is_revoked(world, tmp_path):
    await asyncio.to_thread(world.create, "-role", "schedd", "-name", "ap")
    await asyncio.to_thread(world.enroll, "schedd", "ap", True, str(tmp_path / "flock" / "other"))
    startd = FakeStartd(None, "cm", connect(world.url("startd.cm"), "startd.cm"))
    await startd.start()
    negotiator = connect(world.url("negotiator.cm"), "negotiator.cm")
    await negotiator.start()
    knobs = {"FLOCK_TO": "other", "MIN_FLOCK_LEVEL": 1, "ROOST_SCHEDD_FLOCK_DIRECTORY": tmp_path / "flock"}
    async with Pool(tmp_path / "home", **knobs) as home:
        await eventually(lambda: not home.schedd.troubles(), what="the other pool")
        await home.submit()
        terms = {"negotiator": "cm", "epoch": 3, "cycle": 1}
        asked = await negotiator.call("schedd.ap", GetRequests(submitters=[USER], **terms))
        match = Match(
            submitter=USER,
            autocluster=asked.requests[USER][0].autocluster,
            slot="slot1@cm",
            startd=startd.inbox,
            claim_id="<cm>#1#0#pslot",
            slot_ad=slot_ad("slot1@cm").pack(),
        )
        await negotiator.call("schedd.ap", Matches(matches=[match], **terms))
        await eventually(lambda: startd.activations, what="a run in the other pool")
        assert (await startd.finish(startd.activations[0])).known
        assert (await home.history())[0]["LastRemotePool"] == "other"

        await asyncio.to_thread(world.roost, "identities", "revoke", "schedd.ap")
        await eventually(home.schedd.troubles, what="the other pool to be told as away")
        run = await home.run_one()
        assert (await home.startd.finish(run)).known  # jobs at home go on
    await startd.bus.stop()
    await negotiator.stop()
