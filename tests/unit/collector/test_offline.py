"""Which changes of a machine's ad need the ad as a whole, as it may be kept asleep (ABS-*)."""

import pytest
import structlog

from services.collector.core.acceptance import AbsentPolicy, needs_whole_ad
from services.collector.directory import AdIndex, Directory
from shared.classad import parse_ad
from shared.cooperative import at_once
from shared.daemon.clock import SystemClock
from shared.messages.ads import AdDelta, AdHeartbeat, AdInvalidate, AdUpdate
from shared.state.embedded import EmbeddedStore
from tests.spec import spec

AWAKE, ASLEEP = (parse_ad(text).pack() for text in ('[Name = "a"]', '[Name = "a"; Offline = true]'))


def delta(change='[State = "Owner"]', my_type="Machine"):
    return AdDelta(
        my_type=my_type,
        daemon="d",
        start_time=1,
        base=1,
        sequence=2,
        names=["a"],
        changes=[parse_ad(change).pack()],
        removed_attrs=[[]],
    )


@pytest.mark.parametrize(
    ("message", "kept", "expected"),
    [
        (delta(), AWAKE, False),
        (delta(), ASLEEP, True),
        (delta("[Offline = true]"), AWAKE, True),
        (delta("[oFFLINE = false]"), AWAKE, True),
        (delta("[Offline = true]", "Scheduler"), AWAKE, False),
        (delta(my_type="Scheduler"), ASLEEP, False),
        (AdUpdate(my_type="Machine", daemon="d", start_time=1, sequence=2, names=["a"], ads=[ASLEEP]), ASLEEP, False),
        (AdHeartbeat(my_type="Machine", daemon="d", start_time=1, base=1, sequence=2), ASLEEP, False),
        (AdInvalidate(my_type="Machine", daemon="d", start_time=1, sequence=2), ASLEEP, False),
    ],
)
def test_a_change_needs_the_whole_ad_where_sleep_is_touched(message, kept, expected):
    assert at_once(needs_whole_ad(message, [kept], 1000.0)) is expected


@spec("PWR-06")
def test_a_match_is_written_into_the_ads_of_those_that_sleep_only():
    """MachineLastMatchTime, by which UNHIBERNATE goes; what is awake has none."""
    clock = SystemClock()
    directory = Directory(EmbeddedStore(), clock, structlog.get_logger(), AdIndex(900.0), AbsentPolicy(persistent=True))
    for name, ad in (("a", ASLEEP), ("b", AWAKE)):
        directory.apply(
            AdUpdate(my_type="Machine", daemon=f"d@{name}", start_time=1, sequence=2, names=[name], ads=[ad])
        )
    changes = [change for name in ("A", "b", "gone") for change in directory.matched_offline(name, 1000.9)]
    assert [(change.daemon, list(change.updated)) for change in changes] == [("d@a", ["a"])]
    told = {name: row.attributes().get("MachineLastMatchTime") for _, name, row in directory.table.rows()}
    assert told == {"a": 1000, "b": None}
    # What the machine says when it is awake replaces all of it.
    directory.apply(AdUpdate(my_type="Machine", daemon="d@a", start_time=1, sequence=3, names=["a"], ads=[AWAKE]))
    assert (
        "MachineLastMatchTime" not in next(row for _, name, row in directory.table.rows() if name == "a").attributes()
    )
