"""The topology, the broker's definitions made from it, and the choice of a transport."""

import base64
import hashlib
import json
import re

import pytest

from shared.bus import connect
from shared.bus.amqp import AmqpBus
from shared.bus.api import Exchange
from shared.bus.definitions import (
    ADMINISTRATOR,
    RIGHTS,
    definitions,
    main,
    password_hash,
    permissions,
    topic_permissions,
)
from shared.bus.memory import MemoryBus, MemoryHub
from shared.bus.topology import KINDS, MAX_DEAD_LETTERS, ROLES, inbox_declaration, standing_queues, work_queue
from shared.messages.flows import EVERY, PUBLISHED

PASSWORDS = {user: f"p-{user}" for user in (*ROLES, "roost")}
VARIABLES = {f"ROOST_{user.upper()}_PASSWORD": password for user, password in PASSWORDS.items()}


def test_definitions_name_everything_that_always_exists():
    made = definitions("pool", PASSWORDS)
    assert {exchange["name"]: exchange["type"] for exchange in made["exchanges"]} == dict(KINDS)
    assert [queue["name"] for queue in made["queues"]] == [
        "roost.dead",
        "roost.inbox.collector",
        "roost.inbox.negotiator",
    ]
    assert made["queues"][0]["arguments"]["x-queue-type"] == "quorum"
    assert made["queues"][0]["arguments"]["x-max-length"] == MAX_DEAD_LETTERS
    assert {user["name"] for user in made["users"]} == set(PASSWORDS)
    assert {entry["vhost"] for entry in made["permissions"]} == {"pool"}
    text = json.dumps(made)
    assert not any(password in text for password in PASSWORDS.values())


def test_password_is_hashed_as_rabbitmq_does():
    raw = base64.b64decode(password_hash("secret"))
    assert raw[4:] == hashlib.sha256(raw[:4] + b"secret").digest()
    assert password_hash("test12", bytes.fromhex("908DC60A")) == "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


def test_missing_password_is_named():
    with pytest.raises(ValueError, match="no password for schedd: set ROOST_SCHEDD_PASSWORD"):
        definitions("/", {**PASSWORDS, "schedd": ""})


def test_command_prints_definitions_from_variables_and_files(monkeypatch, capsys, tmp_path):
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "secret").write_text("from a file\n")
    monkeypatch.setenv("ROOST_HAD_PASSWORD_FILE", str(tmp_path / "secret"))
    main(["--vhost", "x"])
    made = json.loads(capsys.readouterr().out)
    hashed = base64.b64decode(next(u["password_hash"] for u in made["users"] if u["name"] == "had"))
    assert hashed[4:] == hashlib.sha256(hashed[:4] + b"from a file").digest()


def test_command_without_passwords_says_what_lacks(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SystemExit, match="ROOST_STARTD_PASSWORD"):
        main([])


@pytest.mark.parametrize("role", ROLES)
def test_only_central_managers_read_claim_ids(role):
    may = bool(re.search(permissions(role)["read"], Exchange.PRIVATE))
    assert may == (role in ("collector", "negotiator"))


@pytest.mark.parametrize("role", ROLES)
def test_role_declares_only_its_own_queues(role):
    configure = permissions(role)["configure"]
    assert re.search(configure, f"roost.inbox.{role}.node1")
    assert re.search(configure, f"roost.listen.{role}.node1.0123456789ab")
    for other in set(ROLES) - {role}:
        assert not re.search(configure, f"roost.inbox.{other}.node1")
        assert not re.search(configure, f"roost.listen.{other}.node1.0123456789ab")
    assert not re.search(configure, "roost.dead")
    assert not re.search(configure, "roost.ads")


def test_what_the_catalogue_says_is_published_is_permitted():
    samples = {
        "collector": "Collector",
        "negotiator": "Negotiator",
        "schedd": "Submitter",
        "startd": "Machine",
        "had": "HAD",
    }
    for entry in PUBLISHED:
        roles = sorted(samples) if entry.by == (EVERY,) else entry.by
        for role in roles:
            for name in entry.types:
                key = entry.key.format(my_type=samples.get(role, ""), daemon=f"{role}@n.example", type=name)
                pattern = next(t["write"] for t in topic_permissions(role) if t["exchange"] == entry.exchange)
                assert re.search(pattern, key), (role, key)
                assert re.search(permissions(role)["write"], entry.exchange)


def test_no_role_may_publish_the_ads_of_another():
    for role in set(RIGHTS) - {"startd", "gateway"}:
        pattern = next(t["write"] for t in topic_permissions(role) if t["exchange"] == Exchange.ADS)
        assert not re.search(pattern, "update.Machine.startd@n")


def test_queues_are_durable_and_bounded():
    for queue in standing_queues():
        assert queue.durable
        assert not queue.exclusive
    assert inbox_declaration("schedd.a").arguments["x-expires"] > 86_400_000
    assert "x-expires" not in inbox_declaration("collector").arguments


def test_everything_durable_of_a_cluster_has_copies_on_other_nodes():
    """A classic queue lies on one node: while it is away the inbox of whoever is left could not be made."""
    for queue in (*standing_queues(clustered=True), inbox_declaration("schedd.a", clustered=True)):
        assert queue.arguments["x-queue-type"] == "quorum"
        assert queue.counted
    assert inbox_declaration("schedd.a", clustered=True).arguments["x-expires"] > 86_400_000
    declared = definitions("/", dict.fromkeys((*ROLES, ADMINISTRATOR), "x"), clustered=True)["queues"]
    assert {queue["arguments"]["x-queue-type"] for queue in declared} == {"quorum"}


def test_unknown_work_queue_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"roost\.collector"):
        work_queue("roost.colector")


async def test_url_chooses_the_transport():
    assert isinstance(connect("amqp://u:p@host:1/v", "schedd.a"), AmqpBus)
    hub = MemoryHub()
    bus = connect("memory:", "schedd.a", hub=hub)
    assert isinstance(bus, MemoryBus)
    assert bus.hub is hub
    with pytest.raises(ValueError, match="'http': want amqp://"):
        connect("http://host", "schedd.a")
