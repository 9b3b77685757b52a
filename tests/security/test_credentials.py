"""Credentials of users: kept at the access point for their account alone, delivered to their jobs in memory, refreshed
while these run, gone with their end, and never told to anybody."""

import os
import stat
from pathlib import Path

import pytest

from roost.cli.store_cred import OPTIONS
from roost.errors import ClientError
from services.schedd.io.credentials import MAX_BYTES, BadCredential, CredentialStore
from shared.bus.api import RemoteFailure
from shared.messages.queue import FetchFiles
from tests.integration.inside import InsidePool
from tests.scheddpool import Pool
from tests.spec import spec
from tests.waiting import wait_until

ONE, TWO = "planted-credential-1a9f", "planted-credential-2b7e"


@pytest.fixture
def store(tmp_path):
    return CredentialStore(tmp_path / "credentials", "pool")


def test_credentials_are_kept_by_user_for_the_account_alone(store, tmp_path):
    store.put("alice@pool", "box", b"one")
    store.put("alice@evil.example", "box", b"two")
    assert store.read("alice@pool", ["box"]) == {"box.use": b"one"}
    assert store.read("alice@POOL", ["box"]) == {"box.use": b"one"}
    assert store.read("alice@evil.example", ["box"]) == {"box.use": b"two"}
    assert sorted(os.listdir(tmp_path / "credentials")) == ["alice", "alice@evil.example"]
    for folder, _, files in os.walk(tmp_path / "credentials"):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        for name in files:
            assert stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode) == 0o600
    assert [one["service"] for one in store.listed("alice@pool")] == ["box"]
    (tmp_path / "credentials" / "alice" / "box.top").write_bytes(b"refresh")
    assert store.delete("alice@pool", "box")
    assert not store.delete("alice@pool", "box")
    assert os.listdir(tmp_path / "credentials" / "alice") == []
    with pytest.raises(BadCredential, match="store-cred add-oauth -s box"):
        store.read("alice@pool", ["box"])


@pytest.mark.parametrize("service", ["", "..", ".x", "a/b", "../alice/box", "a*b", "x" * 65, "a\0b", "a b"])
def test_a_service_has_a_plain_name(store, service):
    for deed in (lambda: store.put("bob@pool", service, b"x"), lambda: store.read("bob@pool", [service])):
        with pytest.raises(BadCredential):
            deed()


@pytest.mark.parametrize("user", ["..@pool", ".@pool", "../alice@pool", "a/b@x", "@pool"])
def test_no_user_reaches_out_of_the_directory(store, user):
    with pytest.raises(BadCredential):
        store.put(user, "box", b"x")


def test_size_number_and_links_are_bounded(store, tmp_path):
    with pytest.raises(BadCredential, match="bytes"):
        store.put("alice@pool", "box", bytes(MAX_BYTES + 1))
    with pytest.raises(BadCredential, match="bytes"):
        store.put("alice@pool", "box", b"")
    store.put("alice@pool", "box", b"one")
    (tmp_path / "secret").write_bytes(b"of the machine")
    (tmp_path / "credentials" / "alice" / "link.use").symlink_to(tmp_path / "secret")
    with pytest.raises(BadCredential):
        store.read("alice@pool", ["link"])


async def test_a_bare_user_is_refused(tmp_path):
    async with Pool(tmp_path) as pool:
        with pytest.raises(RemoteFailure):
            await pool.call(FetchFiles(user="root", job_id="", credentials=True))


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    knobs = {"ROOST_GATEWAY_RATE": "0", "CRED_CHECK_INTERVAL": "1", "FILESYSTEM_DOMAIN": "one"}
    inside = InsidePool(tmp_path_factory.mktemp("pool"), **knobs)
    yield inside
    inside.close()


def submitted(pool, tmp_path, script, **more) -> str:
    lines = {
        "executable": "/bin/sh",
        "arguments": f"\"-c '{script}'\"",
        "transfer_executable": "false",
        "output": tmp_path / "out",
        "log": tmp_path / "log",
        "use_oauth_services": "box",
        "request_memory": "16",
        "request_disk": "1024",
        "+Iwd": f'"{tmp_path}"',
        **more,
    }
    file = tmp_path / "job.sub"
    file.write_text("".join(f"{name} = {value}\n" for name, value in lines.items()) + "queue\n")
    said = pool.roost("submit", str(file))
    return said.split("cluster")[1].split(".")[0].strip()


