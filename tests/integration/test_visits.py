"""Visits to running jobs, at the startd: programs in their surroundings, and their files."""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import psutil
import pytest

from services.startd.rpc.ssh_to_job import SshToJob
from shared.bus.api import RemoteFailure
from shared.messages.claims import DeactivateClaim
from shared.messages.visits import ReadVisit, StartVisit, SteerVisit, Wish, WriteVisit
from tests.integration.isolated_pool import IsolatedPool, is_root, open_directory
from tests.startd_pool import Pool
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(180)
USER = "alice@pool"
INBOX = "startd.node1/visits"
SLEEPER = {"cmd": "/bin/sh", "Arguments": "-c 'echo up > up; exec sleep 1000'"}


class Visitor:
    """The gateway's side of one visit."""

    def __init__(self, pool, name):
        self.pool = pool
        self.name = name
        self.out = b""
        self.err = b""
        self.after = 0
        self.sent = 0
        self.end = None

    async def call(self, message, timeout=60.0):
        return await self.pool.speakers.call(INBOX, message, timeout=timeout)

    async def read(self, wait_s=15.0):
        answer = await self.call(ReadVisit(visit=self.name, user=USER, after=self.after, wait_s=wait_s))
        assert answer.start == self.after
        for part in answer.parts:
            self.after += len(part.data)
            if part.kind == "out":
                self.out += part.data
            else:
                self.err += part.data
        if answer.ended:
            self.end = answer
        return answer

    async def finish(self):
        while self.end is None:
            await self.read()
        return self.end

    async def until(self, words):
        while words not in self.out:
            assert self.end is None, (self.out, self.err, self.end)
            await self.read()

    async def write(self, data, eof=False):
        end = self.sent + len(data)
        while True:
            rest = data[len(data) - (end - self.sent) :][: 256 * 1024]
            last = self.sent + len(rest) == end
            answer = await self.call(
                WriteVisit(visit=self.name, user=USER, start=self.sent, data=rest, eof=eof and last)
            )
            self.sent = answer.taken
            if self.sent >= end or answer.ended:
                return answer

    async def steer(self, **what):
        await self.call(SteerVisit(visit=self.name, user=USER, **what))


@pytest.fixture
async def pool(tmp_path):
    tmp_path.chmod(0o755)
    async with Pool(tmp_path) as pool:
        yield pool


async def running(pool, directory, **attrs):
    """A job that runs in a directory, and its claim."""
    directory.mkdir(exist_ok=True)
    directory.chmod(0o777)
    activation, granted = await pool.run(**SLEEPER | {"Iwd": str(directory)} | attrs)
    await pool.running(activation.job_id)
    await eventually(lambda: (directory / "up").exists())
    return activation, granted


async def visit(pool, activation, granted, *command, **wish):
    wanted = Wish(**{"kind": "run", "command": list(command)} | wish)
    asked = StartVisit(claim_id=granted.claim_id, job_id=activation.job_id, attempt=1, user=USER, wish=wanted)
    return Visitor(pool, (await pool.call(asked)).visit)


def sessions_of(pool):
    return next(part for part in pool.startd.components if isinstance(part, SshToJob))


async def test_a_program_runs_where_the_job_runs(pool, tmp_path):
    iwd = tmp_path / "iwd"
    job, claim = await running(pool, iwd, Environment="WHO=job", RequestCpus=2)
    text = "pwd; echo $WHO $OMP_NUM_THREADS; id -u; cat; echo bad >&2; exit 3"
    visitor = await visit(pool, job, claim, "/bin/sh", "-c", text)
    await visitor.write(b"typed\n", eof=True)
    end = await visitor.finish()
    assert (end.exit_code, end.exit_signal, end.reason) == (3, None, "")
    main = pool.startd.shared.fork_server.running
    (process,) = main.values()
    uid = os.stat(f"/proc/{process.pid}").st_uid
    assert visitor.out.decode() == f"{iwd}\njob 2\n{uid}\ntyped\n"
    assert visitor.err == b"bad\n"


FIELDS = ("Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:")
TELL = (
    f"grep -E '^({'|'.join(FIELDS)})' /proc/self/status; cat /proc/self/cgroup /proc/self/limits; ls -l /proc/self/ns"
)


def assert_same_rights(pid, told):
    """Namespaces, cgroups, account, groups, capabilities, limits."""
    proc = Path(f"/proc/{pid}")
    wanted = [line for line in (proc / "status").read_text().splitlines() if line.startswith(FIELDS)]
    for name in ("cgroup", "limits"):
        wanted += (proc / name).read_text().splitlines()
    seen = [line.split("->")[-1].strip() for line in told.splitlines() if "for_children" not in line]
    assert {line.strip() for line in wanted} - set(seen) == set()
    for name in ("mnt", "pid", "ipc", "net", "uts", "user", "cgroup"):
        assert os.readlink(proc / "ns" / name) in seen, name


