"""The gateway's doors, in front of a whole pool: who may come in, and what becomes of bad input."""

import json
import socket
import threading
import uuid

import msgpack
import pytest

from roost.client import Client
from roost.errors import ClientError
from shared.classad import ClassAd
from tests.integration.inside import InsidePool
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    # Without limits, which are tried in test_gateway_limits.py: here one user and one address ask very often.
    none = {"ROOST_GATEWAY_RATE": "0", "ROOST_GATEWAY_ANONYMOUS_RATE": "0", "ROOST_GATEWAY_FAILED_LOGIN_RATE": "0"}
    pools = tmp_path_factory.mktemp("pools")
    shown = {"ROOST_GATEWAY_POOLS": "itself.example.org, away.example.org", "ROOST_GATEWAY_POOLS_DIRECTORY": str(pools)}
    inside = InsidePool(tmp_path_factory.mktemp("pool"), **none, **shown)
    for name, url in (("itself", inside.url), ("away", "https://127.0.0.1:9")):
        (pools / f"{name}.example.org").mkdir()
        (pools / f"{name}.example.org" / "url").write_text(url)
        (pools / f"{name}.example.org" / "token").write_text(token(inside, "READ"))
    yield inside
    inside.close()


def token(pool, level, user="alice@elsewhere", **more) -> str:
    with pool.client() as client:
        return client.create_token(user, level, **more)


def job(**attributes) -> ClassAd:
    """A job that waits: it is submitted on hold."""
    return ClassAd({"Cmd": "/bin/true", "Iwd": "/tmp", "ShouldTransferFiles": "NO", "JobStatus": 5, **attributes})


def is_error(answer, status, *, code=None, says="", retryable=False):
    got, headers, body = answer
    assert got == status, answer
    assert set(body["error"]) == {"code", "message", "retryable"}
    assert body["error"]["retryable"] is retryable
    assert ("Retry-After" in {k.title() for k in headers}) is retryable
    assert says in body["error"]["message"]
    if code:
        assert body["error"]["code"] == code
    return True


LEVELS = ("READ", "WRITE", "ADMINISTRATOR")
#: What a door is tried with where its parameters are wanted: a thing that is not there.
SAMPLES = {"job_id": "999999.0", "submitter": "nobody@x", "prefix": "0123456789ab", "name": "bm9uZQ", "path": "out"} | {
    "negotiator": "none",
    "kind": "users",
    "epoch": "1",
    "cycle": "1",
    "user": "nobody@x",
    "machine": "none",
    "slot": "none",
    "group": "physics",
    "service": "none",
}
#: Harmless requests for doors that take a body; others are tried without one, which is refused as bad input.
BODIES = {
    "POST /v1/jobs/action": {"action": "hold", "ids": ["999999"]},
    "POST /v1/jobs/edit": {"ids": ["999999"], "attributes": {"Note": "1"}},
    "POST /v1/jobs/{job_id}/visits": {"argv": ["true"]},
    "POST /v1/visits/{name}/steer": {"leave": True},
    "POST /v1/priorities/{submitter}": {"what": "factor", "value": 10},
    "POST /v1/dead-letters/requeue": {"ids": []},
    "POST /v1/dead-letters/discard": {"ids": []},
    "POST /v1/tokens": {"user": "x", "level": "READ", "lifetime_s": 1},
    "PUT /v1/groups/{group}/quota": {"quota": 1},
    "POST /v1/config": {"names": ["nobody"], "set": {"A": "1"}},
    **{f"POST /v1/daemons/{order}": {"names": ["nobody"]} for order in ("reconfig", "restart", "off", "on")},
    **{f"POST /v1/machines/{o}": {"names": ["nobody"]} for o in ("drain", "cancel-drain", "vacate", "update-ad")},
}
#: Doors for who has a join token, which the registrar looks at.
WITHOUT_TOKEN = {"POST /v1/enroll"}
#: Answers without end.
ENDLESS = ("GET /v1/events",)


@pytest.fixture(scope="module")
def tokens(pool):
    return {level: token(pool, level) for level in LEVELS}


@pytest.fixture(scope="module")
def doors(pool):
    """(name, method, path, body, level) of every door that the gateway says it has, but for who has no token."""
    _, _, document = pool.ask("GET", "/openapi.json")
    found = [
        (
            f"{method.upper()} {path}",
            method.upper(),
            path.format(**SAMPLES),
            BODIES.get(f"{method.upper()} {path}"),
            door["x-roost-level"],
        )
        for path, methods in document["paths"].items()
        for method, door in methods.items()
    ]
    assert {name for name, *_, level in found if level == "NONE"} == WITHOUT_TOKEN
    return [door for door in found if door[0] not in WITHOUT_TOKEN]


