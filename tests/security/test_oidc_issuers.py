"""SCITOKENS: issuers whose documents and keys are not what they should be, who are away, change their keys, or show
another certificate."""

import asyncio
import base64
import contextlib
import json
import ssl
import time

import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import rsa

from services.gateway.auth import scitokens as gateway_scitokens
from services.gateway.core import scitokens
from services.gateway.core.scitokens import AGAIN_S, MOST_KEYS, Fetched, Issuer, step
from services.gateway.fetch import MOST_BYTES
from shared.errors import RetryableError
from shared.idtokens import TokenTrouble
from shared.tls import ClientTls
from tests.certificates import Authority
from tests.security.issuers import AUDIENCE, KEEP_S, NOW, OTHER, PRIVATE, REFRESH_S, RSA, Gate, RealIssuer, published


async def broken(issuer, gate):
    """The login can not be decided; what is wrong stands in the log, and not in the answer."""
    with pytest.raises(RetryableError) as caught:
        await gate.identity(issuer.token())
    assert str(caught.value) == f"the keys of {issuer.url} can not be had now; the gateway's log says why"
    return gate.scitokens._had[issuer.url].trouble


async def test_a_document_that_never_ends_is_not_read(issuer, gate):
    sent = []

    async def endless(request):
        answer = web.StreamResponse()
        await answer.prepare(request)
        with contextlib.suppress(ConnectionError):
            while len(sent) < 10_000:
                await answer.write(b" " * 65_536)
                sent.append(65_536)
        return answer

    issuer.answers["/keys"] = endless
    assert f"more than {MOST_BYTES} bytes" in await broken(issuer, gate)
    assert sum(sent) < 64 * MOST_BYTES


async def test_a_set_of_too_many_keys_is_not_taken(issuer, gate):
    issuer.keys = [published(OTHER, str(at)) for at in range(MOST_KEYS + 1)]
    assert f"more than {MOST_KEYS} keys" in await broken(issuer, gate)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "is no JSON"),
        (b"<html>", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"\xff\xfe\x00", "is no JSON"),
        (b"[]", "is no JSON object"),
        (b"{}", "has no keys"),
        (b'{"keys": {}}', "has no keys"),
        (b'{"keys": []}', "has no key of"),
        (b'{"keys": [null, 7, {}, {"kty": "RSA"}, {"kty": "oct", "k": "AAAA", "alg": "HS256"}]}', "has no key of"),
    ],
)
async def test_a_key_set_that_is_none(issuer, gate, body, says):
    async def answer(_):
        return web.Response(body=body)

    issuer.answers["/keys"] = answer
    assert says in await broken(issuer, gate)


async def test_redirects_are_not_followed(issuer, gate):
    elsewhere = await RealIssuer().start()

    async def moved(_):
        return web.Response(status=302, headers={"Location": f"{elsewhere.url}/keys"})

    for path in ("/keys", "/.well-known/openid-configuration"):
        issuer.answers = {path: moved}
        assert "a redirect, which is not followed" in await broken(issuer, gate)
        gate.clock.at += AGAIN_S
    assert elsewhere.asked == []
    await elsewhere.stop()


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ({"issuer": "https://other.example"}, "name it so, to the letter"),
        ({"issuer": None}, "name it so, to the letter"),
        ({"jwks_uri": None}, "does not say where its keys are"),
        ({"jwks_uri": "http://192.0.2.1/keys"}, "want https"),
        ({"jwks_uri": "file:///etc/passwd"}, "want https"),
        ({"jwks_uri": "ftp://127.0.0.1/keys"}, "want https"),
        ({"jwks_uri": "https://user:word@127.0.0.1/"}, "want https://HOST/PATH"),
        ({"jwks_uri": "https://127.0.0.1:99999/"}, "jwks_uri"),
        ({"jwks_uri": "https://127.0.0.1/\r\nHost: x"}, "it is no URL"),
    ],
)
async def test_an_issuer_that_is_another_or_sends_us_elsewhere(issuer, gate, says, reason):
    issuer.says = says
    assert reason in await broken(issuer, gate)


