"""The dashboard on a personal pool with running, waiting and held jobs: every page, by mouse and by keyboard, on a
desktop and on a phone, in light and in dark."""

import csv
import re

import pytest
from playwright.sync_api import expect

from roost.client import Client
from tests.integration.pools import EmbeddedPool
from tests.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(300)]

CONFIG = """
NUM_CPUS = 6
MEMORY = 6144
GROUP_NAMES = physics, physics.atlas, biology
GROUP_QUOTA_physics = 4
GROUP_QUOTA_physics.atlas = 2
GROUP_QUOTA_biology = 2
GROUP_ACCEPT_SURPLUS = true
NEGOTIATOR_INTERVAL = 5
POOL_HISTORY_SAMPLING_INTERVAL = 2
"""
SUBMIT = """
executable = /bin/sleep
arguments = 3000
accounting_group = {group}
accounting_group_user = {user}
request_cpus = 1
request_memory = 64
{more}
queue {count}
"""
PAGES = {
    "overview": "",
    "machines": "machines",
    "slots": "machines?by=slot",
    "map": "machines?by=map",
    "map of load": "machines?by=map&colour=load",
    "machine": "machine/{machine}",
    "jobs": "jobs",
    "batches": "jobs?by=batch",
    "history": "jobs?history=true",
    "running job": "job/1.0",
    "waiting job": "job/2.5",
    "held job": "job/3.0",
    "ended job": "job/4.0",
    "shares": "shares",
    "groups": "groups",
    "negotiation": "negotiation",
    "availability": "availability",
    "daemons": "daemons",
    "events": "events",
    "letters": "letters",
    "pools": "pools",
    "jobs, other columns": "jobs?columns=Status.Batch.Priority.Schedd&order=memory&rows=200",
    "api": "api",
    "how to": "how-to",
    "answer": "how-to/empty-a-machine-for-a-kernel-update",
    "nowhere": "nowhere",
}


class BusyPool(EmbeddedPool):
    """6 cpus: clusters 1 (runs), 2 (some wait), 3 (held), 4 (ended)."""

    url = token = machine = ""

    def fill(self) -> None:
        jobs = [("physics.atlas", "ann", 2, ""), ("biology", "ben", 6, ""), ("physics", "cleo", 1, "hold = true")]
        for number, (group, user, count, more) in enumerate(jobs):
            file = self.directory / f"{number}.sub"
            file.write_text(SUBMIT.format(group=group, user=user, count=count, more=more))
            self.submit(file)
        ended = self.directory / "ended.sub"
        ended.write_text("executable = /bin/true\nrequest_memory = 64\nrequest_cpus = 0\nqueue 1\n")
        cluster = self.submit(ended)
        with self.client() as client:
            self.url, self.token = client.url, (self.directory / "token").read_text().strip()
            self.machine = str(next(iter(client.ads("Machine", projection=["Machine"]))).eval("Machine"))
            wait_until(lambda: _running(client) >= 6, 90, "six running jobs")
        self.roost("rm", str(cluster), ok=False)  # it may have ended by itself
        self.wait_for_rest(cluster, 1)

    def token_of(self, level: str) -> str:
        said = self.roost("token", "create", f"{level.lower()}@pool", "-level", level).stdout
        return re.findall(r"[\w-]{40,}", said)[-1]


def _running(client: Client) -> int:
    return sum(1 for ad in client.jobs(projection=["JobStatus"]) if ad.eval("JobStatus") == 2)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    made = BusyPool(tmp_path_factory.mktemp("pool"))
    (made.directory / "config").write_text(CONFIG)
    try:
        made.start()
        made.fill()
        yield made
    finally:
        made.roost("rm", "-all", ok=False)
        made.close()


