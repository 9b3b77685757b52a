"""The records of HTCondor's accountant, out of its Accountantnew.log. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.fairshare.priorities import ImportedRecord, check_imported
from roost.importing.classad_log import Log, LoggedAd, Value
from shared.classad import ParseError, parse_expr
from shared.classad.expr import Literal, fold
from shared.config.errors import ConfigError, Problem, Source

_CUSTOMER: Final = "Customer."
_ACCOUNTANT: Final = "Accountant."
#: Attribute -> field. What was used since the last update counts as used.
_ATTRIBUTES: Final = {
    "Priority": "priority",
    "PriorityFactor": "factor",
    "AccumulatedUsage": "usage",
    "WeightedAccumulatedUsage": "weighted_usage",
    "BeginUsageTime": "begin",
    "LastUsageTime": "last",
    "Floor": "floor",
    "Ceiling": "ceiling",
}
_UNCHARGED: Final = {"UnchargedTime": "usage", "WeightedUnchargedTime": "weighted_usage"}


@dataclass(frozen=True, slots=True)
class Accounts:
    """records: by name, as in the file. until: when HTCondor charged last (s since 1970); 0: it does not say. lines: of
    each record."""

    records: dict[str, ImportedRecord]
    until: float
    lines: dict[str, int]


def read_accounts(log: Log, file: str) -> Accounts:
    """Raises ConfigError with everything that is wrong."""
    problems: list[Problem] = []
    records: dict[str, ImportedRecord] = {}
    lines: dict[str, int] = {}
    for key, ad in log.ads.items():
        if not key.startswith(_CUSTOMER):
            continue
        name = key.removeprefix(_CUSTOMER)
        numbers = _numbers(ad, file, problems)
        for attribute, field in _UNCHARGED.items():
            numbers[field] = numbers.get(field, 0.0) + max(0.0, numbers.pop(attribute, 0.0))
        record = ImportedRecord(**numbers)
        try:
            check_imported(name, record)
        except ValueError as error:
            problems.append(Problem(f"{key}: {error}", Source(file, _line(ad, str(error)))))
        records[name], lines[name] = record, ad.line
    known = log.ads.get(_ACCOUNTANT)
    until = 0.0
    if known is not None and (value := known.values.get(fold("LastUpdateTime"))) is not None:
        until = _number(value, _ACCOUNTANT, file, problems)
    if not records and not problems:
        problems.append(
            Problem(
                "there is no record of a user (Customer.NAME) in it",
                Source(file),
                "name the Accountantnew.log in the SPOOL directory of the machine with the negotiator",
            )
        )
    if problems:
        raise ConfigError(problems)
    return Accounts(records, until, lines)


def _numbers(ad: LoggedAd, file: str, problems: list[Problem]) -> dict[str, float]:
    found = {}
    for attribute, field in {**_ATTRIBUTES, **{name: name for name in _UNCHARGED}}.items():
        value = ad.values.get(fold(attribute))
        if value is not None:
            found[field] = _number(value, ad.key, file, problems)
    if found.get("factor", 1.0) <= 0.0:
        del found["factor"]  # never chosen: the configuration's
    return found


def _number(value: Value, key: str, file: str, problems: list[Problem]) -> float:
    """A number; 0 where it is none, which is a problem then."""
    try:
        expr = parse_expr(value.text, syntax="old")
    except ParseError:
        expr = None
    number = expr.value if isinstance(expr, Literal) else None
    if isinstance(number, bool) or not isinstance(number, int | float):
        problems.append(
            Problem(
                f"{key}: {value.name} is {value.text[:60]!r}",
                Source(file, value.line),
                "a number is wanted: mend the line, or remove it for the usual value",
            )
        )
        return 0.0
    return float(number)


def _line(ad: LoggedAd, told: str) -> int:
    """The line of the attribute that a text is about, else the ad's."""
    for attribute, field in _ATTRIBUTES.items():
        value = ad.values.get(fold(attribute))
        if value is not None and told.startswith(f"{field.replace('_', ' ')} "):
            return value.line
    return ad.line
