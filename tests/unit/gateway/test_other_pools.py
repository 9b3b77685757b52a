"""What other pools' gateways say of themselves, and what comes of those that are away, strange or wrong."""

import asyncio
import json
import ssl

import pytest
from aiohttp import web

from services.gateway import other_pools
from services.gateway.core.other_pools import MOST_TEXT, check_url, document, line
from services.gateway.fetch import MOST_BYTES
from services.gateway.other_pools import OtherPools
from shared.config import ConfigError, load_config
from shared.config.pool_names import pool_names
from shared.daemon.clock import SystemClock
from shared.tls import ClientTls
from tests.certificates import Authority

OVERVIEW = {
    "slots": {"slots": 8, "cpus": 64.0, "used_cpus": 48.0, "gpus": 0, "utilisation": 0.75, "states": {}},
    "queue": {"running": 48, "idle": 12, "held": 3, "removed": 0, "total": 63},
    "users": {"count": 2, "lines": []},
}
FINDINGS = {
    "findings": [
        {"level": "note", "text": "an old release"},
        {"level": "warning", "text": "3 jobs are held"},
        {"level": "warning", "text": "a disk"},
    ]
}


def test_a_line_has_the_numbers_and_the_gravest_finding():
    assert line(OVERVIEW, FINDINGS, "1.2") == {
        "slots": 8,
        "cpus": 64.0,
        "used_cpus": 48.0,
        "gpus": 0,
        "utilisation": 0.75,
        "running": 48,
        "idle": 12,
        "held": 3,
        "users": 2,
        "version": "1.2",
        "error_count": 0,
        "warning_count": 2,
        "note_count": 1,
        "first": "3 jobs are held",
    }


@pytest.mark.parametrize("part", [{"error": "the collector does not answer"}, None, 7, [1]])
def test_a_part_that_can_not_be_had_has_no_numbers(part):
    told = line({**OVERVIEW, "queue": part}, FINDINGS, "1.2")
    assert (told["running"], told["idle"], told["cpus"]) == (None, None, 64.0)


@pytest.mark.parametrize("value", [True, "48", float("inf"), float("nan"), 1e300, None, {}])
def test_what_is_no_number_is_left_out(value):
    assert line({"queue": {"idle": value}}, {}, "1.2")["idle"] is None


@pytest.mark.parametrize("findings", [None, 7, [None, 7, {"level": ["x"], "text": 9}, {"level": "error", "text": 9}]])
def test_findings_that_are_none_do_no_harm(findings):
    assert line(OVERVIEW, {"findings": findings}, ["1.2"])["first"] == ""


def test_texts_are_cut():
    told = line({}, {"findings": [{"level": "error", "text": "x" * 100_000}]}, "y" * 100_000)
    assert (len(told["first"]), len(told["version"])) == (MOST_TEXT, MOST_TEXT)


@pytest.mark.parametrize("data", [b"", b"<html>", b"[]", b"7", b"[" * 100_000, None])
def test_an_answer_that_is_no_object_is_refused(data):
    with pytest.raises(ValueError, match="no gateway of Roost"):
        document(data)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://cm.b.org:9680\n", "https://cm.b.org:9680"),
        (" https://cm.b.org/roost/ ", "https://cm.b.org/roost"),
        ("http://127.0.0.1:9680", "http://127.0.0.1:9680"),
        ("http://[::1]:9680", "http://[::1]:9680"),
    ],
)
def test_addresses(text, url):
    assert check_url(text) == url


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no address"),
        ("cm.b.org:9680", "no address"),
        ("file:///etc/passwd", "no address"),
        ("https://", "no address"),
        ("https://u:p@b.org", "no address"),
        ("https://b.org?x=1", "no address"),
        ("http://cm.b.org:9680", "would pass in clear"),
    ],
)
def test_a_wrong_address_is_told_with_the_mend(text, says):
    with pytest.raises(ValueError, match=says):
        check_url(text)


@pytest.mark.parametrize("name", ["../b", "b/c", ".b", "b c", "é", "x" * 201])
def test_a_name_that_is_no_directory_is_refused(name):
    with pytest.raises(ConfigError, match="that is no name of a pool"):
        pool_names(load_config(env={"CONDOR_CONFIG": "ONLY_ENV"}), "ROOST_GATEWAY_POOLS", ["a", name])


def test_a_pool_that_is_named_twice_is_one():
    assert pool_names(load_config(env={"CONDOR_CONFIG": "ONLY_ENV"}), "FLOCK_TO", ["b", "a", "b"]) == ("b", "a")


class Later(SystemClock):
    """The machine's, moved on by `more` seconds."""

    more = 0.0

    def monotonic(self):
        return super().monotonic() + self.more