@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_every_page_is_clean(visit, pool, size):
    """No console errors, no failed requests, nothing that axe finds in light and dark, nothing to scroll sideways."""
    visitor = visit(size)
    found = []
    for name, path in PAGES.items():
        visitor.go(path.format(machine=pool.machine))
        # Colours are the same in all sizes, and dear to look at.
        found += [f"{name}: {one}" for one in visitor.accessibility(colours=size == "desktop")]
        wide = visitor.too_wide()
        found += [f"{name}: {wide} pixels too wide"] if wide > 0 else []
        visitor.picture(name.replace(" ", "-"), whole=size == "phone")
        if size == "desktop":
            with visitor.in_colours("dark"):
                found += [f"{name}, dark: {one}" for one in visitor.contrast()]
                visitor.picture(name.replace(" ", "-"))
    assert found == []


def test_the_checks_find_what_is_wrong(visit, pool):
    """axe, the console and the width are really looked at."""
    visitor = visit(anew=True)
    page = visitor.page
    page.evaluate("document.querySelector('main').innerHTML = '<img src=\"icon\"><p style>x</p>'")
    assert any("image-alt" in one for one in visitor.accessibility())
    # Of rows that are alike not all are looked at, of those that are not each is.
    page.evaluate(
        """() => {
          const row = "<tr><td>words</td></tr>";
          document.querySelector("main").innerHTML = `<table><tbody>${row.repeat(11)}</tbody></table>`;
          Object.assign(document.querySelectorAll("td")[8].style, {color: "#EEE", background: "#FFF"});
        }"""
    )
    assert sum("color-contrast" in one for one in visitor.contrast()) == 1
    assert page.locator("tr[data-alike]").count() == 6
    page.evaluate("document.querySelector('main').innerHTML = '<p>words</p>'")
    page.evaluate("document.querySelector('main').style.color = '#111'")
    assert visitor.contrast() == []
    with visitor.in_colours("dark"):
        assert any("color-contrast" in one for one in visitor.contrast())
    page.evaluate("document.querySelector('main').style.width = '3000px'")
    assert visitor.too_wide() > 0
    page.evaluate("fetch('http://127.0.0.1:9/elsewhere').catch(() => 0)")  # the policy of the page forbids it
    page.evaluate("console.error('wrong')")
    wait_until(lambda: any("wrong" in one for one in visitor.problems), 30, "the console's error")
    assert any("Content Security Policy" in one for one in visitor.problems)
    visitor.problems.clear()
    visitor.expected = True


