"""The programs in examples/ that follow a pool: chat, cost report, archiver. One personal pool for all of them."""

import csv
import importlib.util
import json
import sys
import threading
from collections import Counter
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from roost.consumer import Gap, Received
from roost.events import JobEnded, JobHeld, JobRemoved, LeaderChanged, UnknownEvent
from tests.integration.pools import ROOT, EmbeddedPool
from tests.servers import Leashed
from tests.waiting import wait_until

EXAMPLES = ROOT / "examples"
pytestmark = pytest.mark.xdist_group("examples")


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    pool = EmbeddedPool(tmp_path_factory.mktemp("examples") / "pool")
    try:
        pool.start("-cpus", "2")
        yield pool
    finally:
        pool.close()


@pytest.fixture
def run(pool, tmp_path):
    started = []

    def run(*words, **environment):
        log = tmp_path / f"log{len(started)}"
        process = Leashed(
            [sys.executable, EXAMPLES / words[0], *map(str, words[1:])],
            log=log,
            env={**pool.environment(), "PYTHONUNBUFFERED": "1", **environment},
            cwd=tmp_path,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.close()


def loaded(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def submit(pool, tmp_path, text):
    (tmp_path / "job.sub").write_text(f"executable = /bin/sh\ntransfer_executable = false\n{text}\n")
    return pool.submit(tmp_path / "job.sub")


class Room(ThreadingHTTPServer):
    """A chat's web hook, which may be out of order for a while."""

    daemon_threads = True

    def __init__(self):
        self.messages, self.answers, self.refused = [], [], 0
        super().__init__(("127.0.0.1", 0), Post)
        self.url = f"http://127.0.0.1:{self.server_port}/hook"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def text(self):
        return "\n".join(message.get("text") or message["body"] for _, message, _ in self.messages)


class Post(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = self.server.answers.pop(0) if self.server.answers else 200
        if status == 200:
            self.server.messages.append((self.path, body, self.headers.get("Authorization")))
        else:
            self.server.refused += 1
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_PUT = do_POST

    def log_message(self, *_):
        pass


@pytest.fixture
def room():
    room = Room()
    yield room
    room.shutdown()
    room.server_close()


def following(process, state):
    """Whether it has begun to listen: its place is written at the start, and its connection is there when it tells."""
    wait_until(lambda: state.exists() or process.returncode is not None, 60, "the program's first sign")
    assert process.returncode is None, process.tail()


def during(process, condition, what):
    wait_until(lambda: condition() or process.returncode is not None, 60, f"{what}: {process.tail()}")
    assert process.returncode is None, process.tail()


# Chat


def test_a_room_is_told_of_failures_once_though_it_is_out_of_order_and_the_program_is_killed(pool, run, room, tmp_path):
    state = tmp_path / "chat.sqlite"
    words = ("chat.py", room.url, "--state", state, "--every", "0.2", "--also", "job.submitted")
    chat = run(*words)
    following(chat, state.with_suffix(".position"))

    def heard():  # it listens from its own moment on
        cluster = submit(pool, tmp_path, "arguments = \"-c 'exit 3'\"\nqueue")
        wait_until(lambda: f"job {cluster}.0 of" in room.text or chat.returncode is not None, 60, "a message")
        return f"job {cluster}.0 of" in room.text

    assert heard(), chat.tail()
    room.answers = [503, 429, 500]
    cluster = submit(pool, tmp_path, "arguments = \"-c 'exit 4'\"\nqueue 2")
    wait_until(lambda: room.refused == 3, 60, "three refusals")
    chat.kill()  # -9, with the message on its way
    missed = submit(pool, tmp_path, "hold = true\nqueue")
    pool.roost("wait", str(cluster))
    chat = run(*words)
    wait_until(lambda: f"cluster {missed}" in room.text and f"{cluster}.1 of" in room.text, 60, "the rest")
    lines = Counter(line for line in room.text.splitlines() if f" {cluster}." in line)
    assert {line.split(" after")[0].split(" of ")[0] for line in lines} == {f"job {cluster}.0", f"job {cluster}.1"}
    assert set(lines.values()) == {1}
    assert all("ended with 4" in line for line in lines)
    chat.terminate()
    wait_until(lambda: chat.returncode is not None, 60, "the end")
    assert chat.returncode == 0
    pool.roost("rm", "-all", ok=False)


async def test_matrix_gets_a_message_of_its_own_kind(room):
    chat = loaded(EXAMPLES / "chat.py")
    target = chat.Room(room.url.removesuffix("/hook"), "!r:example.org", "secret")
    await target.post("hello", "k1")
    path = "/_matrix/client/v3/rooms/%21r%3Aexample.org/send/m.room.message/k1"
    assert room.messages == [(path, {"msgtype": "m.notice", "body": "hello"}, "Bearer secret")]
    room.answers = [404, 429]
    with pytest.raises(chat.Refused, match="404"):
        await target.post("hello", "k2")
    with pytest.raises(chat.Later, match="429"):
        await target.post("hello", "k3")
    with pytest.raises(chat.Later):
        await chat.Room("http://127.0.0.1:1", "", "").post("hello", "k4")


def test_what_a_room_is_told():
    chat = loaded(EXAMPLES / "chat.py")
    about = {"at": 1.0, "schedd": "ap", "job_id": "1.0", "owner": "alice"}
    run = {"slot": "s", "attempt": 1, "ran_s": 12.0}
    assert chat.line_of(JobEnded(**about, **run, exit_code=0)) == ""
    assert chat.line_of(JobEnded(**about, **run, exit_code=0), also=("job.ended",)).endswith("ended with 0 after 12 s")
    assert chat.line_of(JobEnded(**about, **run, exit_signal=9)).endswith("was ended by signal 9")
    assert chat.line_of(JobHeld(**about, code=1, subcode=0, reason="no")) == "job 1.0 of alice is on hold: no"
    assert chat.line_of(LeaderChanged(at=1, had="h", negotiator="n", epoch=1, state="passive")) == ""
    assert chat.line_of(UnknownEvent("new.thing", 1, {"a": 1}), also=("new.thing",)) == 'new.thing: {"a": 1}'
    removed = JobRemoved(**about, reason="r")
    assert chat.line_of(removed) == ""
    assert chat.line_of(removed, also=("job.removed",)).startswith("job.removed: {")


# Cost report


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_costs_are_those_of_the_jobs_ads_whatever_happens_to_the_program(pool, run, tmp_path):
    files = ("--csv", tmp_path / "c.csv", "--parquet", tmp_path / "c.parquet", "--state", tmp_path / "books.sqlite")
    prices = {"currency": "EUR", "core_hour": 3600, "gpu_hour": 1, "gb_hour": 0, "groups": {"physics": {"factor": 0.5}}}
    (tmp_path / "prices.json").write_text(json.dumps(prices))
    words = ("cost_report/cost_report.py", *files, "--prices", tmp_path / "prices.json", "--every", "0.1")
    sleep = "arguments = \"-c 'sleep 0.3'\"\naccounting_group = {}\nqueue 3"
    first = submit(pool, tmp_path, sleep.format("physics.cms"))
    pool.roost("wait", str(first))  # before anybody looks
    report = run(*words)
    wait_until(lambda: (tmp_path / "c.csv").exists() or report.returncode is not None, 60, "a report")
    assert report.returncode is None, report.tail()

    def jobs_of(group):
        return sum(int(row["jobs"]) for row in rows(tmp_path / "c.csv") if row["group"] == group)

    wait_until(lambda: jobs_of("physics.cms") == 3, 60, "the jobs of before")
    second = submit(pool, tmp_path, sleep.format("chemistry"))
    wait_until(lambda: jobs_of("chemistry") > 0, 60, "a job that ended meanwhile")
    report.kill()
    pool.roost("wait", str(second))
    report = run(*words)
    wait_until(lambda: jobs_of("chemistry") == 3, 60, "all of them")
    report.terminate()
    wait_until(lambda: report.returncode is not None, 60, "its end")
    with pool.client() as client:
        ads = list(client.jobs(str(first), str(second), history=True))
    wanted = {"physics.cms": Decimal(0), "chemistry": Decimal(0)}
    for ad in ads:
        factor = Decimal("0.5") if ad.eval("AcctGroup") == "physics.cms" else 1
        ran = Decimal(round(ad.eval("RemoteWallClockTime") * 1000)) / 1000
        wanted[ad.eval("AcctGroup")] += ran * int(ad.eval("RequestCpus")) * factor
    found = {
        group: sum(Decimal(row["cost"]) for row in rows(tmp_path / "c.csv") if row["group"] == group)
        for group in wanted
    }
    assert found == wanted
    assert all(cost > 0 for cost in found.values())
    from pyarrow import parquet

    table = parquet.read_table(tmp_path / "c.parquet").to_pylist()
    assert [{**row, "cost": str(row["cost"])} for row in table] == [
        {
            **row,
            "jobs": int(row["jobs"]),
            **{name: float(row[name]) for name in ("core_hours", "gpu_hours", "gb_hours")},
        }
        for row in rows(tmp_path / "c.csv")
    ]
    # From cron, with other books: the same.
    again = run(*words[:2], tmp_path / "d.csv", "--state", tmp_path / "d.sqlite", *words[-4:], "--once")
    wait_until(lambda: again.returncode is not None, 60, "one report")
    assert again.returncode == 0, again.tail()
    assert [row for row in rows(tmp_path / "d.csv") if row["group"]] == [
        row for row in rows(tmp_path / "c.csv") if row["group"]
    ]


def test_prices_are_read_with_care(tmp_path):
    cost_report = loaded(EXAMPLES / "cost_report" / "cost_report.py")
    prices = cost_report.Prices.read(EXAMPLES / "cost_report" / "prices.json")
    assert prices.factor("Physics.cms.higgs") == Decimal("0.5")
    assert prices.factor("physicsx") == prices.factor("") == 1
    # A thousand times a tenth of a cent is no float's 0.9999999.
    assert prices.cost("", 3_600_000 * 3, 0, 0) == Decimal("0.06")
    for wrong in ("", "[]", '{"core_hour": 1}', json.dumps({**json.loads("{}"), "core_hour": "x"})):
        (tmp_path / "p.json").write_text(wrong)
        with pytest.raises(ValueError, match=r"p\.json: want core_hour"):
            cost_report.Prices.read(tmp_path / "p.json")
    good = json.loads((EXAMPLES / "cost_report" / "prices.json").read_text())
    (tmp_path / "p.json").write_text(json.dumps({**good, "gpu_hour": -1}))
    with pytest.raises(ValueError, match="below 0"):
        cost_report.Prices.read(tmp_path / "p.json")


# Archiver


def test_an_archive_has_neither_holes_nor_doubles_after_kills(pool, run, tmp_path):
    archiver = loaded(EXAMPLES / "archiver.py")
    folder = tmp_path / "archive"

    def records():
        return [record.facts for record in archiver.read(folder, "job", 0)] if folder.exists() else []

    keeping = run("archiver.py", folder)
    wait_until(lambda: "archiving" in keeping.tail() or keeping.returncode is not None, 60, "its start")
    clusters = []
    for kills in range(3):
        clusters.append(submit(pool, tmp_path, 'arguments = "-c true"\nqueue 4'))
        during(keeping, lambda count=5 * kills: len(records()) > count, "some records")
        keeping.kill()
        clusters.append(submit(pool, tmp_path, 'arguments = "-c true"\nqueue 2'))
        if kills == 1:  # and the machine with it: half a record was written
            _, path = archiver.segments(folder / "job")[-1]
            with path.open("ab") as file:
                file.write(b"999\tffff")
        keeping = run("archiver.py", folder)
    pool.roost("wait", *map(str, clusters))

    def ended():
        told = Counter(
            one["job_id"]
            for one in records()
            if one["type"] == "job.ended" and int(one["job_id"].split(".")[0]) in clusters
        )
        return sum(told.values()) >= 18 and told

    told = wait_for(ended)
    assert set(told.values()) == {1}
    assert {int(job.split(".")[0]) for job in told} == set(clusters)
    keeping.terminate()
    wait_until(lambda: keeping.returncode is not None, 60, "its end")
    assert keeping.returncode == 0, keeping.tail()
    said = archiver.verify(folder)
    assert any(line.startswith("job: ") for line in said)
    # Somebody changes history.
    _, path = archiver.segments(folder / "job")[-1]
    path.write_bytes(path.read_bytes().replace(b"job.ended", b"job.eaten", 1))
    with pytest.raises(archiver.Damaged, match="has another checksum"):
        archiver.verify(folder)


def wait_for(condition):
    found = []

    def there():
        found[:] = [condition()]
        return found[0]

    wait_until(there, 60)
    return found[0]


def received(number):
    body = {"at": 1.0, "schedd": "ap", "job_id": f"{number}.0", "owner": "a", "reason": "r" * 20}
    return Received(f"{number:032x}", JobRemoved(**body), "schedd.ap")


def test_segments_are_compressed_when_they_are_full_and_days_apart(tmp_path, monkeypatch):
    archiver = loaded(EXAMPLES / "archiver.py")
    monkeypatch.setattr(archiver, "SEGMENT_RECORDS", 10)
    archive = archiver.Archive(tmp_path)
    day = 86400.0
    for number in range(25):
        assert archive.append(received(number), now=day)
    assert not archive.append(received(7), now=day)
    archive.close()
    archive = archiver.Archive(tmp_path)  # it goes on in the segment that is open
    assert not archive.append(received(24), now=day)
    for number in range(25, 28):
        assert archive.append(received(number), now=day)
    assert archive.append(received(28), now=2 * day)
    assert archive.append(Gap("lost", "x"), now=2 * day)
    archive.close()
    names = [str(path.relative_to(tmp_path)) for _, path in archiver.segments(tmp_path / "job")]
    assert names == [
        "job/1970-01-02/000000000000.log.gz",
        "job/1970-01-02/000000000010.log.gz",
        "job/1970-01-02/000000000020.log.gz",
        "job/1970-01-03/000000000028.log",
    ]
    found = list(archiver.read(tmp_path, "job", 12))
    assert [record.offset for record in found] == list(range(12, 30))
    assert found[0].facts["job_id"] == "12.0"
    assert found[-1].facts["type"] == "gap"
    assert archiver.verify(tmp_path) == ["job: 30 records in 4 segments, offsets 0 to 29"]
    (tmp_path / "job/1970-01-02/000000000010.log.gz").unlink()
    with pytest.raises(archiver.Damaged, match="a segment is missing"):
        archiver.verify(tmp_path)


@pytest.mark.parametrize("left", ["new", "both"])
def test_a_crash_while_a_segment_is_compressed_loses_and_doubles_nothing(tmp_path, left):
    archiver = loaded(EXAMPLES / "archiver.py")
    archive = archiver.Archive(tmp_path)
    for number in range(5):
        archive.append(received(number), now=0.0)
    archive.close()
    _, path = archiver.segments(tmp_path / "job")[-1]
    if left == "new":
        path.with_suffix(".log.gz.new").write_bytes(b"half")
    else:
        import gzip

        path.with_suffix(".log.gz").write_bytes(gzip.compress(path.read_bytes()))
    archive = archiver.Archive(tmp_path)
    assert not archive.append(received(4), now=0.0)
    assert archive.append(received(5), now=86400.0)
    archive.close()
    assert archiver.verify(tmp_path) == ["job: 6 records in 2 segments, offsets 0 to 5"]


def test_damage_in_the_middle_is_not_cut_away(tmp_path):
    archiver = loaded(EXAMPLES / "archiver.py")
    archive = archiver.Archive(tmp_path)
    for number in range(5):
        archive.append(received(number), now=0.0)
    archive.close()
    _, path = archiver.segments(tmp_path / "job")[-1]
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"1.0"', b'"9.0"'))
    with pytest.raises(archiver.Damaged, match="others follow"):
        archiver.Archive(tmp_path)
    path.write_bytes(data[:-7])
    archive = archiver.Archive(tmp_path)
    assert archive.topics["job"].next == 4
    archive.close()


# Autoscaler


def test_a_dry_run_says_what_it_would_do_and_does_nothing(pool, run, tmp_path):
    cluster = submit(pool, tmp_path, "request_cpus = 64\nqueue 3")  # more than the machine has
    scaler = run("autoscaler/autoscaler.py", "--dry-run", "--cpus", 64, "--start-after", 0, "--prefix", "auto")
    during(scaler, lambda: "would start auto-1" in scaler.tail(), "a plan")
    scaler.terminate()
    wait_until(lambda: scaler.returncode is not None, 60, "its end")
    assert scaler.returncode == 0, scaler.tail()
    pool.roost("rm", str(cluster))
