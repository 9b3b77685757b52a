"""Submit files over plain HTTP: what curl -F sends, and what a description can not do on the gateway's machine."""

import json
import shutil
import socket
import subprocess
import uuid

import pytest

from services.gateway.routes import submit_description
from tests.integration.inside import InsidePool
from tests.waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    inside = InsidePool(tmp_path_factory.mktemp("pool"), ROOST_GATEWAY_UPLOAD_MIB="1")
    yield inside
    inside.close()
    assert not [*inside.directory.glob("spool/*-uploads/*")]  # nothing of any form is left


def form(text, files=None, **fields):
    """A body and its content type."""
    boundary = uuid.uuid4().hex
    parts = [(f'name="{name}"', str(value).encode()) for name, value in {"description": text, **fields}.items()]
    parts += [(f'name="files"; filename="{name}"', data) for name, data in (files or {}).items()]
    body = b"".join(
        f"--{boundary}\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + data + b"\r\n"
        for head, data in parts
    )
    return body + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def submit(pool, text, files=None, *, query="", token="own", **fields):
    body, kind = form(text, files, **fields)
    path = f"/v1/jobs/description{query}"
    status, _, answer = pool.ask("POST", path, body=body, token=token, headers={"Content-Type": kind}, timeout_s=60)
    return status, answer


def refused(pool, text, files=None, **more):
    status, answer = submit(pool, text, files, **more)
    assert status in (400, 403, 413), answer
    return answer["error"]["message"]


def known(pool):
    """All clusters that there are or were."""
    with pool.client() as client:
        return {ad.eval("ClusterId") for past in (False, True) for ad in client.jobs(history=past)}


def test_a_token_has_room_for_one_form_of_the_largest_size_at_a_time(pool):
    """Others of it are told to come later, and there is room again when the first is gone. Each of these breaks off."""
    host, port = pool.url.removeprefix("http://").split(":")
    with pool.client() as admin:
        mine, other = (admin.create_token(user, "WRITE") for user in ("large@x", "small@x"))
    begun = b'--b\r\nContent-Disposition: form-data; name="files"; filename="x"\r\n\r\n'
    boundary = "multipart/form-data; boundary=b"
    noise = b'--b\r\nContent-Disposition: form-data; name="n%d"\r\n\r\n' + b"x" * 7_000_000 + b"\r\n"

    def answer(token):
        return pool.ask(
            "POST", "/v1/jobs/description", body=noise % 1 + noise % 2, token=token, headers={"Content-Type": boundary}
        )

    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as line:
        head = f"POST /v1/jobs/description HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {mine}\r\n"
        line.sendall(f"{head}Content-Type: {boundary}\r\nContent-Length: 90000000\r\n\r\n".encode())
        line.sendall(begun + b"x" * 1_000_000 + b"\r\n" + noise % 1)
        wait_until(lambda: answer(mine)[0] == 429, what="the first form to fill its share")
        status, headers, body = answer(mine)
        assert (status, headers["retry-after"]) == (429, "5")
        assert "no room for more files" in body["error"]["message"]
        assert answer(other)[0] == 400  # the form breaks off
    wait_until(lambda: answer(mine)[0] == 400, what="room again")


def test_a_description_makes_jobs_of_the_token_s_user_only(pool):
    with pool.client() as admin:
        alice = admin.create_token("alice@elsewhere", "WRITE")
        mallory = admin.create_token("mallory@elsewhere", "WRITE")
    text = 'executable = x\n+Owner = "root"\nMY.User = "root@x"\n+oSuSER = "root"\nmy.submittername = "root"\n'
    text += "accounting_group_user = bob\nhold = true\nqueue\n"
    status, answer = submit(pool, text, {"x": b"x"}, token=mallory)
    assert status == 200, answer
    with pool.client() as admin:
        (ad,) = admin.jobs(str(answer["clusters"][0]["cluster"]))
        assert (ad.eval("Owner"), ad.eval("User")) == ("mallory", "mallory@elsewhere")
        assert "root" not in f"{ad.eval('OsUser')} {ad.eval('SubmitterName')}"
        admin.act("remove", [str(answer["clusters"][0]["cluster"])])
    # The id of somebody else's submit is none of theirs.
    first = submit(pool, "executable = x\nqueue\n", {"x": b"x"}, token=alice, submit_id="known")[1]["clusters"][0]
    second = submit(pool, "executable = x\nqueue\n", {"x": b"x"}, token=mallory, submit_id="known")[1]["clusters"][0]
    assert first["cluster"] != second["cluster"]
    for where in ("?owner=alice@elsewhere", "?owner=alice", "?owner=ALICE@elsewhere"):
        assert "only an ADMINISTRATOR" in refused(pool, text, {"x": b"x"}, token=mallory, query=where)


SCRIPT = b"#!/bin/sh\ncat data/in.txt; echo $1; echo more > made.txt\n"


