"""Every key of the pool in Redis, and what lies there. Nobody writes the name of a key anywhere else.

| key | type | what | | --- | --- | --- | | roost:ads:expiry | sorted set | "<MyType>/<daemon>" of every
group of ads, scored with when it expires (s since 1970) | | roost:ads:<MyType>/<daemon> | hash | the group:
ad name -> packed ad; field "" -> what orders it (shared.state.ads) | | roost:claims | hash | daemon -> its
slots' claim ids: secrets, for central managers only | | roost:absent | hash | Name -> a machine ad that
expired and is remembered (spec rows ABS-*) | | roost:had:lease | hash | owner, epoch, until (ms since 1970,
Redis's clock): who leads | | roost:had:epoch | string | the highest epoch ever given; only grows | |
roost:accountant:<negotiator> | hash | submitter -> packed record |

With `?prefix=poolA:` in the URL of the store every key gets that in front, so that pools can share a Redis.
"""

from __future__ import annotations

from typing import Final

ADS_EXPIRY: Final = "roost:ads:expiry"
CLAIMS: Final = "roost:claims"
ABSENT: Final = "roost:absent"
HAD_LEASE: Final = "roost:had:lease"
HAD_EPOCH: Final = "roost:had:epoch"
HAD_PRESENT: Final = "roost:had:present"
#: An epoch above this is nobody's: the scripts count in doubles, the schedd's database in 64 bits.
MAX_EPOCH: Final = 2**52
TOKENS: Final = "roost:tokens"  # hash: SHA-256 of a token -> whose it is and what it may do


def group(my_type: str, daemon: str) -> str:
    """What stands in ADS_EXPIRY for the ads of one daemon and type."""
    return f"{my_type}/{daemon}"


def ads(my_type: str, daemon: str) -> str:
    """The ads of one daemon and type."""
    return f"roost:ads:{group(my_type, daemon)}"


def accountant(negotiator: str) -> str:
    """The books of one negotiator (NEGOTIATOR_NAME)."""
    return f"roost:accountant:{negotiator}"