@pytest.mark.parametrize("level", LEVELS)
def test_a_door_opens_from_its_level_on(pool, tokens, doors, level):
    """The table of authorization, cell by cell: every door and every level."""
    assert len(doors) > 40
    for name, method, path, body, needs in doors:
        if LEVELS.index(level) < LEVELS.index(needs):
            answer = pool.ask(method, path, body=body, token=tokens[level])
            assert is_error(answer, 403, code="denied", says=f"needs {needs}, your token gives {level}"), name
        elif name not in ENDLESS:
            answer = pool.ask(method, path, body=body, token=tokens[level])
            assert answer[0] not in (401, 403), (name, answer)
            assert answer[0] < 500 or answer[2]["error"]["retryable"], (name, answer)


@pytest.mark.parametrize("wrong", [None, "", "wrong", "x" * 10_000, "ü"])
def test_without_a_valid_token_every_door_is_shut(pool, doors, wrong):
    wrong = wrong.encode().decode("latin-1") if wrong else wrong
    for name, method, path, body, _ in doors:
        answer = pool.ask(method, path, body=body, token=wrong)
        assert is_error(answer, 401, code="unauthenticated", says="no valid token"), name
        assert answer[1]["www-authenticate"] == "Bearer"


def test_the_bodies_above_are_those_of_doors(doors):
    assert set(BODIES) <= {name for name, *_ in doors}


def test_a_token_with_scopes_opens_these_only(pool):
    narrow = token(pool, "ADMINISTRATOR", scopes=["ads", "jobs.*"])
    assert pool.ask("GET", "/v1/ads?limit=1", token=narrow)[0] == 200
    assert pool.ask("GET", "/v1/jobs/totals", token=narrow)[0] == 200
    assert is_error(pool.ask("GET", "/v1/tokens", token=narrow), 403, says="for ads, jobs.* only, not for tokens")
    bad = {"user": "x", "level": "READ", "scopes": ["nonsense"]}
    assert is_error(pool.ask("POST", "/v1/tokens", body=bad), 400, says="scope nonsense is no operation")


def test_a_narrow_token_makes_no_wider_one(pool):
    narrow = token(pool, "ADMINISTRATOR", scopes=["tokens", "jobs.query"])
    made = {"user": "x@y", "level": "ADMINISTRATOR"}
    assert is_error(pool.ask("POST", "/v1/tokens", body=made, token=narrow), 403, says="does not open every operation")
    made["scopes"] = ["jobs.*"]
    assert is_error(pool.ask("POST", "/v1/tokens", body=made, token=narrow), 403, says="does not open jobs.submit")
    made["scopes"] = ["jobs.query"]
    assert pool.ask("POST", "/v1/tokens", body=made, token=narrow)[0] == 200


def test_only_bearer_tokens_count(pool):
    for header in (pool.token, f"Basic {pool.token}", "Bearer", "Bearer  ", f"Bearer {pool.token} more"):
        assert pool.ask("GET", "/v1/pool", token=None, headers={"Authorization": header})[0] == 401
    assert pool.ask("GET", "/v1/pool", token=None, headers={"Authorization": f"bearer {pool.token}"})[0] == 200


# --- owners


def test_the_owner_of_a_job_is_who_the_token_says(pool, tokens):
    body = {
        "submit_id": uuid.uuid4().hex,
        "user": "root@forged",
        "admin": True,
        "cluster_ad": job(Owner="root", User="root@forged", OsUser="root").pack(),
        "procs": [ClassAd({"Owner": "root", "User": "root@forged"}).pack()],
        "spool": True,
    }
    status, _, answer = pool.submit_raw(
        body, token=tokens["WRITE"], headers={"X-Remote-User": "root@forged", "X-Forwarded-User": "root"}
    )
    assert status == 200, answer
    with pool.client() as client:
        (ad,) = client.jobs(str(answer["cluster"]))
    assert (ad.eval("Owner"), ad.eval("User")) == ("alice", "alice@elsewhere")


#: Ways to write whose a job is, and what it has done.
FORGED = {
    name: value
    for spelling in (str, str.swapcase)
    for name, value in {
        spelling("Owner"): "root",
        spelling("User"): "root@elsewhere",
        spelling("OsUser"): "root",
        spelling("SubmitterName"): "root@elsewhere",
        spelling("ClusterId"): 1,
        spelling("GlobalJobId"): "ap#1.0#1",
    }.items()
}


