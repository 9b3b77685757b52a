"""IDTOKENS: those that HTCondor made are taken, and the same bytes come out here; forged, old, revoked and foreign ones
are not; and nobody gets one that opens more than they have."""

import base64
import json
import os
import sys
import time
from pathlib import Path

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.auth.idtokens import IdTokens
from shared import idtokens
from shared.idtokens import KeyFiles, TokenTrouble
from shared.operations import Level
from tests import warm
from tests.integration.inside import InsidePool

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "idtokens.json").read_text())
FILES = {name: base64.b64decode(text) for name, text in RECORDED["key_files_base64"].items()}
NOW = RECORDED["iat"] + 10.0


@pytest.fixture
def keys(tmp_path):
    """The key files of the pool whose tokens were recorded."""
    for name, raw in FILES.items():
        (tmp_path / name).write_bytes(raw)
        (tmp_path / name).chmod(0o600)
    return KeyFiles(str(tmp_path))


@pytest.fixture
def gate(keys):
    return IdTokens(keys, RECORDED["issuer"], "example.org")


def identity(gate, token, now=NOW):
    header, _ = idtokens.parts(token)
    return gate.identity(token, header, now)


@pytest.mark.parametrize("one", RECORDED["tokens"], ids=lambda one: one["user"])
def test_a_token_that_htcondor_made_is_taken(gate, one):
    """Recorded from HTCondor's own library; a key has a zero byte in it, and POOL is the one that counts twice."""
    found = identity(gate, one["token"])
    assert found.user == one["user"]
    limits = one["authorizations"]
    assert found.level == (max(getattr(Level, name, Level.NONE) for name in limits) if limits else Level.ADMINISTRATOR)


@pytest.mark.parametrize("one", RECORDED["tokens"], ids=lambda one: one["user"])
def test_what_is_signed_here_htcondor_would_sign_alike(keys, one):
    """The signature over the very bytes that HTCondor signed is the one that it made: so it takes ours."""
    signed, _, signature = one["token"].rpartition(".")
    made = jwt.get_algorithm_by_name("HS256").sign(signed.encode(), keys.read(one["key"]))
    assert base64.urlsafe_b64encode(made).rstrip(b"=").decode() == signature
    header, claims = idtokens.parts(one["token"])
    again = idtokens.make(
        keys.read(one["key"]),
        one["key"],
        issuer=claims["iss"],
        user=claims["sub"],
        now=claims["iat"],
        jti=claims["jti"],
        lifetime_s=claims.get("exp", claims["iat"]) - claims["iat"],
        authorizations=one["authorizations"],
    )
    ours, theirs = idtokens.parts(again), (header, claims)
    assert ours[1] == theirs[1]
    assert ours[0]["kid"] == theirs[0]["kid"]


def made(keys, name="POOL", *, issuer=RECORDED["issuer"], user="alice@example.org", now=NOW, **more):
    return idtokens.make(keys.read(name), name, issuer=issuer, user=user, now=now, jti="1", **more)


def refused(gate, token, now=NOW):
    with pytest.raises(ValueError, match=r".") as caught:
        identity(gate, token, now)
    return str(caught.value)


def test_who_has_no_key_signs_nothing(gate, keys, tmp_path):
    good = made(keys)
    head, _, signature = good.split(".")
    # Another's claims below a good signature, and a signature of another key.
    other = base64.urlsafe_b64encode(json.dumps({"sub": "root@example.org", "iss": RECORDED["issuer"]}).encode())
    assert "signature" in refused(gate, f"{head}.{other.rstrip(b'=').decode()}.{signature}")
    forged = jwt.encode({"sub": "root@example.org", "iss": RECORDED["issuer"]}, "x" * 32, "HS256", {"kid": "POOL"})
    assert "signature" in refused(gate, forged)
    # The key as it lies in the file is not what signs.
    raw = jwt.encode({"sub": "root@example.org", "iss": RECORDED["issuer"]}, FILES["POOL"], "HS256", {"kid": "POOL"})
    assert "signature" in refused(gate, raw)
    # No algorithm, and others.
    for algorithm, key in (("none", None), ("HS384", keys.read("POOL") * 2), ("HS512", keys.read("POOL") * 2)):
        token = jwt.encode({"sub": "root@example.org", "iss": RECORDED["issuer"]}, key, algorithm, {"kid": "POOL"})
        assert "no issuer that is taken" in refused(gate, token)
    # One key's token below another's name.
    assert "signature" in refused(
        gate, jwt.encode(idtokens.parts(good)[1], keys.read("second"), "HS256", {"kid": "POOL"})
    )


@pytest.mark.parametrize(
    "name", ["../POOL", "/etc/passwd", "", ".", "..", ".hidden", "a/b", "x" * 200, "POOL\x00", 7, None]
)
def test_a_token_names_no_file(gate, keys, name):
    token = jwt.encode({"sub": "root@example.org"}, keys.read("POOL"), "HS256", {"kid": "POOL"})
    with pytest.raises(ValueError, match=r"can be no signing key|no issuer"):
        gate.identity(token, {"alg": "HS256", "kid": name}, NOW)


