"""`roost exec` and `roost tail` as a user has them: at a terminal, in a pipe, and who may not."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from roost.client import Client
from roost.errors import ClientError
from tests.integration.pools import ROOT, EmbeddedPool
from tests.spec import spec
from tests.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("visit-commands")]
JOB = """executable = job.sh
environment = "WHO=job"
should_transfer_files = yes
output = out
error = err
queue
"""
SCRIPT = """#!/bin/sh
echo line one
echo oops >&2
echo mine > file
echo up > up
while test ! -e {go}; do sleep 0.05; done
echo line two
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    pool = EmbeddedPool(tmp_path_factory.mktemp("visits") / "pool")
    try:
        pool.start("-cpus", "4", "-memory", "4096")
        yield pool
    finally:
        pool.close()


def running(pool, directory):
    """A job that runs until the file `go` is in the directory: its id."""
    (directory / "job.sub").write_text(JOB)
    (directory / "job.sh").write_text(SCRIPT.format(go=directory / "go"))
    (directory / "job.sh").chmod(0o755)
    job = f"{pool.submit(directory / 'job.sub')}.0"
    wait_until(lambda: "2" in pool.roost("q", job, "-af", "JobStatus").stdout, what="the job to run")
    wait_until(lambda: "up" in pool.roost("exec", job, "--", "cat", "up", ok=False).stdout, what="its file")
    return job


@pytest.fixture(scope="module")
def job(pool, tmp_path_factory):
    return running(pool, tmp_path_factory.mktemp("job"))


def command(pool, *words):
    return [sys.executable, "-m", "roost", *words], {"env": pool.environment(), "cwd": ROOT}


def test_output_errors_input_and_status_come_through(pool, job):
    words, how = command(pool, "exec", job, "--", "/bin/sh", "-c", "pwd; echo $WHO; cat; echo bad >&2; exit 6")
    done = subprocess.run(words, input=b"typed\n" * 1000, capture_output=True, timeout=PATIENCE_S, check=False, **how)
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 6, done.stderr
    assert lines[0].startswith(str(pool.directory / "execute" / "dir_"))
    assert lines[1] == "job"
    assert lines[2:] == ["typed"] * 1000
    assert done.stderr == b"bad\n"


def test_a_pipe_of_megabytes_is_whole(pool, job):
    data = os.urandom(3_000_000)
    words, how = command(pool, "exec", "-no-tty", job, "cat")
    done = subprocess.run(words, input=data, capture_output=True, timeout=PATIENCE_S, check=False, **how)
    assert (done.returncode, done.stdout == data) == (0, True), done.stderr


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, words, rows, columns, **how):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(how["cwd"])
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
                os.execve(words[0], words, how["env"])
            finally:
                os._exit(99)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, data):
        os.write(self.fd, data)

    def read(self, seconds):
        """What there is, or comes within so long."""
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.fd, 65536)
            except OSError as error:
                raise AssertionError(f"it ended: {self.seen!r}") from error

    def until(self, words):
        end = time.monotonic() + PATIENCE_S
        while words not in self.seen:
            assert time.monotonic() < end, self.seen
            self.read(0.5)

    def again(self, typed, words):
        """Type it every half second until the words are seen."""
        end = time.monotonic() + PATIENCE_S
        while words not in self.seen:
            assert time.monotonic() < end, self.seen
            self.type(typed)
            self.read(0.5)

    def status(self):
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    break
        found = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.fd)
        return found


def test_a_shell_at_a_terminal(pool, job):
    """Its size is right from the first moment, follows the window, and Ctrl-C is the program's."""
    words, how = command(pool, "exec", job, "/bin/sh", "-c", "stty size; PS1='>>>' exec /bin/sh")
    terminal = Terminal(words, 37, 119, **how)
    terminal.until(b"37 119\r\n")
    terminal.type(b"sleep 1000\r")
    terminal.until(b"sleep 1000")
    terminal.resize(20, 60)
    terminal.seen = b""
    terminal.type(b"\x03")
    terminal.until(b">>>")  # what is typed before may be lost: the terminal throws it away
    terminal.again(b"stty size\r", b"20 60")
    terminal.type(b"exit 4\r")
    assert terminal.status() == 4, terminal.seen


def test_signals_go_where_the_program_is(pool, job):
    words, how = command(
        pool, "exec", job, "--", "/bin/sh", "-c", "trap 'echo got; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    )
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **how)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 3
    assert process.stdout.read() == b"got\n"
    process.stdout.close()


def test_what_a_job_wrote_is_shown_and_followed(pool, tmp_path):
    job = running(pool, tmp_path)
    assert pool.roost("tail", job).stdout == "line one\n"
    assert pool.roost("tail", job, "-stderr").stdout == "oops\n"
    assert pool.roost("tail", job, "file").stdout == "mine\n"
    assert pool.roost("tail", job, "-maxbytes", "4").stdout == "one\n"
    words, how = command(pool, "tail", "-f", job)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, **how)
    assert process.stdout.readline() == b"line one\n"
    (tmp_path / "go").touch()
    assert process.stdout.read() == b"line two\n"
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 0


