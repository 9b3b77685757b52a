"""What is told of a test that has run.

A worker of pytest-xdist packs each report and sends it to the process that leads, which unpacks it: two milliseconds a
test, of 15,000. Of a test that is well the report of its call tells all.
"""

import pytest
from _pytest.runner import runtestprotocol


def run(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run it as pytest does, and tell of it: in a worker all reports where one is not well, or where somebody asks how
    long each part took."""
    config = item.config
    if not hasattr(config, "workerinput") or config.getoption("durations", None):
        runtestprotocol(item, nextitem=nextitem)
        return
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    well = all(report.passed for report in reports)
    for report in reports:
        if report.when == "call" or not well:
            item.ihook.pytest_runtest_logreport(report=report)