def test_pages_show_what_is_there(visit, pool):
    visitor = visit()
    page = visitor.page
    expect(page.get_by_role("region", name="Utilisation")).to_contain_text("100 %")
    expect(page.get_by_role("region", name="Running jobs")).to_contain_text("6")
    attention = page.get_by_role("region", name="Needs attention")
    expect(attention).to_contain_text("1 job is held, the first 3.0")
    expect(attention).to_contain_text("roost q -hold-codes")
    expect(attention.get_by_role("link", name=re.compile("1 job is held"))).to_have_attribute(
        "href", re.compile("job/3.0")
    )
    attention.get_by_role("link", name=re.compile("See why jobs are held")).click()
    expect(page.locator("main h1")).to_have_text("See why jobs are held and let them go on")
    expect(page.get_by_role("main")).to_contain_text("roost release")
    page.get_by_role("link", name="How do I …").last.click()
    expect(page.get_by_role("region", name="Operators")).to_contain_text("Add twenty machines")
    visitor.go("")
    # Charts begin with values, over the whole range, without being pointed at, and at once.
    legend = page.locator(".u-legend").first
    expect(legend).to_contain_text(re.compile("Claimed *[0-9.]+ cpus"))
    page.get_by_role("link", name="Machines", exact=True).first.click()
    page.get_by_role("link", name=pool.machine, exact=True).click()  # not ann@machine of the page before
    expect(page.get_by_role("heading", name="Slots")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="Claimed / Busy")).to_have_count(6)
    expect(page.get_by_role("region", name="Cpus by state")).to_contain_text("Claimed 6 cpus 6 slots")
    past = page.get_by_role("region", name="How busy it was")  # also before the page was opened
    expect(past.locator(".u-legend")).to_contain_text(re.compile(r"Cpus claimed *100 %"))
    page.get_by_role("link", name="24h").click()
    expect(page).to_have_url(re.compile("range=24h"))
    expect(past.locator(".u-legend")).to_contain_text(re.compile(r"Memory claimed *[0-9.]+ %"))
    # Only the orders that make sense now.
    expect(page.get_by_role("button", name="Drain …")).to_be_visible()
    expect(page.get_by_role("button", name="Cancel draining …")).to_have_count(0)
    expect(page.get_by_role("region", name="Draining")).to_contain_text("Gracefully or quickly")
    visitor.go("jobs?status=Held")
    page.get_by_role("link", name="3.0").click()
    expect(page.get_by_role("main")).to_contain_text("code 15")
    visitor.go("job/2.5")
    expect(page.get_by_role("region", name="Why it waits")).to_contain_text(re.compile("wait|busy|quota|share"))
    expect(page.get_by_role("region", name="Timeline")).to_contain_text("submitted")
    others = page.get_by_role("region", name="Others of cluster 2")
    expect(others.get_by_role("link", name="2.4")).to_be_visible()
    visitor.go("groups")
    expect(page.get_by_role("row").filter(has_text="physics.atlas").first).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="the whole pool").first).to_be_visible()
    visitor.go("events")
    happened = page.get_by_role("row").filter(has_text="job.submitted")
    expect(happened.first).to_be_visible()  # of before this page was opened
    expect(page.get_by_role("row").filter(has_text="job.sorted")).to_have_count(0)
    visitor.go("availability")
    expect(page.get_by_role("main")).to_contain_text("Leader")
    visitor.go("negotiation")
    expect(page.get_by_role("main")).to_contain_text("Leads")
    page.locator("a[href*='cycle/']").last.click()
    expect(page.get_by_role("region", name="In numbers")).to_contain_text("It took")
    expect(page.get_by_role("region", name="Who got nothing")).to_be_visible()
    first = page.locator("main h1").text_content()
    page.get_by_role("link", name="Next", exact=True).click()
    expect(page.locator("main h1")).not_to_have_text(first)
    page.get_by_role("link", name="Previous", exact=True).click()
    expect(page.locator("main h1")).to_have_text(first)


def test_daemons_tell_how_they_do(visit, pool):
    visitor = visit()
    page = visitor.go("daemons")
    for daemon in ("schedd", "startd", "negotiator", "collector", "journal", "gateway"):
        expect(page.get_by_role("row").filter(has_text=re.compile(f"^{daemon} ")).first).to_contain_text("works")
    expect(page.get_by_role("row").filter(has_text="schedd")).to_contain_text("right")  # its clock
    page.get_by_label("Search", exact=True).fill("journal")
    expect(page.locator("tbody tr")).to_have_count(1)


def test_jobs_are_sorted_shown_and_saved(visit, pool):
    visitor = visit()
    page = visitor.go("jobs?search=sleep")
    heading = page.get_by_role("columnheader", name="Submitter")
    page.get_by_role("button", name="Submitter").click()
    expect(heading).to_have_attribute("aria-sort", "ascending")
    visitor.settle()
    expect(page.locator("tbody tr").first).to_contain_text("biology.ben")
    page.get_by_role("button", name="Submitter").click()
    expect(page.locator("tbody tr").first).to_contain_text("cleo")
    expect(page.locator(".pager")).to_contain_text("9 jobs")
    page.locator("summary", has_text="Columns").click()
    page.get_by_role("checkbox", name="Priority").check()
    page.get_by_role("checkbox", name="Command").uncheck()
    expect(page.get_by_role("columnheader", name="Priority")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Command")).to_have_count(0)
    assert visitor.accessibility() == []
    page.keyboard.press("Escape")
    expect(page.get_by_role("checkbox", name="Priority")).to_be_hidden()
    visitor.reload()
    visitor.settle()
    expect(page.get_by_role("columnheader", name="Priority")).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text("cleo")
    page.locator("summary", has_text="Download").click()
    with page.expect_download() as coming:
        page.get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(coming.value.path().read_text().splitlines()))
    assert sorted(row["Id"] for row in rows) == ["1.0", "1.1", *(f"2.{proc}" for proc in range(6)), "3.0"]
    assert {row["Cmd"] for row in rows} == {"/bin/sleep"}


