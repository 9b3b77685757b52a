"""Expressions: in fixed ads, in ads that are made up too, and texts that are hardly any."""

from __future__ import annotations

import random
from typing import Any

from tests.reference.family import REFUSED, Case, Facts, Family
from tests.unit.classad import grammar
from tests.unit.classad.compare import known_deviation, ours

MY = '[a=1;b=2.5;c="x";d=undefined;n=[a=5;z=b];l={1,[a=2],"s"};i=1;x=true;y=a+1]'
TARGET = '[a=3;b="t";x=y*2;y=a;n=[a=a;z=TARGET.a];l={4,[a=TARGET.b]}]'


def _make(rng: random.Random) -> Case:
    kind = rng.random()
    if kind < 0.5:
        return {"text": grammar.expression(rng, rng.choice([2, 3, 4])), "my": MY, "target": TARGET}
    if kind < 0.9:
        target = grammar.ad(rng) if rng.random() < 0.7 else None
        return {"text": grammar.expression(rng, rng.choice([0, 0, 1, 2])), "my": grammar.ad(rng), "target": target}
    return {"text": rng.choice((grammar.damaged, grammar.soup))(rng)}


def _listed(value: Any) -> Any:
    """As JSON has it."""
    return [_listed(one) for one in value] if isinstance(value, list | tuple) else value


def _ours(case: Case) -> Facts:
    value, text = ours(case["text"], case.get("my"), case.get("target"))
    return {"value": _listed(value), "text": text}


def _known(case: Case, question: str, mine: Any, theirs: Any) -> str:
    if REFUSED in (mine, theirs) or question == "text":
        answer = (REFUSED, None) if mine in (REFUSED, None) else (mine, mine)
        if known_deviation(case["text"], answer, (theirs, theirs)):
            return "texts that the reference takes by mistake, and odd names (docs/classads.md)"
    return ""


CLASSADS = Family("classads", _make, _ours, _known)