async def test_a_visitor_has_no_right_that_the_job_has_not(pool, tmp_path):
    job, claim = await running(pool, tmp_path / "iwd")
    (process,) = pool.startd.shared.fork_server.running.values()
    visitor = await visit(pool, job, claim, "/bin/sh", "-c", TELL)
    await visitor.finish()
    assert_same_rights(process.pid, visitor.out.decode())


@pytest.mark.parametrize("knobs", [{}, {"USE_PID_NAMESPACES": "true"}, {"STARTER_RLIMIT_AS": "4096"}])
async def test_nor_has_one_behind_walls(knobs):
    if not is_root():
        pytest.skip("only root puts up walls")
    with open_directory() as path:
        async with IsolatedPool(path, **knobs) as walled:
            job_id, _ = await walled.begin("echo up > up; exec sleep 1000")
            await walled.running(job_id)
            await eventually(lambda: list(walled.execute.glob("dir_*/up")))
            run = walled.run_of(job_id)
            (process,) = walled.startd.shared.fork_server.running.values()
            forbidden = f"cat {walled.path}/spool/startd/*; kill -9 {process.nanny}"
            text = f"{TELL}; ls -a {walled.execute} | grep -c dir_; {forbidden}"
            wish = Wish(kind="run", command=["/bin/sh", "-c", text])
            asked = StartVisit(claim_id=run.record.claim_id, job_id=job_id, attempt=1, user=USER, wish=wish)
            visitor = Visitor(walled.pool, (await walled.pool.call(asked)).visit)
            assert (await visitor.finish()).exit_code != 0
            told = visitor.out.decode()
            assert_same_rights(main_of(process.pid), told)
            assert told.splitlines()[-1] == "1"  # only this job's directory is to be seen
            tail = Wish(kind="tail", file="up")
            seen = Visitor(walled.pool, (await walled.pool.call(asked.model_copy(update={"wish": tail}))).visit)
            await seen.finish()
            assert seen.out == b"up\n"


def main_of(pid):
    """The job below the first process of a PID namespace, if that is not the job itself."""
    children = [child.pid for child in psutil.Process(pid).children()]
    return children[0] if children else pid


async def test_the_terminal_has_its_size_from_the_first_moment_and_follows_the_window(pool, tmp_path):
    job, claim = await running(pool, tmp_path / "iwd")
    command = ("/bin/sh", "-c", "trap 'stty size' WINCH; stty size; echo $TERM; while :; do sleep 0.05; done")
    visitor = await visit(pool, job, claim, *command, tty=True, rows=41, columns=113, term="vt220")
    await visitor.until(b"41 113\r\nvt220\r\n")
    assert visitor.out == b"41 113\r\nvt220\r\n"
    await visitor.steer(rows=24, columns=80)
    await visitor.until(b"24 80")
    await visitor.write(b"\x03")
    assert (await visitor.finish()).exit_signal == signal.SIGINT


async def test_a_shell_by_default(pool, tmp_path):
    job, claim = await running(pool, tmp_path / "iwd")
    visitor = await visit(pool, job, claim, tty=True, rows=24, columns=80)
    await visitor.write(b"tty; echo to''gether\r")
    await visitor.until(b"together")
    assert b"not a tty" not in visitor.out
    await visitor.write(b"exit 5\r")
    assert (await visitor.finish()).exit_code == 5


async def test_the_end_of_input_is_the_end_of_a_pipe_and_hangs_a_terminal_up(pool, tmp_path):
    job, claim = await running(pool, tmp_path / "iwd")
    for tty, end in ((False, (0, None)), (True, (None, signal.SIGHUP))):
        visitor = await visit(pool, job, claim, "/bin/cat", tty=tty)
        await visitor.write(b"x\n", eof=False)
        await visitor.until(b"x")
        await visitor.write(b"", eof=True)
        ended = await visitor.finish()
        assert (ended.exit_code, ended.exit_signal) == end


async def test_signals_reach_the_program(pool, tmp_path):
    job, claim = await running(pool, tmp_path / "iwd")
    visitor = await visit(
        pool, job, claim, "/bin/sh", "-c", "trap 'echo got; exit 9' USR1; echo up; while :; do sleep 0.05; done"
    )
    await visitor.until(b"up\n")
    await visitor.steer(signal=signal.SIGUSR1)
    assert (await visitor.finish()).exit_code == 9
    assert visitor.out == b"up\ngot\n"
    killed = await visit(pool, job, claim, "/bin/sh", "-c", "kill -KILL $$")
    assert (await killed.finish()).exit_signal == signal.SIGKILL