def test_jobs_of_a_machine(visit, pool):
    visitor = visit()
    page = visitor.go(f"machine/{pool.machine}")
    page.get_by_role("link", name="Jobs here").click()
    expect(page.locator("tbody tr")).to_have_count(6)
    page.get_by_role("link", name="History").click()
    page.get_by_role("link", name=re.compile("show all machines")).click()
    expect(page.get_by_role("link", name="4.0")).to_be_visible()
    assert "machine=" not in page.url


def test_charts_are_looked_at_closer_together(visit, pool):
    visitor = visit()
    page = visitor.page
    happened = page.get_by_role("region", name="What happened to daemons")
    expect(happened).to_contain_text("started")
    over = page.locator(".u-over")
    expect(over).to_have_count(2)
    # What comes above the charts moves them.
    expect(page.get_by_label("Loading")).to_have_count(0)
    box = over.first.bounding_box()
    over.first.hover(position={"x": box["width"] * 0.5, "y": 40})
    # The other chart shows the same moment.
    moments = page.locator(".u-legend tr:first-child .u-value")
    expect(moments.nth(0)).not_to_have_text("–")
    assert moments.nth(0).inner_text() == moments.nth(1).inner_text()
    page.mouse.down()
    over.first.hover(position={"x": box["width"] * 0.7, "y": 50})
    over.first.hover(position={"x": box["width"] * 0.9, "y": 60})
    page.mouse.up()
    expect(page).to_have_url(re.compile("from=[0-9]+&to=[0-9]+"))
    zoomed = page.url
    time = page.get_by_role("group", name="Time of the charts")
    time.get_by_role("button", name="Wider").click()
    expect(page).not_to_have_url(zoomed)
    page.go_back()
    expect(page).to_have_url(zoomed)
    time.get_by_role("link", name="6h").click()
    expect(page).to_have_url(re.compile("range=6h$"))
    # Until the journal has something, the page draws what it has seen itself.
    expect(page.get_by_text("what this page saw since it was opened")).to_have_count(0)
    expect(over).to_have_count(2)
    with page.expect_download() as coming:
        page.get_by_role("button", name="CSV of Jobs by status").click()
    head, *rows = coming.value.path().read_text().splitlines()
    assert head.startswith("time,")
    assert len(rows) == 240


def test_the_map_leads_to_a_machine(visit, pool):
    visitor = visit()
    page = visitor.page
    visitor.go("machines?by=map")
    machines = page.get_by_role("application", name="Map of 1 machine")
    machines.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("status").filter(has_text=f"{pool.machine}: claimed")).to_contain_text("of 6 cpus in use")
    page.get_by_label("Colour by").select_option("used")
    expect(page.get_by_role("region", name="By cpus in use")).to_contain_text("up to all 1")
    machines.focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_contain_text(pool.machine)
    visitor.go("machines?by=map&search=nowhere")
    expect(page.get_by_text("No such machines")).to_be_visible()


