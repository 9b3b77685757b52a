"""CERTIFICATE_MAPFILE says who somebody is, as HTCondor reads it; a certificate without a rule is nobody's, and a map
that can not be read lets no gateway start."""

import json
import ssl
from pathlib import Path

import pytest

from services.gateway.auth.local_peer import LOCAL_PEER, LocalPeer
from services.gateway.auth.login_settings import make_logins
from services.gateway.core import peer_certificate
from shared import map_file
from shared.config import load_config
from shared.config.knobs import GatewaySettings
from shared.errors import PermanentError
from shared.map_file import MapFileError
from tests.certificates import Authority

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "map_file.json").read_text())


@pytest.mark.parametrize(("which", "method", "name", "expected"), RECORDED["answers"])
def test_htcondor_maps_alike(tmp_path, which, method, name, expected):
    """Recorded from HTCondor's own library: m1 without, m2 with CERTIFICATE_MAPFILE_ASSUME_HASH_KEYS."""
    (tmp_path / "map").write_text(RECORDED["maps"][which])
    assert map_file.read(tmp_path / "map", hash_keys=which == "m2").user(method.upper(), name) == expected


def test_other_files_are_included_but_once(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "20-b").write_text("SSL b second@x\n@include ../never\n")
    (tmp_path / "more" / "10-a").write_text("SSL b first@x\n")
    (tmp_path / "more" / "30-c~").write_text("SSL c no@x\n")
    (tmp_path / "never").write_text("SSL d no@x\n")
    (tmp_path / "map").write_text("SSL a one@x\n@include more\n@include more/20-b\nSSL .* rest@x\n")
    read = map_file.read(tmp_path / "map", hash_keys=False, excluded="~$")
    assert [read.user("SSL", one) for one in "abcd"] == ["one@x", "first@x", "rest@x", "rest@x"]
    assert read.user("FS", "a") is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SSL a b@x\nSSL only\n", "line 2: want three fields"),
        ("SSL a b c\n", "want three fields, METHOD NAME USER, and found 4"),
        ("SSL ( b@x\n", "line 1: ( is not a regular expression"),
        ('SSL "a b@x\n', 'a " is not closed'),
        ("@include\n", "want @include PATH"),
    ],
)
def test_a_line_that_is_none_is_told_with_its_place(tmp_path, text, says):
    (tmp_path / "map").write_text(text)
    with pytest.raises(MapFileError, match=r".") as caught:
        map_file.read(tmp_path / "map", hash_keys=False)
    assert says in str(caught.value)


def test_a_pattern_that_never_ends_maps_nobody(tmp_path):
    (tmp_path / "map").write_text("SSL ^(a+)+$ evil@x\n")
    assert map_file.read(tmp_path / "map", hash_keys=False).user("SSL", "a" * 5000 + "!") is None


def logins_of(tmp_path, rules):
    class Context:
        log = None
        clock = type("Clock", (), {"monotonic": staticmethod(lambda: 0.0), "now": staticmethod(lambda: 0.0)})

    (tmp_path / "map").write_text(rules)
    (tmp_path / "config").write_text(f"UID_DOMAIN = pool\nCERTIFICATE_MAPFILE = {tmp_path}/map\n")
    Context.config = load_config([tmp_path / "config"], subsystem="GATEWAY", env={})
    return make_logins(GatewaySettings.from_config(Context.config), Context, None, "owner@pool")[0]


@pytest.fixture(scope="module")
def alice(tmp_path_factory):
    """A certificate of a real authority, as a gateway reads it."""
    pair = Authority(tmp_path_factory.mktemp("ca")).issue("alice", "DNS:alice.example")
    return peer_certificate.read(ssl.PEM_cert_to_DER_cert(pair.cert.read_text()))


async def look(logins, certificate):
    return await logins.look("", {"type": "http", peer_certificate.PEER_CERTIFICATE: certificate}, "192.0.2.7")


async def test_a_certificate_is_whom_the_map_says(tmp_path, alice):
    identity, _ = await look(logins_of(tmp_path, "SSL ^/CN=(.*)$ \\1@pool\n"), alice)
    assert (identity.user, identity.level.name, identity.method) == ("alice@pool", "WRITE", "SSL")
    assert identity.expires == alice.until
    # The other form of the same subject.
    identity, _ = await look(logins_of(tmp_path, "SSL ^CN=alice$ bob@pool\n"), alice)
    assert identity.user == "bob@pool"
    # The pool's own account is one by whatever method.
    identity, _ = await look(logins_of(tmp_path, "SSL ^/CN=alice$ owner@pool\n"), alice)
    assert identity.level.name == "ADMINISTRATOR"


@pytest.mark.parametrize(
    "rules", ["", "SSL ^/CN=bob$ bob@pool\n", "FS .* root@pool\n", "SSL .* ssl@unmapped\n", "SSL .* a/../b@x\n"]
)
async def test_a_certificate_without_a_good_rule_is_nobodys(tmp_path, alice, rules):
    identity, why = await look(logins_of(tmp_path, rules), alice)
    assert identity is None
    assert "your certificate is nobody's" in why


async def test_a_local_account_may_be_somebody_else(tmp_path):
    logins = logins_of(tmp_path, "FS ^root$ operator@pool\n")
    peer = LocalPeer(0)
    identity, _ = await logins.look("", {"type": "http", "state": {LOCAL_PEER: peer}}, peer.address)
    assert (identity.user, identity.level.name) == ("operator@pool", "WRITE")


def test_a_map_that_can_not_be_read_stops_the_start(tmp_path):
    with pytest.raises(PermanentError, match=r"CERTIFICATE_MAPFILE: .*map, line 1: want three fields"):
        logins_of(tmp_path, "SSL\n")
