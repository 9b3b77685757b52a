"""Every key of the pool in Redis, and what lies there. Nobody writes the name of a key anywhere else.

    key                              type        what
    roost:ads:expiry                 sorted set  "<MyType>/<daemon>" of every group of ads, scored with when it expires
                                                 (s since 1970)
    roost:ads:<MyType>/<daemon>      hash        the group: ad name -> packed ad, compressed; field "" -> what
                                                 orders it (shared.state.ads)
    roost:ads:dictionaries           hash        number -> since when, and the dictionary that ads are compressed with
                                                 (shared.compression)
    roost:ads:columns                hash        MyType -> what a collector has read of these ads, so that the next one
                                                 need not
    roost:claims                     hash        daemon -> its slots' claim ids: secrets, for central managers only
    roost:version:<kind>             string      version of the records of a kind (shared.state.versions); none: 1
    roost:absent                     hash        Name -> a machine ad that expired and is remembered (spec rows ABS-*)
    roost:tokens                     hash        SHA-256 of a token -> whose it is and what it may do
    roost:tokens-used                hash        SHA-256 of a token -> when it was used last (s since 1970)
    roost:had:lease                  hash        owner, epoch, until (ms since 1970, Redis's clock): who leads
    roost:had:epoch                  string      the highest epoch ever given; only grows
    roost:had:present                hash        HAD -> when it was last seen, and whether its negotiator answers
    roost:lead:<kind>                hash        owner, life, until (ms since 1970, Redis's clock): which of several
                                                 daemons of that kind acts; note: what the next one must know
    roost:accountant:<shard>         hash        submitter -> packed record
    roost:accountant-groups:<shard>  hash        accounting group -> packed record
    roost:accountant-claims:<shard>  hash        when a claim began (its startd's clock) and its slot -> for whom, since
                                                 when and until when it was charged; field "" -> version of the books
                                                 these claims are of, and until when those that go on were charged
    roost:accountant-version:<shard> string      "epoch count": version of these books (shared.accounting_version)
    roost:accountant-written:<shard> string      "epoch count ms": the version of the books in which `until when` was
                                                 written last, and when that was (ms since 1970, Redis's clock)
    roost:accountant-aside:<shard>   hash        records of books that are being restored, not in force yet
    roost:accountant-groups-aside:<shard>  hash  likewise of groups
    roost:accountant-claims-aside:<shard>  hash  likewise of claims

Where a pool has several negotiators, each with slots of its own (NEGOTIATOR_NAME, spec rows MUL-*), each name
is a shard with an election and books of its own: `roost:had:lease:<shard>` and so on. The shard without a name is "".

With `?prefix=poolA:` in the URL of the store every key gets that in front, so that pools can share a Redis.
"""

from __future__ import annotations

from typing import Final

ADS_EXPIRY: Final = "roost:ads:expiry"
#: No group has such a name: theirs have a slash.
ADS_DICTIONARIES: Final = "roost:ads:dictionaries"
ADS_COLUMNS: Final = "roost:ads:columns"
CLAIMS: Final = "roost:claims"
ABSENT: Final = "roost:absent"
#: An epoch above this is nobody's: the scripts count in doubles, the schedd's database in 64 bits.
MAX_EPOCH: Final = 2**52
TOKENS: Final = "roost:tokens"
TOKENS_USED: Final = "roost:tokens-used"


def group(my_type: str, daemon: str) -> str:
    """What stands in ADS_EXPIRY for the ads of one daemon and type."""
    return f"{my_type}/{daemon}"


def ads(my_type: str, daemon: str) -> str:
    """The ads of one daemon and type."""
    return f"roost:ads:{group(my_type, daemon)}"


def accountant(shard: str) -> str:
    """The books of the negotiators called `shard`: whichever of them leads."""
    return f"roost:accountant:{shard}"


def accountant_groups(shard: str) -> str:
    """The books of the accounting groups of these negotiators. Names of users and groups could be alike."""
    return f"roost:accountant-groups:{shard}"


def accountant_claims(shard: str) -> str:
    """The claims for which these books say that something was charged."""
    return f"roost:accountant-claims:{shard}"


def accountant_version(shard: str) -> str:
    """The version of these books."""
    return f"roost:accountant-version:{shard}"


def accountant_written(shard: str) -> str:
    """When these books were written, by Redis's clock."""
    return f"roost:accountant-written:{shard}"


def accountant_aside(shard: str) -> str:
    """Records that are about to be restored."""
    return f"roost:accountant-aside:{shard}"


def accountant_groups_aside(shard: str) -> str:
    """Records of groups that are about to be restored."""
    return f"roost:accountant-groups-aside:{shard}"


def accountant_claims_aside(shard: str) -> str:
    """Claims that are about to be restored."""
    return f"roost:accountant-claims-aside:{shard}"


def version(kind: str) -> str:
    """The version of the records of a kind (shared.stored_versions.IN_REDIS)."""
    return f"roost:version:{kind.replace(' ', '-')}"


def had_lease(shard: str = "") -> str:
    """Who leads."""
    return _of_shard("roost:had:lease", shard)


def had_epoch(shard: str = "") -> str:
    """The highest epoch ever given."""
    return _of_shard("roost:had:epoch", shard)


def had_present(shard: str = "") -> str:
    """Which HADs were seen when."""
    return _of_shard("roost:had:present", shard)


def lead(subsystem: str, group: str = "") -> str:
    """Who acts among the daemons of one kind (shared.daemon.lead)."""
    return _of_shard(f"roost:lead:{subsystem.lower()}", group)


def _of_shard(key: str, shard: str) -> str:
    return f"{key}:{shard}" if shard else key
