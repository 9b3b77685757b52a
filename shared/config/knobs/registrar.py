"""Knobs of the registrar, which makes and takes away daemons' users of the broker. One line adds another."""

from __future__ import annotations

from typing import ClassVar

from shared.config.knobs.base import declared, knob
from shared.config.knobs.common import CommonSettings


@declared
class RegistrarSettings(CommonSettings):
    """What the registrar reads of its configuration."""

    SUBSYSTEM: ClassVar[str] = "REGISTRAR"

    registrar_broker_api_file: str | None = knob(
        "REGISTRAR_BROKER_API_FILE",
        meaning="file with the URL of RabbitMQ's management API, with an administrator's user and password, which "
        "others can not read: http://user:password@host:15672; several with commas between them are tried in turn",
    )
    registrar_daemons_amqp: tuple[str, ...] = knob(
        "REGISTRAR_DAEMONS_AMQP",
        meaning="URLs of the broker, without user and password, that daemons which enroll are told; none: those of "
        "ROOST_AMQP_URL",
    )
    registrar_join_tokens_file: str | None = knob(
        "REGISTRAR_JOIN_TOKENS_FILE",
        meaning="file of join tokens to know from the start, a line of JSON each: digest (SHA-256 of the token), "
        "roles, names, left",
    )
    registrar_interval: int = knob(
        "REGISTRAR_INTERVAL",
        "30",
        unit="s",
        least=1,
        meaning="between two looks at the broker's users: who is connected, and whether somebody who was revoked is "
        "back",
    )