def test_times_issuers_and_users_are_looked_at(gate, keys):
    assert identity(gate, made(keys, lifetime_s=100), NOW + 99).expires == NOW // 1 + 100
    assert "has expired" in refused(gate, made(keys, lifetime_s=100), NOW + 101)
    assert "not of pool.example.org" in refused(gate, made(keys, issuer="other.example"))
    for user in ("a/../b@x", "<script>@x", "", "nobody@unmapped"):
        assert refused(gate, made(keys, user=user))
    assert identity(gate, made(keys, user="bare")).user == "bare@example.org"
    for claims in ({"exp": "soon"}, {"exp": True}, {"nbf": NOW + 100}, {"iat": -1, "exp": None}, {"exp": [1]}):
        token = jwt.encode(
            {"sub": "a@x", "iss": RECORDED["issuer"], **claims}, keys.read("POOL"), "HS256", {"kid": "POOL"}
        )
        assert refused(gate, token)


def test_old_and_revoked_tokens_are_refused(keys):
    young = IdTokens(keys, RECORDED["issuer"], "example.org", max_age_s=60)
    assert identity(young, made(keys), NOW + 59).user == "alice@example.org"
    assert "SEC_TOKEN_MAX_AGE" in refused(young, made(keys), NOW + 62)
    alice = IdTokens(
        keys, RECORDED["issuer"], "example.org", revoked='sub =?= "alice@example.org" && iat <= 1795702900'
    )
    assert "SEC_TOKEN_REVOCATION_EXPR" in refused(alice, made(keys))
    assert identity(alice, made(keys, user="bob@example.org")).user == "bob@example.org"
    assert identity(alice, made(keys, now=NOW + 1000), NOW + 1001)


def test_a_key_that_others_may_read_signs_nothing(gate, keys, tmp_path):
    token = made(keys)
    (tmp_path / "POOL").chmod(0o644)
    assert "not its owner's alone" in refused(gate, token)
    (tmp_path / "POOL").unlink()
    assert "there is no signing key POOL" in refused(gate, token)
    os.mkfifo(tmp_path / "POOL", 0o600)
    assert "no regular file" in refused(gate, token)


@pytest.mark.parametrize(
    ("scope", "level"),
    [
        ("condor:/READ", "READ"),
        ("condor:/READ condor:/WRITE", "WRITE"),
        ("condor:/ADMINISTRATOR", "ADMINISTRATOR"),
        ("condor:/DAEMON", "WRITE"),
        ("condor:/ADVERTISE_STARTD", "NONE"),
        ("storage.read:/", "NONE"),
        ("", "NONE"),
        ("condor:/EVERYTHING", "NONE"),
        (["condor:/ADMINISTRATOR"], "NONE"),
        (None, "NONE"),
    ],
)
def test_scopes_leave_no_more_than_they_name(gate, keys, scope, level):
    claims = {"sub": "a@x", "iss": RECORDED["issuer"], "scope": scope}
    assert identity(gate, jwt.encode(claims, keys.read("POOL"), "HS256", {"kid": "POOL"})).level.name == level


@given(st.text(max_size=200), st.binary(max_size=200))
def test_whatever_is_sent_is_read_or_is_none(text, raw):
    for token in (text, f"{text}.{text}.{text}", ".".join([base64.urlsafe_b64encode(raw).decode().rstrip("=")] * 3)):
        said = idtokens.parts(token)
        assert said is None or all(isinstance(one, dict) for one in said)


# --- a gateway, and the command


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    directory = tmp_path_factory.mktemp("pool")
    inside = InsidePool(
        directory,
        UID_DOMAIN="example.org",
        TRUST_DOMAIN=RECORDED["issuer"],
        SEC_PASSWORD_DIRECTORY=str(directory / "keys"),
        SEC_TOKEN_REVOCATION_EXPR='jti =?= "revoked"',
        SEC_ISSUED_TOKEN_EXPIRATION="100000",
    )
    (directory / "keys").mkdir(mode=0o700)
    for name, raw in FILES.items():
        (directory / "keys" / name).write_bytes(raw)
        (directory / "keys" / name).chmod(0o600)
    yield inside
    inside.close()


