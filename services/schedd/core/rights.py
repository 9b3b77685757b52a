"""Who may act on which jobs, and who sees all of them. Pure.

Some attributes of a job (ROOST_SCHEDD_PRIVATE_JOB_ATTRS: its environment) are for its owner and administrators.
Everybody else is answered as if jobs had no such attributes: in what is shown, and in what a constraint looks at, so
that no question about them tells more than their absence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shared.users import same

_NOTHING: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Rights:
    """What the configuration says. super_users: QUEUE_SUPER_USERS, name@domain; private: folded names of attributes."""

    super_users: tuple[str, ...] = ()
    private: frozenset[str] = frozenset()


def may_act(user: str, admin: bool, owner: str, rights: Rights) -> bool:
    """Whether a user may act on jobs of `owner`, both name@domain: on one's own, as an administrator, or as one of
    QUEUE_SUPER_USERS."""
    return admin or same(user, owner) or any(same(user, one) for one in rights.super_users)


class Viewer:
    """Who asks about jobs. user: name@domain, empty: nobody in particular."""

    def __init__(self, user: str, admin: bool, rights: Rights) -> None:
        self.user = user
        self._rights = rights
        self._all = admin or not rights.private
        self._hidden: dict[str, frozenset[str]] = {}

    @property
    def private(self) -> frozenset[str]:
        """Folded names of what may be hidden of some jobs."""
        return _NOTHING if self._all else self._rights.private

    def hidden(self, owner: str) -> frozenset[str]:
        """Folded names of what this one does not see of an owner's jobs."""
        if self._all:
            return _NOTHING
        known = self._hidden.get(owner)
        if known is None:
            sees = may_act(self.user, False, owner, self._rights)
            known = self._hidden[owner] = _NOTHING if sees else self._rights.private
        return known
