"""Ads of machines that sleep (spec row ABS-07): `Offline = true` in a machine's ad says that it hibernates and can be
woken. Such an ad outlives the silence that follows, and says what is true of a sleeping machine, whatever it said last.
"""

from __future__ import annotations

from typing import Any

from services.collector.acceptance import MACHINE
from shared.daemon.ad_rows import LIFETIME, Patch, added
from shared.daemon.ad_table import AdMessage
from shared.daemon.asleep import MARK, is_offline
from shared.messages.ads import AdDelta, AdUpdate

#: What a sleeping machine is, and what it does not do.
_ASLEEP = {
    "State": "Unclaimed",
    "Activity": "Idle",
    "LoadAvg": 0.0,
    "CondorLoadAvg": 0.0,
    "TotalLoadAvg": 0.0,
    "TotalCondorLoadAvg": 0.0,
    "CpuIsBusy": False,
    "CpuBusyTime": 0,
}


def settled(message: AdMessage, keep_s: float, now: float) -> AdMessage:
    """The message with the ads of sleeping machines as they are kept; most come back as they are. `keep_s`:
    OFFLINE_EXPIRE_ADS_AFTER."""
    if message.my_type != MACHINE or not isinstance(message, AdUpdate):
        return message
    asleep = {number: ad for number, ad in enumerate(message.ads) if is_offline(ad, now)}
    if not asleep:
        return message
    ads = [asleep_ad(ad, keep_s, now) if number in asleep else ad for number, ad in enumerate(message.ads)]
    return message.model_copy(update={"ads": ads})


def asleep_ad(packed: bytes, keep_s: float, now: float) -> bytes:
    """The ad as it is kept. Raises BadAd."""
    told: dict[str, Any] = {**_ASLEEP, "EnteredCurrentState": int(now), "EnteredCurrentActivity": int(now)}
    return added(packed, {**told, LIFETIME: int(keep_s)})


def wakes(message: AdMessage, rows: dict[str, bytes], now: float) -> bool:
    """Whether a change is one of an ad that was kept in another form than it was sent (`rows`: ads that it changes), or
    tells of going to sleep: such a change can only be taken with the ad as a whole."""
    if message.my_type != MACHINE or not isinstance(message, AdDelta):
        return False
    if any(MARK.search(change) is not None for change in message.changes):
        return True
    return any(is_offline(packed, now) for packed in rows.values())


def matched(at: float) -> Patch:
    """What changes in the ad of a slot when a job is matched with it in its sleep."""
    return Patch({"MachineLastMatchTime": int(at)})