@pytest.mark.parametrize("way", ["cluster", "job", "both"])
def test_no_spelling_of_an_owner_is_believed(pool, tokens, way):
    """In the common ad, in the jobs' own ads, as a value and as an expression, in every case of its letters."""
    for number, (name, value) in enumerate(FORGED.items()):
        plain = ClassAd({name: value})
        computed = ClassAd({"Other": value})
        computed.set_text(name, "Other")
        forged = (plain, computed)[number % 2]
        own = forged if way in ("job", "both") else ClassAd()
        common = job()
        if way in ("cluster", "both"):
            common.update(forged)
        body = {"submit_id": uuid.uuid4().hex, "cluster_ad": common.pack(), "procs": [own.pack()], "spool": True}
        status, _, answer = pool.submit_raw(body, token=tokens["WRITE"])
        assert status == 200, (name, answer)
        with pool.client() as client:
            (ad,) = client.jobs(str(answer["cluster"]))
            client.act("remove", [str(answer["cluster"])])
        assert [ad.eval(one) for one in ("Owner", "User", "ClusterId")] == [
            "alice",
            "alice@elsewhere",
            answer["cluster"],
        ], name
        for one in ("OsUser", "SubmitterName", "GlobalJobId"):
            assert "root" not in str(ad.eval(one)), (name, one)
            assert ad.eval(one) != "ap#1.0#1", name


def test_a_submit_of_another_is_not_gone_on_with(pool, tokens):
    """Who knows or guesses the id of a submit that is under way adds no job to it, and learns nothing of it."""
    common, mine = job().pack(), uuid.uuid4().hex
    begun = {
        "submit_id": mine,
        "cluster_ad": common,
        "procs": [ClassAd().pack()],
        "spool": True,
        "more": True,
        "part": 0,
    }
    status, _, first = pool.submit_raw(begun, token=tokens["WRITE"])
    assert status == 200
    mallory = token(pool, "WRITE", "mallory@elsewhere")
    more = {**begun, "procs": [ClassAd({"Mallorys": True}).pack()], "part": 1, "more": False, "user": "alice@elsewhere"}
    assert is_error(pool.submit_raw(more, token=mallory), 400, says="earlier parts are not here")
    status, _, again = pool.submit_raw(begun, token=mallory)
    assert (status, again["cluster"] == first["cluster"]) == (200, False)
    last = {**begun, "part": 1, "more": False}
    status, _, done = pool.submit_raw(last, token=tokens["WRITE"])
    assert (status, done["cluster"], done["count"]) == (200, first["cluster"], 2)
    with pool.client() as client:
        assert [ad.eval("User") for ad in client.jobs(str(first["cluster"]))] == ["alice@elsewhere"] * 2
        client.act("remove", [str(first["cluster"])])


def test_a_token_goes_in_its_header_only(pool, tokens):
    """Not in an address or a cookie, which a page of somebody else's could make a browser send."""
    mine = tokens["READ"]
    for path in (
        f"/v1/whoami?token={mine}",
        f"/v1/whoami?access_token={mine}",
        f"/v1/whoami?authorization=Bearer+{mine}",
    ):
        assert pool.ask("GET", path, token=None)[0] == 401
    for headers in (
        {"Cookie": f"token={mine}; Authorization=Bearer {mine}"},
        {"X-Authorization": f"Bearer {mine}"},
        {"Proxy-Authorization": f"Bearer {mine}"},
        {"X-Forwarded-Authorization": f"Bearer {mine}"},
    ):
        assert pool.ask("GET", "/v1/whoami", token=None, headers=headers)[0] == 401
    # Nor may another site's page read an answer, or ask with headers of its own.
    for method in ("GET", "OPTIONS"):
        headers = {"Origin": "https://evil.example", "Access-Control-Request-Headers": "authorization"}
        _, answered, _ = pool.ask(method, "/v1/whoami", headers=headers)
        assert not [name for name in answered if name.lower().startswith("access-control-")]


