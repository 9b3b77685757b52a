"""The built-in file transfer plug-in, as a program and piece by piece, with a web server that has faults."""

import hashlib
import json
import ssl
import subprocess
import sys

import pytest

from services.startd.run import builtin_plugin as plugin
from services.startd.run.url_transfer import _program
from shared.classad import ClassAd, parse_ad, parse_ads
from tests.certificates import Authority
from tests.faulty_http import Fault, FaultyServer

CONTENT = bytes(range(256)) * 4000


@pytest.fixture
def server():
    with FaultyServer() as made:
        made.files["/data"] = CONTENT
        yield made


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(plugin, "STALL_S", 1.0)


def fetch(url, path, **how):
    waits = []
    result = plugin.transfer(url, str(path), upload=False, sleep=waits.append, **how)
    assert not list(path.parent.glob("*.part")), "what is not whole goes"
    return result, waits


def run(tmp_path, words, env=None):
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", _program(), *words],
        cwd=tmp_path, env=env or {}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_what_it_can_do(tmp_path):
    ad = parse_ad(run(tmp_path, ["-classad"]).stdout, "old")
    assert (ad.eval("PluginType"), ad.eval("MultipleFileSupport")) == ("FileTransfer", True)
    assert ad.eval("SupportedMethods") == "http,https,file"


def test_many_files_both_ways_as_a_program(server, tmp_path):
    odd = 'a "b" \\c'
    (tmp_path / "in").write_text(
        "".join(
            f'[ Url = "{server.url}/data?secret=1"; LocalFileName = {json.dumps(str(tmp_path / name))} ]\n'
            for name in ("one", odd)
        )
    )
    done = run(tmp_path, ["-infile", "in", "-outfile", "out"])
    assert (done.returncode, done.stderr) == (0, "")
    ads = list(parse_ads((tmp_path / "out").read_text(), "new"))
    assert [ad.eval("TransferFileName") for ad in ads] == ["one", odd]
    assert all(ad.eval("TransferSuccess") is True and ad.eval("TransferFileBytes") == len(CONTENT) for ad in ads)
    assert "secret" not in (tmp_path / "out").read_text()
    assert (tmp_path / odd).read_bytes() == CONTENT
    text = f'[ Url = "{server.url}/sent"; LocalFileName = "{tmp_path}/one" ]'
    (tmp_path / "in").write_text(text)
    assert run(tmp_path, ["-upload", "-infile", "in", "-outfile", "out"]).returncode == 0
    assert server.files["/sent"] == CONTENT
    assert parse_ad((tmp_path / "out").read_text()).eval("TransferType") == "upload"


@pytest.mark.parametrize("text", ["[ Url = 1 ]", "nonsense", '[ Url = "x" ', '[ LocalFileName = "x" ]'])
def test_a_list_that_is_none(tmp_path, text):
    (tmp_path / "in").write_text(text)
    done = run(tmp_path, ["-infile", "in", "-outfile", "out"])
    assert done.returncode != 0


@pytest.mark.parametrize(
    ("fault", "waits"),
    [
        (Fault("status", 503, times=2), 2),
        (Fault("status", 503, times=1, headers={"Retry-After": "7"}), 1),
        (Fault("short", times=1), 1),
        (Fault("reset", times=2), 2),
        (Fault("hang", times=1), 1),
        (Fault("digest", times=1), 1),
    ],
    ids=str,
)
def test_what_passes_is_tried_again_and_later_each_time(server, tmp_path, fault, waits):
    server.faults["/data"] = fault
    result, waited = fetch(f"{server.url}/data", tmp_path / "data")
    assert result["TransferSuccess"], result
    assert (tmp_path / "data").read_bytes() == CONTENT
    assert result["TransferTries"] == len(waited) + 1 == waits + 1
    assert waited == sorted(waited)
    assert waited[0] >= float(fault.headers.get("Retry-After", 0.3))