def test_an_issuer_of_the_network_sends_nobody_to_this_machine():
    said = json.dumps({"issuer": "https://issuer.example", "jwks_uri": "http://127.0.0.1:8080/admin"}).encode()
    with pytest.raises(ValueError, match="want https"):
        scitokens.keys_url(said, Issuer("https://issuer.example", (AUDIENCE,)))


async def test_weak_keys_and_keys_for_other_things_are_left_out():
    small = rsa.generate_private_key(65537, 1024)
    good = published(PRIVATE["ES256"], "good")
    entries = [
        published(small, "small", "RS256"),
        {**published(RSA, "slow", "RS256"), "e": base64.urlsafe_b64encode(b"\x01" * 8).decode()},
        {**published(RSA, "long", "RS256"), "n": "A" * 100_000},
        published(OTHER, "encryption") | {"use": "enc"},
        published(OTHER, "signs") | {"key_ops": ["sign"]},
        published(OTHER, "ops") | {"key_ops": "verify"},
        published(OTHER, "curve") | {"crv": "P-384"},
        published(OTHER, "off", x="AAAA"),
        published(OTHER, "private") | {"d": "AAAA"},
        published(OTHER, "named") | {"kid": 7},
        published(OTHER, "hmac") | {"alg": "HS256"},
        {"kty": "oct", "kid": "secret", "k": "AAAA"},
        good,
    ]
    found = scitokens.keys(json.dumps({"keys": entries}).encode())
    assert [key.kid for key in found] == ["good"]
    assert found[0].algorithms == ("ES256",)


# --- away, rotation, how often


async def test_an_issuer_that_is_away_takes_nobodys_key_away(issuer, gate):
    token = issuer.token(exp=int(NOW + 10 * KEEP_S))
    await gate.identity(token)
    await issuer.stop()
    for _ in range(5):
        gate.clock.at += REFRESH_S
        assert (await gate.identity(token)).user == "alice@pool"
        await gate.scitokens._tasks.finish()
    # A key that is not had may be a new one: nobody can tell now.
    with pytest.raises(RetryableError, match="can not be had now"):
        await gate.identity(issuer.token(OTHER, headers={"kid": "new"}))
    # Not for ever: what was withdrawn in the meantime is not known.
    gate.clock.at += KEEP_S
    with pytest.raises(RetryableError, match="can not be had now"):
        await gate.identity(token)
    # And once it is there again.
    await issuer.start(port=issuer.port)
    gate.clock.at += AGAIN_S
    assert (await gate.identity(token)).user == "alice@pool"


async def test_an_issuer_that_was_never_there_is_asked_seldom(issuer, gate):
    await issuer.stop()
    for _ in range(10):
        with pytest.raises(RetryableError):
            await gate.identity(issuer.token())
    await issuer.start(port=issuer.port)
    with pytest.raises(RetryableError):
        await gate.identity(issuer.token())
    assert issuer.asked == []
    gate.clock.at += AGAIN_S
    assert (await gate.identity(issuer.token())).user == "alice@pool"


async def test_an_issuer_that_does_not_answer_holds_up_nobody_whose_key_is_had(issuer, gate):
    token = issuer.token()
    await gate.identity(token)
    issuer.hold = asyncio.Event()
    gate.clock.at += REFRESH_S
    waiting = asyncio.create_task(gate.identity(issuer.token(headers={"kid": "new"})))
    await asyncio.sleep(0)
    began = time.monotonic()
    assert (await gate.identity(token)).user == "alice@pool"
    assert time.monotonic() - began < 5
    assert not waiting.done()
    issuer.hold.set()
    with pytest.raises(TokenTrouble, match="its key is none that"):
        await waiting


async def test_an_issuer_is_waited_for_a_while_only(issuer, gate, monkeypatch):
    monkeypatch.setattr(gateway_scitokens, "WAIT_S", 0.2)
    issuer.hold = asyncio.Event()
    assert "no answer within 0.2 s" in await broken(issuer, gate)
    issuer.hold.set()


