"""The command in a real terminal: what it tells, with which exit code, and what narrow ones show."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios

import pytest

from tests import warm
from tests.integration.pools import ROOT, EmbeddedPool

pytestmark = [pytest.mark.xdist_group("terminal"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    pool = EmbeddedPool(tmp_path_factory.mktemp("terminal") / "pool")
    try:
        pool.start("-cpus", "1", "-memory", "1024")
        file = pool.directory / "held.sub"
        file.write_text("executable = /bin/true\nhold = true\nbatch_name = nightly\nqueue 30\n")
        pool.submit(file)
        file.write_text("executable = /bin/true\nrequest_memory = 99999999\nqueue\n")
        pool.submit(file)
        yield pool
    finally:
        pool.close()


def typed(pool, *words, columns=80, cwd=None, **environment):
    """(exit code, what the terminal shows) of `roost ...` in a terminal of so many columns."""
    return in_terminal(pool, [warm.programs() / "roost", *words], columns, cwd, environment)


def in_terminal(pool, program, columns, cwd=None, environment=None):
    """The same of any program."""
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(cwd or pool.directory)
        os.execve(program[0], program, {**pool.environment(), "TERM": "xterm", **(environment or {})})
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    shown = b""
    try:
        while data := os.read(master, 65536):
            shown += data
    except OSError:
        pass  # Linux: the other end has closed it
    os.close(master)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), shown.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("q 99", "there is no job 99 in the queue; `roost history 99`"),
        ("q -nobatch 1.0 99.3", "there is no job 99.3 in the queue"),
        ("history 99", "there is no such job in the history: 99"),
        ("rm 99.0", "not in the queue; `roost history` tells"),
        ("status nosuch", "nothing in the pool is named nosuch"),
        ("config-val NUM_CPU", "Did you mean NUM_CPUS?"),
        ("explain -user nobody", "the journal knows no submitter nobody"),
    ],
)
def test_what_is_not_there_is_told_with_exit_code_1(pool, words, says):
    code, shown = typed(pool, *words.split())
    assert (code, says in shown) == (1, True), shown


def test_a_machine_named_almost_right_is_guessed(pool):
    with pool.client() as client:
        name = str(next(iter(client.ads("Machine", projection=["Machine"]))).eval("Machine"))
    code, shown = typed(pool, "status", f"{name}x")
    assert code == 1
    assert f"did you mean {name}?" in shown.replace("\n", "")


def test_htcondors_names_keep_their_exit_codes(pool):
    for words in (("condor_q", "99"), ("condor_history", "99"), ("condor_status", "nosuch")):
        code, shown = typed(pool, *words)
        assert code == 0, shown
        assert "there is no" not in shown
    assert "EXIT" not in typed(pool, "condor_history")[1]
    assert "EXIT" in typed(pool, "history")[1]


@pytest.mark.parametrize(
    ("columns", "there", "gone"),
    [
        (200, ("OWNER", "BATCH_NAME", "SUBMITTED", "HOLD", "TOTAL", "JOB_IDS"), ()),
        (80, ("OWNER", "BATCH_NAME", "SUBMITTED", "HOLD", "TOTAL", "JOB_IDS"), ()),
        (70, ("OWNER", "BATCH_NAME", "HOLD", "TOTAL", "JOB_IDS"), ("SUBMITTED",)),
        (60, ("OWNER", "HOLD", "TOTAL", "JOB_IDS"), ("SUBMITTED", "BATCH_NAME")),
    ],
)
def test_narrow_terminals_keep_the_counts(pool, columns, there, gone):
    # The size is set before the command asks for it, as COLUMNS tells it too.
    shown = typed(pool, "q", columns=columns, COLUMNS=str(columns))[1]
    heading = next(line for line in shown.splitlines() if "OWNER" in line)
    assert [name for name in there if name not in heading] == []
    assert [name for name in gone if name in heading] == []
    assert len(heading) <= columns


def test_orders_on_many_jobs_are_told_in_a_line(pool):
    code, shown = typed(pool, "hold", "1")
    assert (code, shown) == (0, "30 jobs of cluster 1: already so (1.0, 1.1, 1.2, ...)\n")
    assert len(typed(pool, "hold", "-verbose", "1")[1].splitlines()) == 30


def test_a_job_that_nothing_can_run_is_told_of_at_once(pool, tmp_path):
    (tmp_path / "large.sub").write_text("executable = /bin/true\nrequest_memory = 99999999\nqueue\n")
    code, shown = typed(pool, "submit", "large.sub", cwd=tmp_path)
    assert code == 0
    assert re.search(r"WARNING: job \d+\.0 waits: No slot satisfies its Requirements: RequestMemory is 99999999", shown)
    (tmp_path / "fits.sub").write_text("executable = /bin/true\nrequest_memory = 64\nqueue\n")
    assert "WARNING" not in typed(pool, "submit", "fits.sub", cwd=tmp_path)[1]


def test_files_that_would_have_jobs_held_are_told_of_at_submit(pool, tmp_path):
    (tmp_path / "script.sh").write_text("#!/bin/sh\n")
    (tmp_path / "x.sub").write_text("executable = script.sh\noutput = logs/out\nhold = true\nqueue\n")
    code, shown = typed(pool, "submit", "x.sub", cwd=tmp_path)
    assert code == 0
    assert f"chmod +x {tmp_path}/script.sh" in shown
    assert f"mkdir -p {tmp_path}/logs" in shown


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("executabel = /bin/true\nqueue\n", "write executable, not executabel"),
        ("executable = /bin/true\nrequest_memmory = 3GB\nqueue\n", "did you mean request_memory?"),
    ],
)
def test_words_that_are_almost_right_are_guessed(pool, tmp_path, text, says):
    (tmp_path / "a.sub").write_text(text)
    code, shown = typed(pool, "submit", "a.sub", cwd=tmp_path)
    assert (code, says in shown) == (1, True), shown


def test_no_color_is_obeyed(pool):
    assert "\x1b[" in typed(pool, "analyze", "1.0")[1]
    assert "\x1b[" not in typed(pool, "analyze", "1.0", NO_COLOR="1")[1]


#: Commands in HTCondor's layouts, which keep their widths, with words of their headings.
HTCONDORS = {
    "q": ("OWNER", "HOLD", "TOTAL"),
    "q -nobatch": ("ID", "OWNER", "RUN_TIME"),
    "q -hold": ("ID", "HOLD_REASON"),
    "history": ("ID", "OWNER"),
    "status": ("Name", "State", "Activity"),
    "status -schedd": ("Name", "TotalIdleJobs"),
    "status -submitters": ("Name", "IdleJobs"),
    "status -negotiator": ("Name",),
    "status -total": ("Owner", "Claimed"),
    "userprio -all": ("Priority",),
    "userprio -quotas": ("Quota",),
}
#: Commands of our own, which fit in, with words that narrow terminals show, too.
OURS = {
    "had": ("leads",),
    "pools": ("Pool", "Cpus", "Held"),
    "token list": ("ID", "USER", "LEVEL"),
    "top -once": ("USER", "RUNNING", "COMMAND"),
    "upgrade -check": ("messages",),
    "q -hold-codes": ("CODE",),
    "dead-letters": ("no dead letters",),
    "negotiate": ("SUBMITTER", "MATCHED", "NOTHING FOR", "BECAUSE"),
    "doctor -pool-only": ("warning",),
    "stats": (),  # a pool so young may have no point yet
    "analyze 2.0": ("What would help", "condition", "RequestMemory"),
    "explain 2.0": ("submitted by", "Seconds, hour by hour", "waited"),
}
ENDS_WITH_1 = {"doctor -pool-only"}  # something is wrong
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MANY = """
import sys
from roost.cli.main import main
for line in sys.argv[1:]:
    print("=====", line, flush=True)
    code = main(line.split())
    sys.stderr.flush()
    print("----- ended with", code, flush=True)
