"""Decides which daemons are asked to send all their ads again, and when, because an update of theirs was missed (see
shared.daemon.ad_table).

They are not asked at once, since the missing update may only be late, and not too often, since the daemon may be gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.backoff import wait_s
from shared.daemon.ad_table import AdTable, GroupKey

GRACE_S = 0.2
FIRST_WAIT_S, LONGEST_WAIT_S = 2.0, 60.0
#: Askings after which a daemon that does not answer is left alone until it is heard of again.
MOST = 8


@dataclass(slots=True)
class _Gap:
    start_time: int
    sequence: int  # what was heard and could not be used
    when: float
    asked: int = 0


class Resync:
    """Open questions. Times are a monotonic clock's, in seconds."""

    def __init__(self) -> None:
        self._open: dict[GroupKey, _Gap] = {}

    def __len__(self) -> int:
        return len(self._open)

    def missed(self, key: GroupKey, start_time: int, sequence: int, now: float) -> None:
        """This message of a group stood on something unknown."""
        question = self._open.get(key)
        if question is None:
            self._open[key] = _Gap(start_time, sequence, now + GRACE_S)
        else:
            question.start_time, question.sequence = start_time, sequence

    def due(self, table: AdTable, now: float) -> list[GroupKey]:
        """Whom to ask now. Who has answered meanwhile is forgotten."""
        ask: list[GroupKey] = []
        for key, question in list(self._open.items()):
            group = table.group(*key)
            if group is not None and (group.start_time, group.sequence) >= (question.start_time, question.sequence):
                del self._open[key]
            elif question.when > now:
                continue
            elif question.asked >= MOST:
                del self._open[key]
            else:
                question.asked += 1
                question.when = now + wait_s(question.asked, FIRST_WAIT_S, LONGEST_WAIT_S)
                ask.append(key)
        return ask
