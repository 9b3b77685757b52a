"""Since when an expression has the value it has: STARTD_LATCH_EXPRS. Pure."""

from __future__ import annotations

from collections.abc import Container, Mapping

from shared.classad import UNDEFINED, ClassAd, Expr, evaluate

#: Values of other kinds than these are told as undefined.
_PLAIN = (bool, int, float, str)


class Latches:
    """What each slot's latched expressions were when they were last looked at, and since when."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], tuple[object, int]] = {}  # by slot and name: value, since when

    def look(self, slot: str, ad: ClassAd, latches: Mapping[str, Expr], now: float) -> dict[str, object]:
        """The attributes <name>, <name>Value and <name>Time of the slot's ad. A boolean's value is 1 or 0: HTCondor's
        policies compare it with that."""
        found: dict[str, object] = {}
        for name, expr in latches.items():
            value: object = evaluate(expr, ad)
            if isinstance(value, bool):
                value = int(value)
            elif not isinstance(value, _PLAIN):
                value = UNDEFINED
            before, since = self._of.get((slot, name), (None, 0))
            if before is None or before != value:
                since = int(now)
                self._of[slot, name] = value, since
            found[name], found[f"{name}Value"], found[f"{name}Time"] = expr, value, since
        return found

    def keep(self, slots: Container[str]) -> None:
        """Forget all slots but these."""
        self._of = {key: value for key, value in self._of.items() if key[0] in slots}