def test_names_of_lines_in_a_log_are_not_made_up(pool, tokens):
    """What a user sends is one line of the audit log, whatever is in it."""
    reason = 'x\n{"type": "gateway.audit", "user": "root@x"}\r\u2028\x1b[2J'
    answer = pool.ask(
        "POST",
        "/v1/jobs/action",
        body={"action": "hold", "ids": ["0"], "reason": reason},
        token=tokens["WRITE"],
        headers={"X-Request-Id": "forged-line"},
    )
    assert answer[0] == 200
    log = pool.directory / "log" / "gateway-audit.log"

    def written():
        return [json.loads(line) for line in log.read_text().split("\n") if "forged-line" in line]

    wait_until(written, what="the line")
    (line,) = written()
    assert (line["user"], line["what"]["reason"]) == ("alice@elsewhere", reason)
    assert not [one for one in log.read_text().split("\n") if one and json.loads(one)["user"] == "root@x"]
    assert "\x1b" not in log.read_text()


def test_what_becomes_of_many_jobs_may_be_told_by_ranges(pool):
    with pool.client() as client:
        cluster = client.submit(job(), [ClassAd({"Args": str(number)}) for number in range(60)], spool=False)
        first, last = (f"{cluster.cluster}.{proc}" for proc in (0, 59))
        each = {f"{cluster.cluster}.{proc}": "done" for proc in range(60)}
        order = {"action": "release", "ids": [str(cluster.cluster), "999999"], "ranges": True}
        assert pool.ask("POST", "/v1/jobs/action", body=order)[2] == {f"{first}-{last}": "done", "999999": "not-found"}
        order = {"action": "hold", "ids": [str(cluster.cluster)]}
        assert pool.ask("POST", "/v1/jobs/action", body=order)[2] == each
        assert client.act("remove", [str(cluster.cluster)]) == each


def test_nobody_acts_on_the_jobs_of_others_but_administrators(pool, tokens):
    alices, bobs = (pool.client(token(pool, "WRITE", user)) for user in ("alice@elsewhere", "bob@elsewhere"))
    with alices, bobs, pool.client() as admin:
        cluster = alices.submit(job(), [ClassAd()], spool=True)
        (name,) = cluster.ids()
        assert bobs.act("remove", [name]) == {name: "denied"}
        raw = {"action": "remove", "ids": [name], "user": "alice@elsewhere", "admin": True}
        bob = token(pool, "WRITE", "bob@elsewhere")
        assert pool.ask("POST", "/v1/jobs/action", body=raw, token=bob)[2] == {name: "denied"}
        assert pool.ask("GET", f"/v1/jobs/{name}/files", token=bob)[0] == 403
        assert pool.ask("PUT", f"/v1/jobs/{name}/files", body=b"", token=bob)[0] == 403
        for path in ("output", "output/x", "log"):
            assert pool.ask("GET", f"/v1/jobs/{name}/{path}", token=bob)[0] == 403
        assert bobs.edit([name], {"Note": "1"}) == {name: "denied"}
        # An edit comes through its own door only.
        edit = {"action": "edit", "ids": [name], "edits": "Owner"}
        assert is_error(pool.ask("POST", "/v1/jobs/action", body=edit, token=tokens["WRITE"]), 400)
        assert [ad.eval("Owner") for ad in admin.jobs(name)] == ["alice"]
        assert admin.act("remove", [name]) == {name: "done"}


def test_no_edit_gives_a_job_to_another(pool):
    """Not of its owner, not of an administrator, in no spelling; nor what else the schedd keeps itself."""
    alices = pool.client(token(pool, "WRITE", "alice@elsewhere"))
    with alices, pool.client() as admin:
        (name,) = alices.submit(job(), [ClassAd()], spool=True).ids()
        for client in (alices, admin):
            for attribute in ("Owner", "oWNER", "User", "OsUser", "JobStatus", "ClusterId", "SubmitterName"):
                with pytest.raises(ClientError, match="schedd keeps this attribute itself"):
                    client.edit([name], {attribute: '"bob"'})
        with pytest.raises(ClientError, match="can not be changed after submission"):
            alices.edit([name], {"Cmd": '"/bin/sh"'})
        with pytest.raises(ClientError, match="no ClassAd expression"):
            alices.edit([name], {"Note": "((("})
        assert alices.edit([name], {"Note": '"mine"', "JobPrio": "7"}) == {name: "done"}
        (ad,) = alices.jobs(name)
        assert [ad.eval(a) for a in ("Owner", "User", "Note", "JobPrio")] == ["alice", "alice@elsewhere", "mine", 7]


