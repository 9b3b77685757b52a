"""Orders that every daemon takes from an administrator: read the configuration again, restart, off.

A daemon takes them at its own inbox, of gateways only (shared/bus/senders.py sees to that). What a
restart and an end mean is up to whoever runs the daemon (`main`, `runner`): the daemon only says in its context that it
wants another life (`again`).
"""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from typing import Final

from shared.config import Config, ConfigError
from shared.config.errors import warning_lines
from shared.daemon.advertiser import Advertiser
from shared.daemon.base import Daemon
from shared.daemon.config_query import describe_config
from shared.daemon.config_set import set_config
from shared.daemon.health_told import tell_health
from shared.daemon.lifecycle import install_user_maps
from shared.daemon.off_mark import clear_off_mark, mark_off
from shared.errors import PermanentError, RoostError
from shared.messages.ads import SendAds
from shared.messages.base import Ack, Envelope, Failure, Message
from shared.messages.orders import (
    AskConfig,
    OrderTaken,
    Reconfigure,
    Reconfigured,
    Restart,
    SetConfig,
    SwitchOff,
    SwitchOn,
)

ORDERS: Final = (AskConfig, Reconfigure, Restart, SetConfig, SwitchOff, SwitchOn)
#: What every daemon reads only as it starts: shell patterns of names.
AT_START: Final = (
    "ROOST_AMQP_URL",
    "ROOST_REDIS_URL",
    "AUTH_SSL_CLIENT_*",
    "SSL_SKIP_HOST_CHECK",
    "ROOST_HEALTH_*",
    "SPOOL",
    "EXECUTE",
    "LOG",
    "LOCAL_DIR",
    "FULL_HOSTNAME",
    "*_NAME",
    "*_DEBUG",
)


async def handle_order(daemon: Daemon, envelope: Envelope, ads: Advertiser | None = None) -> Message:
    """Carry out an order; what is none is refused. For requests that a daemon has no answer of its own to. ads: its
    own, for who asks to have them again."""
    body = envelope.body
    if ads is not None and isinstance(body, SendAds):
        ads.resend(body)
        return Ack()
    if not isinstance(body, ORDERS):
        return Failure(code="bad-request", reason=f"a {daemon.subsystem.lower()} does not answer {body.type}")
    context = daemon.context
    if isinstance(body, AskConfig):
        told = await asyncio.to_thread(describe_config, context.config, body)
        return told.model_copy(update={"health": await tell_health(daemon)}) if body.health else told
    context.log.info("ordered", order=body.type, by=body.by[:200])
    try:
        if isinstance(body, Reconfigure):
            return await reconfigure(daemon)
        if isinstance(body, SetConfig):
            return await set_config(daemon, body, (*AT_START, *daemon.at_start))
        if isinstance(body, SwitchOn):
            if not context.stopping.is_set():
                return OrderTaken(said="it is on already")
            await asyncio.to_thread(clear_off_mark, context, daemon.subsystem)  # it is about to be off
            return OrderTaken(said="it is on")
        if isinstance(body, Restart):
            await check_configuration(daemon)
            said = "it restarts"
        else:
            if not daemon.can_be_off:
                kind = daemon.subsystem.lower()
                return Failure(
                    code="refused", reason=f"a {kind} that is off could not be switched on: stop its process"
                )
            await asyncio.to_thread(mark_off, context, daemon.subsystem, body.by, body.reason)
            said = "it is off until `roost on`"
    except (RoostError, ValueError, OSError) as error:
        context.log.error("order_refused", order=body.type, reason=str(error))
        return Failure(code="refused", reason=str(error))
    restart(daemon)
    return OrderTaken(said=said)


def restart(daemon: Daemon) -> None:
    """End this life in good order, for another one to begin."""
    daemon.context.again = True
    daemon.context.stopping.set()


async def check_configuration(daemon: Daemon) -> None:
    """Raises ConfigError if the next life could not read its configuration."""
    if daemon.context.reread is not None:
        await asyncio.to_thread(daemon.context.reread)


async def reconfigure(daemon: Daemon) -> Reconfigured:
    """Read the configuration again and go by it. Raises ConfigError and others for what can not be used: it names the
    place, and the daemon goes on by what it had."""
    context = daemon.context
    if context.reread is None:
        raise PermanentError("there are no configuration files that could be read again")
    async with daemon.rereading:
        before, context.config = context.config, await asyncio.to_thread(context.reread)
        try:
            await install_user_maps(daemon)
            await daemon.reconfigure()
        except BaseException:
            context.config = before
            await install_user_maps(daemon)
            raise
        changed = changed_macros(before, context.config)
        at_start = [name for name in changed if waits_for_restart(name, (*AT_START, *daemon.at_start))]
        warnings = warning_lines(context.config.warnings)
        fresh = warning_lines(context.config.warnings, set(before.warnings))
    for problem in fresh:
        context.log.warning("configuration", problem=problem)
    context.log.info("reconfigured", changed=changed, at_start=at_start)
    return Reconfigured(changed=changed, at_start=at_start, warnings=warnings)


def changed_macros(before: Config, after: Config) -> list[str]:
    """Macros whose value is another, as they are written, sorted. Their values are not told: some are secret."""
    written = {macro.name.lower(): macro.name for config in (before, after) for macro in config.macros()}
    names = {*before.names(), *after.names()}
    return sorted(written.get(name, name.upper()) for name in names if _value(before, name) != _value(after, name))


def waits_for_restart(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name.upper(), pattern) for pattern in patterns)


def _value(config: Config, name: str) -> str | None:
    try:
        return config.get(name)
    except ConfigError:
        return config.raw(name)