@pytest.mark.skipif(shutil.which("curl") is None, reason="the test is of curl")
def test_curl_submits_runs_and_fetches(pool, tmp_path):
    (tmp_path / "run.sh").write_bytes(SCRIPT)
    (tmp_path / "in.txt").write_text("hello\n")
    (tmp_path / "job.sub").write_text(
        "executable = run.sh\narguments = $(Cluster).$(Process)\ntransfer_input_files = data\noutput = out.$(Process)\n"
        "log = job.log\nqueue 2\n"
    )

    def curl(*words):
        command = ["curl", "-sS", "-H", f"Authorization: Bearer {pool.token}", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True)
        return done.stdout

    files = ("-F", "description=@job.sub", "-F", "files=@run.sh", "-F", "files=@in.txt;filename=data/in.txt")
    (told,) = json.loads(curl(*files, f"{pool.url}/v1/jobs/description"))["clusters"]
    assert told["count"] == 2
    cluster = told["cluster"]
    with pool.client() as client:
        assert client.wait([str(cluster)], timeout=60) == {f"{cluster}.0": 4, f"{cluster}.1": 4}
        job = client.job(f"{cluster}.1")
        assert {file.name for file in job.files()} >= {"out.1", "made.txt", "job.log"}
        assert job.ad.eval("Iwd") == "/"
        assert (job.wait().status, job.wait().exit_code, job.wait().ok) == ("completed", 0, True)
    assert curl(f"{pool.url}/v1/jobs/{cluster}.1/output/out.1") == f"hello\n{cluster}.1\n"
    assert curl("-r", "0-3", f"{pool.url}/v1/jobs/{cluster}.1/output/made.txt") == "more"
    assert "005" in curl(f"{pool.url}/v1/jobs/{cluster}.0/log")  # it has ended
    for path in ("../../x", "%2e%2e/x", "nothing", "/etc/passwd", ".."):
        assert '"not-found"' in curl("--path-as-is", f"{pool.url}/v1/jobs/{cluster}.0/output/{path}")


def test_what_a_form_may_say_besides(pool):
    files = {"run.sh": SCRIPT, "one/in.txt": b"1", "two/in.txt": b"2"}
    text = (
        "executable = run.sh\ninitialdir = $(dir)\ntransfer_input_files = in.txt\nhold = true\n"
        "queue dir matching dirs *"
    )
    again = uuid.uuid4().hex
    status, told = submit(pool, text, files, directory="/home/alice/work", submit_id=again)
    # Its executable is looked up from where the description is, as ever.
    assert status == 200, told
    (one,) = told["clusters"]
    with pool.client() as client:
        ads = list(client.jobs(str(one["cluster"])))
        assert [ad.eval("Iwd") for ad in ads] == ["/home/alice/work/one/", "/home/alice/work/two/"]
        assert {ad.eval("Cmd") for ad in ads} == {"/home/alice/work/run.sh"}
        assert submit(pool, text, files, directory="/home/alice/work", submit_id=again)[1] == told  # the same again
        assert len(list(client.jobs(str(one["cluster"])))) == 2
        client.act("remove", [str(one["cluster"])])


def test_a_description_reaches_nothing_on_the_gateways_machine(pool, tmp_path, monkeypatch):
    secret = tmp_path / "secret.txt"
    secret.write_text("executable = /bin/hidden\n")
    witness = tmp_path / "witness"
    base = "executable = run.sh\n"
    files = {"run.sh": SCRIPT}
    for text in (
        f"include : {secret}\n{base}queue",
        f"include : {tmp_path.parent}/../{secret}\n{base}queue",
        f"include command : touch {witness}\n{base}queue",
        f"{base}queue x from {secret}",
        f"{base}queue x from touch {witness} |",
        f"{base}queue x matching {tmp_path}/*",
        f"{base}queue x matching ../*",
        f"{base}queue x from -",
        f"{base}transfer_input_files = {secret}\nqueue",
        f"{base}transfer_input_files = ../../../../../../{secret}\nqueue",
        f"{base}transfer_input_files = {tmp_path}/\nqueue",
        f"{base}input = {secret}\nqueue",
        f"executable = {secret}\nqueue",
        "executable = ../run.sh\nqueue",
    ):
        said = refused(pool, text, files)
        assert "hidden" not in said
        assert not witness.exists()
    # Nor does it tell what is there.
    paths = (secret, tmp_path / "absent.txt")
    there, missing = (refused(pool, f"executable = {path}\nqueue", files) for path in paths)
    assert there.replace("secret.txt", "X").replace("absent.txt", "X") == missing.replace("absent.txt", "X")
    monkeypatch.setenv("ROOST_TEST_SECRET", "do-not-tell")
    status, told = submit(
        pool, f'{base}+Note = "$ENV(ROOST_TEST_SECRET:none)"\ngetenv = true\nhold = true\nqueue', files
    )
    if status == 200:
        with pool.client() as client:
            (ad,) = client.jobs(str(told["clusters"][0]["cluster"]))
            assert "do-not-tell" not in str(ad)
    with pool.client() as client:
        assert not [ad for ad in client.jobs() if "secret" in str(ad.eval("TransferInput"))]


