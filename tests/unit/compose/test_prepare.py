"""The keys, users and certificates of a compose pool."""

import json
import re
import stat
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509

from services.registrar.core.registry import digest
from services.registrar.registry_file import known_tokens
from shared.bus.definitions import ADMINISTRATOR
from shared.bus.statements import Keys, key_id, signer_of
from shared.bus.topology import ROLES
from shared.state import acl, keys
from shared.state.urls import parse
from tests.compose_set_up import MODULE, OWN, knobs, load, services, volumes_of_prepare

HA = pytest.mark.parametrize("ha", [False, True], ids=["one", "ha"])


def files(directory: Path) -> dict[str, bytes]:
    """All but the broker's definitions, whose hashes have fresh salt."""
    found = {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    return {name: data for name, data in found.items() if name not in ("rabbitmq/definitions.json", "authority/lock")}


def daemons(*, ha: bool) -> dict[str, tuple[str, dict]]:
    """Services that are daemons with a fixed name: user, as their command and host say it, and the service."""
    found = {}
    for name, service in services(ha=ha).items():
        command = service.get("command", [])
        module = next((word for word in command if str(word).startswith(MODULE)), "")
        if module and service["hostname"]:
            role = module.removeprefix(MODULE).replace("monitor", "gangliad")
            given = command[command.index("-name") + 1] if "-name" in command else service["hostname"]
            found[name] = (f"{role}.{given}", service)
    return found


def declared(directory: Path) -> dict:
    return json.loads((directory / "rabbitmq" / "definitions.json").read_text())


@HA
def test_every_daemon_has_a_user_of_its_own_in_a_volume_that_nobody_else_has(tmp_path, monkeypatch, ha):
    load(tmp_path, monkeypatch, ha=ha).main()
    prepared, passwords = volumes_of_prepare(ha=ha), set()
    there = daemons(ha=ha)
    assert len(there) == (22 if ha else 13)
    for name, (user, service) in there.items():
        mounted = [volume.split(":") for volume in service["volumes"] if f":{OWN}" in volume]
        (volume,) = [volume for volume, target, mode in mounted if (target, mode) == (OWN, "ro")]
        assert len(mounted) == 1, name
        (directory,) = [directory for directory, one in prepared.items() if one == volume]
        holders = {
            other
            for other, one in services(ha=ha).items()
            if any(v.startswith(f"{volume}:") for v in one.get("volumes", []))
        }
        assert holders == {"prepare", name}
        for url in (tmp_path / directory / "amqp_url").read_text().split(","):
            assert urlsplit(url).username == user
            passwords.add(urlsplit(url).password)
        text = b"".join(data for path, data in files(tmp_path / directory).items() if path != "broker_api").decode()
        assert set(re.findall(r"//([a-z0-9.]+):", text)) == {user}, name
        assert stat.S_IMODE((tmp_path / directory).stat().st_mode) == 0o700
    assert len(passwords) == len(there)
    made = {user["name"] for user in declared(tmp_path)["users"] if user["password_hash"]}
    assert made == {user for user, _ in there.values()} | {ADMINISTRATOR}
    retired = {user["name"] for user in declared(tmp_path)["users"] if not user["password_hash"]}
    assert retired == set(ROLES)  # nobody logs in as a whole role any more
    listed = re.findall(r"^user (\S+) reset resetchannels on #", (tmp_path / "redis" / "users.acl").read_text(), re.M)
    assert sorted({*listed} - {"replication"}) == sorted(
        [*(user for user in made if user.partition(".")[0] in acl.RIGHTS), acl.LOADER]
    )


@HA
def test_only_prepare_and_the_services_that_need_them_have_the_other_volumes(tmp_path, ha):
    prepared = set(volumes_of_prepare(ha=ha).values())
    holders: dict[str, set[str]] = {volume: set() for volume in prepared}
    for name, service in services(ha=ha).items():
        for volume in service.get("volumes", []):
            if volume.partition(":")[0] in prepared:
                holders[volume.partition(":")[0]].add(name)
                assert name == "prepare" or volume.endswith(":ro")
    assert holders["authority"] == holders["administrator-key"] == {"prepare"}
    assert holders["startd-join"] == {"prepare", "startd"}
    assert holders["loader-key"] == {"prepare", "functions"}


@HA
def test_another_run_changes_nothing(tmp_path, monkeypatch, ha):
    prepare = load(tmp_path, monkeypatch, ha=ha, ROOST_CONSUMERS="bill")
    prepare.main()
    first = files(tmp_path)
    prepare.main()
    assert files(tmp_path) == first
    assert len(first) > 70


def test_a_pool_that_becomes_highly_available_keeps_what_it_has(tmp_path, monkeypatch):
    load(tmp_path, monkeypatch).main()
    first = files(tmp_path)
    load(tmp_path, monkeypatch, ha=True).main()
    then = files(tmp_path)
    changed = {name for name in first if then[name] != first[name]}
    assert {Path(name).name for name in changed} == {"amqp_url", "redis_url", "broker_api", "users.acl"}
    for name in changed - {"redis/users.acl"}:
        assert urlsplit(first[name].decode()).password == urlsplit(then[name].decode().partition(",")[0]).password
    load(tmp_path, monkeypatch).main()  # and back: keys of gateways that are gone are believed no more
    assert [path.name for path in (tmp_path / "schedd" / "gateways").iterdir()] == ["gateway.pub"]


def test_the_password_of_a_whole_role_is_nobodys_any_more(tmp_path, monkeypatch):
    prepare = load(tmp_path, monkeypatch)
    (tmp_path / "had" / "amqp_url").write_text("amqp://had:known-to-three@rabbitmq:5672/")
    (tmp_path / "schedd" / "redis_url").write_text("of an older release")
    prepare.main()
    assert "known-to-three" not in b"".join(files(tmp_path).values()).decode()
    assert not (tmp_path / "schedd" / "redis_url").exists()


def test_daemons_of_the_highly_available_pool_know_all_brokers_and_sentinels(tmp_path, monkeypatch):
    load(tmp_path, monkeypatch, ha=True).main()
    brokers = (tmp_path / "gateway2" / "amqp_url").read_text().split(",")
    assert [urlsplit(url).hostname for url in brokers] == ["rabbitmq", "rabbitmq2", "rabbitmq3"]
    (password,) = {urlsplit(url).password for url in brokers}
    url = parse((tmp_path / "gateway2" / "redis_url").read_text())
    assert [host for host, _ in url.sentinels] == ["sentinel1", "sentinel2", "sentinel3"]
    assert (url.username, url.password, url.service) == ("gateway.gateway2", password, "roost")
    assert url.sentinel_username == "pool"
    assert str(url.sentinel_password) not in url.shown
    lines = (tmp_path / "redis" / "users.acl").read_text().splitlines()
    assert {"replication", "sentinel"} <= {line.split()[1] for line in lines}
    sentinel = (tmp_path / "sentinel" / "sentinel.conf").read_text()
    assert "user default off\n" in sentinel
    assert (tmp_path / "rabbitmq" / "cookie").read_text()


def test_every_key_of_the_pool_is_open_for_writing_to_some_role():
    known = [value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)]
    known += [keys.ads("Machine", "startd1"), keys.accountant("negotiator")]
    assert len(known) > 5
    patterns = [pattern for rights in acl.RIGHTS.values() for pattern in rights.keys]
    assert [key for key in known if not any(fnmatchcase(key, pattern) for pattern in patterns)] == []


