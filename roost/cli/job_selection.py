"""The jobs that a command line names: ids, owners, -constraint and states."""

from __future__ import annotations

import json

from roost.cli import output
from roost.cli.options import Parsed


def is_id(word: str) -> bool:
    """12 or 12.3, and not the name of an owner."""
    return word.replace(".", "", 1).isdigit()


def one_of(ids: list[str]) -> str:
    """The constraint that chooses these jobs."""
    terms = []
    for word in ids:
        cluster, _, proc = word.partition(".")
        terms.append(f"ClusterId == {cluster}" + (f" && ProcId == {proc}" if proc else ""))
    return "(" + " || ".join(f"({term})" for term in terms) + ")" if terms else ""


def owned_by(names: list[str]) -> str:
    """The constraint that chooses jobs of these users: `alice` of any domain, `alice@pool` of that one."""
    terms = [f"{'User' if '@' in name else 'Owner'} == {json.dumps(name, ensure_ascii=False)}" for name in names]
    return "(" + " || ".join(terms) + ")"


def constraint(parsed: Parsed) -> str:
    """The constraint that owners, -constraint, -hold, -run and -idle come to; "" for all jobs."""
    terms = output.constraints(parsed)
    owners = [word for word in parsed.arguments if not is_id(word)]
    if owners:
        terms.append(owned_by(owners))
    for name, status in (
        ("hold", "JobStatus == 5"),
        ("run", "(JobStatus == 2 || JobStatus == 6 || JobStatus == 7)"),
        ("idle", "JobStatus == 1"),
    ):
        if parsed.has(name):
            terms.append(status)
    return " && ".join(terms)
