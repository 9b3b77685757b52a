"""The interface of classad2: made-up ads and expressions, asked by its methods and functions."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.reference.family import Case, Facts, Family
from tests.unit.classad import grammar

NAMES = ("a", "b", "c", "Dee", "Requirements", "nosuch", "n", "l")
#: A selection from something else than MY and TARGET, or from more than one.
_SELECTION = re.compile(r"[])\"a-z0-9]\s*\.[a-z]|(^|[^\w])\.[a-z]|parent|root|toplevel|\[", re.IGNORECASE)
PLAIN = ("1", "-2", "0.5", "1e300", '"x"', '"a\\"b\\\\c"', '"é\\n"', "true", "undefined", "error", "{}", "{1,a}")


def _make(rng: random.Random) -> Case:
    return {
        "ad": grammar.ad(rng),
        "other": _own_ad(rng),
        "own": _own_ad(rng),
        "expr": grammar.expression(rng, rng.choice([0, 1, 2, 3])),
        "same": rng.choice(("a+1", "a + 1", "(a)+1", "A+1", "a is b", "a =?= b", "true", "TRUE", "f(1)")),
        "old": "".join(_old_line(rng) for _ in range(rng.randint(0, 8))),
        "value": _value(rng, 2),
        "text": rng.choice(("", "a", 'a"b', "a\\b", "a\nb", "é", "\t", "'", '\\"')) + rng.choice(("", "x", "5")),
        "literal": rng.choice(('"a"', '"a\\"b"', "a", "5", '"a', '""', '"\\n\\101"')),
    }


def _own_ad(rng: random.Random) -> str:
    attributes = [f"{name}={_term(rng)}" for name in rng.sample(NAMES, rng.randint(0, 5))]
    return "[" + ";".join(attributes) + "]"


def _term(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(PLAIN)
    left, op = rng.choice(("a", "MY.b", "TARGET.a", "c", "1")), rng.choice((">", "+", "==", "&&", "=?="))
    return f"{left} {op} " + rng.choice(("1", "b", "TARGET.Dee", "true", '"x"'))


def _old_line(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return rng.choice(("\n", "# nothing\n"))
    return f"{rng.choice(NAMES)} = {_term(rng)}\n"


def _value(rng: random.Random, depth: int) -> Any:
    """A Python value, as JSON has it; {"moment": s} is a time, {"tree": text} an expression."""
    if depth and rng.random() < 0.4:
        if rng.random() < 0.5:
            return [_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]
        return {name: _value(rng, depth - 1) for name in rng.sample(NAMES, rng.randint(0, 3))}
    made = (None, True, False, 0, -5, 2**40, 1.5, -0.0, 1e300, "", "x", 'a"b', {"moment": 1600000000}, {"tree": "a+1"})
    return rng.choice(made)


def answers(module: Any, case: Case) -> Facts:
    """What a module of this interface answers; any exception of its own is one answer."""

    def plain(value: Any) -> Any:
        if isinstance(value, module.Value):
            return f"Value {value.name}"
        if isinstance(value, module.ClassAd | module.ExprTree):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, datetime):
            return f"time {value.isoformat()}"
        return f"float {value!r}" if isinstance(value, float) else value

    def asked(question: Callable[[], Any]) -> Any:
        try:
            return plain(question())
        except KeyError as error:
            return f"KeyError {error}"
        except (module.ClassAdException, ValueError, TypeError):
            return "refused"

    def python(value: Any) -> Any:
        if isinstance(value, list):
            return [python(item) for item in value]
        if isinstance(value, dict) and "moment" in value:
            return datetime.fromtimestamp(value["moment"], UTC)
        if isinstance(value, dict) and "tree" in value:
            return module.ExprTree(value["tree"])
        return {name: python(item) for name, item in value.items()} if isinstance(value, dict) else value

    def flattened() -> Any:
        """Its value: in how it is written both sides may be free."""
        left = own.flatten(module.ExprTree(case["expr"]))
        return left.eval(own, other) if isinstance(left, module.ExprTree) else left

    ad, own, other = (module.ClassAd(case[name]) for name in ("ad", "own", "other"))
    found: dict[str, Callable[[], Any]] = {}
    for name in NAMES:
        found |= {
            f"[{name}]": lambda name=name: own[name],
            f"eval {name}": lambda name=name: own.eval(name),
            f"lookup {name}": lambda name=name: own.lookup(name),
            f"get {name}": lambda name=name: own.get(name.upper(), "nothing"),
            f"{name} in": lambda name=name: name.lower() in own,
        }
    for title, one in (("ad", ad), ("own", own)):
        found |= {
            f"{title} names": lambda one=one: list(one),
            f"{title} length": lambda one=one: len(one),
            f"{title} str": lambda one=one: str(one),
            f"{title} repr": lambda one=one: repr(one),
            f"{title} old": one.printOld,
            f"{title} JSON": one.printJson,
            f"{title} itself": lambda one=one: one == module.ClassAd(repr(one)),
        }
    found |= {
        "equal": lambda: own == other,
        "matches": lambda: own.matches(other),
        "symmetricMatch": lambda: own.symmetricMatch(other),
        "ExprTree": lambda: repr(module.ExprTree(case["expr"])),
        "simplify": lambda: module.ExprTree(case["expr"]).simplify(own, other),
        "tree eval": lambda: module.ExprTree(case["expr"]).eval(own, other),
        "externalRefs": lambda: sorted(own.externalRefs(module.ExprTree(case["expr"]))),
        "internalRefs": lambda: sorted(own.internalRefs(module.ExprTree(case["expr"]))),
        "flatten": flattened,
        "same": lambda: module.ExprTree(case["same"]) == module.ExprTree("a+1"),
        "parseAds": lambda: list(module.parseAds(case["old"])),
        "parseOne": lambda: module.parseOne(case["old"]),
        "parseNext": lambda: module.parseNext(case["own"]),
        "parse new": lambda: list(module.parseAds(case["own"] + " " + case["other"])),
        "parse JSON": lambda: module.parseOne(own.printJson(), module.ParserType.JSON),
        "made": lambda: module.ClassAd({"v": python(case["value"])}),
        "made value": lambda: module.ClassAd({"v": python(case["value"])})["v"],
        "quote": lambda: module.quote(case["text"]),
        "unquote quote": lambda: module.unquote(module.quote(case["text"])),
        "unquote": lambda: module.unquote(case["literal"]),
        "deleted": lambda: [own.pop(name, "nothing") for name in NAMES[:3]] + list(own),
    }
    return {question: asked(answer) for question, answer in found.items()}


def _ours(case: Case) -> Facts:
    return answers(ours(), case)


def ours() -> Any:
    """Roost's classad2, under its own name: the environment has the reference's under that one."""
    folder = str(Path(__file__).resolve().parents[2] / "bindings")
    if folder not in sys.path:
        sys.path.append(folder)
    from types import SimpleNamespace

    from roost_htcondor import ad_texts, ad_values, class_ad

    return SimpleNamespace(**{**vars(ad_values), **vars(class_ad), **vars(ad_texts)})


def _known(case: Case, question: str, mine: Any, theirs: Any) -> str:
    if theirs == [""] and mine == []:
        return "no names at all are a list with an empty name in the reference"
    if "[]" in (case["own"], case["other"]) and question in ("own old", "parseNext", "parse new"):
        return "the reference does not take the text [] for an ad"
    if question in ("externalRefs", "internalRefs") and (theirs == "refused" or _SELECTION.search(case["expr"])):
        return "of a selection such as n.z Roost gives the parts; the reference refuses many of them"
    if question == "flatten" and _SELECTION.search(case["expr"]):
        return "what the reference flattens a selection to has another value than the expression itself"
    if question in ("parseAds", "parseOne") and theirs == "refused" and "#" in case["old"]:
        return "the reference does not go on after a comment that stands alone"
    return ""


CLASS_AD_API = Family("classad2", _make, _ours, _known, cause=lambda question, mine, theirs: question.split(" ")[0])
