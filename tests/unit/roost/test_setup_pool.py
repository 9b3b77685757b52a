"""What `roost setup central-manager` and `roost setup access-point` write, without a machine to write it to."""

import json
import os
from pathlib import Path

import pytest

from roost.cli import setup_central_manager
from roost.cli.main import main
from roost.errors import ClientError
from roost.setup import access_point, central_manager, debian, layout, machine, secrets, servers
from roost.setup.access_point import AccessPoint
from roost.setup.central_manager import ROLES, CentralManager, Secrets
from shared.bus.definitions import ADMINISTRATOR, beginning
from shared.config import load_config
from shared.config.knobs import GatewaySettings, RegistrarSettings, ScheddSettings
from shared.state import acl

MANAGER = CentralManager("cm.example.org", "/opt/roost/bin/python", "example.org", "amqps://cm.example.org:5671/")
PASSWORDS = {MANAGER.user(role): f"password-of-{role}" for role in ROLES}
PASSWORDS |= {user: f"password-of-{user}" for user in acl.OTHERS} | {ADMINISTRATOR: "password-of-administrator"}
SECRETS = Secrets(
    urls={role: servers.broker_url(MANAGER.user(role), f"password-of-{role}") for role in ROLES},
    stores={
        role: servers.store_url(MANAGER.user(role), f"password-of-{role}")
        for role in ROLES
        if servers.uses_store(MANAGER.user(role))
    }
    | {user: servers.store_url(user, f"password-of-{user}") for user in acl.OTHERS},
    api=servers.api_url(ADMINISTRATOR, "password-of-administrator"),
    authority="authority",
    certificate="certificate and key",
    key="signs statements",
    public_key="is for all",
)
ACCESS = AccessPoint("ap.example.org", "/opt/roost/bin/python", "https://cm.example.org:9680", "example.org", True)


def manager_files():
    return [*central_manager.files(MANAGER, SECRETS), *servers.files(PASSWORDS, "certificate and key of the broker")]


def reader(tmp_path, files, subsystem):
    machine.write(files, tmp_path)
    first = machine.below(tmp_path, layout.CONFIGURATION)
    first.write_text(first.read_text().replace(f"= {layout.LOCAL}", f"= {tmp_path}{layout.LOCAL}"))
    return load_config([first], subsystem=subsystem, env={})


@pytest.mark.parametrize("secret", [f"password-of-{role}" for role in (*ROLES, *acl.OTHERS, "administrator")])
def test_a_password_is_in_files_of_its_own_daemon_and_of_nobody_else(secret):
    role = secret.removeprefix("password-of-")
    where = {
        **{user: {central_manager.by_hand(user)} for user in acl.OTHERS},
        "administrator": {central_manager.BROKER_API},
    }.get(role, {layout.environment(role, MANAGER.name)})
    found = {file.path: file for file in manager_files() if secret in file.text}
    assert found.keys() == where
    assert all(not file.mode & 0o077 for file in found.values())


def test_only_public_things_are_for_everybody():
    told = {str(file.path) for file in manager_files() if file.mode & 0o004}
    assert {path for path in told if not path.endswith((".service", ".conf"))} == {
        "/etc/condor/condor_config",
        "/etc/condor/config.d/00-roost-central-manager",
        "/etc/condor/pool-ca.pem",
        "/etc/condor/gateway/statements.key.pub",
        "/etc/condor/gateway-keys/cm.example.org.pub",
    }


def test_the_gateways_account_reads_nothing_of_the_others():
    """It is the one daemon that speaks to everybody."""
    own = {file.path for file in manager_files() if file.owner.startswith(central_manager.GATEWAY_ACCOUNT)}
    assert own == {central_manager.CERTIFICATE, central_manager.KEY}
    units = {role: central_manager.unit(MANAGER, role) for role in ROLES}
    assert [role for role, text in units.items() if f"User={central_manager.GATEWAY_ACCOUNT}\n" in text] == ["gateway"]
    assert [role for role, text in units.items() if f"User={central_manager.ACCOUNT}\n" in text] == [
        role for role in ROLES if role != "gateway"
    ]