def test_logging_in_by_hand_and_out(visit, pool):
    visitor = visit(log_in=False)
    page = visitor.page
    visitor.open(pool.url)
    visitor.expected = True  # a wrong token is a 401, which the browser's console tells of
    page.get_by_label("Token").fill("not a token")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("token")
    assert visitor.accessibility() == []
    page.get_by_label("Token").fill(pool.token)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    visitor.expected = False
    visitor.reload()
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_the_token_of_a_link_leaves_the_address(visit, pool):
    visitor = visit(anew=True)
    assert pool.token not in visitor.page.url
    link = pool.roost("dashboard").stdout.strip()
    assert link == f"{pool.url}/#token={pool.token}"


def test_levels_are_respected(visit, pool):
    """READ sees everything and changes nothing, WRITE acts on jobs, only ADMINISTRATOR on machines and priorities."""
    buttons = {"READ": (0, 0, 0), "WRITE": (1, 0, 0), "ADMINISTRATOR": (1, 1, 1)}
    for level, (hold, drain, change) in buttons.items():
        visitor = visit(token=pool.token if level == "ADMINISTRATOR" else pool.token_of(level))
        page = visitor.page
        expect(page.locator(".side .foot")).to_contain_text(level)
        visitor.go("job/1.0")
        expect(page.get_by_role("button", name="Hold", exact=True)).to_have_count(hold)
        visitor.go(f"machine/{pool.machine}")
        expect(page.get_by_role("button", name="Drain …")).to_have_count(drain)
        visitor.go("shares")
        expect(page.get_by_role("row").nth(1)).to_be_visible()
        assert (page.get_by_role("button", name=re.compile("^Change ")).count() > 0) == bool(change)
        visitor.go("letters")
        if level != "ADMINISTRATOR":
            expect(page.get_by_text("For administrators only")).to_be_visible()