@HA
def test_gateways_sign_and_everybody_knows_their_keys(tmp_path, monkeypatch, ha):
    load(tmp_path, monkeypatch, ha=ha).main()
    gateways = [name for name in daemons(ha=ha) if name.startswith("gateway")]
    signers = {name: signer_of(Path(knobs(tmp_path / name)["ROOST_GATEWAY_KEY"])) for name in gateways}
    assert len({key_id(one.public) for one in signers.values()}) == len(gateways) == (2 if ha else 1)
    for name in (*daemons(ha=ha), "join"):
        believed = Keys(Path(knobs(tmp_path / name)["ROOST_GATEWAY_KEYS"]))
        assert all(believed.find(key_id(one.public)) for one in signers.values()), name
        assert ("ROOST_GATEWAY_KEY" in knobs(tmp_path / name)) == (name in gateways)
    private = [one.private_pem for one in signers.values()]
    holders = {path.partition("/")[0] for path, data in files(tmp_path).items() if any(key in data for key in private)}
    assert holders == set(gateways)


@HA
def test_gateways_and_schedds_have_certificates_of_the_pools_authority(tmp_path, monkeypatch, ha):
    load(
        tmp_path,
        monkeypatch,
        ha=ha,
        ROOST_GATEWAY_HOSTS="pool.example.org, 10.1.2.3 *",
        ROOST_GATEWAY_ADDRESS="0.0.0.0",
    ).main()
    authority = x509.load_pem_x509_certificate((tmp_path / "gateway" / "ca.pem").read_bytes())
    served = [name for name in daemons(ha=ha) if name.startswith(("gateway", "schedd"))]
    for name in (*daemons(ha=ha), "join"):
        said = knobs(tmp_path / name)
        assert Path(said["AUTH_SSL_CLIENT_CAFILE"]).read_bytes() == (tmp_path / "authority" / "ca.pem").read_bytes()
        assert ("AUTH_SSL_SERVER_CERTFILE" in said) == (name in served)
        assert "ROOST_TRANSFER_WITHOUT_TLS" not in said
    for name in served:
        shown = Path(knobs(tmp_path / name)["AUTH_SSL_SERVER_CERTFILE"])
        assert stat.S_IMODE(shown.stat().st_mode) == 0o400
        certificate = x509.load_pem_x509_certificate(shown.read_bytes())
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        more = ["pool.example.org"] if name.startswith("gateway") else []
        assert names.get_values_for_type(x509.DNSName) == [name, "localhost", *more]
        addresses = [str(one) for one in names.get_values_for_type(x509.IPAddress)]
        assert addresses == ["127.0.0.1", "::1", *(["10.1.2.3"] if more else [])]
    key = (tmp_path / "authority" / "ca.key").read_bytes()
    assert [path for path, data in files(tmp_path).items() if key in data] == ["authority/ca.key"]


