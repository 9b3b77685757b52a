"""Knobs of the collector. One line adds another."""

from __future__ import annotations

from typing import ClassVar

from shared.classad import Expr
from shared.config.knobs.base import declared, knob
from shared.config.knobs.common import CommonSettings


@declared
class CollectorSettings(CommonSettings):
    """What the collector reads of its configuration."""

    SUBSYSTEM: ClassVar[str] = "COLLECTOR"

    collector_attrs: tuple[str, ...] = knob(
        "COLLECTOR_ATTRS", meaning="macros whose values are attributes of the collector's ad"
    )
    absent_requirements: Expr | None = knob(
        "ABSENT_REQUIREMENTS", meaning="evaluated against an expiring machine ad; true keeps it as absent"
    )
    absent_expire_ads_after: int = knob(
        "ABSENT_EXPIRE_ADS_AFTER", "2592000", unit="s", least=0, meaning="an absent ad is kept; 0 = for ever"
    )
    expire_invalidated_ads: bool = knob(
        "EXPIRE_INVALIDATED_ADS", "false", meaning="treat invalidated ads as expired (so they may become absent)"
    )
    collector_persistent_ad_log: str | None = knob(
        "COLLECTOR_PERSISTENT_AD_LOG", meaning="file that keeps offline and absent ads across restarts"
    )
    offline_expire_ads_after: int = knob(
        "OFFLINE_EXPIRE_ADS_AFTER",
        "2147483647",
        unit="s",
        least=0,
        meaning="an offline ad is kept, counted from its arrival",
    )
    pool_history_dir: str | None = knob("POOL_HISTORY_DIR", meaning="directory of the history files; not spool nor log")
    keep_pool_history: bool = knob("KEEP_POOL_HISTORY", "false", meaning="store pool history")
    pool_history_max_storage: int = knob(
        "POOL_HISTORY_MAX_STORAGE", "10000000", unit="bytes", least=0, meaning="for all history files"
    )
    pool_history_sampling_interval: int = knob(
        "POOL_HISTORY_SAMPLING_INTERVAL", "60", unit="s", least=1, meaning="time between two samples of pool history"
    )
    condor_view_host: tuple[str, ...] = knob(
        "CONDOR_VIEW_HOST",
        meaning="host[:port] list (comma or space) that receives forwarded ads; ignored where it names itself",
    )
    housekeeping_interval: int = knob(
        "HOUSEKEEPING_INTERVAL", "300", unit="s", least=1, meaning="time between two searches for expired ads"
    )
    collector_presence_interval: int = knob(
        "COLLECTOR_PRESENCE_INTERVAL",
        "2",
        unit="s",
        least=0,
        meaning="time between two looks at which execution points are at the broker; 0 = none, their ads only expire",
    )
    collector_presence_grace: int = knob(
        "COLLECTOR_PRESENCE_GRACE",
        "5",
        unit="s",
        least=1,
        meaning="so long an execution point may be away from the broker before its ads are taken out",
    )
    collector_update_interval: int = knob(
        "COLLECTOR_UPDATE_INTERVAL",
        "900",
        unit="s",
        least=1,
        meaning="time between two ads of the collector about itself",
    )