def test_no_edits_make_a_job_that_nobody_can_list(pool, tokens):
    with pool.client(tokens["WRITE"]) as client:
        cluster = client.submit(job(), [ClassAd()], spool=True)
        large = json.dumps("x" * 600_000)
        assert client.edit(cluster.ids(), {"Large": large}) == {cluster.ids()[0]: "done"}
        with pytest.raises(ClientError, match="at most 1048576"):
            client.edit(cluster.ids(), {"More": large})
        client.edit(cluster.ids(), {"Large": "1"})
        assert [ad.eval("Large") for ad in client.jobs(str(cluster.cluster))] == [1]
        client.act("remove", cluster.ids())


def test_only_administrators_submit_for_others(pool, tokens):
    def submit(owner, whose):
        body = {"submit_id": uuid.uuid4().hex, "cluster_ad": job().pack(), "procs": [ClassAd().pack()], "spool": True}
        raw = {"Content-Type": "application/x-msgpack"}
        packed = msgpack.packb(body)
        return pool.ask("POST", f"/v1/jobs?owner={owner}", body=packed, token=whose, headers=raw)

    assert is_error(submit("carol@x", tokens["WRITE"]), 403, says="only an ADMINISTRATOR submits for others")
    assert submit("alice@elsewhere", tokens["WRITE"])[0] == 200  # herself
    assert is_error(submit("no%20user", pool.token), 400)
    status, _, answer = submit("carol@x", pool.token)
    assert status == 200
    with pool.client() as client:
        (ad,) = client.jobs(str(answer["cluster"]))
    assert (ad.eval("Owner"), ad.eval("User")) == ("carol", "carol@x")


# --- tokens


def test_tokens_are_listed_without_themselves_and_can_be_revoked(pool):
    made = token(pool, "READ", "carol@x", label="for a test")
    with pool.client() as admin, pool.client(made) as carol:
        assert (carol.whoami()["user"], carol.whoami()["level"]) == ("carol@x", "READ")
        (listed,) = [t for t in admin.tokens() if t["label"] == "for a test"]
        assert made not in json.dumps(admin.tokens())
        assert (listed["user"], listed["level"], listed["expires"]) == ("carol@x", "READ", 0.0)
        assert admin.revoke_token(listed["id"]) == 1
        with pytest.raises(ClientError, match="no valid token: the one that was sent was revoked at"):
            carol.whoami()
        assert admin.revoke_token(listed["id"]) == 0


def test_a_token_ends_when_its_time_is_over(pool):
    made = token(pool, "READ", lifetime_s=0.5)

    def over() -> bool:
        return pool.ask("GET", "/v1/whoami", token=made)[0] == 401

    assert not over()
    wait_until(over, what="the token's end")


@pytest.mark.parametrize(
    "bad",
    [
        {"user": "", "level": "READ"},
        {"user": "a b", "level": "READ"},
        {"user": "a@b@c", "level": "READ"},
        {"user": "x", "level": "ROOT"},
        {"user": "x", "level": "READ", "lifetime_s": -1},
        {"user": "x", "level": "READ", "lifetime_s": float("nan")},
        {"user": "x", "level": "READ", "lifetime_s": 1e300},
        {"user": "x", "level": "READ", "label": "l" * 1000},
        {"user": "\ud800", "level": "READ"},
        {"user": "x", "level": "READ", "label": "\ud800"},
        {"user": "a\x1b[2Jb@x", "level": "READ"},
        {"user": "a@x\x00", "level": "READ"},
        {"level": "READ"},
        [],
    ],
)
def test_a_bad_token_order_is_refused(pool, bad):
    assert is_error(pool.ask("POST", "/v1/tokens", body=bad), 400, code="bad-request")


def test_a_token_to_revoke_is_named_by_enough_digits(pool):
    assert is_error(pool.ask("DELETE", "/v1/tokens/0"), 400, says="at least 8 digits")


