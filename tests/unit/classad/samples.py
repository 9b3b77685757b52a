"""Random ads and expressions of mixed types for comparing the gears, by a random generator."""

from shared.classad import ParseError, parse_ad, parse_expr
from tests.unit.classad import grammar
from tests.unit.classad.compare import plain

__all__ = ["SEEDS", "VALUES", "expression", "flat_ad", "pair_of_ads", "plain", "random_expression"]

SEEDS = range(2)
NAMES = [
    *("a", "b", "c", "s", "x", "p", "TARGET.a", "TARGET.b", "TARGET.c", "TARGET.s", "TARGET.x", "TARGET.p"),
    *("MY.a", "MY.s", "MY.p", "CurrentTime", "TARGET.CurrentTime"),
]
VALUES = [
    *("0", "1", "2", "-1", "7", "true", "false", "1.0", "0.0", "-0.0", "2.5", "undefined", "error"),
    *('"a"', '"A"', '"b"', '"é"', '"É"', 'real("nan")', 'real("-inf")'),
    *("9007199254740993", "9223372036854775807", "9007199254740992.0"),
]
OPERATORS = [
    *("&&", "&&", "&&", "||", "||", "==", "!=", "<", "<=", ">", ">=", "=?=", "=!="),
    *("+", "-", "*", "/", "%", "&"),
]
FUNCTIONS = ["stringListMember", "strcat", "regexp", "int", "isUndefined", "pow", "min"]


def random_expression(rng, depth):
    """Anything of the language, nested ads and lists too."""
    while True:
        try:
            return parse_expr(grammar.expression(rng, depth))
        except ParseError:
            continue


def pair_of_ads(rng):
    while True:
        try:
            return parse_ad(grammar.ad(rng)), parse_ad(grammar.ad(rng))
        except ParseError:
            continue


def expression(rng, depth):
    """The text of an expression of scalars: what the columnar gear is for."""
    if depth <= 0:
        return rng.choice(NAMES) if rng.random() < 0.65 else rng.choice(VALUES)
    kind = rng.random()
    parts = [f"({expression(rng, depth - 1)})" for _ in range(3)]
    if kind < 0.7:
        return f"{parts[0]} {rng.choice(OPERATORS)} {parts[1]}"
    if kind < 0.78:
        return rng.choice("-!+~") + parts[0]
    if kind < 0.86:
        return f"({parts[0]} ? {parts[1]} : {parts[2]})"
    if kind < 0.91:
        return f"({parts[0]} ?: {parts[1]})"
    if kind < 0.95:
        return f"{rng.choice(FUNCTIONS)}({parts[0]}, {parts[1]})"
    return parts[0]


def flat_ad(rng, policies):
    """An ad of scalars of all types, some missing, with some of the policies as p, Requirements and Rank."""
    lines = [f"{name} = {rng.choice(VALUES)}" for name in "abcsx" if rng.random() < 0.75]
    lines += [f"{name} = {rng.choice(policies)}" for name in ("p", "Requirements", "Rank") if rng.random() < 0.8]
    return parse_ad("[" + "; ".join(lines) + "]")
