"""Which faults, and what else, each range of seeds knows: those before tell what they always told."""

from __future__ import annotations

from tests.simulation import clocks, faults
from tests.simulation.faults import Fault

KINDS: tuple[Fault, ...] = (
    faults.drop,
    faults.duplicate,
    faults.unconfirmed,
    faults.late,
    faults.crash,
    faults.crash_within,
    faults.freeze,
    faults.cut_bus,
    faults.broker_restarts,
    faults.cut_store,
    faults.store_away,
    faults.store_fails_over,
    faults.store_lags,
    faults.store_emptied,
    clocks.clock_steps,
    faults.disk_fills,
    faults.drain,
    faults.vacate,
    faults.machine_dies,
    faults.managers_die,
    faults.everything_dies,
)

#: From here on daemons are stopped in good order, too.
ORDERLY_FROM = 10_000
ORDERLY = (faults.stop, faults.stop, faults.stop, faults.all_stop, faults.upgrade, faults.reconfigure)
#: From here on a broker takes a while to confirm a subscription, as busy ones do, and messages come meanwhile.
SLOW_FROM, SUBSCRIBING_S = 20_000, 1.0
#: From here on disks may be slow, users have logs and factories, and nobody's death ends what others do.
WIDER_FROM = 30_000
WIDER = (faults.disk_slow, faults.disk_slow, faults.disk_slow, faults.crash, faults.crash_within)
#: From here on there is more of a pool, and more goes wrong.
WHOLE_FROM = 40_000
WHOLE = (
    *(faults.resources_change, faults.resources_change, clocks.clock_jumps),
    *(faults.replay, faults.replay, faults.hostile, faults.hostile),
)
#: From here on half of the clusters have files that travel.
FILES_FROM = 50_000
FILES = (faults.files_cut, faults.files_cut, faults.files_slow, faults.disk_fills, faults.disk_slow, faults.crash)
#: From here on users ask gateways.
GATEWAYS_FROM = 70_000
GATEWAYS = (*3 * (faults.answers_lost,), *2 * (faults.gateways_fail,), faults.crash)
#: From here on half of the pools are of an earlier version at first, whole or in part; and what is under way arrives,
#: whatever became of its sender.
EARLIER_FROM = 80_000
#: From here on some jobs are parallel: they need several machines at once.
PARALLEL_FROM = 90_000
#: From here on ends of runs wait for others for up to so many seconds, so that several travel in one message.
TOGETHER_FROM, TOGETHER_S = 100_000, 3.0
#: From here on startds keep connections of file transfer, which die unnoticed, and jobs that are alike are ordered
#: together from so many on (the product: 50), which clusters of users have.
KEPT_FROM, TOGETHER = 110_000, 2
KEPT = (*3 * (faults.kept_die,), *3 * (faults.order_cut_short,))
#: From here on half of the clusters have leases that are longer than all that goes wrong (long_leases.py).
LEASES_FROM = 120_000
LEASES = 3 * (faults.everything_away,)
#: From here on the clock of who leads is set while the lead changes hands.
LEADERS_FROM = 130_000
LEADERS = 3 * (clocks.leaders_clock_jumps,)
#: From here on the clocks of startds are set while claims come and go unheard, and nobody is charged for that.
STARTDS_FROM = 300_000
STARTDS = 3 * (clocks.startds_clock_jumps,)

#: From which seed on there are which faults besides.
_MORE: tuple[tuple[int, tuple[Fault, ...]], ...] = (
    (ORDERLY_FROM, ORDERLY),
    (WIDER_FROM, WIDER),
    (WHOLE_FROM, WHOLE),
    (FILES_FROM, FILES),
    (GATEWAYS_FROM, GATEWAYS),
    (KEPT_FROM, KEPT),
    (LEASES_FROM, LEASES),
    (LEADERS_FROM, LEADERS),
    (STARTDS_FROM, STARTDS),
)


def kinds_of(seed: int) -> tuple[Fault, ...]:
    """What may go wrong, each as often as it is there."""
    return (*KINDS, *(fault for since, more in _MORE if seed >= since for fault in more))