def test_a_description_that_would_never_end_is_given_up(pool, monkeypatch):
    monkeypatch.setattr(submit_description, "CPU_S", 1)
    said = refused(pool, "executable = x.sh\narguments = $(Item)\nqueue 2000000000", {"x.sh": SCRIPT})
    assert "queue fewer jobs" in said
    assert pool.ask("GET", "/v1/whoami")[0] == 200


def test_a_bad_form_is_refused_and_nothing_is_queued(pool):
    before = known(pool)
    good = "executable = run.sh\nqueue"
    files = {"run.sh": SCRIPT}
    assert "no description" in refused(pool, " ", files)
    assert "fields colour" in refused(pool, good, files, colour="red")
    assert "absolute path" in refused(pool, good, files, directory="here")
    assert "no name for a file" in refused(pool, good, {"../x": b""})
    assert "MiB" in refused(pool, good, {"run.sh": b"x" * (1 << 20), "more": b"x"})
    assert "not among the files" in refused(pool, good)
    assert "not among the files" in refused(pool, "executable = run.sh\ntransfer_input_files = in.txt\nqueue", files)
    assert "line 2" in refused(pool, "executable = run.sh\nrequest_cpus = many cores\nqueue", files)
    assert "universe" in refused(pool, "universe = grid\nexecutable = run.sh\nqueue", files)
    assert pool.ask("POST", "/v1/jobs/description", body={"description": good})[0] == 400
    assert known(pool) == before


def test_no_description_makes_jobs_of_others(pool):
    """Neither by an attribute nor by a field."""
    with pool.client() as client:
        alice = client.create_token("alice@elsewhere", "WRITE")
    text = '+Owner = "root"\n+User = "root@x"\nMY.OsUser = "root"\nexecutable = run.sh\nhold = true\nqueue'
    files = {"run.sh": SCRIPT}
    status, told = submit(pool, text, files, token=alice)
    assert status == 200, told
    assert "ADMINISTRATOR" in refused(pool, text, files, token=alice, query="?owner=root@x")
    with pool.client() as client:
        (ad,) = client.jobs(str(told["clusters"][0]["cluster"]))
        assert (ad.eval("Owner"), ad.eval("User")) == ("alice", "alice@elsewhere")
    status, told = submit(pool, text, files, query="?owner=carol@x")
    assert status == 200
    with pool.client() as client:
        (ad,) = client.jobs(str(told["clusters"][0]["cluster"]))
        assert ad.eval("User") == "carol@x"
        wait_until(lambda: client.audit(operation="jobs.submit"), what="the record")
        record = client.audit(operation="jobs.submit")[0]
        assert record["what"]["owner"] == "carol@x"
        assert record["what"]["files"] == ["run.sh"]


def test_a_large_cluster_comes_bit_by_bit(pool):
    """Late materialization over HTTP: the files of the request serve all jobs, also those that come later."""
    text = (
        "executable = run.sh\narguments = $(Process)\ntransfer_input_files = in.txt\noutput = out\n"
        "max_materialize = 1\nqueue 3\n"
    )
    files = {"run.sh": b"#!/bin/sh\ncat in.txt; echo $1\n", "in.txt": b"input"}
    status, answer = submit(pool, text, files)
    assert (status, answer["clusters"][0]["count"]) == (200, 3)
    cluster = str(answer["clusters"][0]["cluster"])
    with pool.client() as client:
        for number in range(3):
            job = f"{cluster}.{number}"
            wait_until(lambda job=job: client.wait([job]) == {job: 4}, 60, "a job's end")
            assert [ad.eval("JobMaterializeNextProcId") for ad in client.factories(cluster)] == [number + 1]
            assert client.job(job).output("out") == f"input{number}\n".encode()
            client.act("remove", [job])
        assert list(client.factories(cluster)) == []


def test_jobs_with_files_of_their_own_are_queued_at_once(pool):
    """Their files go to jobs that are there; the answer says that max_materialize has no effect."""
    text = "executable = run.sh\ntransfer_input_files = in.$(Process)\nmax_materialize = 1\nhold = true\nqueue 2\n"
    files = {"run.sh": b"#!/bin/sh\n", "in.0": b"0", "in.1": b"1"}
    status, answer = submit(pool, text, files)
    assert status == 200
    assert any("max_materialize" in warning for warning in answer["warnings"])
    cluster = str(answer["clusters"][0]["cluster"])
    with pool.client() as client:
        assert [ad.eval("HoldReasonCode") for ad in client.jobs(cluster)] == [15, 15]
        client.act("remove", [cluster])
