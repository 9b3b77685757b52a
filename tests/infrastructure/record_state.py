"""Records what a version of Roost leaves on disk and in Redis, which every later version must be able to read.

    python -m tests.infrastructure.record_state --tree DIRECTORY

runs the pools of the checkout in DIRECTORY (this one by default) through its `roost` command only, so the script works
on any commit. It writes two archives and what that version says of them into tests/data/recorded_state/<commit>/:

- personal.tar.gz: the directory of a personal pool, killed with `kill -9`: the queue, the history, claims and runs of
  its schedd and startd, the fork server's result of a job that ended after the kill, the log of the embedded store,
  the journal, a daemon that is switched off, a macro that was set for good;
- servers.tar.gz: what a pool on RabbitMQ and Redis left when its broker and then it was killed: all keys of Redis
  (ads compressed against a dictionary, accounting records, epochs, a lead with its note) and events that wait for the
  broker;
- expected.json: jobs, history, ads, priorities, explanations, as the recorded version shows them when it is started
  again on a copy.

Everything lies under PLACE and says to be cm.example.org, so that no path or name of the recording machine is kept;
`check_neutral` looks for them. tests/integration/test_recorded_state.py starts today's daemons on the archives.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgpack
import redis

from tests.servers import Leashed, Rabbit, Redis
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "recorded_state"
#: Paths in state are absolute, so recording and test use one place, one at a time.
PLACE = Path("/tmp/roost-recorded")
POOL = PLACE / "pool"
JOBS = PLACE / "jobs"
HOST = "cm.example.org"
#: Before a command that records: the machine's own name is not seen there. Only root can do that.
ELSEWHERE = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', HOST)

COMMON = f"""
FULL_HOSTNAME = {HOST}
UID_DOMAIN = example.org
FILESYSTEM_DOMAIN = example.org
SCHEDD_NAME = ap
STARTD_NAME = node
NETWORK_INTERFACE = 127.0.0.1
RUNBENCHMARKS = false
ROOST_STARTD_DOCKER = false
ROOST_STARTD_APPTAINER = false
ROOST_STARTD_VM = false
ROOST_SCHEDD_TRANSFER_HOST = 127.0.0.1
GROUP_NAMES = physics, chemistry
GROUP_QUOTA_physics = 2
GROUP_QUOTA_chemistry = 1
GROUP_ACCEPT_SURPLUS = true
NEGOTIATOR_CYCLE_DELAY = 0
NEGOTIATOR_MIN_INTERVAL = 0
ENABLE_RUNTIME_CONFIG = true
ENABLE_PERSISTENT_CONFIG = true
PERSISTENT_CONFIG_DIR = {POOL}/set
SETTABLE_ATTRS_ADMINISTRATOR = MAX_JOBS_RUNNING
"""
PERSONAL = COMMON + "DAEMON_LIST = $(DAEMON_LIST) ROOSTER\nROOSTER_INTERVAL = 600\nHISTORY = $(SPOOL)/history\n"
#: Many slots whose ads change each second: enough for a dictionary to be made. Defrag notes a round, and drains nobody.
SERVERS = (
    COMMON
    + """
