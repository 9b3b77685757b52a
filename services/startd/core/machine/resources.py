"""Custom resources of a machine: amounts, or devices that are told apart by ids and have properties (spec rows SLT-11
to SLT-13, GPU-01).

They come from MACHINE_RESOURCE_<name> (a number, or a list of ids) and from the output of the program that
MACHINE_RESOURCE_INVENTORY_<name> names, one attribute a line:

    DetectedGPUs="GPU-1a2b3c4d, GPU-5e6f7a8b"
    Common=[ DriverVersion=12.2; ]
    GPU_1a2b3c4d=[ id="GPU-1a2b3c4d"; Capability=7.5; ]

The ad of a device, whose name is the id with _ for what no name may have, has its properties; `Common` those of all.
Other attributes go into every slot's ad as they are. Devices that OFFLINE_MACHINE_RESOURCE_<name>, or Offline<name> in
the output, names are kept from slots.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.slots.amounts import STANDARD, Amounts, Number
from engine.slots.carving import device_attribute
from services.startd.core.machine.slot_types import SWAP, ImpossiblePartition, Pick
from shared.classad import ClassAd, Expr, ParseError, evaluate, is_true, parse_expr
from shared.config import Config
from shared.config.evaluate import evaluate_text, number

_PREFIX = "machine_resource_"
_INVENTORY = "machine_resource_inventory_"
_MOST = 10**12
_ATTRIBUTE = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_.]*)\s*=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Resource:
    name: str
    total: Number  # without what is offline
    detected: Number | str  # as it was found: a number, or the list of ids
    ids: tuple[str, ...] = ()
    offline: tuple[str, ...] = ()
    has_ids: bool = False
    properties: Mapping[str, ClassAd] = field(default_factory=dict)  # by id
    attributes: Mapping[str, Expr] = field(default_factory=dict)  # for every slot's ad


@dataclass(frozen=True, slots=True)
class Stock:
    """The custom resources of a machine, by name."""

    resources: Mapping[str, Resource] = field(default_factory=dict)
    problems: Sequence[str] = ()  # what was wrong with outputs; the resource is not there then

    def amounts(self) -> Amounts:
        listed = self.resources.values()
        return Amounts({one.name: one.total for one in listed}, {one.name: one.ids for one in listed if one.has_ids})


@dataclass(frozen=True, slots=True)
class Output:
    """What an inventory program said. trouble: why that is not to be relied on."""

    text: str = ""
    trouble: str = ""


def resource_names(config: Config) -> list[str]:
    """The names of the custom resources that the configuration has."""
    return list(_named(config))


def programs(config: Config) -> dict[str, str]:
    """Command lines of the inventory programs, by resource."""
    return {name: command for name, (_, command) in _named(config).items() if command}


def take_stock(config: Config, outputs: Mapping[str, Output]) -> Stock:
    """`outputs` of the programs, by resource. Raises ImpossiblePartition."""
    found: dict[str, Resource] = {}
    problems: list[str] = []
    for name, (text, command) in _named(config).items():
        knob = f"MACHINE_RESOURCE_{name}"
        if name.lower() in (*(one.lower() for one in STANDARD), SWAP.lower()):
            raise ImpossiblePartition(f"{knob}: {name} is a resource that every machine has; choose another name")
        # By an attribute of this name, which must be one.
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ImpossiblePartition(f"{knob}: {name!r} can be no attribute's name")
        withheld = (config.get(f"OFFLINE_MACHINE_RESOURCE_{name}") or "").strip()
        if command:
            output = outputs.get(name, Output(trouble="was not run"))
            place = f"MACHINE_RESOURCE_INVENTORY_{name} ({command.split()[0]})"
            if output.trouble:
                problems.append(f"{place}: {output.trouble}")
            found[name] = _from_output(name, output.text, withheld, place, problems)
        else:
            found[name] = _from_text(name, text, withheld)
    return Stock(found, tuple(problems))


def _named(config: Config) -> dict[str, tuple[str, str]]:
    """The resources, in the order of their names, each with the text that MACHINE_RESOURCE_<name> has, and the
    program."""
    spelt = {}
    for macro in config.macros():
        name = macro.name.rpartition(".")[2]
        folded = name.lower()
        prefix = _INVENTORY if folded.startswith(_INVENTORY) else _PREFIX
        if folded.startswith(prefix) and folded not in ("machine_resource_names", "machine_resource_inventory"):
            spelt[folded[len(prefix) :]] = name[len(prefix) :]
    only = config.get("MACHINE_RESOURCE_NAMES")
    if only is not None:
        wanted = {name.lower() for name in only.replace(",", " ").split()}
        spelt = {folded: name for folded, name in spelt.items() if folded in wanted}
    found = {}
    for _, name in sorted(spelt.items()):
        text = config.get(f"MACHINE_RESOURCE_{name}") or ""
        command = config.get(f"MACHINE_RESOURCE_INVENTORY_{name}") or ""
        if text.strip() or command.strip():
            found[name] = text.strip(), command.strip()
    return found


def _listed(text: str) -> tuple[str, ...]:
    """Each id once, in the order in which slots get them."""
    return tuple(sorted(set(text.replace(",", " ").split())))


def _amount(value: object) -> Number:
    """How many; 0 of what is no number, or too many to be true."""
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    plain = int(value) if float(value).is_integer() else value
    return max(0, min(plain, _MOST))


def _from_text(name: str, text: str, withheld: str) -> Resource:
    count = number(text)
    if count is not None:
        total = _less(_amount(count), withheld, name)
        return Resource(name, total, total)
    ids = _listed(text)
    offline = tuple(one for one in ids if one in _listed(withheld))
    ids = tuple(one for one in ids if one not in offline)
    return Resource(name, len(ids), len(ids) + len(offline), ids, offline, has_ids=True)


def _less(total: Number, withheld: str, name: str) -> Number:
    away = _amount(evaluate_text(withheld)) if withheld else 0
    if away > total:
        raise ImpossiblePartition(f"OFFLINE_MACHINE_RESOURCE_{name} = {withheld}: there are only {total}")
    return total - away


def _from_output(name: str, text: str, withheld: str, place: str, problems: list[str]) -> Resource:
    said = _read(text, place, problems)
    detected = said.pop(f"detected{name}".lower(), None)
    hidden = said.pop(f"offline{name}".lower(), None)
    attributes = {attribute: expr for attribute, expr, _ in said.values()}
    if detected is None:
        if not problems:
            problems.append(f'{place}: its output has no Detected{name} = NUMBER or "LIST OF IDS"')
        return Resource(name, 0, 0)
    value = evaluate(detected[1])
    if not isinstance(value, str):
        if not isinstance(value, int | float):
            problems.append(f"{place}: Detected{name} is neither a number nor a text with ids: {detected[2].strip()}")
        count = _amount(value)
        return Resource(name, _less(count, withheld, name), count, attributes=_plain(attributes))
    away = hidden and evaluate(hidden[1])
    unwanted = (*_listed(withheld), *(_listed(away) if isinstance(away, str) else ()))
    every = _listed(value)
    offline = tuple(one for one in every if one in unwanted)
    ids = tuple(one for one in every if one not in offline)
    common = _ad(said.pop("common", None))
    properties = {}
    for one in every:
        plain = device_attribute("", one)[1:].lower()
        own = _ad(said.pop(plain, None))
        # Even one without properties of its own is known by its id.
        ad = ClassAd({"Id": one})
        for source in (common, own):
            for attribute, expr in source.exprs():
                if attribute.lower() != "id":
                    ad[attribute] = expr
        properties[one] = ad
    bare = not len(common) and all(len(ad) == 1 for ad in properties.values())
    attributes = {attribute: expr for attribute, expr, _ in said.values()}
    return Resource(
        name, len(ids), value, ids, offline, True, {} if bare else properties, attributes=_plain(attributes)
    )


def _plain(attributes: Mapping[str, Expr]) -> dict[str, Expr]:
    """Attributes for the slots' ads, without ads of things that are not there."""
    return {name: expr for name, expr in attributes.items() if name.lower() != "common"}


