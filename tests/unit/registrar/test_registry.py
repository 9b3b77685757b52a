"""Join tokens and identities: whom a token lets in, what is kept of it, what is read back."""

import dataclasses
import json

import pytest

from services.registrar.core.attempts import OF_ALL, OF_ONE, PERIOD_S, Attempts
from services.registrar.core.registry import BURY_S, Identity, JoinToken, Refused, Registry, digest, from_json
from services.registrar.registry_file import BadRegistry, known_tokens, read, write
from shared.bus.definitions import password_hash
from shared.config import ConfigError

HASH, OTHER = password_hash("one", b"salt"), password_hash("other", b"salt")


def registry(**token):
    made = Registry()
    made.create("secret", JoinToken(**{"roles": ("startd",), "names": "ep*", "left": 1, "by": "root@pool", **token}))
    return made


def ask(made, user="startd.ep1", token="secret", broker=HASH, now=100.0):
    return made.enroll(token, user, Identity(broker, address="192.0.2.1"), now)


def test_a_token_lets_in_so_many_and_is_kept_as_its_digest():
    made = registry(left=2)
    found = ask(made)
    assert (found.by, found.since, found.token) == ("root@pool", 100.0, digest("secret")[:12])
    ask(made, "startd.ep2")
    with pytest.raises(Refused, match="has been used"):
        ask(made, "startd.ep3")
    assert "secret" not in json.dumps(made.to_json())


@pytest.mark.parametrize(
    ("change", "why", "guess"),
    [
        ({"user": "schedd.ep1"}, "is for startd, not for schedd", False),
        ({"user": "startd.x"}, "names that fit 'ep\\*'", False),
        ({"token": "other"}, "does not know", True),
        ({"now": 1e9}, "has expired", True),
        ({"broker": "x"}, "want base64", False),
    ],
)
def test_a_refusal_says_why_and_changes_nothing(change, why, guess):
    made = registry(expires=1000.0)
    before = json.dumps(made.to_json())
    with pytest.raises(Refused, match=why) as refused:
        ask(made, **change)
    assert refused.value.guess is guess
    assert json.dumps(made.to_json()) == before


def test_a_name_that_is_taken_is_given_again_only_to_who_asks_as_before():
    made = registry(left=5)
    first = ask(made)
    assert ask(made, now=200.0) is first
    assert made.tokens[digest("secret")].left == 4
    with pytest.raises(Refused, match="has a user already"):
        ask(made, broker=OTHER)
    made.create("second", JoinToken(("startd",), "*", 1))
    with pytest.raises(Refused, match="has a user already"):
        ask(made, token="second")
    made.revoke(["startd.ep1"], 300.0)
    assert ask(made, broker=OTHER, now=400.0).since == 400.0


def test_a_name_alone_means_all_daemons_of_that_name():
    made = registry(roles=("startd", "schedd"), left=5)
    for user in ("startd.ep1", "schedd.ep1", "startd.ep10"):
        ask(made, user)
    assert made.named("ep1", ["journal.ep1", "startd.ep1", "collector.cm"]) == [
        "startd.ep1",
        "schedd.ep1",
        "journal.ep1",
    ]
    assert made.named("startd.ep1") == ["startd.ep1"]
    made.revoke(["startd.ep1", "had.cm"], 1.0)
    assert made.named("ep1") == ["schedd.ep1"]
    assert made.identities["had.cm"].revoked == 1.0


def test_tokens_that_are_over_are_forgotten_in_the_end():
    made = registry(expires=1000.0)
    made.create("for ever", JoinToken(("startd",), "*", 1))
    made.bury(1000.0 + BURY_S - 1)
    assert len(made.tokens) == 2
    made.bury(1000.0 + BURY_S + 1)
    assert list(made.tokens) == [digest("for ever")]
    assert made.revoke_token(digest("for ever")[:4], 1.0) == 0  # too short to be meant
    assert made.revoke_token(digest("for ever")[:12], 1.0) == 1
    assert made.revoke_token(digest("for ever")[:12], 2.0) == 0


def test_a_token_of_the_file_that_was_taken_away_stays_so():
    """The file is read at each start, and still has it."""
    given = {digest("secret"): JoinToken(("startd",), "*", 5)}
    made = Registry({**given})
    assert made.revoke_token(digest("secret")[:12], 1.0) == 1
    made.bury(1.0 + 2 * BURY_S)
    again = from_json(made.to_json())
    again.tokens = {**given, **again.tokens}
    with pytest.raises(Refused, match="does not know"):
        ask(again)


def test_what_is_written_is_read_back(tmp_path):
    made = registry(left=3)
    ask(made)
    write(tmp_path / "deep" / "registrar.json", made)
    assert read(tmp_path / "deep" / "registrar.json") == made
    assert (tmp_path / "deep" / "registrar.json").stat().st_mode & 0o777 == 0o600
    assert read(tmp_path / "none.json") == Registry()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2}', '{"version": 1, "tokens": {"a": {}}, "identities": {}}']
)
def test_a_file_that_is_none_is_told_of_and_left(tmp_path, text):
    path = tmp_path / "registrar.json"
    path.write_text(text)
    with pytest.raises(BadRegistry, match="put a copy of it back"):
        read(path)
    assert path.read_text() == text


def test_a_later_release_may_have_more_fields():
    made = registry()
    ask(made)
    data = made.to_json()
    data["identities"]["startd.ep1"]["colour"] = "blue"
    assert from_json(data) == made


def test_tokens_of_a_file(tmp_path):
    row = {"digest": digest("secret"), "roles": ["startd"], "names": "more-*", "left": 7}
    (tmp_path / "tokens").write_text(json.dumps(row) + "\n\n")
    (found,) = known_tokens(str(tmp_path / "tokens")).values()
    assert dataclasses.astuple(found)[:3] == (("startd",), "more-*", 7)
    (tmp_path / "tokens").write_text('{"digest": "x"}')
    with pytest.raises(ConfigError, match="want a line of JSON a token"):
        known_tokens(str(tmp_path / "tokens"))


def test_attempts_are_limited_by_address_and_in_all():
    attempts = Attempts()
    for n in range(OF_ONE):
        assert attempts.wait_s("a", float(n)) == 0.0
        attempts.failed("a", float(n))
    assert attempts.wait_s("a", 10.0) == PERIOD_S - 10.0
    assert attempts.wait_s("b", 10.0) == 0.0
    assert attempts.wait_s("a", PERIOD_S + 0.5) == 0.0
    for n in range(OF_ALL):
        attempts.failed(f"address {n}", 100.0)
    assert attempts.wait_s("nobody yet", 101.0) == PERIOD_S - 1.0
