"""`roost submit -interactive` (TLS-14): the job it makes, how it waits, and what it says meanwhile."""

import subprocess

import pytest

from roost.cli import interactive
from roost.cli import interactive as cli
from roost.cli.interactive import state, wait_until_runs
from roost.cli.main import main
from roost.errors import ClientError
from roost.submit import Description, SubmitContext
from shared.classad import ClassAd
from shared.job_text import words_v2
from tests.spec import spec
from tests.waiting import PATIENCE_S

DOCKER = "universe = docker\ndocker_image = debian:12\nexecutable = x.py\narguments = a b\nrequest_cpus = 2\nqueue\n"


def job(tmp_path, text=interactive.INTERACTIVE_DESCRIPTION):
    place = SubmitContext(tmp_path, "job.sub", "alice", {}, "example.org")
    (cluster,) = Description(text, place, append=interactive.INTERACTIVE_COMMANDS, now=1e9).clusters()
    interactive.check_interactive([cluster])
    return ClassAd({**cluster.attributes, **cluster.procs[0]})


@spec("TLS-14")
@pytest.mark.parametrize("text", [interactive.INTERACTIVE_DESCRIPTION, DOCKER])
def test_the_job_says_that_it_is_interactive(tmp_path, text):
    """InteractiveJob = True, whatever the file runs otherwise."""
    ad = job(tmp_path, text)
    assert ad.eval("InteractiveJob") is True
    assert ad.eval("JobDescription") == "interactive job"
    assert (ad.eval("Cmd"), ad.eval("TransferExecutable")) == ("/bin/sh", False)
    if text is DOCKER:
        assert (ad.eval("WantDocker"), ad.eval("DockerImage"), ad.eval("RequestCpus")) == (True, "debian:12", 2)


def test_the_job_ends_with_the_shell(tmp_path):
    """The job and the shell as they are, in a directory whose name has a blank."""
    scratch = tmp_path / "scratch dir"
    scratch.mkdir()
    words = ["/bin/sh", *words_v2(str(job(tmp_path).eval("Arguments")))]
    environment = {"PATH": "/usr/bin:/bin", "_CONDOR_SCRATCH_DIR": str(scratch)}
    holder = subprocess.Popen(words, env=environment, cwd=tmp_path, stderr=subprocess.PIPE)
    shell = subprocess.Popen(
        interactive.shell(terminal=False), env=environment, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    shell.stdin.write(b"echo ready\n")
    shell.stdin.flush()
    assert shell.stdout.readline() == b"ready\n"
    assert (scratch / ".roost_interactive").read_text() == f"{shell.pid}\n"
    assert holder.poll() is None
    shell.kill()  # as when the visit is cut off: nobody can say good bye
    shell.communicate()
    assert holder.wait(PATIENCE_S) == 0
    assert holder.communicate()[1] == b""
    assert not list(scratch.iterdir()), "what it made would come home as output"


def test_only_one_job_is_interactive(capsys):
    assert main(["submit", "-interactive", "-pool", "127.0.0.1:1", "-queue", "2"]) == 1
    assert "for one job, and the file queues 2" in capsys.readouterr().err
    assert main(["submit", "-idle", "3"]) == 1
    assert "belongs to -interactive" in capsys.readouterr().err
    assert main(["submit", "-interactive", "-"]) == 1
    assert "standard input for the shell" in capsys.readouterr().err


@spec("TLS-14")
def test_the_pools_own_file_is_taken(tmp_path, monkeypatch, capsys):
    """INTERACTIVE_SUBMIT_FILE."""
    (tmp_path / "own.sub").write_text("request_memory = 4321\n+Site = 1\nqueue\n")
    (tmp_path / "config").write_text(f"INTERACTIVE_SUBMIT_FILE = {tmp_path}/own.sub\n")
    monkeypatch.setenv("CONDOR_CONFIG", str(tmp_path / "config"))
    monkeypatch.delenv("ROOST_CONFIG", raising=False)
    assert main(["submit", "-interactive", "-dry-run", "-"]) == 0
    said = capsys.readouterr().out
    assert "RequestMemory=4321\n" in said
    assert "Site=1\n" in said
    assert "InteractiveJob=true\n" in said


class Pool:
    """A job that waits for a while, and then runs."""

    def __init__(self, *statuses, verdict="no slot has so much memory"):
        self.statuses = list(statuses)
        self.verdict = verdict
        self.now = 0.0

    def jobs(self, job_id, *, projection, schedd):
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        yield ClassAd({"JobStatus": status, "RemoteHost": "slot1_1@node1", "HoldReason": "no image"})

    def analysis(self, job_id, *, schedd, limit):
        return {"jobs": [{"verdict": self.verdict}]}

    def sleep(self, seconds):
        self.now += seconds

    def run(self):
        told = []
        where = wait_until_runs(self, "12.0", "ap", told.append, clock=lambda: self.now, sleep=self.sleep)
        return where, told


def test_it_waits_and_says_why_once():
    assert Pool(2).run() == ("slot1_1@node1", ["Waiting for job to start..."])
    pool = Pool(*[1] * 60, 2)
    where, told = pool.run()
    assert where == "slot1_1@node1"
    assert told == ["Waiting for job to start...", "Job 12.0 waits: no slot has so much memory"]
    assert pool.now > 60


def test_a_job_that_never_will_run_is_no_reason_to_wait():
    with pytest.raises(ClientError, match="put on hold: no image"):
        Pool(1, 1, 5).run()
    with pytest.raises(ClientError, match="left the queue"):
        Pool(1, 3).run()
    with pytest.raises(ClientError, match="left the queue"):
        state(None, "12.0")


def test_a_shell_is_asked_for_until_the_execution_point_has_heard_of_the_job(monkeypatch):
    """The schedd calls a job running from the moment its slot is asked for: with containers that is seconds early."""
    answers = [ClientError("job 7.0 does not run here", "not-found"), ClientError("not now", "conflict"), 7]
    status = 2

    def attach(*_, **__):
        answer = answers.pop(0)
        if isinstance(answer, ClientError):
            raise answer
        return answer

    class Queue:
        def jobs(self, *_, **__):
            return [ClassAd({"JobStatus": status})]

    monkeypatch.setattr(cli, "attach", attach)
    monkeypatch.setattr(cli.time, "sleep", lambda _: None)
    assert cli._visit(Queue(), "7.0", "", lambda: None, terminal=False) == 7
    answers[:], status = [ClientError("job 7.0 does not run here", "not-found")], 3
    with pytest.raises(ClientError, match="has left the queue"):
        cli._visit(Queue(), "7.0", "", lambda: None, terminal=False)