def test_htcondors_token_opens_the_gateway(pool):
    alice, _, carol, startd = (one["token"] for one in RECORDED["tokens"])
    status, _, me = pool.ask("GET", "/v1/whoami", token=alice)
    assert (status, me["user"], me["level"], me["method"]) == (200, "alice@example.org", "WRITE", "IDTOKENS")
    # A limit gives nothing that the lists do not.
    assert pool.ask("GET", "/v1/whoami", token=carol)[2]["level"] == "WRITE"
    assert pool.ask("GET", "/v1/whoami", token=startd)[0] == 403
    status, _, refused = pool.ask("GET", "/v1/whoami", token=alice[:-2] + "xx")
    assert (status, "not of this pool's key" in refused["error"]["message"]) == (401, True)
    revoked = idtokens.make(
        KeyFiles(str(pool.directory / "keys")).read("POOL"),
        "POOL",
        issuer=RECORDED["issuer"],
        user="alice@example.org",
        now=time.time(),
        jti="revoked",
    )
    assert "SEC_TOKEN_REVOCATION_EXPR" in pool.ask("GET", "/v1/whoami", token=revoked)[2]["error"]["message"]


def fetch(pool, token, **body):
    status, _, answer = pool.ask("POST", "/v1/tokens/fetch", body=body, token=token)
    return status, answer.get("token", "") if status == 200 else answer["error"]["message"]


def test_what_is_fetched_opens_no_more(pool):
    with pool.client() as client:
        reader = client.create_token("bob@example.org", "READ", lifetime_s=1000)
        scoped = client.create_token("bob@example.org", "WRITE", scopes=["tokens.fetch", "jobs.*"])
        lasting = client.create_token("bob@example.org", "WRITE")
    assert "makes none that is good longer" in fetch(pool, reader)[1]
    status, token = fetch(pool, reader, lifetime_s=10)
    assert status == 200
    me = pool.ask("GET", "/v1/whoami", token=token)[2]
    assert (me["user"], me["level"]) == ("bob@example.org", "READ")
    assert "you have READ" in fetch(pool, reader, lifetime_s=10, authorizations=["WRITE"])[1]
    assert "ADVERTISE_STARTD: you have" in fetch(pool, lasting, authorizations=["ADVERTISE_STARTD"])[1]
    assert "which an IDTOKEN can not be" in fetch(pool, scoped)[1]
    assert "may not be asked for" in fetch(pool, lasting, key="second")[1]
    # The gateway's longest life bounds what asks for none.
    status, token = fetch(pool, lasting)
    assert 0 < idtokens.parts(token)[1]["exp"] <= time.time() + 100_001
    # And one of these makes no longer one.
    assert "makes none that is good longer" in fetch(pool, fetch(pool, lasting, lifetime_s=50)[1])[1]


@pytest.fixture
def at_home(pool, tmp_path):
    """Runs the command of a user with an empty home, and HTCondor's configuration."""
    config = tmp_path / "condor_config"
    config.write_text(
        f"UID_DOMAIN = example.org\nTRUST_DOMAIN = {RECORDED['issuer']}\n"
        f"SEC_PASSWORD_DIRECTORY = {pool.directory}/keys\nSEC_TOKEN_DIRECTORY = {tmp_path}/tokens.d\n"
        f"SEC_TOKEN_SYSTEM_DIRECTORY = {tmp_path}/none\n"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "_CONDOR_", "CONDOR_"))}
    environment = {
        **kept,
        "HOME": str(tmp_path),
        "CONDOR_CONFIG": str(config),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }

    def run(*words, **more):
        done = warm.run(
            [sys.executable, "-m", "roost", *words],
            env={**environment, **more},
            timeout=60,
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_the_commands_of_htcondor_make_list_and_use_tokens(pool, at_home, tmp_path):
    code, token, said = at_home(
        "condor_token_create", "-identity", "dave@example.org", "-authz", "READ", "-lifetime", "900"
    )
    assert code == 0, said
    assert pool.ask("GET", "/v1/whoami", token=token.strip())[2]["level"] == "READ"
    code, _, said = at_home("condor_token_create", "-identity", "dave@example.org", "-token", "mine", "-key", "second")
    assert code == 0, said
    file = tmp_path / "tokens.d" / "mine"
    assert file.stat().st_mode & 0o777 == 0o600
    code, listed, _ = at_home("condor_token_list")
    assert (code, '"kid": "second"' in listed, '"sub": "dave@example.org"' in listed) == (0, True, True)
    assert file.read_text().strip().rpartition(".")[2] not in listed
    # It is found by itself.
    code, said, _ = at_home("ping", ROOST_URL=pool.url)
    assert "dave@example.org with level WRITE, by IDTOKENS" in said
    code, fetched, said = at_home("condor_token_fetch", "-authz", "READ", ROOST_URL=pool.url)
    assert code == 0, said
    assert pool.ask("GET", "/v1/whoami", token=fetched.strip())[2] | {"expires": 0, "token": ""} == {
        "user": "dave@example.org",
        "level": "READ",
        "method": "IDTOKENS",
        "token": "",
        "scopes": [],
        "expires": 0,
        "levels": {},
    }
    assert at_home("condor_token_create", "-identity", "dave@example.org", "-key", "third")[0] != 0


def test_bad_key_names_raise_trouble(keys):
    with pytest.raises(TokenTrouble):
        keys.path("../x")
