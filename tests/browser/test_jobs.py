"""The job page and what failed, in a real Chromium: output as it is written, what would help, failures in red, another
try of a job that failed; and who may not see the output."""

import re

import pytest
from playwright.sync_api import expect

from tests.integration.pools import EmbeddedPool
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(300)]

WRITES = """
executable = /bin/sh
arguments = "-c 'for i in 1 2 3 4 5; do echo line $i; done; echo oops >&2; while [ ! -e {go} ]; do sleep 0.2; done; \
echo after; sleep 3000'"
output = writes.out
error = writes.err
log = writes.log
request_memory = 64
request_cpus = 1
queue 1
"""
FAILS = """
executable = /bin/sh
arguments = "-c '[ -e {mended} ] || exit 3'"
request_memory = 64
request_cpus = 0
queue 1
"""
NEVER = "executable = /bin/true\nrequest_memory = 999999999\nqueue 1\n"
HELD = "executable = /bin/true\nhold = true\nqueue 3\n"
SPOOLED = """
executable = /bin/sh
arguments = "-c 'echo brought back'"
output = spooled.out
request_memory = 64
request_cpus = 0
queue 1
"""


class JobsPool(EmbeddedPool):
    """Clusters 1 (runs and writes), 2 (failed), 3 (never runs), 4 (three held alike), 5 (spooled, done)."""

    url = token = ""

    def fill(self) -> None:
        texts = [WRITES.format(go=self.directory / "go"), FAILS.format(mended=self.directory / "mended"), NEVER, HELD]
        for number, text in enumerate(texts):
            file = self.directory / f"{number}.sub"
            file.write_text(text)
            self.submit(file)
        file = self.directory / "spooled.sub"
        file.write_text(SPOOLED)
        self.roost("submit", "-spool", str(file))
        with self.client() as client:
            self.url, self.token = client.url, (self.directory / "token").read_text().strip()
            wait_until(lambda: client.job("1.0").status == "running", 90, "the job that writes")
            wait_until(lambda: client.job("2.0").status == "completed", 90, "the job that fails")
            wait_until(lambda: client.job("5.0").status == "completed", 90, "the spooled job")


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    made = JobsPool(tmp_path_factory.mktemp("pool"))
    (made.directory / "config").write_text("NUM_CPUS = 2\nMEMORY = 2048\n")
    try:
        made.start()
        made.fill()
        yield made
    finally:
        made.roost("rm", "-all", ok=False)
        made.close()


def test_output_comes_as_it_is_written(visit, pool):
    visitor = visit()
    page = visitor.go("job/1.0")
    output = page.get_by_role("region", name="Output", exact=True)
    text = page.get_by_role("region", name="Standard output")
    expect(text).to_contain_text("line 5")
    (pool.directory / "go").touch()
    expect(text).to_contain_text("after")
    output.get_by_label("Only lines with").fill("LINE 4")
    expect(text).to_have_text("line 4")
    expect(output.get_by_role("status")).to_contain_text("1 of")
    output.get_by_label("Wrap lines").uncheck()
    assert visitor.accessibility() == []
    with page.expect_download() as saved:
        output.get_by_role("button", name="Download").click()
    assert saved.value.suggested_filename == "1.0.out"
    assert "line 1\n" in saved.value.path().read_text()
    output.get_by_role("button", name="Standard error").click()
    expect(page.get_by_role("region", name="Standard error")).to_have_text(re.compile("^oops"))
    output.get_by_role("button", name="Log").click()
    expect(page.get_by_role("region", name="Log", exact=True)).to_contain_text("Job executing on host")
    visitor.picture("job-output", whole=True)