@pytest.mark.parametrize(
    ("fault", "status", "says"),
    [
        (Fault("status", 404), 404, "the server answered 404 Not Found: out of order"),
        (Fault("status", 403), 403, "the server answered 403 Forbidden"),
        (Fault("redirect", "file:///etc/passwd"), 0, "redirect"),
        (Fault("redirect", "ftp://127.0.0.1/x"), 302, "the server leads from http to ftp://127.0.0.1/x"),
    ],
    ids=str,
)
def test_what_does_not_pass_is_not_tried_again(server, tmp_path, fault, status, says):
    server.faults["/data"] = fault
    result, waited = fetch(f"{server.url}/data?key=secret", tmp_path / "data")
    assert not result["TransferSuccess"]
    assert not waited
    assert says.lower() in result["TransferError"].lower()
    assert "secret" not in json.dumps(result)
    assert result.get("TransferHTTPStatusCode", 0) in (status, 302)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault("status", 503), "the server answered 503 Service Unavailable: out of order (tried 3 times)"),
        (Fault("short"), f"only {len(CONTENT) // 2} of {len(CONTENT)} bytes came (tried 3 times)"),
        (Fault("digest"), "its sha256 is "),
        (Fault("hang"), "(tried 3 times)"),
    ],
    ids=str,
)
def test_what_never_passes_is_given_up(server, tmp_path, fault, says):
    server.faults["/data"] = fault
    result, waited = fetch(f"{server.url}/data", tmp_path / "data", tries=3)
    assert not result["TransferSuccess"]
    assert says in result["TransferError"]
    assert (len(waited), server.count("/data")) == (2, 3)


def test_nobody_listens(tmp_path):
    with FaultyServer() as gone:
        url = gone.url
    result, waited = fetch(f"{url}/data", tmp_path / "data", tries=2)
    assert "no connection" in result["TransferError"]
    assert len(waited) == 1


def test_checksums_of_server_and_url(server, tmp_path):
    server.digests = True
    good = hashlib.sha256(CONTENT).hexdigest()
    assert fetch(f"{server.url}/data#sha256={good}", tmp_path / "a")[0]["TransferSuccess"]
    bad = fetch(f"{server.url}/data#sha256={good[::-1]}", tmp_path / "b", tries=2)[0]
    assert f"its sha256 is {good}, not" in bad["TransferError"]
    assert "no checksum" in fetch(f"{server.url}/data#sha256=xyz", tmp_path / "c")[0]["TransferError"]


def test_a_redirect_is_followed_without_the_password(server, tmp_path):
    with FaultyServer() as other:
        other.files["/there"] = b"moved"
        server.faults["/data"] = Fault("redirect", f"{other.url}/there")
        url = server.url.replace("://", "://me:word@") + "/data"
        result, _ = fetch(url, tmp_path / "data")
        assert result["TransferSuccess"], result
        assert (tmp_path / "data").read_bytes() == b"moved"
        assert "Authorization" in server.headers[0]
        assert "Authorization" not in other.headers[0]
        assert "word" not in json.dumps(result)


def test_files_of_the_machine(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store/a b").write_text("here")
    done = plugin.transfer(f"file://{tmp_path}/store/a%20b", str(tmp_path / "copy"), upload=False)
    assert (done["TransferSuccess"], (tmp_path / "copy").read_text()) == (True, "here")
    done = plugin.transfer(f"file://{tmp_path}/store/sent", str(tmp_path / "copy"), upload=True)
    assert (done["TransferSuccess"], (tmp_path / "store/sent").read_text()) == (True, "here")
    for url, upload, says in (
        (f"file://{tmp_path}/none", False, "can not be read"),
        (f"file://{tmp_path}/store", False, "can not be read"),
        (f"file://{tmp_path}/none/x", True, "can not be written"),
        ("file://elsewhere/x", False, "it is a file of the execution point"),
        ("gopher://h/x", False, "http, https, file"),
    ):
        done = plugin.transfer(url, str(tmp_path / "copy"), upload=upload)
        assert says in done["TransferError"], done


def test_https_believes_whom_the_machine_believes_and_tokens_stay_encrypted(tmp_path):
    authority = Authority(tmp_path)
    pair = authority.issue("server", "IP:127.0.0.1")
    creds, work = tmp_path / "creds", tmp_path / "work"
    creds.mkdir()
    work.mkdir()
    (creds / "box.use").write_text('{"access_token": "t0ken"}')
    with FaultyServer() as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.cert, pair.key)
        server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
        server.files["/data"] = b"safe"
        url = f"box+https://127.0.0.1:{server.port}/data"
        text = f'[ Url = "{url}"; LocalFileName = "{work}/data" ]'
        (work / "in").write_text(text)
        words = ["-infile", "in", "-outfile", "out"]
        done = run(work, words, {"_CONDOR_CREDS": str(creds)})
        assert done.returncode == 1
        assert "certificate is not to be trusted" in done.stderr
        done = run(work, words, {"_CONDOR_CREDS": str(creds), "SSL_CERT_FILE": str(authority.ca)})
        assert done.returncode == 0, done.stderr
        assert (work / "data").read_bytes() == b"safe"
        assert server.headers[-1]["Authorization"] == "Bearer t0ken"
        (work / "in").write_text(text.replace("box+https", "box+http"))
        assert "is sent by https only" in run(work, words, {"_CONDOR_CREDS": str(creds)}).stderr
        (work / "in").write_text(text.replace("box+", "other+"))
        assert "use_oauth_services = other" in run(work, words, {"_CONDOR_CREDS": str(creds)}).stderr


