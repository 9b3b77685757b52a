"""Monitors of custom resources: STARTD_CRON_<Job>_METRICS (CRN-15)."""

from services.startd.core.cron_ads import CronAds
from services.startd.core.cron_metrics import CronMetrics, split
from shared.classad import ClassAd
from tests.spec import spec
from tests.unit.startd.test_cron_ads import job, printed, slot

MONITOR = {"metrics": {"SQUIDs": "SUM", "SQUIDsMemory": "PEAK"}}
#: The manual's example of four SQUIDs.
REPORT = "".join(
    f'SlotMergeConstraint = StringListMember("SQUID{n}", AssignedSQUIDs)\nUptimeSQUIDsSeconds = {busy}\n'
    f"UptimeSQUIDsMemoryPeakUsage = {peak}\nLocation = {n}\n- SQUIDsReport{n}\n"
    for n, busy, peak in ((0, 5.0, 50), (1, 1.0, 10), (2, 9.0, 90), (3, 4.0, 40))
)


class Monitor:
    def __init__(self, **fields):
        self.job = job("monitor", **MONITOR, **fields)
        self.ads, self.metrics = CronAds(), CronMetrics(began=1000.0)

    def report(self, text, one=None, now=1010.0):
        one = one or self.job
        for ad in printed(text, one.prefix):
            rest, reported = split(one, ad)
            self.ads.put(one, rest, now)
            self.metrics.take(one, ad.name, reported)

    def of_slot(self, *squids, now=1010.0):
        return self.metrics.of_slot(self._names(squids), now)

    def of_run(self, run, *squids, now):
        return self.metrics.of_run(run, self._names(squids), now)

    def _names(self, squids):
        return self.ads.names_of(slot(1, AssignedSQUIDs=",".join(squids)), 1)


@spec("CRN-15")
def test_slots_show_the_mean_and_the_peak_of_their_instances_since_the_startd_began():
    monitor = Monitor()
    monitor.report(REPORT)
    assert monitor.of_slot("SQUID0", "SQUID2") == {
        "DeviceSQUIDsAverageUsage": 1.4,  # 14 s in 10
        "DeviceSQUIDsMemoryPeakUsage": 90.0,
    }
    monitor.report(REPORT.replace("= 9.0", "= 1.0").replace("= 90", "= 7"), now=1020.0)
    assert monitor.of_slot("SQUID2", now=1020.0) == {
        "DeviceSQUIDsAverageUsage": 0.5,
        "DeviceSQUIDsMemoryPeakUsage": 90.0,
    }
    assert monitor.of_slot() == {}
    seen = monitor.ads.of(slot(1, AssignedSQUIDs="SQUID3"), 1)
    assert ClassAd(dict(seen)).eval("Location") == 3  # the rest of its ad is shown as of any job
    assert not [name for name in seen if name.startswith("Uptime")]


@spec("CRN-15")
def test_jobs_have_what_their_instances_did_while_they_ran():
    monitor = Monitor()
    monitor.report(REPORT)
    monitor.metrics.begin("run", 1010.0)
    assert monitor.of_run("run", "SQUID0", now=1010.0) == {"SQUIDsAverageUsage": 0.0}
    monitor.report(REPORT.replace("= 50\n", "= 20\n"), now=1020.0)
    monitor.report(REPORT.replace("= 50\n", "= 30\n"), now=1030.0)
    assert monitor.of_run("run", "SQUID0", now=1030.0) == {"SQUIDsAverageUsage": 0.5, "SQUIDsMemoryUsage": 30.0}
    monitor.metrics.end("run")
    assert monitor.of_run("run", "SQUID0", now=1040.0) == {}


@spec("CRN-15")
def test_a_prefix_stands_before_what_is_reported_and_nonsense_is_nothing():
    monitor = Monitor(prefix="Site_")
    monitor.report('UptimeSQUIDsSeconds = 5\nUptimeSQUIDsMemoryPeakUsage = "much"\n- a\n')
    monitor.report("UptimeSQUIDsSeconds = -5\n- b\nUptimeSQUIDsSeconds = 1.0/0.0\n- c\n")
    assert monitor.of_slot() == {"DeviceSQUIDsAverageUsage": 0.5}


def test_what_a_job_measured_that_is_gone_is_forgotten():
    monitor = Monitor()
    monitor.report(REPORT)
    monitor.metrics.keep_only([job("monitor", metrics={"SQUIDs": "SUM"})])
    assert monitor.of_slot("SQUID0") == {"DeviceSQUIDsAverageUsage": 0.5}
    monitor.metrics.keep_only([])
    assert monitor.of_slot("SQUID0") == {}