def test_a_name_that_the_gateway_gets_is_in_its_certificate_from_the_next_run_on(tmp_path, monkeypatch):
    load(tmp_path, monkeypatch).main()
    first = files(tmp_path)
    load(tmp_path, monkeypatch, ROOST_GATEWAY_HOSTS="pool.example.org").main()
    then = files(tmp_path)
    assert {name for name in first if then[name] != first[name]} == {"gateway/server.pem", "authority/gateway.pem"}
    assert b"BEGIN CERTIFICATE" in then["gateway/server.pem"]


@pytest.mark.parametrize(
    ("host", "url"), [("pool.example", "pool.example"), ("10.1.2.3", "10.1.2.3"), ("fd00::1", "[fd00::1]")]
)
def test_a_pool_that_is_open_to_other_machines_has_tls_at_all_doors(tmp_path, monkeypatch, host, url):
    load(tmp_path, monkeypatch, ROOST_OUTSIDE_HOST=host, ROOST_OUTSIDE_BROKER_PORT="15671").main()
    assert knobs(tmp_path / "registrar")["REGISTRAR_DAEMONS_AMQP"] == f"amqps://{url}:15671/"
    authority = x509.load_pem_x509_certificate((tmp_path / "schedd" / "ca.pem").read_bytes())
    for service in ("gateway", "schedd", "rabbitmq"):
        certificate = x509.load_pem_x509_certificate((tmp_path / service / "server.pem").read_bytes())
        certificate.verify_directly_issued_by(authority)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        found = {str(one.value) for one in names}
        assert {service, host} <= found


def test_the_highly_available_pool_is_not_opened_to_other_machines(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match=r"ROOST_OUTSIDE_HOST goes with compose\.yaml"):
        load(tmp_path, monkeypatch, ha=True, ROOST_OUTSIDE_HOST="pool.example").main()


