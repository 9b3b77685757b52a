"""Which system account a run's processes get. Pure: the machine's accounts come as a function.

A startd that is root chooses, as HTCondor does, the first of these that is possible:

1. the job's owner, if STARTER_ALLOW_RUNAS_OWNER permits it, the job does not refuse (RunAsOwner), and it comes from
   this UID_DOMAIN;
2. the slot's user: SLOT<N>_USER (SLOT1_2_USER of a dynamic slot, else its parent's);
3. nobody.

Never root, whatever its name, unless ROOST_JOBS_AS_ROOT is set: then every job is root's. A startd that is not root
has one account for everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from services.startd.launchers.api import Account
from services.startd.walls.rules import WallRules
from shared.classad import ClassAd

NOBODY = "nobody"
#: Where there is no account of that name.
NOBODY_ID = 65534


@dataclass(frozen=True, slots=True)
class Login:
    """An account of the machine."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


Lookup = Callable[[str], Login | None]


class NoAccount(Exception):
    """The knobs name an account that is not there or may not be used: which knob, and the mend."""


def choose(rules: WallRules, slot: str, job: ClassAd, find: Lookup) -> Account:
    """The account of a run in a slot ("slot1_2@host"), where the startd is root and ROOST_JOBS_AS_ROOT is not set.
    Raises NoAccount."""
    owner = _owner(rules, job, find)
    if owner is not None:
        return _account(owner, shared=False, dedicated=_is_dedicated(rules, owner.name))
    number = slot.partition("@")[0].lower().removeprefix("slot")
    knob = next((one for one in (number, number.partition("_")[0]) if one in rules.slot_users), "")
    if knob:
        login = find(rules.slot_users[knob])
        if login is None or login.uid == 0:
            what = "is root" if login is not None else "is no account of this machine"
            raise NoAccount(f"SLOT{knob.upper()}_USER = {rules.slot_users[knob]} {what}: name an ordinary account")
        alone = knob == number and sum(name == login.name for name in rules.slot_users.values()) == 1
        dedicated = rules.login_is_dedicated or _is_dedicated(rules, login.name)
        return _account(login, shared=not alone, dedicated=dedicated)
    login = find(NOBODY) or Login(NOBODY, NOBODY_ID, NOBODY_ID, (), "/")
    return _account(login, shared=True, dedicated=rules.login_is_dedicated or _is_dedicated(rules, login.name))


def _owner(rules: WallRules, job: ClassAd, find: Lookup) -> Login | None:
    user, name = job.eval_string("User"), job.eval_string("Owner")
    domain = user.rpartition("@")[2]
    if not rules.allow_owner or job.eval("RunAsOwner") is False or not name:
        return None
    if not rules.uid_domain or domain.lower() != rules.uid_domain.lower():
        return None
    login = find(name)
    return login if login is not None and login.uid != 0 else None


def _account(login: Login, *, shared: bool, dedicated: bool) -> Account:
    return Account(
        name=login.name,
        uid=login.uid,
        gid=login.gid,
        groups=tuple(group for group in login.groups if group != 0),
        home=login.home,
        dedicated=dedicated,
        shared=shared,
    )


def _is_dedicated(rules: WallRules, name: str) -> bool:
    return rules.dedicated is not None and rules.dedicated.fullmatch(name) is not None


def free_gid(gids: range, used: Collection[int]) -> int | None:
    """A group to track a run by; None when all are used (ISO-03)."""
    return next((gid for gid in gids if gid not in used), None)