async def test_a_new_key_counts_at_once_and_an_old_one_no_more(issuer, gate):
    old, new = issuer.token(), issuer.token(OTHER, headers={"kid": "new"})
    await gate.identity(old)
    gate.clock.at += AGAIN_S
    issuer.keys = [published(OTHER, "new")]
    assert (await gate.identity(new)).user == "alice@pool"
    assert "its key is none that" in await gate.refused(old)
    # The same name, another key: taken with the next round.
    gate.clock.at += 2 * REFRESH_S
    issuer.keys = [published(PRIVATE["ES256"], "new")]
    assert "its signature" in await gate.refused(new)


async def test_a_withdrawn_key_does_not_count_after_a_quiet_time(issuer, gate):
    """Without anybody who asks, nothing is fetched: the first who does waits for it."""
    token = issuer.token(exp=int(NOW) + 90_000)
    await gate.identity(token)
    issuer.keys = [published(OTHER, "new")]
    gate.clock.at += 10 * REFRESH_S
    assert "its key is none that" in await gate.refused(token)


async def test_strange_kids_do_not_make_us_ask_without_an_end(issuer, gate):
    await gate.identity(issuer.token())
    for at in range(100):
        gate.clock.at += 1
        await gate.refused(issuer.token(OTHER, headers={"kid": f"guess-{at}"}))
    assert issuer.asked.count("/keys") == 2
    # And hold up nobody else.
    assert (await gate.identity(issuer.token())).user == "alice@pool"


KEYS = ("one",)


@pytest.mark.parametrize(
    ("had", "known", "now", "wanted"),
    [
        (Fetched(), False, 0.0, (True, True)),
        (Fetched(tried=0.0, trouble="x"), False, AGAIN_S - 1, (False, True)),
        (Fetched(tried=0.0, trouble="x"), False, AGAIN_S, (True, True)),
        (Fetched(KEYS, 0.0, 0.0), True, REFRESH_S - 1, (False, False)),
        (Fetched(KEYS, 0.0, 0.0), True, REFRESH_S, (True, False)),
        (Fetched(KEYS, 0.0, 0.0), True, 2 * REFRESH_S, (True, True)),
        (Fetched(KEYS, 0.0, 2 * REFRESH_S - 100, "away"), True, 2 * REFRESH_S, (True, False)),
        (Fetched(KEYS, 0.0, 2 * REFRESH_S - 1, "away"), True, 2 * REFRESH_S, (False, False)),
        (Fetched(KEYS, 0.0, 0.0), False, AGAIN_S - 1, (False, True)),
        (Fetched(KEYS, 0.0, 0.0), False, AGAIN_S, (True, True)),
        (Fetched(KEYS, 0.0, KEEP_S - 100, "away"), True, KEEP_S, (True, True)),
    ],
)
def test_when_keys_are_fetched_and_who_waits(had, known, now, wanted):
    assert step(had, known, now, REFRESH_S, KEEP_S) == wanted
    assert had.good(KEEP_S, KEEP_S) == ()


# --- TLS


async def test_an_issuer_is_known_by_its_certificate(tmp_path):
    (tmp_path / "ours").mkdir()
    (tmp_path / "others").mkdir()
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others", "Another")
    pair = ours.issue("issuer", "DNS:localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.cert, pair.key)
    issuer = await RealIssuer().start(context)
    good = Gate(issuer, tls=ClientTls(ca_file=str(ours.ca), default_cas=False))
    assert (await good.identity(issuer.token())).user == "alice@pool"
    stranger = Gate(issuer, tls=ClientTls(ca_file=str(others.ca), default_cas=False))
    assert "no authority that is known here" in await broken(issuer, stranger)
    # A knob that lets the broker's certificate name another host lets nobody play an issuer.
    wrong = await RealIssuer().start(context)
    wrong.url = wrong.url.replace("localhost", "127.0.0.1")
    unchecked = Gate(wrong, tls=ClientTls(ca_file=str(ours.ca), default_cas=False, check_host=False))
    assert "not valid for" in await broken(wrong, unchecked)
    for one in (good, stranger, unchecked):
        await one.scitokens.close()
    await issuer.stop()
    await wrong.stop()