def test_a_pool_without_tls_is_one_that_says_so(tmp_path, monkeypatch, capsys):
    load(tmp_path, monkeypatch, ROOST_SCHEME="http", ROOST_GATEWAY_TLS="yes").main()
    for name in (*daemons(ha=False), "join"):
        said = knobs(tmp_path / name)
        assert said["ROOST_TRANSFER_WITHOUT_TLS"] == "true"
        assert "AUTH_SSL_SERVER_CERTFILE" not in said
    assert "ROOST_GATEWAY_TLS has no effect" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"ROOST_SCHEME": "HTTPS"}, "ROOST_SCHEME is 'HTTPS': want https"),
        ({"ROOST_GATEWAY_HOSTS": "pool_example/x"}, "ROOST_GATEWAY_HOSTS: 'pool_example/x' is no name"),
        ({"ROOST_GATEWAY_HOSTS": "pöol.example"}, "is no name or address of a host"),
        ({"ROOST_CONSUMERS": "schedd.x"}, "ROOST_CONSUMERS: consumer 'schedd.x'"),
        ({"ROOST_OUTSIDE_HOST": "a b"}, "ROOST_OUTSIDE_HOST: 'a b' is no name or address"),
        ({"ROOST_OUTSIDE_HOST": "a.example", "ROOST_SCHEME": "http"}, "ROOST_OUTSIDE_HOST goes with compose.yaml"),
    ],
)
def test_what_can_not_be_meant_ends_it(tmp_path, monkeypatch, environment, says):
    with pytest.raises(SystemExit, match=re.escape(says)):
        load(tmp_path, monkeypatch, **environment).main()
    assert not (tmp_path / "rabbitmq" / "definitions.json").exists()


def test_execution_points_that_are_asked_for_by_number_come_in_by_a_join_token(tmp_path, monkeypatch):
    load(tmp_path, monkeypatch).main()
    token = (tmp_path / "join" / "join_token").read_text()
    assert len(token) >= 32
    assert not (tmp_path / "join" / "amqp_url").exists()
    (known,) = known_tokens(knobs(tmp_path / "registrar")["REGISTRAR_JOIN_TOKENS_FILE"]).items()
    assert known[0] == digest(token)
    assert known[1].roles == ("startd",)
    for name, fits in (("startd-3f2a9c", True), ("startd1", False), ("startd2", False), ("ep1", False)):
        assert fnmatchcase(name, known[1].names) == fits
    holders = {path.partition("/")[0] for path, data in files(tmp_path).items() if token.encode() in data}
    assert holders == {"join"}


def test_only_the_registrar_knows_the_administrator_of_the_broker(tmp_path, monkeypatch):
    load(tmp_path, monkeypatch).main()
    password = urlsplit((tmp_path / ADMINISTRATOR / "amqp_url").read_text()).password
    holders = {path for path, data in files(tmp_path).items() if password.encode() in data}
    assert holders == {f"{ADMINISTRATOR}/amqp_url", "registrar/broker_api"}


def test_consumers_get_a_user_and_keep_their_password(tmp_path, monkeypatch):
    prepare = load(tmp_path, monkeypatch, ROOST_CONSUMERS="archive, bill")
    passwords = prepare.consumer_passwords()
    assert set(passwords) == {"archive", "bill"}
    assert prepare.consumer_passwords() == passwords
    url = (tmp_path / "consumers" / "bill").read_text()
    assert url == f"amqp://consumer.bill:{passwords['bill']}@rabbitmq:5672/"


def test_nothing_is_mounted_that_prepare_does_not_use(tmp_path, monkeypatch):
    for ha in (False, True):
        directory = tmp_path / str(ha)
        directory.mkdir()
        load(directory, monkeypatch, ha=ha, ROOST_CONSUMERS="bill").main()
        used = {path.relative_to(directory).parts[0] for path in directory.rglob("*") if path.is_file()}
        assert used == set(volumes_of_prepare(ha=ha))
