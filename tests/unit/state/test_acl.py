"""What roles may do in Redis, as text. That Redis takes it so: tests/security/test_redis_rights.py."""

from importlib import import_module

import pytest

from shared.bus.topology import ROLES
from shared.state import acl
from shared.state.functions import MAKE_ROOM, library
from shared.state.scripts import LUA, names, script

MODULES = {"gangliad": "monitor"}


def test_a_user_has_the_commands_of_its_daemons_and_functions_on_its_keys():
    line = acl.user_line("negotiator", "secret")
    assert line.startswith(f"user negotiator reset resetchannels on #{acl.digest('secret')} ~roost:accountant* ")
    assert "%R~roost:had:epoch*" in line
    assert " +rename " in line  # of books_replace
    assert line.endswith(" (+fcall ~roost:accountant* ~roost:version:accounting-records ~roost:had:epoch*)")
    assert "@" not in line
    assert "secret" not in line


def test_a_prefix_stands_before_every_key():
    words = acl.user_line("collector.cm1", "secret", prefix="poolA:").replace("(", " ").replace(")", " ").split()
    patterns = [word for word in words if "~" in word]
    assert len(patterns) == 12  # three kinds of keys and the versions of each, for commands and for functions
    assert all(pattern.startswith("~poolA:roost:") for pattern in patterns)


@pytest.mark.parametrize(
    "user", ["schedd", "startd.ep1", "journal", "nobody", "", "had.", "had x", "had\nuser x", ".had"]
)
def test_who_is_no_user_of_redis_gets_no_line(user):
    with pytest.raises(ValueError, match=r"users? of Redis"):
        acl.user_line(user, "secret")


@pytest.mark.parametrize("role", ROLES)
def test_daemons_that_use_the_store_have_a_user_and_no_others(role):
    module = import_module(f"services.{MODULES.get(role, role)}.daemon")
    found = [one for one in vars(module).values() if getattr(one, "subsystem", None) == role.upper()]
    assert len(found) == 1
    assert found[0].uses_store == (role in acl.RIGHTS)


def test_every_script_is_a_function_that_some_role_may_call():
    assert (
        set().union(*(rights.functions for rights in acl.RIGHTS.values())) == set(names()) == set(library().functions)
    )
    assert set(names()) >= MAKE_ROOM


@pytest.mark.parametrize("name", names())
def test_the_commands_of_a_script_are_read_from_its_text(name):
    """All of them: none is called by another way than redis.call('NAME'."""
    text = (LUA / f"{name}.lua").read_text()
    code = "\n".join(line.partition("--")[0] for line in text.splitlines())
    assert code.count("redis.call") + code.count("redis.pcall") == sum(
        code.count(f"redis.call('{word.upper()}'") for word in script(name).commands
    )


def test_the_library_s_name_changes_with_its_text(monkeypatch):
    assert library().text.startswith(f"#!lua name={library().name}\n")
    other = library.__wrapped__
    monkeypatch.setattr("shared.state.functions.MAKE_ROOM", frozenset())
    assert other().name != library().name
