"""What the owners of rows cost who evaluates over them: one machine's expressions must not take the time of all.

An ordinary evaluation takes some 20 us, and whatever an ad says one ends after 15 ms. A machine of expressions that are
that dear would still cost each job as much, for each of its slots. So what dear evaluations take is added up by the
daemon that the row is of, for each one who asks (a submitter): beyond OWNER_S the two do not meet any more. Whose
expressions are to blame can not be told, as each side's refer to the other's. A machine that is dear to several is dear
to all, and left out; a submitter who is dear to many machines is the dear one, and what it says of them does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

#: Processor seconds of dear evaluations of one owner's rows for one who asks.
OWNER_S: Final = 0.03
#: An evaluation of one row that takes longer is dear.
DEAR_S: Final = 0.002
#: One evaluation takes no more than this: what seems to is the collection of garbage, say.
MOST_S: Final = 0.02
#: Of many rows evaluated at once, so much of each is ordinary.
FEW_S: Final = 0.00005
#: So many who ask leave an owner out for all others, too.
ENOUGH: Final = 3
#: Who found more owners dear than this is himself the dear one.
MOST_OWNERS: Final = 8


class Meter:
    """The accounts of one cycle or question. owner: of a row, by its key. asker: who asks now."""

    def __init__(self, owner: Callable[[str], str], asker: str = "") -> None:
        self._owner = owner
        self.asker = asker
        self._spent: dict[tuple[str, str], float] = {}
        self._apart: set[tuple[str, str]] = set()  # who do not meet any more
        self._dear: Counter[str] = Counter()  # owners that were found dear, by who asked
        self._blamed: Counter[str] = Counter()  # by owner: how many found it so
        self.dear: dict[str, float] = {}  # owners that were left out at least once: processor seconds that they took

    @property
    def idle(self) -> bool:
        """Whether nobody is left out."""
        return not self._apart

    def is_out(self, key: str) -> bool:
        """Whether a row is not evaluated any more for who asks now."""
        owner = self._owner(key)
        return (owner, self.asker) in self._apart or self._blamed[owner] >= ENOUGH

    def add(self, keys: Sequence[str], seconds: float) -> None:
        """Evaluating some rows took so long; an account has it where that was dear, and all are of one owner."""
        if seconds <= DEAR_S + FEW_S * len(keys):
            return
        owner = self._owner(keys[0])
        if any(self._owner(key) != owner for key in keys):
            return
        account = (owner, self.asker)
        spent = self._spent[account] = self._spent.get(account, 0.0) + min(seconds, MOST_S)
        if spent <= OWNER_S or account in self._apart:
            return
        self._apart.add(account)
        self.dear[owner] = sum(took for (whose, _), took in self._spent.items() if whose == owner)
        self._dear[self.asker] += 1
        if self._dear[self.asker] <= MOST_OWNERS:
            self._blamed[owner] += 1