@pytest.mark.parametrize(("command", "code"), [(("/no/such/program",), 127), (("/etc/passwd",), 126)])
async def test_a_program_that_can_not_be_run_says_so(pool, tmp_path, command, code):
    job, claim = await running(pool, tmp_path / "iwd")
    visitor = await visit(pool, job, claim, *command)
    assert (await visitor.finish()).exit_code == code
    assert command[0].encode() in visitor.err


async def test_the_visit_ends_with_the_job(pool, tmp_path):
    job, claim = await running(pool, tmp_path / "iwd")
    visitor = await visit(pool, job, claim, "/bin/sh", "-c", "trap '' TERM HUP; echo up; while :; do sleep 0.05; done")
    await visitor.until(b"up\n")
    stop = DeactivateClaim(claim_id=claim.claim_id, job_id=job.job_id, attempt=1, why="remove", how="fast")
    await pool.call(stop)
    end = await visitor.finish()
    assert end.exit_code is None
    assert end.exit_signal in (None, signal.SIGKILL)


async def test_who_leaves_leaves_nothing_behind(pool, tmp_path):
    job, claim = await running(pool, tmp_path / "iwd")
    mark = f"sleep {os.getpid()}.{time.monotonic_ns() % 10**9}"
    visitor = await visit(pool, job, claim, "/bin/sh", "-c", f"(setsid {mark} &); trap '' HUP; echo up; {mark}")
    await visitor.until(b"up\n")

    def left():
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if mark.split() == process.cmdline():
                    found.append(process)
        return found

    await eventually(lambda: len(left()) == 2)
    await visitor.steer(leave=True)
    await visitor.finish()
    await eventually(lambda: not left())
    assert pool.startd.shared.runs.by_key  # the job goes on


async def test_much_output_waits_for_its_reader_and_arrives_whole(pool, tmp_path):
    job, claim = await running(pool, tmp_path / "iwd")
    visitor = await visit(pool, job, claim, "/bin/sh", "-c", "head -c 5000000 /dev/zero; echo end")
    found = next(iter(sessions_of(pool).visits.values()))
    await eventually(lambda: not found.output.room)
    assert found.output.size == found.output.limit
    assert (await visitor.finish()).exit_code == 0
    assert len(visitor.out) == 5_000_004
    assert visitor.out.endswith(b"end\n")


async def test_much_input_is_taken_as_it_is_read(pool, tmp_path):
    job, claim = await running(pool, tmp_path / "iwd")
    visitor = await visit(pool, job, claim, "/bin/sh", "-c", "sleep 0.3; wc -c")
    await visitor.write(b"x" * 2_000_000, eof=True)
    assert (await visitor.finish()).exit_code == 0
    assert visitor.out.split() == [b"2000000"]


async def test_lost_answers_cost_nothing(pool, tmp_path):
    """Every question may be repeated: what was printed is kept until it is confirmed, what was typed counts once."""
    job, claim = await running(pool, tmp_path / "iwd")
    visitor = await visit(pool, job, claim, "/bin/sh", "-c", "read a; echo got $a; read b; echo got $b")
    for _ in range(3):
        await visitor.call(WriteVisit(visit=visitor.name, user=USER, start=0, data=b"one\n"))
    await eventually(
        lambda: b"got one" in b"".join(d for _, d in sessions_of(pool).visits[visitor.name].output.first(99))
    )
    for _ in range(2):
        answer = await visitor.call(ReadVisit(visit=visitor.name, user=USER))
        assert (answer.start, [part.data for part in answer.parts]) == (0, [b"got one\n"])
    visitor.sent = 4
    await visitor.write(b"two\n", eof=True)
    await visitor.finish()
    assert visitor.out == b"got one\ngot two\n"


async def test_who_is_not_who_began_it_is_not_let_in(pool, tmp_path):
    job, claim = await running(pool, tmp_path / "iwd")
    visitor = await visit(pool, job, claim, "/bin/cat")
    for name, user in ((visitor.name, "mallory@pool"), ("0" * 32, USER)):
        for message in (
            ReadVisit(visit=name, user=user),
            WriteVisit(visit=name, user=user, start=0, data=b"x"),
            SteerVisit(visit=name, user=user, leave=True),
        ):
            with pytest.raises(RemoteFailure) as refused:
                await visitor.call(message)
            assert refused.value.code == "not-found"
    await visitor.write(b"mine", eof=True)
    await visitor.finish()
    assert visitor.out == b"mine"


