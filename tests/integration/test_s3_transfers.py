"""Jobs with files in a store of objects: submit to result, with a store that speaks S3 over TLS. The keys stay here."""

import contextlib
import ssl
import sys
import time
import urllib.request

import pytest

from services.schedd.io.url_signing import NotSigned, sign
from shared.classad import ClassAd
from tests.certificates import Authority
from tests.integration.pools import ROOT, EmbeddedPool
from tests.servers import Leashed, free_port
from tests.waiting import wait_until

ACCESS, SECRET = "AKIAEXAMPLE", "s3cr3t/Key+"


class Store:
    """moto's server with an empty bucket. authority: the file of who signed its certificate."""

    def __init__(self, directory):
        import boto3  # half a second, for each worker if the module did it
        from botocore.config import Config

        made = Authority(directory)
        pair = made.issue("store", "IP:127.0.0.1", "DNS:localhost")
        self.authority, self.port = str(made.ca), free_port()
        words = [
            "-m",
            "moto.server",
            "-H",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-c",
            str(pair.cert),
            "-k",
            str(pair.key),
        ]
        self.process = Leashed([sys.executable, *words], log=directory / "moto.log", cwd=ROOT)
        self.client = boto3.client(
            "s3",
            endpoint_url=f"https://localhost:{self.port}",
            verify=self.authority,
            region_name="us-east-1",
            aws_access_key_id=ACCESS,
            aws_secret_access_key=SECRET,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )

    def up(self):
        try:
            self.client.create_bucket(Bucket="bucket")
        except Exception:
            assert self.process.returncode is None, self.process.tail()
            return False
        return True

    @property
    def url(self):
        return f"s3://localhost:{self.port}/bucket"

    def put(self, key, data):
        self.client.put_object(Bucket="bucket", Key=key, Body=data)

    def get(self, key):
        return self.client.get_object(Bucket="bucket", Key=key)["Body"].read()

    def listed(self):
        return {one["Key"] for one in self.client.list_objects_v2(Bucket="bucket").get("Contents", ())}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    made = Store(tmp_path_factory.mktemp("store"))
    with contextlib.closing(made.process), contextlib.closing(made.client):
        wait_until(made.up, 60, "the store")
        yield made


@pytest.fixture(scope="module")
def pool(store, tmp_path_factory):
    class Trusting(EmbeddedPool):
        def environment(self):
            return {**super().environment(), "SSL_CERT_FILE": store.authority}

    made = Trusting(tmp_path_factory.mktemp("s3") / "pool")
    with contextlib.closing(made):
        made.start("-cpus", "2", "-memory", "2048")
        yield made


@pytest.fixture
def keys(tmp_path):
    (tmp_path / "id").write_text(f"{ACCESS}\n")
    (tmp_path / "secret").write_text(SECRET)
    return f"aws_access_key_id_file = id\naws_secret_access_key_file = {tmp_path}/secret\n"


def jobs(pool, cluster, **how):
    with pool.client() as client:
        return list(client.jobs(str(cluster), **how))


def finish(pool, folder, text, program):
    (folder / "job").write_text(f"#!/bin/sh\n{program}\n")
    (folder / "job.sub").write_text(f"executable = job\noutput = out\nlog = log\n{text}\nqueue\n")
    cluster = pool.submit(folder / "job.sub")
    wait_until(lambda: pool.final(cluster), 60, "the end of the job")
    return cluster, pool.final(cluster)[0]


def test_objects_in_and_out_without_should_transfer_files(pool, store, keys, tmp_path):
    store.put("in/a b.txt", b"from the store\n")
    cluster, final = finish(
        pool,
        tmp_path,
        f"{keys}transfer_input_files = {store.url}/in/a b.txt\n"
        f'transfer_output_remaps = "r = {store.url}/out/r; d = {store.url}/out/d"\ntransfer_output_files = r, d, kept',
        "cat 'a b.txt'; mkdir d; echo 1 > d/one; echo 2 > r; echo 3 > kept",
    )
    assert final == (4, 0, None), pool.process.tail()
    assert (tmp_path / "out").read_text() == "from the store\n"
    assert (tmp_path / "kept").read_text() == "3\n"
    assert (store.get("out/r"), store.get("out/d/one")) == (b"2\n", b"1\n")
    (ad,) = jobs(pool, cluster, history=True)
    assert ad.eval("TransferInputStats").eval("S3SizeBytesTotal") == 15
    assert ad.eval("TransferOutputStats").eval("S3FilesCountLastRun") == 2
    assert ad.eval("TransferOutputStats").eval("CedarFilesCountLastRun") >= 1


def test_all_output_to_a_destination(pool, store, keys, tmp_path):
    _, final = finish(
        pool, tmp_path, f"{keys}output_destination = {store.url}/runs/$(Cluster)", "echo x; echo y > made"
    )
    assert final[:2] == (4, 0), pool.process.tail()
    assert not (tmp_path / "out").exists()
    assert {key.rpartition("/")[2] for key in store.listed() if key.startswith("runs/")} == {"out", "made"}