def _read(text: str, place: str, problems: list[str]) -> dict[str, tuple[str, Expr, str]]:
    """Each attribute's name, expression and text, by its folded name."""
    said: dict[str, tuple[str, Expr, str]] = {}
    wrong = ""
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith(("#", "-")):
            continue
        found = _ATTRIBUTE.fullmatch(line)
        try:
            if found is None:
                raise ParseError("no NAME = VALUE")
            said[found.group(1).lower()] = found.group(1), parse_expr(found.group(2), "old"), found.group(2)
        except ParseError as error:
            wrong = wrong or f"{place}: the line {line[:80]!r} can not be read: {error}"
    if wrong:
        problems.append(wrong)
    return said


def _ad(said: tuple[str, Expr, str] | None) -> ClassAd:
    value = evaluate(said[1]) if said is not None else None
    return value if isinstance(value, ClassAd) else ClassAd()


# ---------------------------------------------------------------- choosing


def picker(stock: Stock, knob: str = "SLOT_TYPE_<N>") -> Pick:
    """The `division.Pick` of this stock: by constraints over properties, or an id in quotes (SLT-14)."""

    def pick(resource: str, constraint: str, free: Sequence[str], count: int) -> tuple[str, ...]:
        if not count:
            return ()
        suit = list(free)
        if constraint:
            try:
                expr = parse_expr(constraint, "old")
            except ParseError as error:
                raise ImpossiblePartition(f"{knob}: {constraint!r}: no ClassAd expression: {error}") from error
            literal = evaluate(expr)
            properties = stock.resources[resource].properties
            if isinstance(literal, str):
                suit = [one for one in free if one.lower() == literal.lower()]
            else:
                suit = [one for one in free if is_true(evaluate(expr, properties.get(one, ClassAd())))]
        if len(suit) < count:
            raise ImpossiblePartition(
                f"{knob}: {count} {resource} are wanted{' with ' + constraint if constraint else ''}, but only "
                f"{len(suit)} of those that other slots leave suit. Change the constraint, or the order of the types"
            )
        return tuple(suit[:count])

    return pick
