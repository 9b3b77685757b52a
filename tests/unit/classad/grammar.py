"""Random expressions and ads, by a seed, for comparisons with the reference implementation.

Lists in ads hold no names: a list that reaches itself through its items is where the reference's process dies.
"""

import random

INTEGERS = ["0", "1", "2", "3", "-1", "7", "63", "64", "65", "-64", "9223372036854775807", "-9223372036854775808"]
REALS = [
    "0.0",
    "-0.0",
    "1.5",
    "2.0",
    "-2.5",
    "1e308",
    "-1e308",
    "1e-320",
    ".5",
    "1E3",
    "1e400",
    "-1e400",
    'real("nan")',
]
STRINGS = ['""', '"a"', '"A"', '"b"', '"abc"', '"1"', '"true"', '"é"', '"É"', r'"a\nb"', '"1.5"']
TIMES = [
    'absTime("2020-01-01T00:00:00+00:00")',
    'absTime("2020-01-01T00:00:00+05:30")',
    'absTime("2021-06-01T12:00:00-08:00")',
    'relTime("1:00")',
    'relTime("-10.5")',
    'relTime("1+00:00:00")',
]
OTHERS = ["true", "false", "undefined", "error", "{}", "{1,2}", '{1,undefined,"a"}', "[]", "[a=1]", "[a=1;b=a]"]
VALUES = INTEGERS + REALS + STRINGS + TIMES + OTHERS
BINARY = [
    "+",
    "-",
    "*",
    "/",
    "%",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "=?=",
    "=!=",
    "is",
    "isnt",
    "&&",
    "||",
    "&",
    "|",
    "^",
    "<<",
    ">>",
    ">>>",
]
UNARY = ["-", "+", "!", "~", "- "]
SIMPLE = ["true", "false", "undefined", "error", "true", "false"]
NAMES = [
    "a",
    "b",
    "c",
    "d",
    "A",
    "n",
    "l",
    "s",
    "x",
    "y",
    "MY.a",
    "TARGET.a",
    "MY.b",
    "TARGET.b",
    "TARGET.x",
    "MY.x",
    "my.y",
    "Target.y",
    ".a",
    "n.a",
    "n.z",
    "n.q",
    "n.n.a",
    "l.a",
    "TARGET.n.a",
    "TARGET.n.z",
    "nosuch",
    "n.parent.a",
    "self.a",
    "root.a",
    "toplevel.b",
    "parent.a",
    'n["a"]',
    "l[0]",
    "l[1]",
    "TARGET.l[1].a",
    "TARGET.TARGET.a",
    "MY.TARGET.b",
    "TARGET.MY.b",
]
FRAGMENTS = [
    *"()[]{},:?!~+-*/%<>=&|^\"'\\ \n\t0123456789abex_",
    *[
        "?:",
        "==",
        "=?=",
        "=!=",
        "<=",
        ">=",
        "<<",
        ">>",
        ">>>",
        "&&",
        "||",
        "is",
        "isnt",
        "true",
        "undefined",
        "error",
        "1.5",
        '"a"',
        "'a'",
        "//",
        "/*",
        "*/",
        "e5",
        ".5",
        "-1",
        "MY.",
        '\\"',
        "\\1",
        "f(",
    ],
]


def expression(rng: random.Random, depth: int, names: bool = True) -> str:
    """An expression of at most `depth` levels; without `names` it refers to nothing."""
    if depth <= 0 or rng.random() < 0.15:
        kind = rng.random()
        if kind < 0.45 and names:
            return rng.choice(NAMES)
        if kind < 0.65:
            return rng.choice(INTEGERS[:6])
        if kind < 0.75:
            return rng.choice(REALS[:5])
        return rng.choice(STRINGS[:6]) if kind < 0.85 else rng.choice(SIMPLE)

    def part(less: int = 1) -> str:
        return expression(rng, depth - less, names)

    kind = rng.random()
    if kind < 0.5:
        return f"{part()} {rng.choice(BINARY)} {part()}"
    if kind < 0.58:
        return f"({part()})"
    if kind < 0.65:
        return rng.choice("-!~+") + rng.choice(["", " "]) + part()
    if kind < 0.72:
        return f"{part()} ? {part()} : {part()}"
    if kind < 0.78:
        return f"({part()}) ?: ({part()})"
    if kind < 0.83:
        return "{" + ",".join(part(2) for _ in range(rng.randrange(4))) + "}"
    if kind < 0.87:
        return "[" + "; ".join(f"{rng.choice('abcdAn')} = {part(2)}" for _ in range(rng.randrange(4))) + "]"
    if kind < 0.91:
        return f"({part()}).{rng.choice('abxzn')}"
    return f"({part()})[{part(2)}]"


def ad(rng: random.Random, depth: int = 1) -> str:
    """An ad of attributes a..z that refer to each other, in circles too."""
    attributes = []
    for name in "abcdxysizqln":
        if rng.random() < 0.55:
            if name == "n" and depth:
                text = ad(rng, depth - 1)
            elif name == "l":
                text = "{" + ",".join(expression(rng, 1, names=False) for _ in range(rng.randrange(4))) + "}"
            else:
                text = expression(rng, rng.choice([0, 0, 1, 2]))
            attributes.append(f"{name} = {text}")
    return "[" + "; ".join(attributes) + "]"


def damaged(rng: random.Random) -> str:
    """An expression after one to three random insertions, deletions or replacements."""
    text = expression(rng, rng.choice([1, 2, 3]))
    for _ in range(rng.randrange(1, 4)):
        place, kind = rng.randrange(len(text) + 1), rng.random()
        rest = text[place:] if kind < 0.5 else text[place + 1 :]
        text = text[:place] + ("" if 0.5 <= kind < 0.8 else rng.choice(FRAGMENTS)) + rest
    return text


def soup(rng: random.Random) -> str:
    """Random fragments."""
    return "".join(rng.choice(FRAGMENTS) for _ in range(rng.randrange(1, 9)))
