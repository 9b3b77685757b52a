"""Which changes of a machine's ad need the ad as a whole, as it may be kept asleep (ABS-*)."""

import pytest

from services.collector.offline import wakes
from shared.classad import parse_ad
from shared.messages.ads import AdDelta, AdHeartbeat, AdInvalidate, AdUpdate

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
    assert wakes(message, {"a": kept}, 1000.0) is expected