def test_what_is_wrong_is_told_in_a_line(pool, job):
    for words, told in (
        (("exec", "999999.0", "true"), "is not in the queue"),
        (("exec",), "name one"),
        (("exec", "-tty", job, "true"), "-tty wants a terminal"),
        (("tail", job, "/etc/passwd"), "does not lie in the job's directory"),
        (("tail", job, "a", "b"), "one file"),
        (("tail", job, "-stdout", "file"), "one at a time"),
    ):
        done = pool.roost(*words, ok=False)
        assert done.returncode == 1, (words, done)
        assert told in done.stderr
        assert "Traceback" not in done.stderr
    done = pool.roost("exec", job, "/no/such", ok=False)
    assert (done.returncode, done.stderr) == (127, "roost: /no/such: No such file or directory\n")


def test_only_the_owner_and_administrators_are_let_in(pool, job, monkeypatch):
    monkeypatch.setenv("ROOST_POOL_DIR", str(pool.directory))
    with Client() as client:
        url = client.url
        token = client.create_token("mallory@pool", "WRITE")
        reader = client.create_token("mallory@pool", "READ")
        name = client.visit(job, {"kind": "run", "command": ["sleep", "1000"]})
    for other, code in ((token, "denied"), (reader, "denied")):
        with Client(url, other) as client, pytest.raises(ClientError) as refused:
            client.visit(job, {"kind": "run", "command": ["id"]})
        assert refused.value.code == code
    # Knowing the name of another's visit is not enough.
    with Client(url, token) as client, pytest.raises(ClientError) as refused:
        client.visit_steer(name.name, leave=True)
    assert refused.value.code == "not-found"
    name.close()


@spec("TLS-14")
def test_an_interactive_job_is_a_shell_and_ends_with_it(pool):
    """At a terminal, with the job's environment."""
    words, how = command(pool, "submit", "-interactive", "request_memory=64")
    terminal = Terminal(words, 40, 100, **how)
    terminal.until(b"Welcome to slot")

    def asked():  # what is typed before the shell reads may be lost
        terminal.type(b"echo in ${_CONDOR_SCRATCH_DIR##*/}; stty size\r")
        terminal.read(1.0)
        return b"in dir_" in terminal.seen and b"\n40 100" in terminal.seen

    wait_until(asked, what="the shell")
    terminal.type(b"exit 5\r")
    assert terminal.status() == 5, terminal.seen
    cluster = int(terminal.seen.split(b"submitted to cluster ")[1].split(b".")[0])
    pool.wait_for_rest(cluster, 1)
    assert pool.final(cluster) == {0: (4, 0, None)}
    assert pool.roost("history", str(cluster), "-af", "InteractiveJob").stdout == "true\n"


@spec("TLS-14")
def test_an_interactive_job_does_not_outlive_its_terminal(pool):
    """While it runs, and while it waits; of the latter the reason is told."""
    words, how = command(pool, "submit", "-interactive")
    terminal = Terminal(words, 40, 100, **how)
    terminal.until(b"Welcome to slot")
    os.close(terminal.fd)  # it hangs up
    os.waitpid(terminal.pid, 0)
    cluster = int(terminal.seen.split(b"submitted to cluster ")[1].split(b".")[0])
    pool.wait_for_rest(cluster, 1)
    process = subprocess.Popen(
        [*words, "requirements=TARGET.Nowhere"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **how
    )
    said = b""
    while b"waits: " not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    process.stderr.close()
    cluster = int(said.split(b"submitted to cluster ")[1].split(b".")[0])
    assert {status for status, _, _ in pool.final(cluster).values()} == {3}


@spec("TLS-14")
def test_a_session_that_nobody_uses_ends(pool):
    words, how = command(pool, "submit", "-interactive", "-idle", "1")
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, **how)
    said = process.stderr.read()
    assert process.wait(PATIENCE_S) == 128 + signal.SIGHUP, said
    process.stdin.close()
    process.stderr.close()
    assert b"logged out" in said


def test_top_is_clicked_through_at_a_terminal(pool, tmp_path):
    """A real screen: it shows the job, asks before it holds it, obeys, follows the window, and ends."""
    job = running(pool, tmp_path)
    environment = pool.environment() | {"TERM": "xterm"}
    words, how = command(pool, "top", "-interval", "0.5", "-status", "running")
    terminal = Terminal(words, 30, 120, **(how | {"env": environment}))
    terminal.until(b"leads (epoch")
    terminal.until(job.encode())
    terminal.type(b"\x1bOB")  # arrow down, as xterm sends it to a program of the whole screen
    terminal.until(b"> ")
    terminal.type(b"h")
    terminal.until(f"hold job {job}?".encode())
    terminal.type(b"n")
    terminal.until(b"Nothing was done.")
    assert pool.roost("q", job, "-af", "JobStatus").stdout == "2\n"
    once = pool.roost("top").stdout
    assert "leads (epoch" in once
    assert f" {job} " in once
    terminal.resize(20, 60)
    terminal.type(b"hy")
    wait_until(lambda: pool.roost("q", job, "-af", "JobStatus").stdout == "5\n", what="the job on hold")
    terminal.type(b"q")
    assert terminal.status() == 0, terminal.seen
    assert '"utilisation"' in pool.roost("top", "-once", "-json").stdout
