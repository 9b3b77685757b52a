"""How often somebody may fail to say who they are. Pure; each gateway counts by itself.

Failures are counted by address and by what was shown: guesses come from one address, and one secret that is over (a
script's old token) may come from many. While either has failed too often, what is shown is not even looked at, so
guesses gain nothing by being many. But whoever has been known here lately is looked at all the same: a flood of
failures from the address of a proxy, or of a machine that many use, locks none of them out.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Final

from services.gateway.core.limits import RateLimiter

#: Of those who were known lately: how many are remembered, and for how long, seconds.
MOST_KNOWN: Final = 10_000
KNOWN_S: Final = 12 * 3600.0
#: Whoever has IPv6 has this much of it at least, in bits of the network.
_IPV6_NETWORK: Final = 64


class FailedLogins:
    """rate: failures a second that one address, or one secret, may go on with; at_once: and how many at once. A rate of
    0 is no limit."""

    def __init__(self, rate: float, at_once: float) -> None:
        seconds = at_once / rate if rate > 0 else 1.0
        self._addresses = RateLimiter(rate, seconds)
        self._secrets = RateLimiter(rate, seconds)
        self._known: OrderedDict[str, float] = OrderedDict()

    def wait(self, address: str, secret: str, now: float) -> float:
        """0 when this login is to be looked at, else after how many seconds it may be tried again. secret: a digest of
        what was shown; now: monotonic seconds."""
        since = self._known.get(secret)
        if since is not None and now - since < KNOWN_S:
            return 0.0
        return max(self._addresses.wait(network(address), now), self._secrets.wait(secret, now))

    def failed(self, address: str, secret: str, now: float) -> None:
        """What was shown is nobody's, or nobody's any more."""
        self._known.pop(secret, None)
        self._addresses.take(network(address), now)
        self._secrets.take(secret, now)

    def succeeded(self, secret: str, now: float) -> None:
        """What was shown is somebody's."""
        self._known[secret] = now
        self._known.move_to_end(secret)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    def __len__(self) -> int:
        return len(self._known) + len(self._addresses) + len(self._secrets)


def network(address: str) -> str:
    """Whose failures are counted together: those of an IPv4 address, or of the least network of IPv6 that is given to
    one customer."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _IPV6_NETWORK), strict=False))