DAEMON_LIST = $(DAEMON_LIST) DEFRAG
DEFRAG_INTERVAL = 5
DEFRAG_UPDATE_INTERVAL = 5
DEFRAG_REQUIREMENTS = false
SLOT_TYPE_1 = cpus=1, memory=16
NUM_SLOTS_TYPE_1 = 119
SLOT_TYPE_1_PARTITIONABLE = false
SLOT_TYPE_2 = cpus=1, memory=64
NUM_SLOTS_TYPE_2 = 1
SLOT_TYPE_2_PARTITIONABLE = true
UPDATE_INTERVAL = 2
STARTD_CRON_JOBLIST = COUNT
STARTD_CRON_COUNT_EXECUTABLE = {jobs}/count
STARTD_CRON_COUNT_PERIOD = 1s
PERIODIC_EXPR_INTERVAL = 1
SCHEDD_INTERVAL = 5
"""
)

PLAIN = 'request_cpus = 1\nrequest_memory = 16MB\nrequest_disk = 1MB\n+FileSystemDomain = "example.org"\n'

#: What differs from one start to the next, by nature: times of the daemons' own lives, counters of their work, sequence
#: numbers, ports, and what the machine under it is doing.
OF_THE_LIFE = re.compile(
    r"^(LastHeardFrom|UpdateSequenceNumber|UpdatesSequenced|UpdatesTotal|UpdatesLost|UpdatesHistory|DaemonStartTime|"
    r"DaemonLastReconfigTime|MyCurrentTime|MonitorSelf.*|MyAddress|ServerTime|Recent.*|.*Duty.*|AddressV1|"
    r"RoostDaemonStart|LastUpdate|LastRejMatchTime|ForkQueueSize|.*TransferURL.*|TransferUrl)$"
)


def environment(tree: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ROOST_", "_CONDOR_", "CONDOR_"))}
    return {**kept, "ROOST_POOL_DIR": str(POOL), "PYTHONPATH": str(tree), "TZ": "UTC"}


class RecordedPool:
    """`roost up` of a checkout in POOL, and its command."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self._lives: list[Leashed] = []

    def start(self, *options: str) -> None:
        (POOL / "pool.json").unlink(missing_ok=True)
        words = [*ELSEWHERE, sys.executable, "-m", "roost", "up", "-port", "0", *options]
        self._lives.append(Leashed(words, log=PLACE / "up.log", env=environment(self.tree), cwd=PLACE))
        wait_until(lambda: (POOL / "pool.json").exists() or self.process.returncode is not None, 90, "pool.json")
        assert self.process.returncode is None, self.process.tail()

    @property
    def process(self) -> Leashed:
        return self._lives[-1]

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        for process in self._lives:
            process.close()

    def roost(self, *words: str) -> str:
        return command(self.tree, *words, before=ELSEWHERE)


