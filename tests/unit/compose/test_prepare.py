"""The keys and users of a compose pool."""

import importlib.util
import re
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType

import pytest

from shared.bus.topology import ROLES
from shared.state import acl, keys
from shared.state.urls import parse

ROOT = Path(__file__).parents[3]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare", ROOT / "compose" / "prepare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def prepare() -> ModuleType:
    return load()


@pytest.fixture
def prepare_ha(monkeypatch, tmp_path) -> ModuleType:
    """For the highly available pool, with its keys in tmp_path."""
    monkeypatch.setenv("ROOST_HA", "true")
    module = load()
    monkeypatch.setattr(module, "KEYS", tmp_path)
    monkeypatch.setattr(module.os, "fchown", lambda *_: None)
    for name in ("schedd", "gateway", "redis", "sentinel", "rabbitmq"):
        (tmp_path / name).mkdir()
    return module


def test_roles_that_need_redis_have_a_user_there_and_the_default_user_is_off(prepare):
    users = prepare.redis_users({role: f"secret of {role}" for role in ROLES})
    named = re.findall(r"^user (\w+) reset resetchannels on #[0-9a-f]{64} ", users, re.MULTILINE)
    assert named == ["collector", "negotiator", "had", "gateway", "defrag", "rooster"]
    assert re.search(r"^user default off resetpass ", users, re.MULTILINE)
    assert "secret" not in users


def test_every_key_of_the_pool_is_open_for_writing_to_some_role(prepare):
    known = [value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)]
    known += [keys.ads("Machine", "startd1"), keys.accountant("negotiator")]
    assert len(known) > 5
    patterns = [pattern for rights in acl.RIGHTS.values() for pattern in rights.keys]
    assert [key for key in known if not any(fnmatchcase(key, pattern) for pattern in patterns)] == []


def test_a_password_that_exists_is_kept(prepare, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "KEYS", tmp_path)
    monkeypatch.setattr(prepare.os, "fchown", lambda *_: None)
    for user in ("schedd", "gateway", "loader"):
        (tmp_path / user).mkdir()
    (tmp_path / "schedd" / "redis_url").write_text("of an older release")
    first = prepare.password_of("schedd")
    assert len(first) >= 32
    assert prepare.password_of("schedd") == first
    assert (tmp_path / "schedd" / "amqp_url").read_text() == f"amqp://schedd:{first}@rabbitmq:5672/"
    assert not (tmp_path / "schedd" / "redis_url").exists()
    known = prepare.password_of("gateway")
    assert (tmp_path / "gateway" / "redis_url").read_text() == f"redis://gateway:{known}@redis:6379/0"
    assert (tmp_path / "gateway" / "redis_url").stat().st_mode & 0o777 == 0o400
    assert prepare.loader_password() == prepare.loader_password()


def test_daemons_of_the_highly_available_pool_know_all_brokers_and_sentinels(prepare_ha, tmp_path):
    more, asking = prepare_ha.prepare_servers()
    password = prepare_ha.password_of("gateway", asking)
    brokers = (tmp_path / "gateway" / "amqp_url").read_text().split(",")
    assert brokers == [f"amqp://gateway:{password}@{name}:5672/" for name in ("rabbitmq", "rabbitmq2", "rabbitmq3")]
    url = parse((tmp_path / "gateway" / "redis_url").read_text())
    assert [host for host, _ in url.sentinels] == ["sentinel1", "sentinel2", "sentinel3"]
    assert (url.username, url.password, url.service) == ("gateway", password, "roost")
    assert (url.sentinel_username, url.sentinel_password) == ("pool", asking)
    assert asking not in url.shown
    assert prepare_ha.password_of("gateway", asking) == password
    assert [line.split()[1] for line in more.splitlines()] == ["replication", "sentinel"]


def test_servers_of_the_highly_available_pool_keep_their_secrets(prepare_ha, tmp_path):
    first = prepare_ha.prepare_servers()
    files = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert prepare_ha.prepare_servers() == first
    assert files == {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    sentinel = (tmp_path / "sentinel" / "sentinel.conf").read_text()
    assert "user default off\n" in sentinel
    assert (tmp_path / "rabbitmq" / "cookie").read_text()


def test_a_pool_that_becomes_highly_available_keeps_its_passwords(prepare, prepare_ha, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "KEYS", tmp_path)
    assert not prepare.HA
    assert prepare_ha.password_of("schedd", "x") == prepare.password_of("schedd")


def test_consumers_get_a_user_and_keep_their_password(prepare, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "KEYS", tmp_path)
    monkeypatch.setattr(prepare.os, "fchown", lambda *_: None)
    (tmp_path / "consumers").mkdir()
    monkeypatch.setenv("ROOST_CONSUMERS", "archive, bill")
    passwords = prepare.consumer_passwords()
    assert set(passwords) == {"archive", "bill"}
    assert prepare.consumer_passwords() == passwords
    url = (tmp_path / "consumers" / "bill").read_text()
    assert url == f"amqp://consumer.bill:{passwords['bill']}@rabbitmq:5672/"
    monkeypatch.setenv("ROOST_CONSUMERS", "schedd.x")
    with pytest.raises(SystemExit, match=r"ROOST_CONSUMERS: consumer .schedd\.x."):
        prepare.consumer_passwords()
