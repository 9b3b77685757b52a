"""What slots tell of draining: what is under way, what it would cost, what it has cost (DFR-05, DFR-11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from services.startd.core.slots.drain import ExpectedDrain, MachineOrders
from services.startd.core.slots.model import Slot

#: Why a machine is drained whose drain gives no reason, in HTCondor's words.
NO_REASON: Final = "by command"


def drain_attributes(machine_orders: MachineOrders, expected: ExpectedDrain, slot: Slot) -> Mapping[str, object]:
    """Times are wall-clock seconds, badput and unclaimed time cpu-seconds since the startd was first started."""
    told: dict[str, object] = {
        "AcceptedWhileDraining": slot.claim is not None and slot.claim.while_draining,
        "ExpectedMachineGracefulDrainingCompletion": int(expected.graceful_completion),
        "ExpectedMachineGracefulDrainingBadput": int(expected.graceful_badput),
        "ExpectedMachineQuickDrainingCompletion": int(expected.quick_completion),
        "ExpectedMachineQuickDrainingBadput": int(expected.quick_badput),
    }
    costs = (("Badput", int(machine_orders.badput)), ("UnclaimedTime", int(machine_orders.unclaimed)))
    told |= {f"TotalMachineDraining{name}": cost for name, cost in costs if cost}
    if machine_orders.since:
        told["RoostDrainingCountedSince"] = int(machine_orders.since)
    if machine_orders.last_start:
        told["LastDrainStartTime"] = int(machine_orders.last_start)
    if machine_orders.last_stop:
        told["LastDrainStopTime"] = int(machine_orders.last_stop)
    if machine_orders.drain is not None:
        told |= {"Draining": True, "DrainingRequestId": machine_orders.drain.request_id}
        told["DrainReason"] = machine_orders.drain.reason or NO_REASON
    if machine_orders.off is not None:
        told["RoostOff"] = str(machine_orders.off)
    return told
