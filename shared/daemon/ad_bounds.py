"""What the ads of one daemon may come to, so that none of them holds the loop of who reads them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from shared.daemon.ad_rows import MOST_AD_ATTRIBUTES, MOST_AD_BYTES, BadAd, entries
from shared.messages.ads import AdDelta, AdUpdate

#: Ads of one daemon and type, all messages together.
MOST_OF_DAEMON: Final = 20_000


def check_size(daemon: str, name: str, size: int, attributes: int) -> None:
    """Raises BadAd for an ad of more bytes or attributes than one may have."""
    if size > MOST_AD_BYTES:
        raise BadAd(f"{daemon}: the ad {name[:80]!r} has {size} bytes; at most {MOST_AD_BYTES} are taken")
    if attributes > MOST_AD_ATTRIBUTES:
        raise BadAd(
            f"{daemon}: the ad {name[:80]!r} has {attributes} attributes; at most {MOST_AD_ATTRIBUTES} are taken"
        )


def check_number(message: AdUpdate | AdDelta, known: Collection[str], names: Iterable[str]) -> None:
    """Raises BadAd where its daemon would have too many ads with these."""
    many = len(known) + sum(name not in known for name in names)
    if many > max(MOST_OF_DAEMON, len(known)):
        raise BadAd(
            f"{message.daemon}: {many} ads of type {message.my_type}; at most {MOST_OF_DAEMON} of one daemon are taken"
        )


def attributes_of(packed: bytes) -> int:
    """How many attributes an ad has; of what is none, which is told when somebody reads it, 0."""
    try:
        return entries(packed)
    except BadAd:
        return 0