def test_an_upload_is_tried_again_from_its_beginning(server, tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    server.faults["/sent"] = Fault("status", 500, times=2)
    done = plugin.transfer(f"{server.url}/sent", str(tmp_path / "file"), upload=True, sleep=lambda wait: None)
    assert (done["TransferSuccess"], done["TransferTries"], server.files["/sent"]) == (True, 3, CONTENT)


def test_an_empty_file_both_ways(server, tmp_path):
    (tmp_path / "file").touch()
    assert plugin.transfer(f"{server.url}/none", str(tmp_path / "file"), upload=True)["TransferSuccess"]
    assert server.files["/none"] == b""
    assert plugin.transfer(f"{server.url}/none", str(tmp_path / "back"), upload=False)["TransferSuccess"]
    assert (tmp_path / "back").read_bytes() == b""


def test_ads_as_texts_survive():
    ad = {"A": 'x"y\\z\nw', "B": True, "C": 3}
    (back,) = parse_ads(plugin.ad_text(ad), "new")
    assert isinstance(back, ClassAd)
    assert {name: back.eval(name) for name in ad} == ad


#: Speaks the command line of Pelican's client program (`pelican object get|put`, `--token`, exit status 11 for what may
#: pass, messages in its log's form); the federation is a directory.
PELICAN = """#!/bin/sh
echo "$@" >> STORE/calls
[ "$1" = object ] || exit 2
case $2 in get) url=$3;; put) url=$4;; *) exit 2;; esac
place=STORE/$(echo "$url" | sed 's,?.*,,; s,.*/,,')
[ "$5" = --token ] && cat "$6" >> STORE/tokens
if [ -f STORE/passing ]; then
    rm STORE/passing
    echo 'time="2026-11-28T17:00:00Z" level=error msg="Failure getting '$url': cache \\"x\\" is busy"' >&2
    echo 'time="2026-11-28T17:00:00Z" level=error msg="Errors are retryable"' >&2
    exit 11
fi
if [ $2 = get ]; then from=$place to=$4; else from=$3 to=$place; fi
[ -f "$from" ] || { echo "time=x level=error msg=\\"Failure getting $url: object not found\\"" >&2; exit 1; }
cat "$from" > "$to"
"""


@pytest.fixture
def federation(tmp_path, monkeypatch):
    store, programs = tmp_path / "store", tmp_path / "bin"
    for one in (store, programs):
        one.mkdir()
    (programs / "pelican").write_text(PELICAN.replace("STORE", str(store)))
    (programs / "pelican").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return store


def test_objects_of_federations_come_and_go_by_pelicans_program(federation, tmp_path, monkeypatch):
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    ad = parse_ad(run(tmp_path, ["-classad"], env).stdout, "old")
    assert ad.eval("SupportedMethods") == "http,https,file,osdf,pelican"
    (federation / "data").write_bytes(CONTENT)
    (federation / "passing").touch()
    result, waits = fetch("pelican://host/space/data?authz=secret", tmp_path / "data")
    assert (result["TransferSuccess"], result["TransferFileBytes"], len(waits)) == (True, len(CONTENT), 1)
    assert (tmp_path / "data").read_bytes() == CONTENT
    creds = tmp_path / "creds"
    creds.mkdir()
    (creds / "box.use").write_text('{"access_token": "opaque"}')
    monkeypatch.setenv("_CONDOR_CREDS", str(creds))
    result = plugin.transfer("box+osdf:///space/out", str(tmp_path / "data"), upload=True)
    assert (result["TransferSuccess"], result["TransferProtocol"]) == (True, "osdf")
    assert (federation / "out").read_bytes() == CONTENT
    assert (federation / "tokens").read_text() == "opaque"
    assert (federation / "calls").read_text().splitlines()[-1].startswith("object put ")
    assert not list(tmp_path.glob("*.token"))


def test_what_pelicans_program_complains_of_is_told_without_secrets(federation, tmp_path):
    result, waits = fetch("osdf:///space/none?authz=secret", tmp_path / "none")
    assert (result["TransferSuccess"], waits) == (False, [])
    assert result["TransferError"] == (
        "osdf:///space/none: pelican ended with 1: Failure getting osdf:///space/none: object not found"
    )
    (federation / "passing").touch()
    result, waits = fetch("osdf:///space/none", tmp_path / "none", tries=1)
    assert 'cache "x" is busy (tried 1 times)' in result["TransferError"]


def test_without_pelicans_program_its_urls_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    result, _ = fetch("osdf:///space/data", tmp_path / "data")
    assert "pelican is not on this machine" in result["TransferError"]
