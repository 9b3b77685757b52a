"""What ads of slots are put together from, made once and laid over each other: what a slot is, what its policy says,
what its claim says, what parts of the startd say. A machine with a thousand dynamic slots makes a thousand ads every
few seconds, of which next to nothing is new. Pure.

Every layer is kept with what it was made of, and made anew when that is another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from shared.classad import ClassAd

_Key = tuple[Any, ...]


class AdLayers:
    """The layers that are kept. Layers are for reading only."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], tuple[_Key, ClassAd]] = {}

    def of(self, kind: str, name: str, made_of: _Key, make: Callable[[], ClassAd]) -> ClassAd:
        """The layer of a kind and name. `made_of` is compared with what it was made of: objects that are shared must be
        in it themselves, as what compares equal there is taken for the same."""
        known = self._made.get((kind, name))
        if known is not None and known[0] == made_of:
            return known[1]
        layer = make()
        self._made[kind, name] = (made_of, layer)
        return layer

    def told(self, name: str, attributes: Mapping[str, object]) -> ClassAd:
        """What somebody says of a slot, as a layer: mostly the same as of the slot before, or all but a few of it."""
        names, values = tuple(attributes), tuple(attributes.values())
        made_of = (names, values, tuple(map(type, values)))  # the types: 0, 0.0 and false are equal
        known = self._made.get(("told", name))
        if known is None or known[0][0] != names or len(known[1]) != len(names):
            return self.of("told", name, made_of, lambda: ClassAd(attributes))
        return self.of("told", name, made_of, lambda: _changed(*known, made_of))

    def forget_claim(self, slot: str) -> None:
        """What the slot's claim says may be another next time."""
        self._made.pop(("claim", slot), None)

    def forget(self, slot: str) -> None:
        """A slot is gone."""
        self._made.pop(("frame", slot), None)
        self._made.pop(("times", slot), None)
        self.forget_claim(slot)


def _changed(before: _Key, layer: ClassAd, made_of: _Key) -> ClassAd:
    """A layer of the same names, of which some are told otherwise."""
    layer = layer.copy()
    for name, value, kind, was, kind_was in zip(*made_of, *before[1:], strict=True):
        if value is not was and (kind is not kind_was or value != was):
            layer[name] = value
    return layer
