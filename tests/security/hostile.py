"""Hostile expressions: a corpus, and generated ones. Each is small to write and dear to evaluate, or to read."""

import random


def doubling(step, levels=40, seed='"xxxxxxxx"'):
    """Attributes each of which uses the one before it twice; the value of the last one."""
    chain = "".join(f"a{n + 1}={step(f'a{n}')};" for n in range(levels))
    return f"[a0={seed};{chain}].a{levels}"


CORPUS = {
    "strcat": doubling(lambda a: f"strcat({a},{a})"),
    "strcat few": doubling(lambda a: f"strcat({a},{a})", 15),
    "strcat four": doubling(lambda a: f"strcat({a},{a},{a},{a})", 12),
    "join": doubling(lambda a: f"join({a},{a},{a})"),
    "replaceall": doubling(lambda a: f'replaceall("x",{a},"xx")'),
    "lists": doubling(lambda a: f"{{{a},{a}}}"),
    "lists of sums": doubling(lambda a: f"{{sum({a}),{a}}}", seed="{1,2}"),
    "upper": doubling(lambda a: f"toUpper(strcat({a},{a}))", 20),
    "plus": doubling(lambda a: f"{a}+{a}", seed="1"),
    "split": doubling(lambda a: f'join(",",split(strcat({a},",",{a})))', 20),
    "eval": doubling(lambda a: f'eval(strcat({a},"+",{a}))', 20, '"1"'),
    "conditions": doubling(lambda a: f"{a} ? {a} : {a}", seed="true"),
    "comparison": doubling(lambda a: f"strcat({a},{a})", 14).rsplit("]", 1)[0] + "; b=a14==a14||a13==a13 ].b",
    "member": doubling(lambda a: f"strcat({a},{a})", 13).rsplit("]", 1)[0]
    + '; s=split("'
    + "a," * 2000
    + '"); b=member(a13,s)||member(a12,s) ].b',
    "each context": "size(evalInEachContext(strcat(" + ",".join("a" * 100) + "),{" + ",".join(["[a=1]"] * 2000) + "}))",
    "each printed": 'strcat(evalInEachContext(split("{}"),{{{}}}))'.format("a," * 5000, ",".join(["[a=1]"] * 500)),
    "regexp": 'regexp("(a+)+$", "%sb")' % ("a" * 60),
    "regexps": " || ".join(['regexp("(a|aa)+$", "%sb")' % ("a" * 200)] * 40),
    "replace": 'replaceall("(a*)*b", "%s", "x")' % ("a" * 3000),
    "numbers": "+".join(["sum({{{}}})".format(",".join(map(str, range(3000))))] * 6),
    "strings": " || ".join(['strcat("%s","b")=="x"' % ("y" * 120)] * 600),
    "times": " || ".join([f'formatTime({n},"{"%c" * 60}")=="x"' for n in range(100)]),
    "versions": " || ".join(['versioncmp("{}","{}")==2'.format("1." * 60, "1." * 60)] * 300),
    "random": " || ".join(["random(10)==11"] * 4000),
    "selection": "({" + ",".join(f"[a=[a={n}]]" for n in range(3000)) + "}).a.a",
    "wide ad": "[{}].a1".format(";".join(f"a{n}={n}" for n in range(7000))),
    "wide plan": " && ".join(f"(Memory > {n} || Cpus < {n})" for n in range(480)),
    "long texts": " || ".join(f'Name == "{"x" * 1000}{n}"' for n in range(90)),
    "deep": "(" * 150 + "1" + ")" * 150,
    "unreadable": "(" * 90_000,
    "words": " ".join(["a"] * 40_000),
}

_NAMES = ("Name", "Memory", "Cpus", "State", "Requirements", "JobStatus", "Owner", "MY.x", "TARGET.y", "undefined")
_CALLS = (
    *("strcat", "join", "split", "toUpper", "toLower", "strcmp", "size", "string", "substr", "regexp", "replaceall"),
    *("member", "sum", "min", "stringListSize", "stringListMember", "eval", "unparse", "countMatches", "ifThenElse"),
    *("evalInEachContext", "versioncmp", "formatTime", "quantize", "mergeEnvironment", "argsToList", "anyCompare"),
)

_STEPS = ("strcat(A,A)", "{A,A}", "A+A", "join(A,A,A)", 'split(strcat(A,",",A))', "A ? A : A")
#: Characters of a generated expression: longer ones are made again.
LONGEST = 20_000


def generated(dice, depth=6):
    """An expression of any kind."""
    kind = dice.random()
    if depth <= 0 or kind < 0.15:
        return dice.choice(
            (*_NAMES, "1", "1e308", "-0", '"x"', '"' + "ab," * dice.randrange(400) + '"', "true", "error")
        )
    some = [generated(dice, depth - 1 - dice.randrange(2)) for _ in range(dice.randrange(1, 4))]
    if kind < 0.45:
        return f"{dice.choice(_CALLS)}({', '.join(some)})"
    if kind < 0.6:
        op = dice.choice(("+", "-", "*", "/", "%", "&&", "||", "==", "=?=", "<", ">>", "&", "?:"))
        return "(" + f" {op} ".join(some) + ")"
    if kind < 0.7:
        return "{" + ", ".join(some * dice.choice((1, 1, 50))) + "}"
    if kind < 0.85:
        step = dice.choice(_STEPS)
        return doubling(lambda a: step.replace("A", a), dice.randrange(2, 30), some[0])
    return "[" + "; ".join(f"b{n} = {one}" for n, one in enumerate(some)) + f"].b{dice.randrange(4)}"


def some_generated(seed, count):
    """So many expressions, always the same for a seed."""
    dice, found = random.Random(seed), []
    while len(found) < count:
        text = generated(dice)
        if len(text) <= LONGEST:
            found.append(text)
    return found