"""


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_tables_in_terminals_of_all_widths(pool, columns):
    """One process for all commands, as each takes longer to begin than to answer."""
    tables = {**HTCONDORS, **OURS}
    program = [sys.executable, "-c", MANY, *tables]
    code, shown = in_terminal(pool, program, columns, environment={"COLUMNS": str(columns), "PYTHONPATH": str(ROOT)})
    assert code == 0, shown
    told = dict(part.split("\n", 1) for part in shown.split("===== ")[1:])
    assert told.keys() == tables.keys()
    for command, headings in tables.items():
        assert f"ended with {int(command in ENDS_WITH_1)}" in told[command], told[command]
        assert [word for word in headings if word not in told[command]] == [], told[command]
    for command in OURS:
        # A file's path or a page of the documents is one word, which is not broken.
        lines = [
            line for line in COLOUR.sub("", told[command]).splitlines() if "docs/" not in line and ": /" not in line
        ]
        assert [line for line in lines if len(line) > columns] == [], command


BAR = """
from concurrent.futures import as_completed
from statistics import median
from roost import Pool
from tqdm import tqdm

with Pool() as pool:
    futures = [pool.submit(median, [n, n + 1]) for n in range(3)]
    print(sum(future.result() for future in tqdm(as_completed(futures), total=len(futures))))
"""


def test_a_progress_bar_follows_the_calls_of_an_executor(pool, clients):
    path = os.pathsep.join(map(str, (ROOT, clients)))
    code, shown = in_terminal(pool, [sys.executable, "-c", BAR], 80, environment={"PYTHONPATH": path})
    assert code == 0, shown
    steps = re.findall(r"(\d+)%\|[^|]*\| (\d)/3 \[", shown)
    assert steps[0] == ("0", "0"), shown
    assert steps[-1] == ("100", "3")
    assert shown.endswith("4.5\n")
