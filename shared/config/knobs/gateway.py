"""Knobs of the gateway. One line adds another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shared.config.knobs.base import knob
from shared.config.knobs.common import CommonSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings(CommonSettings):
    """What the gateway reads of its configuration."""

    SUBSYSTEM: ClassVar[str] = "GATEWAY"

    roost_gateway_port: int = knob(
        "ROOST_GATEWAY_PORT", "9680", least=0, most=65535, meaning="port of the HTTP API; 0: a free one"
    )
    roost_gateway_bind: str = knob("ROOST_GATEWAY_BIND", "127.0.0.1", meaning="address on which the gateway listens")
    roost_gateway_schedd: str | None = knob(
        "ROOST_GATEWAY_SCHEDD", meaning="schedd that takes the jobs of those who name none; unset: the first by name"
    )
    roost_token_user: str | None = knob(
        "ROOST_TOKEN_USER",
        meaning="user, as name@domain, whom the token in ROOST_TOKEN_FILE stands for; unset: whoever runs the gateway",
    )
