"""The keys and users of a compose pool."""

import importlib.util
import re
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType

import pytest

from shared.bus.topology import ROLES
from shared.state import keys

ROOT = Path(__file__).parents[3]


@pytest.fixture
def prepare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare", ROOT / "compose" / "prepare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_role_has_a_redis_user_and_the_default_user_is_off(prepare):
    users = prepare.redis_users({role: f"secret of {role}" for role in ROLES})
    assert re.findall(r"^user (\w+) on #[0-9a-f]{64} ", users, re.MULTILINE) == list(ROLES)
    assert "user default off\n" in users
    assert "secret" not in users


def test_every_key_of_the_pool_is_open_for_writing_to_some_role(prepare):
    known = [value for name, value in vars(keys).items() if name.isupper() and isinstance(value, str)]
    known += [keys.ads("Machine", "startd1"), keys.accountant("negotiator")]
    assert len(known) > 5
    patterns = [pattern[1:] for given in prepare.REDIS_KEYS.values() for pattern in given if pattern[0] == "~"]
    assert [key for key in known if not any(fnmatchcase(key, pattern) for pattern in patterns)] == []


def test_a_password_that_exists_is_kept(prepare, tmp_path, monkeypatch):
    monkeypatch.setattr(prepare, "KEYS", tmp_path)
    monkeypatch.setattr(prepare.os, "fchown", lambda *_: None)
    (tmp_path / "schedd").mkdir()
    first = prepare.password_of("schedd")
    assert len(first) >= 32
    assert prepare.password_of("schedd") == first
    assert (tmp_path / "schedd" / "amqp_url").read_text() == f"amqp://schedd:{first}@rabbitmq:5672/"
    assert (tmp_path / "schedd" / "redis_url").stat().st_mode & 0o777 == 0o400
