"""What HTCondor's daemons and tools answered where they were at hand, compared with our answers of today. No dice: they
can not be had from a package everywhere, so their answers are those that were recorded (each folder says how)."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from roost.cli import output
from roost.cli.main import main
from shared.classad import ClassAd, parse_expr
from shared.errors import RoostError
from tests.reference.family import REFUSED, Case, Facts, Family
from tests.reference_pools import Recorded, recorded
from tests.unit.negotiator import test_reference_pools as pools
from tests.unit.startd import test_reference_slots as slots
from tests.unit.startd import test_reference_states as states

LAYOUTS_OF = Path(__file__).resolve().parents[1] / "unit" / "roost" / "data"


# What the tools print


def _layout_cases() -> Iterator[tuple[Case, Facts]]:
    for line in (LAYOUTS_OF / "recordings.jsonl").read_text().splitlines():
        case = json.loads(line)
        yield case, _lines(case["output"])


def _lines(text: str) -> Facts:
    return {f"line {number}": line for number, line in enumerate(text.splitlines(), 1)}


def _printed(case: Case) -> Facts:
    printed, before = io.StringIO(), Path.cwd()
    with (
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(io.StringIO()),
        mock.patch.object(output, "terminal_width", return_value=case.get("terminal", 0)),
        mock.patch.dict(os.environ, {"TZ": "UTC"}),
    ):
        time.tzset()
        os.chdir(LAYOUTS_OF)
        try:
            code = main(case["command"])
        finally:
            os.chdir(before)
    time.tzset()
    return _lines(printed.getvalue()) if code == 0 else {REFUSED: str(code)}


def _tool(question: str, mine: Any, theirs: Any) -> str:
    return "a line"


# Slots of a machine


def _slot_cases() -> Iterator[tuple[Case, Facts]]:
    for case in slots.CASES:
        if "slots" not in case:
            yield case, {REFUSED: case["error"]}
            continue
        ads = [ClassAd({name: parse_expr(text, "old") for name, text in ad.items()}) for ad in case["slots"]]
        yield case, _slot_facts(ads, ads)


def _slot_facts(ads: list[ClassAd], asked: list[ClassAd]) -> Facts:
    """asked: whose attributes are asked for, by slot."""
    found: Facts = {"slots": len(ads)}
    for number, (ad, names) in enumerate(zip(ads, asked, strict=False)):
        found |= {f"{number} {name}": slots.plain(ad, name) for name in names}
    return found


def _divided(case: Case) -> Facts:
    with tempfile.TemporaryDirectory() as place:
        try:
            ads = slots.ads_of(case, slots.read(case, Path(place)))
        except RoostError as error:
            return {REFUSED: str(error)}
    asked = [ClassAd({name: parse_expr(text, "old") for name, text in ad.items()}) for ad in case.get("slots", ())]
    return _slot_facts(ads, asked)


def _meant(case: Case, question: str, mine: Any, theirs: Any) -> str:
    return slots.REASONS.get(case.get("differs", ""), "")


# States of slots


def _state_cases() -> Iterator[tuple[Case, Facts]]:
    for history in states.HISTORIES:
        yield history, {name: [what for _, what in states.compared(history, name)[1]] for name in history["conditions"]}


def _went(history: Case) -> Facts:
    return {name: [what for _, what in states.compared(history, name)[0]] for name in history["conditions"]}


# Who gets what


def _pool_cases() -> Iterator[tuple[Case, Facts]]:
    for pool in recorded():
        yield pool.row, _matches(pools.expected(pool))


def _decided(row: Case) -> Facts:
    pool = Recorded(row)
    with tempfile.TemporaryDirectory() as place:
        result = pools.decide(pool, pools.config_of(pool, Path(place)))
    users = pools.users_of(pool)
    return _matches([one for match in result.matches for one in pools.told(match, users)])


def _matches(told: list[tuple[str, int, str, str]]) -> Facts:
    """Who gets how many, and each match: which of whose requests gets which slot, preempting whom."""
    return {
        "who gets how many": dict(sorted(Counter(who for who, *_ in told).items())),
        **{
            f"match {who} {request} {slot} {preempts}": n for (who, request, slot, preempts), n in Counter(told).items()
        },
    }


def _on_purpose(row: Case, question: str, mine: Any, theirs: Any) -> str:
    return pools.REASONS.get(row.get("until", {}).get("because", ""), "")


def _kind(question: str, mine: Any, theirs: Any) -> str:
    return "a match" if question.startswith("match") else re.sub(r"^\d+ ", "", question)


LAYOUTS = Family("layouts", None, _printed, cause=_tool, recorded=_layout_cases)
SLOTS = Family("slots", None, _divided, _meant, _kind, recorded=_slot_cases)
STATES = Family("states", None, _went, recorded=_state_cases)
NEGOTIATION = Family("negotiation", None, _decided, _on_purpose, _kind, recorded=_pool_cases)
