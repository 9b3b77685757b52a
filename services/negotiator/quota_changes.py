"""Quotas of accounting groups that an administrator sets while the pool runs, in place of the configuration's. Pure.

They are part of the books: whichever negotiator leads has them, and with the books they are copied and restored. The
configuration that a negotiator goes by has them as macros on top of its files', so whatever reads GROUP_QUOTA_<group>,
or tells where it comes from, knows of no other way: the journal's replays among them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shared.config import Config
from shared.config.errors import Source
from shared.config.knobs.base import to_list

#: Where such a macro comes from.
SET: Final = Source("<set by roost userprio>")
MOST: Final = 1e12


@dataclass(frozen=True, slots=True)
class Quota:
    """value: slot weight; `dynamic`: a part of the parent's quota, 0 to 1."""

    value: float
    dynamic: bool = False


def asked_for(what: str, value: float | None) -> Quota | None:
    """The quota that a change means; None: the configuration's. Raises ValueError."""
    if what == "no-quota":
        if value is not None:
            raise ValueError("no-quota takes no value: the group has the configuration's quota again")
        return None
    if value is None:
        raise ValueError(f"{what} wants a number")
    return Quota(value, what == "dynamic-quota")


def check_quota(quota: Quota) -> None:
    """Raises ValueError for what can be no quota."""
    most = 1.0 if quota.dynamic else MOST
    if not (math.isfinite(quota.value) and 0.0 <= quota.value <= most):
        wanted = "a part of the parent's, from 0 to 1" if quota.dynamic else f"slot weight, from 0 to {MOST:g}"
        raise ValueError(f"a quota of {quota.value:g}: give {wanted}")


def with_quotas(config: Config, quotas: Mapping[str, Quota]) -> Config:
    """The configuration with these in place of what it says; those of groups that it does not name are left out. Static
    quotas win over dynamic ones, so the other kind is not defined then."""
    named = {name.lower() for name in to_list(config.get("GROUP_NAMES") or "")}
    quotas = {key: quota for key, quota in quotas.items() if key in named}
    if not quotas:
        return config
    table = config.table.copy()
    scope = next((f"{one}." for one in (config.local_name, config.subsystem) if one), "")
    for key, quota in sorted(quotas.items()):
        text = f"{quota.value:.17g}" if quota.value != int(quota.value) else f"{int(quota.value)}"
        for family, mine in (("GROUP_QUOTA", not quota.dynamic), ("GROUP_QUOTA_DYNAMIC", quota.dynamic)):
            table.set(f"{scope}{family}_{key}", text if mine else "", SET)
    return config.on(table)