def command(tree: Path, *words: str, before: Sequence[str] = ()) -> str:
    """What `roost ...` of this checkout prints for the pool in POOL."""
    done = subprocess.run(
        [*before, sys.executable, "-m", "roost", *words],
        env=environment(tree),
        cwd=JOBS,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"roost {' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


# What a version shows


def ads_of(text: str) -> list[dict[str, str]]:
    """The ads that `-long` printed, each as attribute -> text."""
    found = []
    for block in re.split(r"\n\s*\n", text.strip()):
        pairs = (line.partition(" = ") for line in block.splitlines() if " = " in line)
        ad = {name.strip(): value for name, _, value in pairs if not OF_THE_LIFE.match(name.strip())}
        if ad:
            found.append(ad)
    return found


def by(ads: list[dict[str, str]], *names: str) -> dict[str, dict[str, str]]:
    return {" ".join(ad.get(name, "") for name in names): ad for ad in ads}


def shown(roost: Callable[..., str]) -> dict[str, Any]:
    """Jobs, history, ads of machines and priorities, as the command shows them."""
    return {
        "jobs": by(ads_of(roost("q", "-long", "-allusers")), "ClusterId", "ProcId"),
        "factories": roost("q", "-factory", "-af:j", "ClusterId", "JobMaterializeNextProcId", "JobMaterializeLimit"),
        "history": by(ads_of(roost("history", "-long")), "ClusterId", "ProcId"),
        "machines": by(ads_of(roost("status", "-long")), "Name"),
        "priorities": by(ads_of(roost("userprio", "-allusers", "-long")), "Name", "IsAccountingGroup"),
        "max_jobs_running": roost("config-val", "-schedd", "MAX_JOBS_RUNNING").strip(),
    }


def explained(roost: Callable[..., str], jobs: list[str], until: float) -> dict[str, Any]:
    """What happened to these jobs until this moment, as the journal tells it."""
    return {job: json.loads(roost("explain", job, "-to", f"{until:.3f}", "-json")) for job in jobs}


# State


def pack(archive: Path, *folders: Path) -> None:
    """These folders of PLACE, with fixed owner, without sockets and locks."""

    def kept(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = Path(info.name).name
        if name in ("lock", "pool.json", "log") or name.endswith("-shm") or not (info.isreg() or info.isdir()):
            return None
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(archive, "w:gz", compresslevel=9) as file:
        for folder in folders:
            file.add(folder, arcname=str(folder.relative_to(PLACE)), filter=kept)


def unpack(archive: Path) -> None:
    """Into PLACE, which is made anew."""
    clear()
    with tarfile.open(archive) as file:
        file.extractall(PLACE, filter="data")
    JOBS.mkdir(exist_ok=True)


def clear() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(mode=0o755)


@contextlib.contextmanager
def place() -> Iterator[None]:
    """Hold PLACE, which several test processes share; it is empty before and gone afterwards."""
    with open(f"{PLACE}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        clear()
        try:
            yield
        finally:
            shutil.rmtree(PLACE, ignore_errors=True)


def switch_off(subsystem: str, name: str) -> None:
    """Leave a mark by which a daemon stays off: a copy of the one that the recorded version made."""
    (mark,) = (POOL / "spool" / "off").glob("rooster.*")
    (mark.parent / f"{subsystem}.{name}").write_bytes(mark.read_bytes())


def dump(url: str) -> dict[str, Any]:
    """Every key of a Redis, with its kind and content."""
    client = redis.Redis.from_url(url)
    found: dict[str, Any] = {}
    for key in sorted(client.scan_iter()):
        kind = client.type(key).decode()
        if kind == "string":
            content: Any = _text(client.get(key))
        elif kind == "hash":
            content = [[_text(name), _text(value)] for name, value in sorted(client.hgetall(key).items())]
        else:
            assert kind == "zset", f"{key!r} is a {kind}"
            content = [[_text(name), score] for name, score in client.zrange(key, 0, -1, withscores=True)]
        found[key.decode()] = {"kind": kind, "content": content}
    client.close()
    return found


def restore(url: str, found: dict[str, Any]) -> None:
    """The opposite of `dump`."""
    client = redis.Redis.from_url(url)
    for key, told in found.items():
        kind, content = told["kind"], told["content"]
        if kind == "string":
            client.set(key, base64.b64decode(content))
        elif kind == "hash":
            client.hset(key, mapping={base64.b64decode(name): base64.b64decode(value) for name, value in content})
        else:
            client.zadd(key, {base64.b64decode(name): score for name, score in content})
    client.close()


def events_in(file: Path) -> list[tuple[str, str]]:
    """Id and type of each event that waits for the broker in a file: records of a length, a CRC and msgpack."""
    data, at, found = file.read_bytes(), len(b"ROOST-JOURNAL-1\n"), []
    while at < len(data):
        size, _ = struct.unpack_from("<II", data, at)
        for _, _, name, kind, *_ in msgpack.unpackb(data[at + 8 : at + 8 + size]):
            found.append((name.decode(), kind.decode()))
        at += 8 + size
    return found


def _compressed(client: redis.Redis) -> int:
    """How many ads of machines are Zstandard frames with a dictionary's number."""
    key = "roost:ads:Machine/startd@node"
    return sum(value[:4] == b"\x28\xb5\x2f\xfd" and value[4] & 3 != 0 for value in client.hvals(key))


def _usage(pool: RecordedPool) -> float:
    """What was charged for whom runs jobs now, in seconds."""
    ads = by(ads_of(pool.roost("userprio", "-allusers", "-long")), "Name")
    return float(ads.get('"root@example.org"', {}).get("AccumulatedUsage", "0"))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


# The pools


def submit(pool: RecordedPool, name: str, text: str) -> str:
    (JOBS / f"{name}.sub").write_text(text)
    said = pool.roost("submit", f"{name}.sub")
    return said.rpartition("cluster ")[2].strip().rstrip(".")


def statuses(pool: RecordedPool, cluster: str, where: str = "q") -> list[str]:
    return pool.roost(where, cluster, "-af", "JobStatus").split()


def prepare(config: str) -> None:
    clear()
    for folder in (POOL, JOBS):
        folder.mkdir()
    POOL.chmod(0o700)
    (POOL / "config").write_text(config.format(jobs=JOBS) if "{jobs}" in config else config)


def record_personal(tree: Path, out: Path) -> dict[str, Any]:
    """A personal pool with jobs of every kind, killed, and what it says when it is started again without its startd."""
    prepare(PERSONAL)
    pool = RecordedPool(tree)
    try:
        pool.start("-cpus", "4", "-memory", "4096", "-redis", "embedded:")
        clusters = _work(pool)
        pool.roost("off", "-rooster", HOST, "-reason", "recorded")
        pool.roost("config-val", "-set", "-schedd", "-name", "ap", "MAX_JOBS_RUNNING = 77")
        pool.roost("userprio", "-setfactor", "bob@example.org", "77")
        pool.roost("userprio", "-setaccum", "bob@example.org", "1234")
        pool.roost("userprio", "-setceiling", "carol@example.org", "5")
        pool.roost("userprio", "-setquota", "chemistry", "3")
        # What the journal and the accountant write in their own time.
        idle, running = f"{clusters['idle']}.0", f"{clusters['running']}.0"
        wait_until(lambda: "requirements" in pool.roost("explain", idle, "-json", "-to", "now"), 60, "a reason")
        wait_until(lambda: "started on" in pool.roost("explain", running), 60, "the journal")
        wait_until(lambda: _usage(pool) > 5, 60, "usage of the jobs that run")
        pool.kill()
        # The job ends while no startd is there: only the fork server knows how.
        (JOBS / "gate").touch()
        wait_until(lambda: list(POOL.rglob("results/*")), 20, "the result of the job that ended")
        pack(out / "personal.tar.gz", POOL, JOBS)
        recorded_at = time.time()
    finally:
        pool.close()
    unpack(out / "personal.tar.gz")
    again = RecordedPool(tree)
    try:
        switch_off("startd", "node")
        again.start("-cpus", "4", "-memory", "4096", "-redis", "embedded:")
        found = {"recorded_at": recorded_at, "clusters": clusters, **shown(again.roost)}
        told = [f"{clusters[name]}.0" for name in ("done", "removed", "held", "idle", "running")]
        found["explained"] = explained(again.roost, told, recorded_at - 5)
        found["hads"] = [{"leads": had.get("state"), "epoch": had.get("epoch")} for had in hads(again.roost)]
    finally:
        again.close()
    return found


def hads(roost: Callable[..., str]) -> list[dict[str, Any]]:
    found = json.loads(roost("had", "-json"))
    return found if isinstance(found, list) else found.get("hads", [found])


def _work(pool: RecordedPool) -> dict[str, str]:
    """Jobs of every kind: name -> cluster."""
    plain = PLAIN + "log = jobs.log\n"
    nowhere = plain + 'requirements = TARGET.Nowhere =?= "here"\n'
    found = {}
    found["done"] = submit(pool, "done", plain + "executable = /bin/true\ntransfer_executable = false\nqueue 3\n")
    found["failed"] = submit(
        pool,
        "failed",
        plain + "executable = /bin/sh\narguments = \"-c 'exit 3'\"\ntransfer_executable = false\nqueue\n",
    )
    found["kept"] = submit(
        pool,
        "kept",
        plain + "executable = /bin/true\ntransfer_executable = false\nleave_in_queue = true\n"
        "accounting_group = physics\naccounting_group_user = alice\nqueue 2\n",
    )
    for name, total in (("done", 3), ("failed", 1)):
        wait_until(lambda name=name, total=total: len(statuses(pool, found[name], "history")) == total, 60, name)
    wait_until(lambda: statuses(pool, found["kept"]) == ["4", "4"], 60, "kept")
    found["removed"] = submit(pool, "removed", nowhere + "executable = /bin/true\ntransfer_executable = false\nqueue\n")
    pool.roost("rm", found["removed"], "-reason", "not needed")
    found["held"] = submit(pool, "held", nowhere + "executable = /bin/true\ntransfer_executable = false\nqueue 2\n")
    pool.roost("hold", found["held"], "-reason", "to be looked at")
    found["idle"] = submit(
        pool,
        "idle",
        nowhere + 'executable = /bin/true\ntransfer_executable = false\npriority = 7\n+Colour = "blue"\nqueue 2\n',
    )
    found["late"] = submit(
        pool,
        "late",
        nowhere + "executable = /bin/echo\ntransfer_executable = false\narguments = $(what)\nmax_idle = 2\n"
        "queue what from (\none\ntwo\nthree\nfour\nfive\nsix\n)\n",
    )
    wait_until(lambda: len(statuses(pool, found["late"])) == 2, 60, "late")
    found["running"] = submit(
        pool, "running", plain + "executable = /bin/sleep\narguments = 86400\ntransfer_executable = false\nqueue\n"
    )
    (JOBS / "gated.sh").write_text(
        f"#!/bin/sh\nwhile ! [ -e {JOBS}/gate ]; do sleep 0.1; done\necho over > said\nexit 7\n"
    )
    (JOBS / "gated.sh").chmod(0o755)
    found["ending"] = submit(
        pool,
        "ending",
        plain + "executable = gated.sh\nshould_transfer_files = YES\nwhen_to_transfer_output = ON_EXIT\n"
        "transfer_output_files = said\nqueue\n",
    )
    for name in ("running", "ending"):
        wait_until(lambda name=name: statuses(pool, found[name]) == ["2"], 60, name)
    return found


def record_servers(tree: Path, out: Path) -> dict[str, Any]:
    """A pool on RabbitMQ and Redis whose broker went away first."""
    prepare(SERVERS)
    (JOBS / "count").write_text("#!/bin/sh\necho Counted = $(date +%s%N)\necho -\n")
    (JOBS / "count").chmod(0o755)
    rabbit, store, pool = Rabbit(), Redis(), RecordedPool(tree)
    try:
        rabbit.start()
        store.start()
        pool.start("-amqp", rabbit.url, "-redis", store.url, "-cpus", "120", "-memory", "4096")
        plain = PLAIN + "transfer_executable = false\n"
        done = submit(pool, "done", plain + "executable = /bin/true\naccounting_group = physics\nqueue 2\n")
        wait_until(lambda: len(statuses(pool, done, "history")) == 2, 90, "jobs")
        running = submit(pool, "running", plain + "executable = /bin/sleep\narguments = 86400\nqueue 3\n")
        wait_until(lambda: statuses(pool, running) == ["2"] * 3, 60, "running jobs")
        pool.roost("userprio", "-setfactor", "bob@example.org", "55")
        client = redis.Redis.from_url(store.url)

        def claims() -> int:
            return sum(client.hlen(key) for key in client.scan_iter("roost:accountant-claims:*"))

        wait_until(lambda: claims() > 3, 60, "claims in the accounting records")
        wait_until(lambda: client.hget("roost:lead:defrag", "note"), 60, "a note of defrag's")
        wait_until(lambda: client.hlen("roost:ads:dictionaries"), 90, "a dictionary")
        wait_until(lambda: _compressed(client) > 100, 60, "ads that are compressed against it")
        soon = f"executable = /bin/true\nrequirements = false\nperiodic_hold = time() > {int(time.time()) + 6}\n"
        submit(pool, "waiting", plain + soon + "queue 2\n")
        rabbit.kill()
        facts = POOL / "spool" / "schedd.ap.facts"
        wait_until(lambda: facts.exists() and "job.held" in dict(events_in(facts)).values(), 60, "events that wait")
        pool.kill()
        at = time.time()
        (PLACE / "redis.json").write_text(json.dumps(dump(store.url)))
        (PLACE / "facts").mkdir()
        for path in (POOL / "spool").glob("*.facts"):
            shutil.copy(path, PLACE / "facts")
        pack(out / "servers.tar.gz", PLACE / "redis.json", PLACE / "facts", POOL / "config")
        # The same Redis again, now with a bus in the process and the startd off.
        pool.close()
        shutil.rmtree(POOL / "spool")
        (POOL / "spool" / "off").mkdir(parents=True)
        (POOL / "spool" / "off" / "startd.node").write_text(json.dumps({"since": at, "by": "", "reason": ""}))
        no_round()
        pool = RecordedPool(tree)
        pool.start("-redis", store.url, "-cpus", "120", "-memory", "4096")
        look = pool.roost
        machines = by(ads_of(look("status", "-long")), "Name")
        found = {
            "recorded_at": at,
            "machines": {name: machines[name] for name in sorted(machines)[:5]},
            "names": sorted(machines),
            "priorities": by(ads_of(look("userprio", "-allusers", "-long")), "Name", "IsAccountingGroup"),
            "defrag": defrag(look),
            "epoch": int(client.get("roost:had:epoch") or 0),
        }
        client.close()
    finally:
        pool.close()
        rabbit.close()
        store.close()
    return found


def no_round() -> None:
    """From the next start on defrag shows what it remembers, and looks at nothing anew."""
    config = POOL / "config"
    config.write_text(config.read_text().replace("DEFRAG_INTERVAL = 5\n", "DEFRAG_INTERVAL = 1000000\n"))


def defrag(roost: Callable[..., str]) -> dict[str, str]:
    """Defrag's ad, as soon as there is one."""
    found: list[dict[str, str]] = []

    def there() -> bool:
        found[:] = ads_of(roost("status", "-defrag", "-long"))
        return bool(found)

    wait_until(there, 60, "defrag's ad")
    return found[0]


def check_neutral(out: Path) -> None:
    """Raises AssertionError where the recording tells of this machine."""
    words = {socket.gethostname(), str(ROOT), str(ROOT.parent), str(Path.home())} - {"/root", "/"}
    # As a word of a text, or as a string of msgpack's: two letters in the midst of binary numbers mean nothing.
    mark = r"[\s!-/:-@\[-`{-~]"
    texts_of = [rf"(?:^|(?<={mark})){re.escape(word)}(?={mark}|$)" for word in words]
    texts_of += [re.escape(chr(0xA0 + len(word)) + word) for word in words if len(word) < 32]
    private = re.compile("|".join(texts_of).encode("latin-1"))
    texts: list[tuple[str, bytes]] = [(path.name, path.read_bytes()) for path in out.glob("*.json")]
    for archive in out.glob("*.tar.gz"):
        with tarfile.open(archive) as file:
            for member in file:
                data = file.extractfile(member)
                if data is not None:
                    texts.append((f"{archive.name}:{member.name}", data.read()))
    found = [(name, private.findall(text)[:3]) for name, text in texts if private.search(text)]
    assert not found, found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout to record (this one)")
    parser.add_argument("--only", choices=("personal", "servers"))
    options = parser.parse_args()
    tree = options.tree.resolve()
    git = ["git", "-C", str(tree), "rev-parse", "--short=7", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    out = DATA / commit
    out.mkdir(parents=True, exist_ok=True)
    expected_file = out / "expected.json"
    expected = json.loads(expected_file.read_text()) if expected_file.exists() else {}
    with place():
        if options.only != "servers":
            expected["personal"] = record_personal(tree, out)
            expected_file.write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
        if options.only != "personal":
            expected["servers"] = record_servers(tree, out)
            expected_file.write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")
    check_neutral(out)
    sys.stdout.write(f"{out}: {sum(path.stat().st_size for path in out.iterdir())} bytes\n")


if __name__ == "__main__":
    main()