async def test_a_wrong_claim_or_attempt_opens_nothing(pool, tmp_path):
    job, claim = await running(pool, tmp_path / "iwd")
    for fields in ({"claim_id": "<x>#1#2#3"}, {"attempt": 2}, {"job_id": "9.9"}):
        asked = {"claim_id": claim.claim_id, "job_id": job.job_id, "attempt": 1, "user": USER, "wish": Wish(kind="run")}
        with pytest.raises(RemoteFailure) as refused:
            await pool.call(StartVisit(**asked | fields))
        assert refused.value.code == "not-found"


async def test_visits_are_counted_and_may_be_forbidden(tmp_path):
    async with Pool(tmp_path, ROOST_MAX_VISITS="1", ROOST_VISITS='TARGET.Owner == "alice"') as pool:
        job, claim = await running(pool, tmp_path / "iwd")
        await visit(pool, job, claim, "/bin/cat")
        with pytest.raises(RemoteFailure) as refused:
            await visit(pool, job, claim, "/bin/cat")
        assert (refused.value.code, refused.value.retryable) == ("busy", True)
    async with Pool(tmp_path / "other", ROOST_VISITS='TARGET.Owner == "bob"') as pool:
        job, claim = await running(pool, tmp_path / "iwd2")
        with pytest.raises(RemoteFailure) as refused:
            await visit(pool, job, claim, "/bin/cat")
        assert refused.value.code == "denied"


# ---------------------------------------------------------------- files


async def test_the_end_of_what_a_job_wrote(pool, tmp_path):
    text = "-c 'seq 1 1000; echo oops >&2; echo up > up; exec sleep 1000'"
    job, claim = await running(pool, tmp_path / "iwd", Arguments=text, Out="out", Err="err")
    wished = (
        ({"max_bytes": 9}, b"\n999\n1000\n"[-9:]),
        ({"stream": "stderr"}, b"oops\n"),
        ({"max_bytes": -1}, b"".join(b"%d\n" % n for n in range(1, 1001))),
    )
    for wish, wanted in wished:
        visitor = await visit(pool, job, claim, kind="tail", **wish)
        assert (await visitor.finish()).exit_code == 0
        assert visitor.out == wanted


async def test_a_file_is_followed_until_the_job_ends(pool, tmp_path):
    iwd = tmp_path / "iwd"
    wait = "while test ! -e {}; do sleep 0.05; done"
    lines = ("echo one", "echo up > up", wait.format("go"), "echo two", wait.format("end"), "echo three")
    text = f"-c '{'; '.join(lines)}'"
    job, claim = await running(pool, iwd, Arguments=text, Out="out")
    visitor = await visit(pool, job, claim, kind="tail", follow=True)
    await visitor.until(b"one\n")
    (iwd / "go").touch()
    await visitor.until(b"two\n")
    (iwd / "end").touch()
    assert (await visitor.finish()).exit_code == 0
    assert visitor.out == b"one\ntwo\nthree\n"


async def test_only_files_of_the_job_are_shown(pool, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret\n")
    lines = (
        "cd $_CONDOR_SCRATCH_DIR",
        f"ln -s {secret} link",
        f"ln -s {tmp_path} folder",
        "mkfifo pipe",
        "mkdir inner",
        "echo mine > inner/file",
        f"echo up > {tmp_path}/iwd/up",
        "exec sleep 1000",
    )
    job, claim = await running(pool, tmp_path / "iwd", Arguments=f"-c '{'; '.join(lines)}'")
    visitor = await visit(pool, job, claim, kind="tail", file="inner/file")
    assert (await visitor.finish()).exit_code == 0
    assert visitor.out == b"mine\n"
    bad = ("link", "folder/secret", "../../secret", str(secret), "inner/../../x", "pipe", "inner", ".", "none", "a\0b")
    for path in bad:
        visitor = await visit(pool, job, claim, kind="tail", file=path)
        assert (await visitor.finish()).exit_code not in (0, None), path
        assert b"roost: " in visitor.err, path
        assert b"secret\n" not in visitor.out


async def test_a_stream_that_goes_nowhere_is_told(pool, tmp_path):
    job, claim = await running(pool, tmp_path / "iwd")
    with pytest.raises(RemoteFailure, match="goes nowhere"):
        await visit(pool, job, claim, kind="tail")


async def test_a_visit_that_nobody_reads_is_ended(pool, tmp_path, monkeypatch):
    monkeypatch.setattr("services.startd.rpc.ssh_to_job.UNHEARD_S", 0.6)
    job, claim = await running(pool, tmp_path / "iwd")
    await visit(pool, job, claim, "/bin/cat")
    # The watch began with the old patience; a new one has the new.
    watching = asyncio.create_task(sessions_of(pool)._watch())
    await eventually(lambda: not sessions_of(pool).visits)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