def test_a_shell_beside_a_running_job(visit):
    """As `roost exec`: in the job's directory; what is typed is shown, and Close or exit ends it."""
    visitor = visit(anew=True)
    page = visitor.go("job/1.0")
    shell = page.get_by_role("region", name="Shell", exact=True)
    shell.get_by_role("button", name="Open a shell").click()
    expect(shell.get_by_role("status").filter(has_text="Ctrl F6")).to_be_visible()
    screen = shell.locator(".xterm-rows")
    page.keyboard.type(
        "echo $((6 * 7))-$(basename $_CONDOR_SCRATCH_DIR | cut -c1-3); printf '\\033[38;2;200;30;30mred\\n'\n"
    )
    expect(screen).to_contain_text("42-dir")
    expect(screen.locator("span[style*=color]").filter(has_text="red").last).to_be_visible()
    page.keyboard.type("printf '\\303\\250\\n'\n")
    expect(screen).to_contain_text("\u00e8")
    assert visitor.accessibility() == []
    with visitor.in_colours("dark"):
        expect(shell.locator(".xterm-scrollable-element")).to_have_css("background-color", "rgb(15, 20, 25)")
        assert visitor.contrast() == []
        visitor.picture("job-shell", whole=True)
    with visitor.in_size("phone"):
        assert visitor.too_wide() <= 0
    page.keyboard.press("Control+F6")
    expect(shell.get_by_role("button", name="Close the shell")).to_be_focused()
    shell.get_by_label("Terminal input").focus()
    page.keyboard.type("exit 3\n")
    expect(shell.get_by_role("status").filter(has_text="exit code 3")).to_be_visible()
    shell.get_by_role("button", name="Close the shell").click()
    expect(shell.get_by_role("button", name="Open a shell")).to_be_visible()
    visitor.go("job/2.0")
    expect(page.get_by_role("region", name="Output", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Open a shell")).to_have_count(0)  # it does not run


def test_output_is_for_the_owner_and_administrators_only(visit, pool):
    said = pool.roost("token", "create", "eve@elsewhere", "-level", "WRITE").stdout
    stranger = re.findall(r"[\w-]{40,}", said)[-1]
    visitor = visit(token=stranger)
    visitor.expected = True  # the console tells of the refusal
    page = visitor.go("job/1.0")
    expect(page.get_by_role("region", name="Output", exact=True).get_by_role("alert")).to_contain_text("belongs to")
    expect(page.get_by_role("main")).not_to_contain_text("line 5")
    page.get_by_role("button", name="Open a shell").click()
    expect(page.get_by_role("region", name="Shell", exact=True).get_by_role("alert")).to_contain_text("belongs to")


def test_what_a_spooled_job_brought_back(visit, pool):
    page = visit().go("job/5.0")
    expect(page.get_by_role("region", name="Standard output")).to_contain_text("brought back")
    # It stays in the queue for that: the page says so, and how it goes.
    expect(page.get_by_role("region", name="How it runs")).to_contain_text("roost transfer-data 5.0")
    expect(page.get_by_role("button", name="Remove")).to_be_visible()


def test_what_would_help_is_told(visit, pool):
    visitor = visit()
    page = visitor.go("job/3.0")
    why = page.get_by_role("region", name="Why it waits")
    expect(why).to_contain_text("No slot satisfies its Requirements: RequestMemory is 999999999")
    expect(why.get_by_role("listitem")).to_have_text("+1 slot: RequestMemory = 2048 (it is 999999999)")
    with visitor.in_size("phone"):  # nothing of the conditions is cut off, or to be scrolled for
        conditions = page.get_by_role("region", name="Requirements, part by part")
        assert conditions.evaluate("part => part.scrollWidth - part.clientWidth") <= 0
        expect(conditions.get_by_role("row").filter(has_text="TARGET.Memory")).to_contain_text("0")


def test_failures_are_red_counted_and_run_again(visit, pool):
    visitor = visit()
    page = visitor.go("")
    failed = page.get_by_role("region", name="Failed jobs")
    expect(failed).to_contain_text("1")
    expect(page.get_by_role("region", name="Why jobs are held")).to_contain_text("3")
    failed.get_by_role("link").click()
    expect(page.get_by_role("row").filter(has_text="Failed")).to_have_count(1)
    page.get_by_role("link", name="2.0").click()
    expect(page.get_by_role("main")).to_contain_text("It failed: exit code 3")
    assert page.locator(".badge .s-Failed").count() >= 2
    # The link to the list leads to where the job is.
    expect(page.get_by_role("link", name="Jobs").last).to_have_attribute("href", re.compile("history=true"))
    assert visitor.accessibility() == []
    with visitor.in_colours("dark"):
        assert visitor.contrast() == []
    with visitor.in_size("phone"):
        assert visitor.too_wide() <= 0
    (pool.directory / "mended").touch()
    page.get_by_role("button", name="Run again").click()
    page.get_by_role("dialog").get_by_role("button", name="Run again").click()
    expect(page.get_by_role("main")).to_contain_text("another try of 2.0")
    again = page.get_by_role("heading", level=1).inner_text().removeprefix("Job ")
    with pool.client() as client:
        wait_until(lambda: client.job(again).status == "completed", 60, "the other try")
        assert client.job(again).ad.eval("ExitCode") == 0
    said = pool.roost("history", "-failed").stdout
    assert [line.split()[0] for line in said.splitlines()[1:]] == ["2.0"]
    assert said.split()[6:9] == ["EXIT", "CMD", "2.0"]


def test_a_dag_is_drawn_with_the_states_of_its_nodes(visit, pool):
    place = pool.directory / "dag"
    place.mkdir()
    for name, command in (("true", "/bin/true"), ("sleep", "/bin/sleep")):
        text = f"executable = {command}\narguments = 3000\nrequest_memory = 64\nrequest_cpus = 0\nqueue\n"
        (place / f"{name}.sub").write_text(text)
    (place / "d.dag").write_text(
        "JOB A true.sub\nJOB B sleep.sub\nJOB C true.sub\nPARENT A CHILD B\nPARENT B CHILD C\n"
    )
    number = pool.roost("submit-dag", "d.dag", cwd=place).stdout.split("cluster ")[1].split(".")[0]
    visitor = visit()
    page = visitor.go(f"job/{number}.0")
    dag = page.get_by_role("region", name="DAG", exact=True)
    expect(dag.get_by_role("link", name="B: running")).to_be_visible(timeout=60_000)
    expect(dag.get_by_role("link", name="A: done")).to_be_visible()
    expect(dag.get_by_role("img", name="C: waits for its parents")).to_be_visible()
    expect(dag).to_contain_text("3 nodes")
    expect(dag).to_contain_text("longest way that is left: 2 nodes")
    assert dag.locator("path.edge").count() == 2
    assert visitor.accessibility() == []
    with visitor.in_size("phone"):
        assert visitor.too_wide() <= 0
    dag.get_by_role("link", name="B: running").click()
    page.get_by_role("link", name=f"{number}.0").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Job {number}.0")
    pool.roost("rm", number)  # its node's room is for the jobs of others
