"""Tries whether a broker can be used: for commands that tell people what is wrong with a set-up."""

from __future__ import annotations

from typing import Final

from yarl import URL

from shared.bus.amqp.link import Link, LinkLost, Refused
from shared.bus.api import BusUnavailable
from shared.bus.handling import explain
from shared.tls import ClientTls, TlsTrouble, explained

#: Seconds for one node.
PATIENCE_S: Final = 5.0


async def try_broker(urls: str, tls: ClientTls) -> str:
    """Why none of these nodes (with commas between them) lets us in, in words without passwords; empty: one does."""
    troubles = []
    for url in filter(None, (one.strip() for one in urls.split(","))):
        try:
            place = URL(url)
        except ValueError as error:
            troubles.append(f"it is no URL: {error}")
            continue
        shown = f"{place.host}:{place.port or (5671 if place.scheme == 'amqps' else 5672)}"
        try:
            link = await Link.open(url, name="roost doctor", heartbeat_s=10, timeout_s=PATIENCE_S, tls=tls)
        except TimeoutError:
            troubles.append(f"{shown}: no answer within {PATIENCE_S:g} s")
        except (LinkLost, Refused, BusUnavailable, TlsTrouble, ValueError) as error:
            said = explained(error) or explain(error.__cause__ or error)
            if "Connection.OpenOk" in said:  # the library does not tell the broker's words
                said = f"the broker closes the connection as it enters the virtual host {place.path[1:] or '/'}"
            troubles.append(f"{shown}: {said}")
        else:
            await link.close()
            return ""
    return "; ".join(troubles) or "it is empty"