def test_daemons_of_a_central_manager_read_what_is_written(tmp_path):
    config = reader(tmp_path, manager_files(), "GATEWAY")
    settings = GatewaySettings.from_config(config)
    assert (settings.roost_gateway_bind, settings.roost_gateway_port) == ("0.0.0.0", 9680)
    assert settings.roost_gateway_key == "/etc/condor/gateway/statements.key"
    assert settings.uid_domain == "example.org"
    assert config.get("SPOOL") == "/var/lib/roost-gateway/spool"
    config = reader(tmp_path / "again", manager_files(), "REGISTRAR")
    settings = RegistrarSettings.from_config(config)
    assert settings.registrar_daemons_amqp == ("amqps://cm.example.org:5671/",)
    assert settings.registrar_broker_api_file == "/etc/condor/registrar/broker_api"
    assert config.get("ROOST_GATEWAY_KEYS") == "/etc/condor/gateway-keys"
    assert reader(tmp_path / "collector", manager_files(), "COLLECTOR").get("SPOOL") == "/var/lib/roost/spool"


def test_a_startd_beside_a_central_manager_keeps_its_own_spool(tmp_path):
    assert reader(tmp_path, manager_files(), "STARTD").get("SPOOL") == "/var/lib/condor/spool"


def test_the_broker_hears_other_machines_with_tls_alone_and_redis_hears_none():
    told = {file.path: file.text for file in servers.files(PASSWORDS, "pem")}
    listens = [line for line in told[servers.BROKER_FILE].splitlines() if line.startswith(("listeners", "management"))]
    assert listens == [
        "listeners.tcp.local = 127.0.0.1:5672",
        "listeners.ssl.default = 5671",
        "management.tcp.ip = 127.0.0.1",
        "management.tcp.port = 15672",
    ]
    assert "bind 127.0.0.1\n" in told[servers.STORE_FILE]
    users = [line.split()[1] for line in told[servers.STORE_USERS].splitlines()]
    of_daemons = [MANAGER.user(role) for role in SECRETS.stores if role not in acl.OTHERS]
    assert users == ["default", "health", *of_daemons, *acl.OTHERS]


def test_the_broker_learns_of_the_first_daemons_and_the_registrar_of_all_others():
    told = json.loads(next(f.text for f in servers.files(PASSWORDS, "pem") if f.path == servers.BROKER_DEFINITIONS))
    assert {one["name"] for one in told["users"]} == {*(MANAGER.user(role) for role in ROLES), ADMINISTRATOR}
    assert {one["user"] for one in told["permissions"]} == {one["name"] for one in told["users"]}
    assert [one["name"] for one in told["users"] if one["tags"]] == [ADMINISTRATOR]
    assert {"roost.ads", "roost.requests"} <= {one["name"] for one in told["exchanges"]}
    given = beginning("/", {user: word for user, word in PASSWORDS.items() if user in map(MANAGER.user, ROLES)})
    assert ADMINISTRATOR not in {one["name"] for one in given["users"]}  # where others run the broker


def test_the_same_again_keeps_every_password(tmp_path):
    places = {user: tmp_path / user for user in (MANAGER.user("had"), acl.LOADER, ADMINISTRATOR)}
    first = secrets.passwords(places)
    assert len(set(first.values())) == 3
    assert secrets.passwords(places) != first  # nothing was written
    (tmp_path / MANAGER.user("had")).write_text(f"ROOST_AMQP_URL={servers.broker_url(MANAGER.user('had'), 'a%40b')}\n")
    (tmp_path / acl.LOADER).write_text(f"ROOST_REDIS_URL={servers.store_url(acl.LOADER, 'two')}\n")
    (tmp_path / ADMINISTRATOR).write_text(servers.api_url(ADMINISTRATOR, "three") + "\n")
    assert secrets.passwords(places) == {MANAGER.user("had"): "a@b", acl.LOADER: "two", ADMINISTRATOR: "three"}
    other = {MANAGER.user("collector"): tmp_path / MANAGER.user("had")}
    assert secrets.passwords(other)[MANAGER.user("collector")] != "a@b"  # it is another user's


