"""What administrators look after, in a real Chromium: quotas of groups, machines that sleep and drain, clusters whose
jobs come some at a time."""

import re
import time

import pytest
from playwright.sync_api import expect

from shared.bus.api import Exchange
from shared.classad import ClassAd
from shared.messages.ads import AdUpdate
from tests.integration.inside import InsidePool

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(300)]

ASLEEP = "node7.example.org"


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    inside = InsidePool(
        tmp_path_factory.mktemp("pool"),
        DAEMON_LIST="$(DAEMON_LIST), ROOSTER, DEFRAG",
        GROUP_NAMES="physics, physics.atlas",
        GROUP_QUOTA_physics="2",
        NEGOTIATOR_INTERVAL="2",
        NEGOTIATOR_CYCLE_DELAY="0",
    )
    bus = inside.bus(f"startd.{ASLEEP}")
    try:
        now = int(time.time())
        whose = {"MyType": "Machine", "Name": f"slot1@{ASLEEP}", "Machine": ASLEEP, "MyAddress": f"startd.{ASLEEP}"}
        state = {"SlotID": 1, "Cpus": 8, "TotalCpus": 8, "State": "Unclaimed", "Activity": "Idle"}
        sleep = {"Offline": True, "HibernationState": "S3", "MachineLastMatchTime": now - 60, "Unhibernate": True}
        since = {"EnteredCurrentState": now - 7200, "EnteredCurrentActivity": now - 7200}
        ad = ClassAd({**whose, **state, **sleep, **since})
        update = AdUpdate(
            my_type="Machine",
            daemon=f"startd@{ASLEEP}",
            start_time=now,
            sequence=1,
            names=[f"slot1@{ASLEEP}"],
            ads=[ad.pack()],
        )
        inside.run(bus.publish(Exchange.ADS, f"update.Machine.startd@{ASLEEP}", update))
        file = inside.directory / "late.sub"
        file.write_text(
            "executable = /bin/sleep\narguments = 3000\nrequest_memory = 64\nhold = true\n"
            "accounting_group = physics\naccounting_group_user = ann\nmax_materialize = 3\nqueue 1000\n"
        )
        inside.roost("submit", str(file))
        yield inside
    finally:
        inside.run(bus.stop())
        inside.close()


def test_a_quota_is_set_and_taken_back(visit, pool):
    """What the server refuses is told in the dialog; what is set counts from the next cycle on, and the page
    follows by itself."""
    visitor = visit()
    page = visitor.go("groups")
    opener = page.get_by_role("button", name="Quota of physics …", exact=True)
    row = page.get_by_role("row").filter(has=opener)
    opener.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    assert visitor.accessibility() == []
    dialog.get_by_label("Counted in").select_option("dynamic_quota")
    dialog.get_by_label("Quota", exact=True).fill("7")
    visitor.expected = True  # the console tells of the 400
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("from 0 to 1")
    dialog.get_by_label("Counted in").select_option("quota")
    dialog.get_by_label("Quota", exact=True).fill("1.5")
    page.keyboard.press("Enter")
    expect(page.locator("[role=status] .toast")).to_have_text("The quota of physics is 1.5")
    expect(dialog).to_have_count(0)
    visitor.expected = False
    expect(opener).to_be_focused()
    expect(row).to_contain_text("1.5 set")
    assert visitor.accessibility() == []
    visitor.picture("quota-set")
    row.get_by_role("button", name=re.compile("^Undo")).click()
    dialog.get_by_role("button", name="Undo").click()
    expect(row).not_to_contain_text("set")
    expect(row.get_by_role("button", name=re.compile("^Undo"))).to_have_count(0)


def test_sleeping_machines_and_the_cost_of_draining_are_shown(visit, pool):
    visitor = visit()
    page = visitor.go("machines")
    expect(page.get_by_role("row").filter(has_text=ASLEEP)).to_contain_text("Asleep, to be woken")
    for keeper in ("Draining by defrag", "Waking by rooster"):
        expect(page.get_by_role("region", name=keeper)).to_contain_text("Last round")
    assert visitor.accessibility() == []
    visitor.picture("machines-asleep", whole=True)
    page.get_by_role("combobox", name="Machines").select_option("asleep")
    expect(page.get_by_role("row")).to_have_count(2)
    page.get_by_role("combobox", name="Machines").select_option("draining")
    expect(page.get_by_text("No such machines")).to_be_visible()
    visitor.go(f"machine/{ASLEEP}")
    expect(page.get_by_role("region", name="The machine")).to_contain_text(re.compile("S3 since .*it is to be woken"))
    assert visitor.accessibility() == []
    expect(page.get_by_role("region", name="Draining")).to_have_count(0)  # it tells of none
    name = pool.runner("startd").daemon.context.name
    visitor.go(f"machine/{name}")
    expect(page.get_by_role("region", name="Draining")).to_contain_text("cpu-hours of work lost")
    visitor.picture("machine-draining", whole=True)


def test_clusters_of_which_jobs_are_to_come_are_shown(visit, pool):
    """Beside the jobs that are in the queue."""
    visitor = visit()
    page = visitor.go("jobs")
    late = page.get_by_role("region", name="Still to come")
    expect(late).to_contain_text("997 of 1,000")
    expect(late).to_contain_text("as many are in the queue as max_materialize allows: 3")
    assert visitor.accessibility() == []
    visitor.picture("jobs-late", whole=True)
    visitor.go("jobs?status=Held")
    expect(late).to_have_count(0)
    phone = visit("phone", "dark")
    for path in ("jobs", "machines", "groups", f"machine/{ASLEEP}"):
        phone.go(path)
        assert phone.too_wide() <= 0
        assert phone.accessibility() == []
        phone.picture(f"orders-{path.partition('/')[0]}", whole=True)