def test_holding_and_releasing_a_job(visit, pool):
    """An order takes effect, and the page follows by itself."""
    visitor = visit()
    page = visitor.go("job/2.4")
    page.get_by_role("button", name="Hold", exact=True).click()
    dialog = page.get_by_role("dialog")
    assert visitor.accessibility() == []
    dialog.get_by_label("Reason").fill("held by a test")
    dialog.get_by_role("button", name="Hold").click()
    expect(page.get_by_role("main")).to_contain_text("held by a test")
    page.get_by_role("button", name="Release", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Release").click()
    expect(page.get_by_role("button", name="Hold", exact=True)).to_be_visible()


def test_a_job_is_edited(visit, pool):
    visitor = visit()
    page = visitor.go("job/2.5")
    page.get_by_role("button", name="Edit …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Attribute").select_option("JobPrio")
    dialog.get_by_label("New value").fill("-7")
    dialog.get_by_role("button", name="Change").click()
    expect(page.get_by_role("region", name="The job")).to_contain_text("Priority in the queue-7")


def test_batches_open_and_take_one_order_for_all_their_jobs(visit, pool, tmp_path):
    """The number of jobs is told first; each of them is then as was ordered."""
    file = tmp_path / "many.sub"
    file.write_text(SUBMIT.format(group="biology", user="many", count=3, more="hold = true\nbatch_name = nightly"))
    cluster = pool.submit(file)
    visitor = visit()
    page = visitor.go(f"jobs?by=batch&search={cluster}")
    row = page.get_by_role("row").filter(has_text="nightly")
    expect(row).to_contain_text("3 held")
    expect(page.locator(".pager").get_by_role("status")).to_have_text("1 batch")
    page.get_by_role("button", name="Order for all …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("An order for 3 jobs")
    assert visitor.accessibility() == []
    dialog.get_by_label("What to do with them").select_option("remove")
    dialog.get_by_role("button", name="Do it").click()
    expect(page.get_by_text("remove: 3 jobs done")).to_be_visible()
    expect(row).to_have_count(0)
    visitor.go("jobs?by=batch")
    page.get_by_role("link", name="2", exact=True).click()
    expect(page.get_by_role("link", name="2.5")).to_be_visible()


def test_a_priority_factor_is_changed(visit, pool):
    visitor = visit()
    page = visitor.go("shares?search=ann")
    row = page.get_by_role("row").filter(has_text="ann").first
    row.get_by_role("button", name=re.compile("^Change ")).click()
    page.get_by_role("dialog").get_by_label("Value").fill("321")
    page.get_by_role("dialog").get_by_role("button", name="Change").click()
    expect(row).to_contain_text("321")


def test_what_is_refused_is_told_in_the_dialog(visit, pool):
    visitor = visit()
    page = visitor.go("shares")
    page.get_by_role("button", name=re.compile("^Change ")).first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Value").fill("-5")
    visitor.expected = True
    dialog.get_by_role("button", name="Change").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_by_keyboard_only(visit, pool):
    """Skip link, pages by "g" and a letter, search by "/", sorting, a dialog and back: no mouse."""
    visitor = visit(anew=True)
    page = visitor.page
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    for key, title in (("m", "Machines"), ("d", "Daemons"), ("s", "Fair share"), ("e", "Events"), ("j", "Jobs")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.locator("main h1")).to_have_text(title)
        visitor.settle()
    page.keyboard.press("/")
    expect(page.get_by_label("Search", exact=True)).to_be_focused()
    page.keyboard.type("2.5")
    page.keyboard.press("Enter")
    expect(page.get_by_role("row")).to_have_count(2)
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "2.5":
            break
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_have_text("Job 2.5")
    expect(page.locator("main h1")).to_be_focused()
    visitor.settle()
    hold = page.get_by_role("button", name="Hold", exact=True)
    hold.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(hold).to_be_focused()
    page.go_back()
    expect(page.locator("main h1")).to_have_text("Jobs")
    expect(page.get_by_label("Search", exact=True)).to_have_value("2.5")
    page.locator("main h1").focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("to the search box")
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("s")
    visitor.settle()
    page.get_by_role("button", name="Factor").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("columnheader", name="Factor")).to_have_attribute("aria-sort", "ascending")
    assert "order=factor" in page.url


def test_jumping_to_anything(visit, pool):
    visitor = visit()
    page = visitor.page
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("combobox")).to_be_focused()
    page.keyboard.type("2.5")
    expect(page.get_by_role("option").first).to_have_text("job 2.5")
    assert visitor.accessibility() == []
    page.keyboard.press("Enter")
    expect(page.locator("main h1")).to_have_text("Job 2.5")
    page.get_by_role("button", name="Jump …").click()
    expect(page.get_by_role("dialog").get_by_role("combobox")).to_be_focused()
    page.keyboard.type("ann")
    found = page.get_by_role("option").filter(has_text="jobs of")
    expect(found).to_contain_text("ann@")
    wanted = page.get_by_role("option").all_inner_texts().index(found.inner_text())
    for _ in range(wanted):
        page.keyboard.press("ArrowDown")
    expect(found).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.keyboard.press("Control+k")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_it_is_live(visit, pool, tmp_path):
    """What happens in the pool is on the page without anybody asking for it."""
    visitor = visit()
    page = visitor.go("events?type=job.*")
    file = tmp_path / "live.sub"
    file.write_text(SUBMIT.format(group="biology", user="live", count=1, more="hold = true"))
    expect(page.locator(".live.on").first).to_be_attached()
    cluster = pool.submit(file)
    expect(page.get_by_role("main")).to_contain_text(f"submitted as cluster {cluster}")
    visitor.go("jobs?status=Held")
    pool.roost("rm", str(cluster))
    expect(page.get_by_role("link", name=f"{cluster}.0")).to_have_count(0)


def test_it_says_when_it_is_cut_off_and_goes_on(visit, pool):
    visitor = visit()
    page = visitor.go("events")
    expect(page.locator(".live.on").first).to_be_attached()
    visitor.expected = True
    visitor.context.set_offline(True)
    # A stream that is open stays so: Chromium cuts off new connections only. So the page begins another one.
    page.get_by_label("Kind").select_option("job.*")
    expect(page.locator(".side .live")).to_have_text("Disconnected, retrying")
    visitor.context.set_offline(False)
    expect(page.locator(".side .live")).to_have_text("Live")