def test_the_gateways_key_is_made_once(tmp_path):
    key, public = secrets.key_pair(tmp_path / "statements.key")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "statements.key").write_text(key)
    assert secrets.key_pair(tmp_path / "statements.key") == (key, public)


def test_a_schedd_reads_what_is_written(tmp_path):
    files = access_point.files(ACCESS, "amqps://schedd.ap.example.org:secret@cm.example.org:5671/", "pem", "keys")
    config = reader(tmp_path, files, "SCHEDD")
    settings = ScheddSettings.from_config(config)
    assert (settings.roost_schedd_transfer_host, settings.roost_schedd_transfer_port) == ("ap.example.org", 9681)
    assert config.get("SCHEDD_NAME") == "ap.example.org"
    assert config.get("SPOOL") == "/var/lib/roost-schedd/spool"
    assert config.get("AUTH_SSL_SERVER_CERTFILE") == "/etc/condor/access-point/server.pem"
    assert config.get("AUTH_SSL_CLIENT_CAFILE") == "/etc/condor/pool-ca.pem"
    assert [str(file.path) for file in files if "secret" in file.text] == [
        "/etc/condor/identities/schedd.ap.example.org/environment"
    ]
    profile = next(file.text for file in files if file.path == access_point.PROFILE)
    assert 'ROOST_URL="${ROOST_URL:-https://cm.example.org:9680}"' in profile


@pytest.mark.parametrize(
    ("pem", "name", "told"),
    [
        ("whole", "ap.example.org", ""),
        ("whole", "other.example.org", "it is for ap.example.org, 10.0.0.7, not for other.example.org"),
        ("without key", "ap.example.org", "no private key"),
        ("key alone", "ap.example.org", "no certificate of a server"),
    ],
)
def test_a_certificate_that_would_not_do_is_told(pem, name, told, tmp_path):
    made = secrets.certificate(secrets.authority(tmp_path), "ap", ["ap.example.org", "10.0.0.7"])
    key, _, certificate = made.partition("-----BEGIN CERTIFICATE-----")
    text = {"whole": made, "without key": "-----BEGIN CERTIFICATE-----" + certificate, "key alone": key}[pem]
    problem = secrets.certificate_problem(text, name)
    assert told in problem if told else problem == ""


@pytest.mark.parametrize(
    ("host", "domain"), [("cm.example.org", "example.org"), ("cm", "cm"), ("10.0.0.7", "10.0.0.7"), ("::1", "::1")]
)
def test_the_domain_of_users_is_that_of_the_host(host, domain):
    assert layout.domain_of(host) == domain


def test_a_rabbitmq_that_serves_something_else_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(debian, "_BROKER_ETC", tmp_path)
    monkeypatch.setattr(debian, "_installed", lambda name: True)
    monkeypatch.setattr(servers, "BROKER_FILE", tmp_path / "conf.d" / "50-roost.conf")
    debian.check_broker()
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "10-shop.conf").touch()
    with pytest.raises(ClientError, match=r"set up for something already .*10-shop.conf.*-amqp and -broker-api-file"):
        debian.check_broker()
    (tmp_path / "conf.d" / "50-roost.conf").touch()
    debian.check_broker()  # beside what was set up here