def test_the_job_sees_no_key(pool, store, keys, tmp_path):
    store.put("in/x", b"x")
    _, final = finish(
        pool,
        tmp_path,
        f"{keys}transfer_input_files = {store.url}/in/x",
        f"grep -r -l -e '{SECRET}' -e X-Amz-Signature . ; env | grep -c -e '{SECRET}' -e X-Amz; true",
    )
    assert final[:2] == (4, 0)
    assert [line for line in (tmp_path / "out").read_text().split() if line != "./condor_exec.exe"] == ["0"]


def test_an_object_that_is_not_there_holds_the_job_in_words(pool, store, keys, tmp_path):
    cluster, final = finish(pool, tmp_path, f"{keys}transfer_input_files = {store.url}/in/none", "true")
    assert final == (5, None, 13)
    (ad,) = jobs(pool, cluster)
    assert "/bucket/in/none: the server answered 404" in ad.eval("HoldReason")
    assert "NoSuchKey" in ad.eval("HoldReason")
    assert "Signature" not in ad.eval("HoldReason")
    assert ad.eval("HoldReasonSubCode") == 256


def test_a_key_that_went_after_the_submit_is_told(pool, store, keys, tmp_path):
    (tmp_path / "job").write_text("#!/bin/sh\n")
    (tmp_path / "job.sub").write_text(
        f"executable = job\nhold = true\n{keys}transfer_input_files = {store.url}/in/x\nqueue\n"
    )
    cluster = pool.submit(tmp_path / "job.sub")
    (tmp_path / "secret").unlink()
    pool.roost("release", str(cluster))
    wait_until(lambda: pool.final(cluster).get(0, (0, 0, 0))[2] == 13, 60, "the hold")
    (ad,) = jobs(pool, cluster)
    assert f"{tmp_path}/secret, which is to hold a key, can not be read: No such file" in ad.eval("HoldReason")


def test_submit_wants_the_keys(pool, store, tmp_path):
    (tmp_path / "job").write_text("#!/bin/sh\n")
    for line, says in (
        ("", "require aws_access_key_id_file and aws_secret_access_key_file"),
        ("aws_access_key_id_file = none\naws_secret_access_key_file = none\n", "which is to hold a key, is no file"),
    ):
        (tmp_path / "job.sub").write_text(f"executable = job\n{line}transfer_input_files = {store.url}/x\nqueue\n")
        refused = pool.roost("submit", str(tmp_path / "job.sub"), cwd=tmp_path, ok=False)
        assert refused.returncode
        assert says in refused.stderr


def test_a_run_has_only_its_own_urls_signed(store, tmp_path):
    (tmp_path / "id").write_text(ACCESS)
    (tmp_path / "secret").write_text(SECRET)
    store.put("mine", b"mine")
    store.put("others", b"others")
    job = ClassAd(
        {
            "Iwd": str(tmp_path),
            "EC2AccessKeyId": "id",
            "EC2SecretAccessKey": "secret",
            "TransferInput": f"{store.url}/mine",
            "OutputDestination": f"{store.url}/dest",
        }
    )
    now = time.time()
    (url,) = sign(job, "GET", [f"{store.url}/mine"], now, spooled=False).values()
    context = ssl.create_default_context(cafile=store.authority)
    with urllib.request.urlopen(url, context=context) as answer:
        assert answer.read() == b"mine"
    for method, key in (("GET", "others"), ("PUT", "mine"), ("PUT", "dest/../others"), ("GET", "dest/x")):
        with pytest.raises(NotSigned, match="the job does not"):
            sign(job, method, [f"{store.url}/{key}"], now, spooled=False)
    with pytest.raises(NotSigned, match="a spooled job leaves its keys"):
        sign(job, "GET", [f"{store.url}/mine"], now, spooled=True)


def test_a_checkpoint_lies_in_the_store(pool, store, keys, tmp_path):
    """Its next run goes on from there."""
    words = tmp_path / "words"
    words.mkdir()
    program = (
        f"mkdir -p d; [ -e 'd/a b' ] && {{ cat 'd/a b'; touch {words}/up; sleep 1000; }}; echo saved > 'd/a b'; exit 85"
    )
    text = f"{keys}checkpoint_exit_code = 85\ntransfer_checkpoint_files = d\ncheckpoint_destination = {store.url}/c\n"
    (tmp_path / "job").write_text(f"#!/bin/sh\n{program}\n")
    (tmp_path / "job.sub").write_text(
        f"executable = job\noutput = out\nlog = log\nshould_transfer_files = yes\n{text}queue\n"
    )
    cluster = pool.submit(tmp_path / "job.sub")
    wait_until((words / "up").exists, 60, "the second start")
    pool.roost("hold", str(cluster))
    wait_until(lambda: pool.final(cluster), 60, "the hold")
    (key,) = [key for key in store.listed() if key.startswith("c/")]
    assert key.endswith("/0001.0001/d/a b")
    (words / "up").unlink()
    pool.roost("release", str(cluster))
    wait_until((words / "up").exists, 60, "the next run")
    pool.roost("rm", str(cluster))
