"""What each role of the pool may do in Redis: the commands that it uses, on the keys that it uses, and nothing else.

A role that is not in `RIGHTS` has no user. Nobody has scripts of his own (EVAL), loads functions, or sees the server,
other clients or a list of keys. Redis checks what a function does by the rights of whoever calls it, so a role also has
the commands that its functions call, on its keys.

`user_line` gives lines of Redis's access list (`aclfile`), and what ACL SETUSER takes, from Redis 7 on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from shared import stored_versions as stored
from shared.state import keys
from shared.state.scripts import script

#: The user that loads the functions (shared.daemon.load_functions): it sees no key.
LOADER: Final = "loader"
#: The user that copies what lies there, and puts it back (`roost backup`, `roost restore`).
BACKUP: Final = "backup"
#: The user of health checks: it may ping, and needs no password for it.
HEALTH: Final = "health"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@+-]*")


@dataclass(frozen=True, slots=True)
class Rights:
    """Of one role. Keys are patterns as Redis takes them."""

    commands: frozenset[str]  # that its daemons give, in lower case; "container|subcommand"
    keys: tuple[str, ...] = ()  # to read and write
    reads: tuple[str, ...] = ()  # to read only
    functions: frozenset[str] = frozenset()  # scripts that its daemons run
    #: Those of `reads` that its functions take. Redis can not tell what a function writes, so FCALL, and nothing but
    #: FCALL, is given these as if it wrote them; what the function then does is checked again.
    passed: tuple[str, ...] = ()

    @property
    def all_commands(self) -> frozenset[str]:
        """Its own and those of its functions, without FCALL."""
        return self.commands.union(*(script(name).commands for name in self.functions))


_ADS, _HAD, _EPOCH, _ACCOUNTING = "roost:ads:*", "roost:had:*", f"{keys.had_epoch()}*", "roost:accountant*"
_AGREES: Final = frozenset({"versions_agree"})  # on the versions of what it writes


def _versions(*kinds: str) -> tuple[str, ...]:
    return tuple(map(keys.version, kinds))


#: A daemon of which several stand by (shared.daemon.lead).
_LEADS = frozenset({"lead_take", "lead_note", "lead_give_up"})
_CONFIRMED = frozenset({"role", "wait"})  # writes that a replica must have

RIGHTS: Final[dict[str, Rights]] = {
    "collector": Rights(
        frozenset({"ping", "hget", "hset", "hdel", "hgetall", "zrangebyscore"}),
        keys=(_ADS, keys.CLAIMS, keys.ABSENT, *_versions(stored.ADS, stored.CLAIM_IDS, stored.ABSENT)),
        functions=frozenset({"ads_write", "ads_remove", "claims_write"}) | _AGREES,
    ),
    "negotiator": Rights(
        frozenset({"ping", "get", "hgetall", "zrangebyscore"}) | _CONFIRMED,
        keys=(_ACCOUNTING, *_versions(stored.ACCOUNTING)),
        reads=(_EPOCH, _ADS, keys.CLAIMS, *_versions(stored.ADS, stored.CLAIM_IDS)),
        functions=frozenset({"accountant_write", "accountant_passed", "books_stage", "books_replace"}) | _AGREES,
        passed=(_EPOCH,),
    ),
    "had": Rights(  # it restores accounting records that Redis lost
        frozenset({"ping", "get", "hgetall"}) | _CONFIRMED,
        keys=(_HAD, _ACCOUNTING, *_versions(stored.ELECTION, stored.ACCOUNTING)),
        functions=frozenset({"had_lease", "had_release", "had_hand_over", "books_stage", "books_replace"}) | _AGREES,
    ),
    "defrag": Rights(
        frozenset({"ping"}) | _CONFIRMED,
        keys=(f"{keys.lead('defrag')}*", *_versions(stored.DEFRAG)),
        functions=_LEADS | _AGREES,
    ),
    "rooster": Rights(
        frozenset({"ping"}) | _CONFIRMED,
        keys=(f"{keys.lead('rooster')}*", *_versions(stored.ROOSTER)),
        functions=_LEADS | _AGREES,
    ),
    "gateway": Rights(
        frozenset({"ping", "hget", "hset", "hdel", "hgetall"}),
        keys=(keys.TOKENS, keys.TOKENS_USED, *_versions(stored.TOKENS)),
        functions=_AGREES,
    ),
}
LOADER_COMMANDS: Final = frozenset({"ping", "function|load", "function|list", "function|delete"})
#: Of users that are no daemon's.
OTHERS: Final[dict[str, Rights]] = {
    LOADER: Rights(LOADER_COMMANDS),
    BACKUP: Rights(frozenset({"ping", "get", "set", "hgetall", "hset"}), keys=("*",)),
}


def role_of(user: str) -> str:
    """The role of `<role>` or `<role>.<daemon>`. Raises ValueError for a user that is none of either, and for a role
    that needs no Redis."""
    role = user.partition(".")[0]
    if not _NAME.fullmatch(user) or user.endswith("."):
        raise ValueError(f"{user!r} is no user of Redis: use letters, digits, and _ . @ + -")
    if role not in RIGHTS:
        raise ValueError(f"{user!r}: only {', '.join(sorted(RIGHTS))} have users of Redis")
    return role


def rules(role: str, prefix: str = "") -> list[str]:
    """Words for ACL SETUSER after the password. prefix: that stands before every key (`?prefix=` of the URL)."""
    return _rules(RIGHTS[role], prefix)


def user_line(user: str, password: str, prefix: str = "") -> str:
    """The line of the access list for `<role>`, `<role>.<daemon>`, LOADER or BACKUP; Redis sees the password's hash
    only. It is the whole of what the user has: rights of before are gone. Raises ValueError."""
    rights = OTHERS.get(user) or RIGHTS[role_of(user)]
    return " ".join(["user", user, "reset", "resetchannels", "on", f"#{digest(password)}", *_rules(rights, prefix)])


def access_list(users: Iterable[tuple[str, str]], more: Iterable[str] = (), prefix: str = "") -> str:
    """Redis's access list as a file. users: names and passwords, as `user_line` takes them; more: further lines.

    The default user is off, so whoever does not log in may do nothing. It has all rights nevertheless, as Redis reads
    its append-only file under that name: without them it leaves out, at its start, whatever was written by a function
    or a transaction (a line CRITICAL in its log is all that it says).
    """
    lines = ["user default off resetpass ~* &* +@all", f"user {HEALTH} reset resetchannels on nopass +ping"]
    lines += [user_line(user, password, prefix) for user, password in users]
    return "\n".join([*lines, *more]) + "\n"


def replication_line(user: str, password: str) -> str:
    """For replicas at their primary, as Redis's manual lists it."""
    return f"user {user} reset resetchannels on #{digest(password)} +psync +replconf +ping"


def sentinel_line(user: str, password: str) -> str:
    """For sentinels at the servers that they watch, as Redis's manual lists it."""
    return (
        f"user {user} reset on #{digest(password)} allchannels +multi +slaveof +ping +exec +subscribe "
        "+config|rewrite +role +publish +info +client|setname +client|kill +script|kill"
    )


def digest(password: str) -> str:
    """As access lists have it."""
    return hashlib.sha256(password.encode()).hexdigest()


def _rules(rights: Rights, prefix: str) -> list[str]:
    def patterns(mark: str, found: Iterable[str]) -> list[str]:
        return [f"{mark}~{prefix}{pattern}" for pattern in found]

    words = patterns("", rights.keys) + patterns("%R", rights.reads)
    words += [f"+{command}" for command in sorted(rights.all_commands)]
    if rights.functions:
        called = " ".join(["+fcall", *patterns("", rights.keys), *patterns("", rights.passed)])
        words.append(f"({called})")
    return words