def test_a_dry_run_shows_all_of_a_central_manager_but_no_secret(capsys, monkeypatch):
    monkeypatch.setattr(debian, "missing", lambda: ["redis-server"])
    assert main(["setup", "central-manager", "-dry-run", "-name", "cm.example.org"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("apt-get install redis-server\n")
    for path in ("/etc/condor/identities/had.cm.example.org/environment", "50-roost.conf", "roost-gateway.service"):
        assert path in shown
    assert "REGISTRAR.REGISTRAR_DAEMONS_AMQP = amqps://cm.example.org:5671/\n" in shown


def test_servers_elsewhere_are_used_as_they_are_named(capsys, tmp_path):
    (tmp_path / "api").write_text("https://admin:word@mq.example.org:15671\n")
    (tmp_path / "redis").write_text("rediss://admin:word@redis.example.org/3?prefix=pool:\n")
    words = ["setup", "central-manager", "-dry-run", "-name", "cm.example.org", "-amqp", "amqps://mq.example.org/pool"]
    assert main([*words, "-broker-api-file", f"{tmp_path}/api", "-redis-file", f"{tmp_path}/redis"]) == 0
    shown = capsys.readouterr().out
    for here in ("apt-get", "/etc/rabbitmq", "/etc/redis"):
        assert here not in shown
    made = setup_central_manager._SECRET
    assert f"ROOST_AMQP_URL=amqps://collector.cm.example.org:{made}@mq.example.org/pool\n" in shown
    assert f"ROOST_REDIS_URL=rediss://collector.cm.example.org:{made}@redis.example.org/3?prefix=pool:\n" in shown
    assert "REGISTRAR.REGISTRAR_DAEMONS_AMQP = amqps://mq.example.org/pool\n" in shown
    assert "rabbitmq-server.service" not in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("central-manager", "-name", "no host"), "'no host' is no name of a host"),
        (("central-manager", "-amqp", "amqp://mq/"), "-amqp URL and -broker-api-file FILE go together"),
        (("central-manager", "-amqp", "http://mq/", "-broker-api-file", "api"), "want amqps://host"),
        (("central-manager", "-amqp", "amqp://mq/", "-broker-api-file", "redis"), "want http[s]://user:password"),
        (("central-manager", "-redis-file", "none"), "none: No such file or directory"),
        (("central-manager", "-redis-file", "sentinels"), "an access list of its own"),
        (("central-manager", "-redis-file", "api"), "is no URL of a store"),
        (("central-manager", "here"), "'here' does not belong here"),
        (("access-point", "-name", "ap", "-root", "."), "roost setup certificate ap > FILE"),
        (("access-point", "-certificate-file", "api", "-root", "."), "it holds no private key"),
        (("certificate",), "wants the name by which other machines reach the access point"),
        (("certificate", "ap"), "on the pool's central manager"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_done(words, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(central_manager, "CA_DIRECTORY", tmp_path / "ca")
    (tmp_path / "api").write_text("http://admin:word@mq:15672\n")
    (tmp_path / "redis").write_text("redis://redis/0\n")
    (tmp_path / "sentinels").write_text("redis+sentinel://a,b/pool/0\n")
    before = sorted(tmp_path.rglob("*"))
    assert main(["setup", *words]) == 1
    assert told in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["central-manager", "access-point", "execution-point"])
def test_nobody_but_root_takes_daemons_away(kind, capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["setup", kind, "-remove"]) == 1
    assert "run it as root" in capsys.readouterr().err


def test_taking_daemons_away_ends_them_and_leaves_their_state(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "UNITS", tmp_path)
    said = []
    monkeypatch.setattr(machine, "systemctl", lambda *words: said.append(words))
    (tmp_path / "roost-schedd.service").touch()
    (tmp_path / "00-roost-access-point").touch()
    done = machine.remove(["roost-schedd.service", "roost-none.service"], [tmp_path / "00-roost-access-point"])
    assert [line.partition(" ")[0] for line in done] == ["stopped", "removed"]
    assert said == [("disable", "--quiet", "--now", "roost-schedd.service"), ("daemon-reload",)]
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_an_account_that_is_not_there_is_told():
    with pytest.raises(LookupError, match="no account nobody-of-this-name:x"):
        machine._ids("nobody-of-this-name:x")
    assert machine._ids("root:root") == (0, 0)
    assert not machine.same(layout.File(Path("/nonexistent"), ""))
