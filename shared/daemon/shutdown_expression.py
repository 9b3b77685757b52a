"""DAEMON_SHUTDOWN and DAEMON_SHUTDOWN_FAST: expressions that are looked at in each ad that a daemon sends to the pool.
Where one is true, the daemon does as if somebody had switched it off. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shared.classad import ClassAd, ParseError, evaluate
from shared.config import Config, ConfigError
from shared.config.evaluate import parse_whole


@dataclass(frozen=True, slots=True)
class Shutdown:
    """That a daemon is to switch itself off, and why."""

    fast: bool
    reason: str


def wanted_shutdown(config: Config, ads: Iterable[ClassAd], now: float) -> Shutdown | None:
    """By the first of these ads in which one of the expressions is true."""
    try:
        asked = {
            "DAEMON_SHUTDOWN_FAST": config.get("DAEMON_SHUTDOWN_FAST"),
            "DAEMON_SHUTDOWN": config.get("DAEMON_SHUTDOWN"),
        }
        expressions = {knob: parse_whole(text) for knob, text in asked.items() if text}
    except (ConfigError, ParseError):
        return None  # whoever reads the settings tells of it
    for knob, expression in expressions.items():
        for ad in ads:
            value = evaluate(expression, ad, None, now)
            if value is True or (isinstance(value, int | float) and value != 0):
                reason = f"{knob} is true in the ad of {ad.eval_string('Name')}: {asked[knob]}"
                return Shutdown(knob == "DAEMON_SHUTDOWN_FAST", reason[:500])
    return None
