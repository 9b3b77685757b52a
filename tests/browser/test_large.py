"""The dashboard on a made-up pool of 20,000 slots and 10,000 jobs (--browser-slots 100000: a larger one)."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.large import LargePool

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser"), pytest.mark.timeout(300)]

PAGES = {
    "overview": "",
    "machines": "machines",
    "slots": "machines?by=slot&order=-Memory",
    "machine": "machine/node00007.example.org",
    "jobs": "jobs",
    "held": "jobs?status=Held",
    "job": "job/3.2",
    "shares": "shares",
    "groups": "groups",
    "negotiation": "negotiation",
    "availability": "availability",
    "jobs by memory": "jobs?order=-memory&rows=200",
    "all jobs": "jobs?rows=all",
    "daemons": "daemons",
    "events": "events",
    "letters": "letters",
}

#: What looks otherwise than in the small pool of test_pages.py: tables over many pages, more states, longer charts.
#: These are looked at as closely as there.
CLOSELY = ("overview", "machines", "slots", "jobs by memory", "held", "all jobs", "shares", "events")


@pytest.fixture(scope="module")
def pool(tmp_path_factory, request):
    made = LargePool(tmp_path_factory.mktemp("large"), int(request.config.getoption("--browser-slots")))
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_every_page_is_clean(visit, pool):
    """In light and in dark, and on a phone nothing to scroll sideways."""
    visitor = visit()
    found = []
    for name, path in PAGES.items():
        visitor.go(path)
        visitor.picture(f"large-{name}")
        if name in CLOSELY:
            found += [f"{name}: {one}" for one in visitor.accessibility()]
            with visitor.in_colours("dark"):
                found += [f"{name}, dark: {one}" for one in visitor.contrast()]
                visitor.picture(f"large-{name}")
        with visitor.in_size("phone"):
            wide = visitor.too_wide()
            found += [f"{name}: {wide} pixels too wide on a phone"] if wide > 0 else []
    assert found == []


def test_pages_of_slots_follow_each_other(visit, pool):
    """Sorted, filtered and cut into pages by the collector; the address holds all of it, so back goes back."""
    visitor = visit()
    page = visitor.go("machines?by=slot")
    expect(page.locator(".pager")).to_contain_text(f"of {pool.slots:,} slots")
    page.get_by_role("button", name="Memory").click()
    expect(page.get_by_role("columnheader", name="Memory")).to_have_attribute("aria-sort", "descending")
    expect(page.locator("tbody tr").first).to_contain_text("16 GiB")
    page.get_by_role("combobox", name="State").select_option("Owner")
    expect(page.locator("tbody tr").first).to_contain_text("Owner")
    visitor.settle()
    first = page.locator("tbody th").all_inner_texts()
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("link", name="First page")).to_be_visible()
    expect(page.locator("tbody th").first).not_to_have_text(first[0])
    second = page.locator("tbody th").all_inner_texts()
    assert len(first) == len(second) == 50
    assert not set(first) & set(second)
    page.go_back()
    expect(page.locator("tbody th").first).to_have_text(first[0])


def test_search_finds_one_machine_of_all(visit):
    visitor = visit()
    page = visitor.go("machines")
    page.get_by_label("Search", exact=True).fill("node00123")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="node00123.example.org").click()
    expect(page.locator("tbody tr")).to_have_count(16)
    visitor.go("machines?search=" + "(.*[")
    expect(page.get_by_role("main")).to_contain_text("No such machines")


def test_jobs_by_status_user_and_page(visit):
    visitor = visit()
    page = visitor.go("jobs?status=Held")
    expect(page.locator(".pager")).to_contain_text("of 1,500 jobs")
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("link", name="First page")).to_be_visible()
    visitor.go("jobs?search=3.7")
    expect(page.locator("tbody tr")).to_have_count(1)
    visitor.go("jobs?user=physics.cms.user02@example.org")
    expect(page.locator("tbody tr")).to_have_count(50)


def test_jobs_of_all_pages_are_sorted(visit):
    """By the gateway, over all 10,000; the pages follow each other."""
    visitor = visit()
    page = visitor.go("jobs?order=command")
    expect(page.locator(".pager")).to_contain_text("of 10,000 jobs")
    first = page.locator("tbody th").all_inner_texts()
    page.get_by_label("Rows").select_option("200")
    expect(page.locator("tbody tr")).to_have_count(200)
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_role("link", name="First page")).to_be_visible()
    visitor.settle()
    assert not set(first) & set(page.locator("tbody th").all_inner_texts())


def test_all_jobs_are_scrolled_through(visit):
    """Whatever their number, only rows that are seen are in the page; each has its place among all."""
    visitor = visit()
    page = visitor.go("jobs?rows=all&order=job")
    expect(page.locator("tbody th").first).to_have_text("1.0")
    assert page.locator("table[aria-rowcount]").get_attribute("aria-rowcount") == "10001"
    assert visitor.accessibility() == []  # where no row is half below the heading
    page.locator(".long").evaluate("box => { box.scrollTop = box.scrollHeight }")
    expect(page.locator("tbody th").last).to_have_text("20.499")
    assert page.locator("tr[aria-rowindex]").last.get_attribute("aria-rowindex") == "10001"
    assert page.locator("tbody tr").count() < 100
    page.locator(".long").evaluate("box => { box.scrollTop = box.scrollHeight / 2 }")
    expect(page.locator("tr[aria-rowindex='5001'] th")).to_have_text("10.499")
    page.get_by_role("button", name="Job").click()
    expect(page.locator("tbody th").first).to_have_text("20.499")


def test_forecast_and_loans(visit):
    visitor = visit()
    page = visitor.go("shares")
    forecast = page.get_by_role("region", name="When will two be equal?")
    expect(forecast).to_contain_text(re.compile("ahead|same effective"))
    forecast.get_by_label("Second").select_option(index=3)
    expect(forecast).to_contain_text(re.compile("ahead|same effective"))
    assert "second=" in page.url
    visitor.go("groups")
    expect(page.get_by_role("region", name="Who lends what to whom")).to_contain_text(re.compile("physics|biology"))


def test_events_stream_in_and_can_be_paused(visit):
    visitor = visit()
    page = visitor.go("events")
    expect(page.locator("tbody tr").nth(20)).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name=re.compile(r"Go on \(\d+ waiting\)"))).to_be_visible()
    page.get_by_label("Kind").select_option("negotiation.*")
    page.get_by_role("button", name=re.compile("Go on")).click()
    expect(page.locator("tbody tr").first).to_contain_text("negotiation.cycle")


def test_what_no_journal_keeps_is_said(visit):
    visitor = visit()
    page = visitor.go("negotiation")
    expect(page.get_by_role("main")).to_contain_text("No journal daemon")
    visitor.go("")
    expect(page.get_by_role("region", name="Cpus over time")).to_contain_text("since it was opened")
