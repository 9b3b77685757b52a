"""What slots tell of draining: what is under way, what it would cost, what it has cost (DFR-05, DFR-11)."""

from __future__ import annotations

from collections.abc import Mapping

from services.startd.book.draining import Expected, Steering
from services.startd.book.slots import Slot


def drain_attributes(steering: Steering, expected: Expected, slot: Slot) -> Mapping[str, object]:
    """Times are wall-clock seconds, badput and unclaimed time cpu-seconds since the startd was first started."""
    told: dict[str, object] = {
        "AcceptedWhileDraining": slot.claim is not None and slot.claim.while_draining,
        "ExpectedMachineGracefulDrainingCompletion": int(expected.graceful_completion),
        "ExpectedMachineGracefulDrainingBadput": int(expected.graceful_badput),
        "ExpectedMachineQuickDrainingCompletion": int(expected.quick_completion),
        "ExpectedMachineQuickDrainingBadput": int(expected.quick_badput),
        "TotalMachineDrainingBadput": int(steering.badput),
        "TotalMachineDrainingUnclaimedTime": int(steering.unclaimed),
    }
    if steering.since:
        told["RoostDrainingCountedSince"] = int(steering.since)
    if steering.last_start:
        told["LastDrainStartTime"] = int(steering.last_start)
    if steering.last_stop:
        told["LastDrainStopTime"] = int(steering.last_stop)
    if steering.drain is not None:
        told |= {"Draining": True, "DrainingRequestId": steering.drain.request_id}
        if steering.drain.reason:
            told["DrainReason"] = steering.drain.reason
    if steering.off is not None:
        told["RoostOff"] = str(steering.off)
    return told
