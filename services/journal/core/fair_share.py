"""Explains in words and numbers why a submitter's share of the pool is what it is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

#: Others that are named.
_MOST: Final = 8


def point_of(at: float, body: Mapping[str, Any]) -> dict[str, Any]:
    """A standing as the contract of the HTTP interface has it. share: part of the pool that it uses; entitled: weight
    that its priority gave it of the pool."""
    if body.get("gone"):
        zero = dict.fromkeys(("weighted_in_use", "share", "entitled", "requested", "given", "in_use"), 0.0)
        return {"at": at, "priority": None, "effective_priority": None, **zero}
    pool = float(body.get("pool", 0.0))
    return {
        "at": at,
        "priority": body["priority"],
        "effective_priority": body["priority"] * body["factor"],
        "factor": body["factor"],
        "weighted_in_use": body["in_use"],
        "in_use": body["slots"],
        "share": body["in_use"] / pool if pool else 0.0,
        "entitled": body["share"] * pool,
        "part": body["share"],
        "limit": body["limit"],
        "given": body["given"],
        "requested": body["requested"],
        "pool": pool,
        "half_life": body["half_life"],
        "group": body["group"],
        "floor": body["floor"],
        "ceiling": body["ceiling"],
        "usage": body["usage"],
    }


def text_of(
    name: str,
    first: Mapping[str, Any] | None,
    last: Mapping[str, Any] | None,
    others: Sequence[tuple[str, Mapping[str, Any]]],
    group: Mapping[str, Any] | None,
    changes: Sequence[str],
    at_rest: float = 0.0,
) -> list[str]:
    """Lines for people. first, last: standings (points) at both ends of the interval. others: the other submitters at
    its end. group: the standing of its group then. changes: what administrators changed, in words. at_rest: since then
    it neither asks nor uses anything, and `last` is from before."""
    if last is None:
        return [f"the journal knows nothing of {name} in that time: it neither asked for slots nor used any"]
    if last.get("priority") is None:
        return [f"{name} asked for nothing and used nothing in that time", *changes]
    pool, eup = float(last["pool"]), float(last["effective_priority"])
    rest = ["in the end it asked for nothing and used nothing; before that:"]
    lines = [
        *(rest if at_rest else ()),
        f"{name} used {last['weighted_in_use']:.6g} of the pool's {pool:.6g} ({_percent(last['share'])}), and was "
        f"entitled to {last['entitled']:.6g} ({_percent(last['part'])}) besides floors, ceilings and quotas",
        f"its effective priority was {eup:.2f}: real priority {last['priority']:.2f} x factor {last['factor']:g}; "
        "the lower, the better",
    ]
    half_life = float(last["half_life"])
    drawn = float(last["weighted_in_use"])
    real = float(last["priority"])
    way = "rising to" if drawn > real + 0.005 else "falling to" if drawn < real - 0.005 else "resting at"
    lines.append(
        f"real priority follows use with a half-life of {_span(half_life)}: {way} {max(0.5, drawn):.6g} as long as "
        f"it uses {drawn:.6g}" + (f"; half of the way there takes {_span(half_life)}" if way != "resting at" else "")
    )
    if first is not None and first.get("priority") is not None and first["at"] < last["at"]:
        hours = (last["usage"] - first["usage"]) / 3600
        lines.append(
            f"over this time its effective priority went from {first['effective_priority']:.2f} to {eup:.2f}, its use "
            f"from {first['weighted_in_use']:.6g} to {drawn:.6g}; it used {max(0.0, hours):.4g} weighted hours"
        )
    lines += _bounds(name, last, group)
    lines += _rivals(eup, others)
    wanted = float(last["requested"])
    if wanted <= drawn + 1e-9:
        lines.append("it asked for no more than it had")
    elif wanted > 0:
        lines.append(f"it asked for {wanted:.6g} in all, so {wanted - drawn:.6g} more than it had")
    return lines + list(changes)


def _bounds(name: str, last: Mapping[str, Any], group: Mapping[str, Any] | None) -> list[str]:
    lines = []
    if last["ceiling"] >= 0:
        full = " and had reached it" if last["weighted_in_use"] >= last["ceiling"] - 1e-9 else ""
        lines.append(f"it has a ceiling of {last['ceiling']:g}{full}")
    if last["floor"] > 0:
        met = "met" if last["weighted_in_use"] >= last["floor"] - 1e-9 else "not met"
        lines.append(f"it has a floor of {last['floor']:g}, which was {met}")
    if group is not None and last["group"] not in ("", "<none>"):
        lines.append(
            f"its group {last['group']} had a quota of {group['quota']:.6g}, was allocated {group['allocated']:.6g}, "
            f"used {group['in_use']:.6g} and asked for {group['requested']:.6g}"
        )
    return lines


def _rivals(eup: float, others: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    asking = [(who, one) for who, one in others if one.get("priority") is not None and one["requested"] > 0]
    if not asking:
        return ["nobody else asked for slots"]
    better = sum(1 for _, one in asking if one["effective_priority"] < eup)
    shown = sorted(asking, key=lambda one: -one[1]["weighted_in_use"])[:_MOST]
    names = ", ".join(f"{who} {one['weighted_in_use']:.6g} (EUP {one['effective_priority']:.2f})" for who, one in shown)
    more = f" and {len(asking) - len(shown)} more" if len(asking) > len(shown) else ""
    who = "1 other" if len(asking) == 1 else f"{len(asking)} others"
    return [f"{who} asked too, {better} of them with a better priority; in use by them: {names}{more}"]


def _percent(part: float) -> str:
    return f"{100 * part:.1f} %"


def _span(seconds: float) -> str:
    for size, word in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= size:
            return f"{seconds / size:.4g} {word if seconds != size else word[:-1]}"
    return f"{seconds:.4g} seconds"