# --- bad input


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/ads?constraint=%28%28%28", None, 400),
        ("GET", "/v1/ads?constraint=" + "(" * 5000, None, 400),
        ("GET", "/v1/ads?limit=-1", None, 400),
        ("GET", "/v1/ads?limit=99999999999999999999999", None, 400),
        ("GET", "/v1/ads?limit=many", None, 400),
        ("GET", "/v1/ads?absent=perhaps", None, 400),
        ("GET", "/v1/jobs?constraint=JobStatus+%3D%3D", None, 400),
        ("GET", "/v1/jobs?ids=twelve", None, 400),
        ("GET", "/v1/jobs?ids=" + "1," * 200_000, None, 431),
        ("GET", "/v1/jobs?ids=12.x", None, 400),
        ("GET", "/v1/jobs?ids=" + "9" * 40, None, 400),
        ("GET", "/v1/jobs?history=1&constraint=%22", None, 400),
        ("GET", "/v1/jobs?schedd=nobody", None, 400),
        ("GET", "/v1/schedd?name=nobody", None, 400),
        ("GET", "/v1/jobs/totals?schedd=nobody", None, 400),
        ("GET", "/v1/analysis?ids=twelve", None, 400),
        ("GET", "/v1/analysis?ids=999999.0", None, 404),
        ("GET", "/v1/analysis?machine=nobody", None, 404),
        ("GET", "/v1/analysis?constraint=%28%28%28", None, 400),
        ("GET", "/v1/analysis?schedd=nobody", None, 400),
        ("GET", "/v1/analysis?limit=0", None, 400),
        ("GET", "/v1/analysis?limit=51", None, 400),
        ("GET", "/v1/analysis?negotiator=nobody", None, 400),
        ("GET", "/v1/analysis?machine=" + "x" * 2000, None, 400),
        ("GET", "/v1/events?" + "&".join(f"type=[a-{n}]*" for n in range(101)), None, 400),
        ("GET", "/v1/events?type=" + "*a" * 51, None, 400),
        ("GET", "/v1/events?after=" + "0" * 201, None, 400),
        ("POST", "/v1/jobs/action", b"not json", 400),
        ("POST", "/v1/jobs/action", [], 400),
        ("POST", "/v1/jobs/action", {"action": "explode", "ids": ["1"]}, 400),
        ("POST", "/v1/jobs/action", {"action": "hold"}, 400),
        ("POST", "/v1/jobs/action", {"action": "hold", "ids": "1.0"}, 400),
        ("POST", "/v1/jobs/action", {"action": "hold", "ids": [1]}, 400),
        ("POST", "/v1/jobs/action", {"action": "hold", "ids": ["one"]}, 400),
        ("POST", "/v1/jobs/action", {"action": "hold", "constraint": "((("}, 400),
        ("POST", "/v1/jobs/action", {"action": "hold", "constraint": "x" * 200_000}, 400),
        ("POST", "/v1/jobs/action", {"action": "hold", "ids": ["\ud800"]}, 400),
        ("POST", "/v1/jobs/action", {"action": "hold", "constraint": '"\ud800"'}, 400),
        ("POST", "/v1/jobs/action", {"action": "hold", "ids": ["1"], "reason": "\ud800"}, 400),
        ("POST", "/v1/priorities/x", {"what": "colour", "value": 1}, 400),
        ("POST", "/v1/priorities/x", {"what": "factor"}, 400),
        ("POST", "/v1/priorities/x", {"what": "factor", "value": "much"}, 400),
        ("POST", "/v1/priorities/x", {"what": "factor", "value": float("inf")}, 400),
        ("POST", "/v1/priorities/x", {"what": "factor", "value": -1}, 400),
        ("GET", "/v1/dead-letters?limit=0", None, 400),
        ("POST", "/v1/dead-letters/requeue", {"ids": [1]}, 400),
        ("POST", "/v1/dead-letters/discard", {}, 400),
        ("GET", "/v1/jobs/nonsense/files", None, 400),
        ("GET", "/v1/jobs/999999.0/files", None, 404),
        ("PUT", "/v1/jobs/999999/files", b"x", 404),
        ("GET", "/v1/nowhere", None, 404),
        ("DELETE", "/v1/pool", None, 405),
        ("POST", "/v1/jobs", b"\xc1", 400),
        ("POST", "/v1/jobs", b"\x91" * 100_000, 400),
        ("POST", "/v1/jobs", b"\x81\xa5procs\xdd\x00\x98\x96\x80" + b"\x90" * 10_000_000, 400),
        ("POST", "/v1/jobs", msgpack.packb([1, 2]), 400),
        ("POST", "/v1/jobs", msgpack.packb({}), 400),
        ("POST", "/v1/jobs", msgpack.packb({1: 2, "submit_id": 7, "cluster_ad": b"", "procs": []}), 400),
        ("POST", "/v1/jobs", msgpack.packb({"submit_id": "s", "cluster_ad": b"junk", "procs": [b""]}), 400),
        ("POST", "/v1/jobs", msgpack.packb({"submit_id": "t", "cluster_ad": job().pack(), "procs": [b"junk"]}), 400),
        ("POST", "/v1/jobs", msgpack.packb({"submit_id": "u", "cluster_ad": job().pack(), "procs": []}), 400),
        ("POST", "/v1/jobs", msgpack.packb({"submit_id": "v" * 999, "cluster_ad": job().pack(), "procs": []}), 400),
    ],
)
def test_bad_input_is_refused_clearly(pool, method, path, body, status):
    assert is_error(pool.ask(method, path, body=body), status)