def test_a_part_that_can_not_be_had_is_told_in_words(visit, pool):
    visitor = visit()

    def without(route):
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "holds": {"error": "no answer within 8 s"}})

    visitor.page.route("**/v1/overview", without)
    visitor.go("daemons")
    page = visitor.go("")
    expect(page.get_by_role("alert")).to_have_text(
        "Not known now, and asked again: why jobs are held (no answer within 8 s)"
    )
    page = visitor.go("jobs?search=nosuchjob")
    expect(page.get_by_text("No such jobs in the queue")).to_be_visible()


def test_what_is_not_known_is_not_told_as_empty(visit, pool):
    """While the gateway is away: no empty tables that are none, and how old that is which is still shown."""
    visitor = visit(anew=True)  # another test may have shown the machines already
    page = visitor.go("jobs")
    expect(page.get_by_role("link", name="3.0")).to_be_visible()
    visitor.expected = True
    visitor.context.set_offline(True)
    visitor.go("machines")
    expect(page.get_by_role("main")).to_contain_text("Not known")
    expect(page.get_by_role("main")).not_to_contain_text("No such machines")
    assert visitor.accessibility() == []
    visitor.go("jobs")
    expect(page.get_by_role("alert")).to_contain_text("what is shown is as of")
    expect(page.get_by_role("link", name="3.0")).to_be_visible()
    visitor.context.set_offline(False)
    expect(page.locator(".side .live")).to_have_text("Live")
    expect(page.get_by_role("alert")).to_have_count(0)
    visitor.go("machines")
    expect(page.get_by_role("link", name=pool.machine)).to_be_visible()


def test_colours_are_chosen_and_kept(visit, pool):
    visitor = visit(anew=True)
    page = visitor.page

    def paper() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    light = paper()
    button = page.get_by_role("button", name=re.compile("^Colours"))
    button.click()
    button.click()
    wait_until(lambda: paper() != light, 30, "dark colours")
    visitor.reload()
    expect(page.locator("main h1")).to_be_visible()
    assert paper() != light
    page.evaluate("localStorage.clear()")


def test_nothing_runs_while_nobody_looks(visit, pool):
    """A hidden tab has no stream and asks for nothing; once it is seen again it is live."""
    visitor = visit(anew=True)
    page = visitor.page
    expect(page.locator(".side .live")).to_have_text("Live")
    page.evaluate(
        "() => { Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    expect(page.locator(".side .live")).to_have_text("Paused")
    page.evaluate(
        "() => { Object.defineProperty(document, 'hidden', {value: false, configurable: true});"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    expect(page.locator(".side .live")).to_have_text("Live")


def test_menu_on_a_phone(visit, pool):
    visitor = visit("phone")
    page = visitor.page
    page.get_by_role("button", name="Menu").tap()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Fair share").tap()
    expect(page.locator("main h1")).to_have_text("Fair share")
    expect(page.get_by_role("navigation", name="Pages")).to_be_hidden()


def test_the_doors_of_the_api_are_found_and_told(visit, pool):
    """From the gateway's own description; /docs, where one would look for it, leads here."""
    visitor = visit(anew=True)
    page = visitor.page
    visitor.open(f"{pool.url}/docs")
    expect(page.locator("main h1")).to_have_text("HTTP API")
    expect(page.locator(".side .live")).to_have_text("Not a live page")
    page.get_by_role("searchbox").fill("/v1/jobs/action")
    door = page.locator("details.door")
    expect(door).to_have_count(1)
    door.locator("summary").click()
    expect(door).to_contain_text("constraint (body)")
    expect(door).to_contain_text("403")
    visitor.picture("api-door")
    assert visitor.accessibility() == []
