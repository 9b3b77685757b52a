"""Which of the ads that cron jobs printed belong to which slot, and what a slot gets of them. Pure.

An ad goes by the job's name, or by `job.name` where the program named it, and stays until another of that name takes
its place (CRN-02). The job's own ad is merged before its named ones, whatever order they were printed in, so values
for certain slots win over those for all (CRN-04).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from shared.classad import ClassAd, Expr, evaluate, is_true, unparse
from shared.cron.jobs import CronJob
from shared.cron.output import MERGE_CONSTRAINT, NAME, SLOT_ID, SLOT_NAME, SLOT_TYPE_ID, CronAd

#: Names that one job may have ads under. A program that counts them up must not fill the machine.
MAX_NAMES: Final = 1000
#: When the ad was printed; the prefix of its job before it.
LAST_UPDATE: Final = "LastUpdate"


@dataclass(frozen=True, slots=True)
class _Kept:
    slots: frozenset[int]
    attributes: ClassAd
    selectors: ClassAd
    last_update: str  # the attribute's name


class CronAds:
    """The ads of cron jobs, by slot."""

    def __init__(self) -> None:
        self._ads: dict[str, dict[str, _Kept]] = {}  # by job, by name; the job's own under ""

    def put(self, job: CronJob, ad: CronAd, now: float) -> bool | None:
        """Take an ad. True when a slot may show something else than before, the time of the update apart; None when
        there is no room for another name."""
        ads = self._ads.setdefault(job.name.lower(), {"": _NOTHING})
        name = ad.name.lower()
        before = ads.get(name)
        if before is None and len(ads) > MAX_NAMES:
            return None
        attributes = ad.attributes.copy()
        last_update = job.prefix + LAST_UPDATE
        if attributes:  # one that only takes away has nothing to tell the time of
            attributes[last_update] = int(now)
        ads[name] = _Kept(job.slots, attributes, ad.selectors, last_update)
        return before is None or _essence(before) != _essence(ads[name])

    def keep_only(self, jobs: Iterable[CronJob]) -> bool:
        """Forget what other jobs printed; those that stay are merged in this order. Whether there was any."""
        wanted = [job.name.lower() for job in jobs]
        gone = self._ads.keys() - wanted
        self._ads = {name: self._ads[name] for name in wanted if name in self._ads}
        return bool(gone)

    def of(self, slot: ClassAd, slot_id: int) -> Mapping[str, Expr]:
        """What this slot gets, by attribute. slot: its ad without this; slot_id: SlotID, of a dynamic slot its
        parent's."""
        found: dict[str, Expr] = {}
        for ads in self._ads.values():
            for kept in ads.values():
                if kept is not _NOTHING and _chosen(kept, slot, slot_id):
                    for name in kept.attributes:
                        expr = kept.attributes.lookup(name)
                        assert expr is not None
                        found[name] = expr
        return found

    def names_of(self, slot: ClassAd, slot_id: int) -> list[tuple[str, str]]:
        """The (job, name) of the ads that this slot gets, in lower case. The arguments are those of `of`."""
        return [
            (job, name)
            for job, ads in self._ads.items()
            for name, kept in ads.items()
            if kept is not _NOTHING and _chosen(kept, slot, slot_id)
        ]


_NOTHING: Final = _Kept(frozenset(), ClassAd(), ClassAd(), "")


def _essence(kept: _Kept) -> tuple[object, ...]:
    """What makes one ad the same as another."""
    return (kept.slots, _texts(kept.attributes, (kept.last_update,)), _texts(kept.selectors, ()))


def _texts(ad: ClassAd, without: Container[str]) -> dict[str, str]:
    return {name: unparse(expr) for name in ad if name not in without and (expr := ad.lookup(name)) is not None}


def _chosen(kept: _Kept, slot: ClassAd, slot_id: int) -> bool:
    """CRN-03: the first selector that the ad has decides; an ad without is for all slots."""
    if kept.slots and slot_id not in kept.slots:
        return False
    selectors = kept.selectors
    constraint = selectors.lookup(MERGE_CONSTRAINT)
    if constraint is not None:
        return is_true(evaluate(constraint, kept.attributes, slot))
    wanted = selectors.eval_string(SLOT_NAME) or selectors.eval_string(NAME)
    if wanted:
        return slot.eval_string("Name").lower().startswith(wanted.lower())
    for name in (SLOT_TYPE_ID, SLOT_ID):
        number = selectors.eval(name)
        if isinstance(number, int):
            return bool(slot.eval("SlotTypeID" if name == SLOT_TYPE_ID else "SlotID") == number)
    return True