class Gateway:
    """Of another pool: answers what a test says, and notes what it is asked and with what."""

    def __init__(self):
        self.answers = {"/v1/overview": OVERVIEW, "/v1/attention": FINDINGS, "/v1/pool": {"version": "1.2"}}
        self.asked = []
        self.url = ""

    async def start(self, tls=None):
        app = web.Application()
        app.router.add_get("/{rest:.*}", self._answer)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0, ssl_context=tls).start()
        scheme, host = ("https", "localhost") if tls else ("http", "127.0.0.1")
        self.url = f"{scheme}://{host}:{self.runner.addresses[0][1]}"
        return self

    async def _answer(self, request):
        self.asked.append((request.path, request.headers.get("Authorization"), request.headers.get("Cookie")))
        answer = self.answers[request.path]
        if isinstance(answer, dict):
            return web.json_response(answer, headers={"Set-Cookie": "a=b"})
        return await answer() if callable(answer) else answer


@pytest.fixture
async def gateway():
    made = await Gateway().start()
    yield made
    await made.runner.cleanup()


@pytest.fixture
def clock():
    return Later()


@pytest.fixture
def place(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "token").write_text("secret\n")
    return tmp_path


def pools(place, clock, url, names=("b",)):
    (place / "b" / "url").write_text(f"{url}\n")
    return OtherPools(names, place, ClientTls(), clock)


async def test_a_pool_is_asked_with_its_token(place, clock, gateway):
    (told,) = await pools(place, clock, gateway.url).told()
    assert told == {
        "name": "b",
        "url": gateway.url,
        "at": told["at"],
        "error": "",
        **line(OVERVIEW, FINDINGS, "1.2"),
    }
    assert sorted(gateway.asked) == [
        (path, "Bearer secret", None) for path in ("/v1/attention", "/v1/overview", "/v1/pool")
    ]


async def test_all_who_look_share_an_answer(place, clock, gateway):
    others = pools(place, clock, gateway.url)
    await asyncio.gather(others.told(), others.told())
    await others.told()
    assert len(gateway.asked) == 3


async def test_one_that_is_gone_has_the_numbers_of_before(place, clock, gateway):
    others = pools(place, clock, gateway.url)
    (before,) = await others.told()
    await gateway.runner.cleanup()
    clock.more = 60.0
    (told,) = await others.told()
    assert told["error"]
    assert {**told, "error": ""} == before


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (web.Response(status=401), "status 401"),
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"}), "a redirect, which is not followed"),
        (web.Response(body=b"<html>"), "no gateway of Roost"),
        (web.Response(body=b" " * (MOST_BYTES + 1)), f"more than {MOST_BYTES} bytes"),
    ],
)
async def test_an_answer_that_is_none_is_told_and_hurts_no_other(place, clock, gateway, answer, says):
    (place / "c").mkdir()
    (place / "c" / "url").write_text(gateway.url)
    (place / "c" / "token").write_text("secret")
    fine = gateway.answers["/v1/overview"]
    asked = iter([answer])

    async def once():
        return next(asked, web.Response(text=json.dumps(fine)))

    gateway.answers["/v1/overview"] = once
    told = await pools(place, clock, gateway.url, ("b", "c")).told()
    assert sorted(bool(one["error"]) for one in told) == [False, True]
    (bad,) = (one for one in told if one["error"])
    assert says in bad["error"]
    assert (bad["at"], bad["idle"]) == (None, None)


async def test_one_that_never_answers_is_not_waited_for(place, clock, gateway, monkeypatch):
    monkeypatch.setattr(other_pools, "WAIT_S", 0.2)
    silent = asyncio.Event()

    async def never():
        await silent.wait()
        return web.Response()

    gateway.answers["/v1/pool"] = never
    (told,) = await pools(place, clock, gateway.url).told()
    assert told["error"] == "no answer within 0.2 s"
    silent.set()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("token", "", "holds no token"),
        ("token", "two\nlines", "holds no token"),
        ("token", "é", "holds no token"),
        ("token", "x" * 30_000, "is too large"),
        ("url", "http://cm.b.org", "would pass in clear"),
        ("url", "nonsense", "no address"),
    ],
)
async def test_a_wrong_file_is_named_and_nobody_is_asked(place, clock, gateway, name, text, says):
    others = pools(place, clock, gateway.url)
    (place / "b" / name).write_text(text)
    (told,) = await others.told()
    assert says in told["error"]
    assert gateway.asked == []


async def test_a_directory_that_is_not_there_is_named(tmp_path, clock):
    (told,) = await OtherPools(("b",), tmp_path, ClientTls(), clock).told()
    assert str(tmp_path / "b" / "url") in told["error"]
    assert told["url"] == ""


async def test_only_its_own_authority_is_believed_and_a_stranger_gets_no_token(place, clock, tmp_path_factory):
    authorities = [Authority(tmp_path_factory.mktemp(name)) for name in ("own", "other")]
    pair = authorities[0].issue("gateway", "DNS:localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair.cert, pair.key)
    gateway = await Gateway().start(tls)
    try:
        (place / "b" / "ca.pem").write_bytes(authorities[1].ca.read_bytes())
        (told,) = await pools(place, clock, gateway.url).told()
        assert "its certificate is of no authority that is known here" in told["error"]
        assert gateway.asked == []
        (place / "b" / "ca.pem").write_bytes(authorities[0].ca.read_bytes())
        (told,) = await pools(place, clock, gateway.url).told()
        assert (told["error"], told["idle"]) == ("", 12)
    finally:
        await gateway.runner.cleanup()
