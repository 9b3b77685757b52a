"""When a deferred job that is ready on its slot is started."""

import pytest

from services.startd.core.run.deferral import wait_s
from services.startd.core.run.failures import RunFailed
from shared.classad import parse_ad
from tests.spec import spec


@spec("SUB-02")
@pytest.mark.parametrize(
    ("text", "now", "wait"),
    [
        ("", 100.0, 0.0),
        ("DeferralTime = 160", 100.0, 60.0),
        ("DeferralTime = 100", 100.4, 0.0),
        ("DeferralTime = 100; DeferralWindow = 20", 120.0, 0.0),
        ('DeferralTime = 160; DeferralWindow = "long"', 100.0, 60.0),
    ],
)
def test_it_waits_for_its_time(text, now, wait):
    assert wait_s(parse_ad(f"[{text}]"), now) == wait


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("DeferralTime = 100", "Job missed deferred execution time: it was ready 21 seconds after, and may be 0"),
        ("DeferralTime = 100; DeferralWindow = 20", "ready 21 seconds after, and may be 20"),
        ("DeferralTime = Nowhere", "Invalid deferred execution time: Nowhere"),
        ("DeferralTime = -1", "Invalid deferred execution time: -1"),
    ],
)
def test_one_that_is_late_is_held(text, said):
    with pytest.raises(RunFailed, match=said) as failed:
        wait_s(parse_ad(f"[{text}]"), 121.0)
    assert (failed.value.kind, failed.value.code) == ("hold", 20)