def test_nothing_stays_of_a_refused_submit(pool):
    with pool.client() as client:
        before = client.job_totals()
        with pytest.raises(ClientError):
            client.submit(job(), [ClassAd(), ClassAd({"JobPrio": "high"})], spool=True)
        with pytest.raises(ClientError, match="nothing to submit"):
            client.submit(job(), [], spool=True)
        assert client.job_totals() == before


@pytest.mark.parametrize(
    ("path", "size"),
    [
        ("/v1/jobs/action", 9 << 20),
        ("/v1/tokens", 9 << 20),
        ("/v1/jobs", 65 << 20),
        ("/v1/priorities/a/files", 9 << 20),  # no place of files, whatever its end
    ],
)
def test_a_huge_body_is_refused_before_it_is_kept(pool, path, size):
    """Also where its sender tells no length."""
    host, port = pool.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {pool.token}\r\n"
        line.sendall(f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        try:
            for _ in range(size >> 20):
                line.sendall(chunk)
            line.sendall(b"0\r\n\r\n")
        except OSError:
            pass  # it has hung up on us
        answer = line.recv(65536)
    assert b" 413 " in answer.splitlines()[0]
    assert pool.ask("GET", "/v1/whoami")[0] == 200


@pytest.mark.parametrize("path", ["/v1/jobs/action", "/v1/jobs", "/v1/jobs/1.0/files", "/v1/jobs/description"])
@pytest.mark.parametrize("token", ["", "Authorization: Bearer wrong\r\n"])
def test_nothing_is_read_of_the_body_of_a_stranger(pool, path, token):
    """Its answer comes while the body is still on its way."""
    host, port = pool.url.removeprefix("http://").split(":")
    method = "PUT" if path.endswith("files") else "POST"
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as line:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{token}Content-Type: application/json\r\n"
        line.sendall(f"{head}Content-Length: 1000000\r\n\r\nnot json".encode())
        answer = b""
        while b"}}" not in answer:
            answer += line.recv(65536)
    assert b" 401 " in answer.splitlines()[0]
    assert b"no valid token" in answer


def test_who_is_called_twice_is_nobody(pool):
    """Two Authorization headers: something before us may have looked at the other one."""
    host, port = pool.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as line:
        own = f"Authorization: Bearer {pool.token}\r\n"
        line.sendall(f"GET /v1/whoami HTTP/1.1\r\nHost: localhost\r\n{own}{own}Connection: close\r\n\r\n".encode())
        assert b" 401 " in line.recv(65536).splitlines()[0]


def test_users_with_strange_names_have_priorities(pool):
    with pool.client() as client:
        client.set_priority("group/sub.ü user@x y", "factor", 7.5)
        found = {ad.eval("Name"): ad.eval("PriorityFactor") for ad in client.priorities()}
    assert found["group/sub.ü user@x y"] == 7.5


# --- large answers


@pytest.mark.timeout(240)
def test_thousands_of_jobs_are_streamed(pool):
    with pool.client() as client:
        cluster = client.submit(job(), [ClassAd({"Number": n}) for n in range(2_500)], spool=True)
        assert cluster.count == 2_500
        assert [ad.eval("ProcId") for ad in client.jobs(str(cluster.cluster), projection=["ProcId"])] == [*range(2_500)]
        some = list(client.jobs(str(cluster.cluster), projection=["ProcId"], limit=1234))
        assert len(some) == 1234
        _, _, text = pool.ask("GET", f"/v1/jobs?ids={cluster.cluster}&projection=Number,TotalSubmitProcs")
        assert sorted(ad["Number"] for ad in text) == [*range(2_500)]
        assert {ad["TotalSubmitProcs"] for ad in text} == {2_500}
        # A reader who stops early gets a clean line for the next question.
        assert next(iter(client.jobs(str(cluster.cluster)))).eval("ProcId") == 0
        assert client.whoami()["level"] == "ADMINISTRATOR"
        client.act("remove", [str(cluster.cluster)])


# --- events


class Listener(threading.Thread):
    """Follows events until it is told to stop."""

    def __init__(self, client: Client, *types: str, after: str = "") -> None:
        super().__init__(daemon=True)
        self.client = client
        self.arguments = (types, after)
        self.open = threading.Event()
        self.events = []
        self.start()
        assert self.open.wait(PATIENCE_S)

    def run(self) -> None:
        types, after = self.arguments
        for event in self.client.events(*types, after=after, on_open=self.open.set):
            self.events.append(event)
            if event.body.get("submitter") == "end@x":
                return


def test_events_are_filtered_and_resumed_by_id(pool):
    with pool.client() as admin:
        listener = Listener(pool.client(), "accountant.changed")
        for number in range(5):
            admin.set_priority(f"user{number}@x", "factor", 10 + number)
        admin.set_priority("end@x", "factor", 10)
        wait_until(lambda: [e for e in listener.events if e.body["submitter"] == "end@x"], what="the last event")
        seen = [e.body["submitter"] for e in listener.events]
        assert seen == [*(f"user{n}@x" for n in range(5)), "end@x"]
        again = Listener(pool.client(), "accountant.changed", after=listener.events[1].id)
        wait_until(lambda: [e for e in again.events if e.body["submitter"] == "end@x"], what="the last event again")
        assert [e.body["submitter"] for e in again.events] == seen[2:]


def test_a_stream_tells_when_the_id_is_not_kept_any_more(pool):
    host, port = pool.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        head = f"GET /v1/events?type=no.such HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {pool.token}\r\n"
        line.sendall(f"{head}Last-Event-ID: {'0' * 32}\r\n\r\n".encode())
        got = b""
        while b"event: gap" not in got:
            more = line.recv(65536)
            assert more, got
            got += more


def test_a_listener_that_hangs_up_is_forgotten(pool):
    with pool.client() as client:
        before = client.pool()["listeners"]
        follower = pool.client()
        stream = follower.events("no.such", on_open=lambda: opened.set())
        opened = threading.Event()
        thread = threading.Thread(target=lambda: next(stream, None), daemon=True)
        thread.start()
        assert opened.wait(PATIENCE_S)
        assert client.pool()["listeners"] == before + 1
        follower._transport.connection.sock.shutdown(socket.SHUT_RDWR)
        # It reconnects by itself; what counts is that the old one does not stay.
        wait_until(lambda: client.pool()["listeners"] <= before + 1, what="the listener to go")


def test_the_command_makes_lists_and_revokes_tokens(pool):
    """With HTCondor's spelling too: condor_token_create -identity, -authz, -lifetime."""
    made = json.loads(
        pool.roost(
            "token", "create", "-identity", "dave@x", "-authz", "READ", "-authz", "WRITE", "-lifetime", "3600",
            "-scope", "jobs.*", "-label", "by command", "-json",
        )
    )  # fmt: skip
    with pool.client(made["token"]) as dave:
        list(dave.jobs(limit=1))
    listed = pool.roost("token", "list")
    assert "LAST USE" in listed
    (line,) = [line for line in listed.splitlines() if "dave@x" in line]
    assert [word in line for word in (made["id"], "WRITE", "jobs.*", "by command")] == [True] * 4
    assert made["token"] not in listed
    assert "1 token revoked" in pool.roost("token", "revoke", made["id"])
    assert "dave@x" not in pool.roost("token", "list")
    assert "revoked" in pool.roost("token", "list", "-all")
    assert "there are READ" in pool.roost("token", "create", "x", "-level", "ROOT", ok=False)


def test_no_answer_waits_until_its_head_is_acknowledged(pool):
    """As Nagle's algorithm has it: each answer but the first of a connection would take 40 ms."""
    server = pool.runner("gateway").daemon._server

    async def delays():
        found = [one.transport.get_extra_info("socket") for one in server.server_state.connections]
        return {not one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in found}

    with pool.client() as client:
        client.whoami()
        assert pool.run(delays()) == {False}


def test_other_pools_stand_beside_this_one(pool):
    with pool.client() as client:
        own, itself, away = client.pools()
    assert (own["name"], itself["name"], away["name"]) == ("", "itself.example.org", "away.example.org")
    assert (own["error"], itself["error"]) == ("", "")
    assert own["cpus"] == itself["cpus"] > 0
    assert own["version"] == itself["version"] != ""
    assert "127.0.0.1:9" in away["error"]
    assert away["cpus"] is None
    # What the token of here may not see is nothing that all who look get to see.
    assert is_error(pool.ask("GET", "/v1/pools", token=None), 401)