def scratches(pool) -> list[str]:
    return [
        place
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if (place := line.split()[4]).endswith(".condor_creds") and place.startswith(f"{pool.directory}/")
    ]


@spec("TLS-18")
@pytest.mark.mounts
def test_a_job_gets_its_credential_in_memory_and_the_new_one_while_it_runs(pool, tmp_path):
    token = tmp_path / "token"
    token.write_text(f"{ONE}\n")
    pool.roost("store-cred", "add-oauth", "-s", "box", "-i", str(token))
    assert "box" in pool.roost("store-cred", "query-oauth")
    go = tmp_path / "go"
    script = (
        f"cat $_CONDOR_CREDS/box.use; stat -f -c :%T $_CONDOR_CREDS; until grep -q {TWO[-4:]} $_CONDOR_CREDS/box.use; "
        f"do sleep 0.1; done; cat $_CONDOR_CREDS/box.use; until [ -e {go} ]; do sleep 0.1; done"
    )
    cluster = submitted(pool, tmp_path, script)
    with pool.client() as client:
        wait_until(lambda: [os.listdir(one) for one in scratches(pool)] == [["box.use"]], what="the credential")
        (mounted,) = scratches(pool)
        assert stat.S_IMODE(os.stat(f"{mounted}/box.use").st_mode) == 0o400
        client.store_credential("box", TWO.encode())
        wait_until(lambda: Path(mounted, "box.use").read_text() == TWO, what="the refreshed credential")
        ad = next(client.jobs(cluster))
        assert ad["OAuthServicesNeeded"] == "box"
        assert TWO not in repr(dict(ad.exprs()))
        assert ONE not in repr(client.audit())
        go.touch()
        wait_until(lambda: not list(client.jobs(cluster)), what="the job's end")
    wait_until(lambda: (tmp_path / "out").exists() and TWO in (tmp_path / "out").read_text(), what="the output")
    assert (tmp_path / "out").read_text() == f"{ONE}:tmpfs\n{TWO}"
    wait_until(lambda: not scratches(pool), what="the memory to be given back")
    wait_until(lambda: not list(pool.directory.rglob(".condor_creds")), what="the directory to be removed")


@pytest.mark.mounts
def test_a_job_without_its_credential_is_held_with_the_mend(pool, tmp_path):
    cluster = submitted(pool, tmp_path, "true", use_oauth_services="nothing")
    with pool.client() as client:
        wait_until(lambda: [job["JobStatus"] for job in client.jobs(cluster)] == [5], what="the job to be held")
        ad = next(client.jobs(cluster))
        assert ad["HoldReasonCode"] == 4
        assert "roost store-cred add-oauth -s nothing" in ad["HoldReason"]
        client.act("remove", [cluster])
    wait_until(lambda: not scratches(pool), what="the memory to be given back")


def test_credentials_are_ones_own(pool, tmp_path):
    with pool.client() as client:
        client.store_credential("mine", b"x")
        stranger = client.create_token("root@evil.example", "WRITE")
        reader = client.create_token("root@evil.example", "READ")
    with pool.client(stranger) as other:
        assert other.credentials() == []
        with pytest.raises(ClientError, match="no credential"):
            other.delete_credential("mine")
    with pool.client(reader) as other, pytest.raises(ClientError, match="WRITE"):
        other.store_credential("mine", b"y")
    with pool.client() as client:
        assert [one["service"] for one in client.credentials() if one["service"] == "mine"] == ["mine"]
        with pytest.raises(ClientError):
            client.store_credential("mine", bytes(MAX_BYTES + 1))
        client.delete_credential("mine")


def test_words_of_the_command(pool, tmp_path):
    assert OPTIONS
    assert "passwords" in pool.roost("store-cred", "add", ok=False)
    assert "-s SERVICE" in pool.roost("store-cred", "add-oauth", ok=False)
    assert "No credential" in pool.roost("store-cred", "query-oauth", "-s", "unknown", ok=False)


def test_handles_are_refused_where_they_stand(pool, tmp_path):
    file = tmp_path / "job.sub"
    file.write_text("executable = /bin/true\nuse_oauth_services = box*handle\nqueue\n")
    assert "handles" in pool.roost("submit", str(file), ok=False)
