"""Calls of builtin functions: every type of argument, and random texts and numbers by family."""

import random

from shared.classad import unparse
from shared.classad.functions import FUNCTIONS

VALUES = [
    "undefined", "error", "true", "false", "0", "1", "-1", "2", "7", "-3", "100", "9223372036854775807",
    "-9223372036854775808", "2147483648", "0.0", "-0.0", "1.5", "-2.5", "1e300", "0.1", "3.0", 'real("inf")',
    '-real("inf")', 'real("nan")', '""', '" "', '"a"', '"A,b c"', '"a,b;c, d"', '"12"', '" 7x"', '"1.5e2y"', '"true"',
    '"1,2.5,3"', '"x@y@z"', '"A=1 B=2"', '"A=1;B=\'2"', '"it\'s"', '"<"', '"is"', '"i"', '"a.*"', '"(b)"',
    r'"\\1-\\0"', '"("', '";"', '","', '"1.10.2"', '"é"', "{}", "{1,2.5}", '{"a","b"}', '{"a b","c\'d"}',
    "{undefined,3}", '{1,"a"}', "{1+1,x}", "{[a=1],[a=2]}", "{true,false}", "{{1},{2}}", "{error}", "{relTime(5)}",
    "[a=1]", '[b=x+1;a="s"]', "absTime(100,3600)", "absTime(1700000000,0)", "relTime(90061.5)", "relTime(-5)",
    "relTime(0)", "x",
]  # fmt: skip

RANDOM = frozenset(("random", "time", "currenttime", "daytime", "debug"))
"""Functions that two implementations can not be expected to answer alike, or that only pass a value on."""


def calls(name, seed, pairs, more):
    """Calls of one function: none, each single value, and samples of two to five values."""
    rng = random.Random(f"{name} {seed}")
    function = FUNCTIONS[name]
    if name not in ("abstime", "formattime"):  # which tell the present
        yield f"{function.name}()"
    for value in VALUES:
        yield f"{function.name}({value})"
    for count in (2, 3, 4, 5):
        number = (pairs if count == 2 else more) if function.accepts(count) else 3
        for _ in range(number):
            yield f"{function.name}({','.join(rng.choice(VALUES) for _ in range(count))})"


def stated_deviation(call):
    """Whether docs/classads.md says that the answer to this call is another one."""
    name, _, rest = call.partition("(")
    name, first = name.lower(), rest.split(",")[0].rstrip(")")
    huge = first.lstrip("-").isdigit() and len(first) > 15
    if name == "reltime":
        return first in ("-0.0", "1e300", 'real("inf"', '-real("inf"', 'real("nan"')
    if name in ("splittime", "formattime") and (huge or first.startswith("[")):
        return True
    return name == "abstime" and rest.count(",") == 1


def text(rng, alphabet, longest=8):
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(0, longest)))


def quoted(rng, alphabet, longest=8):
    return unparse(text(rng, alphabet, longest))


def number(rng):
    kind = rng.random()
    if kind < 0.3:
        return str(rng.randint(-20, 20))
    if kind < 0.4:
        return str(rng.randint(-(2**63), 2**63 - 1))
    if kind < 0.6:
        return repr(round(rng.uniform(-100, 100), rng.randint(0, 3)))
    if kind < 0.7:
        return repr(rng.choice([1, -1]) * 10 ** rng.uniform(-30, 30))
    if kind < 0.8:
        return rng.choice(["0", "0.0", "-0.0", "0.5", "1.5", "2.5", "-0.5", "true", "false", "1e308", 'real("nan")'])
    if kind < 0.9:
        return quoted(rng, "0123456789.eE+-x ", 6)
    return str(2 ** rng.randint(0, 62) + rng.randint(-1, 1))


def string_list(rng):
    return quoted(rng, rng.choice([" ,\t;ab1", "a,b; ", "A, b\n\t", "1,2.5-x e", " \t\n\r,a"]))


def delimiter(rng):
    return unparse(rng.choice([",", " ", ";", ", ", ",;", " \t", "\t", "\n", "", ",\n", "ab", "x"]))


def moment(rng):
    return f"absTime({rng.randint(-(2**31), 2**31 - 1)},{rng.randint(-47, 47) * 1800})"


def any_value(rng):
    return rng.choice(
        [
            number(rng),
            string_list(rng),
            "{" + ",".join(rng.choice([number(rng), string_list(rng), "undefined"]) for _ in range(2)) + "}",
            "undefined",
            "true",
            f"relTime({rng.randint(-(10**6), 10**6)})",
            moment(rng),
        ]
    )


def values(rng, most):
    return ",".join(any_value(rng) for _ in range(rng.randint(0, most)))


def numbers(rng, most):
    return ",".join(rng.choice([number(rng), number(rng), "undefined"]) for _ in range(rng.randint(0, most)))


def optional(rng, *arguments):
    """Some of the arguments from the left, each with its comma."""
    return "".join(f",{argument}" for argument in arguments[: rng.randint(0, len(arguments))])


PATTERNS = [
    "a", "b*", "(a)(b)?", "(a|b)+", "^", "$", "", "(?=b)", "a|$", ".", r"\b", "(a)|(b)", "x?", "[^a]", "(?<=a)b",
    r"\w+", "b+?", "(.)(.)", r"\Ka", r"a\K", "(", "[a-c]{1,2}", r"(a)\1", "(?i)A", "(?|(a)|(b))", "a{,2}b", r"\x{61}",
]  # fmt: skip

ATOMS = [
    "a", "b", "c", ".", "x", "1", " ", "[ab]", "[^a]", "[a-c]", "(a)", "(b|c)", "(?:ab)", "(?=a)", "(?!b)", "(?<=a)",
    "(?<!b)", "(?>a+)", "(?i)", "(?i:a)", "(?s).", "^", "$", r"\b", r"\B", r"\d", r"\w", r"\s", r"\W", r"\1", r"\2",
    r"\A", r"\z", r"\Z", r"\.", r"\n", r"\t", r"\h", r"\R", r"\N", r"\K", r"\x41", r"\x{61}", r"\o{141}", r"\141",
    r"\Qa.b\E", "[[:alpha:]]", "[[:digit:]a]", "(?<n>a)", r"\k<n>", "(?P<m>b)", "(?P=m)", "(?|(a)|(b))", "(?(1)a|b)",
    "(?R)?", "(?1)", "(?#c)", "{2}", "{,2}", "{1,}", "{ 1}", "é", "[é]", r"\p{L}", r"\u0041", r"\e", r"\cA", r"\C",
    r"\X", "(*FAIL)", "[]a]", "[^]a]", r"[a-\d]", "[b-a]", "(", ")", "[", "]", "*", "+", "?", "\\", r"\g{1}", r"\g{-1}",
    r"\8", "[[:foo:]]", "[[.a.]]", "(?z)", "(?<=a+)", "(?<=a|bc)",
]  # fmt: skip
QUANTIFIERS = ["", "", "", "*", "+", "?", "*?", "+?", "??", "*+", "++", "{2}", "{1,2}", "{0}", "{2,1}"]


def pattern(rng):
    return "".join(rng.choice(ATOMS) + rng.choice(QUANTIFIERS) for _ in range(rng.randint(1, 5)))


def regexp(rng):
    subject, options = quoted(rng, "aabbcxA1 .\né"), unparse(text(rng, "imsx", 2))
    if rng.random() < 0.6:
        return f"regexp({unparse(pattern(rng))},{subject},{options})"
    substitute = unparse(rng.choice([r"<\0>", r"[\1]", "-", ""]))
    return f"regexps({unparse(pattern(rng))},{subject},{substitute},{unparse(text(rng, 'fgi', 2))})"


def substitution(rng):
    name = rng.choice(["regexps", "replace", "replaceall"])
    subject, substitute = quoted(rng, "abc\nx", 7), quoted(rng, "\\\\\\012x", 5)
    return f"{name}({unparse(rng.choice(PATTERNS))},{subject},{substitute}{optional(rng, quoted(rng, 'fgimsxz', 3))})"


def literal_moment(rng):
    made = f"{rng.choice([1970, 2020, 2038, 1900, 2100]):04}{rng.choice(['-', '/', '', ' '])}{rng.randint(0, 13):02}"
    made += f"{rng.choice(['-', '/', ''])}{rng.randint(0, 32):02}"
    for mark in ("T", ":", ":"):
        if rng.random() < 0.9:
            made += rng.choice([mark, ""]) + f"{rng.randint(0, 61):02}"
    made += rng.choice(["", "", ".5", "Z", "z", "+01:00", "-0530", "+05:30", " +01:00", "-00:00", "+1:00"])
    return f"absTime({unparse(made)})"


def literal_interval(rng):
    def part():
        return str(rng.randint(0, 70))

    made = rng.choice(["", "", "-", "+", " "]) + rng.choice(
        [
            part(),
            f"{part()}:{part()}",
            f"{part()}:{part()}:{part()}",
            f"{part()}+{part()}:{part()}:{part()}",
            f"{part()}d{part()}h{part()}m{part()}s",
            f"{part()}h{part()}",
            f"{part()}h{part()}:{part()}",
            f"{part()}m{part()}:{part()}",
            f"{part()}d{part()}:{part()}",
            text(rng, "0123+-:.dhms ", 7),
        ]
    )
    return f"relTime({unparse(made + rng.choice(['', '', '.5', 's', '.25s', ' ']))})"


def time_layout(rng):
    marks = ["%" + letter for letter in "aAbBcdHIjmMpSUwWxXyYZz%eDFTRsGVugChntklPr"] + ["x", " ", "%", "-"]
    when = rng.choice([str(rng.randint(0, 10**11)), moment(rng)])
    return f"formatTime({when},{unparse(''.join(rng.choice(marks) for _ in range(rng.randint(0, 6))))})"


FAMILIES = {
    "conversions": lambda rng: (
        f"{rng.choice(['int', 'real', 'floor', 'ceiling', 'round', 'bool', 'string', 'interval'])}({number(rng)})"
    ),
    "powers": lambda rng: f"pow({number(rng)},{number(rng)})",
    "steps": lambda rng: f"quantize({number(rng)},{rng.choice([number(rng), '{' + numbers(rng, 4) + '}'])})",
    "aggregates": lambda rng: f"{rng.choice(['sum', 'avg', 'min', 'max'])}({{{numbers(rng, 5)}}})",
    "parts": lambda rng: f"substr({string_list(rng)},{rng.randint(-10, 10)}{optional(rng, rng.randint(-10, 10))})",
    "pieces": lambda rng: f"split({string_list(rng)}{optional(rng, delimiter(rng))})",
    "string list numbers": lambda rng: (
        f"stringList{rng.choice(['Size', 'Sum', 'Avg', 'Min', 'Max'])}"
        f"({rng.choice([string_list(rng), quoted(rng, '0123456789.-+e,', 12)])}{optional(rng, delimiter(rng))})"
    ),
    "string list members": lambda rng: (
        f"{rng.choice(['stringListMember', 'stringListIMember'])}"
        f"({quoted(rng, 'abA1 ', 2)},{string_list(rng)}{optional(rng, delimiter(rng))})"
    ),
    "string list sets": lambda rng: (
        f"{rng.choice(['stringListsIntersect', 'stringListSubsetMatch', 'stringListISubsetMatch'])}"
        f"({string_list(rng)},{string_list(rng)}{optional(rng, delimiter(rng))})"
    ),
    "string list patterns": lambda rng: (
        f"stringList_regexpMember({unparse(rng.choice(PATTERNS))},"
        f"{string_list(rng)}{optional(rng, delimiter(rng), quoted(rng, 'iz', 1))})"
    ),
    "joined": lambda rng: f"{rng.choice(['join', 'strcat'])}({values(rng, 4)})",
    "strings": lambda rng: f"{rng.choice(['toUpper', 'toLower', 'size', 'string'])}({any_value(rng)})",
    "comparisons": lambda rng: (
        f"{rng.choice(['strcmp', 'stricmp', 'versioncmp', 'versionLT', 'versionEQ'])}"
        f"({quoted(rng, 'aAbB019._-é', 5)},{quoted(rng, 'aAbB019._-é', 5)})"
    ),
    "ranges": lambda rng: f"version_in_range({','.join(quoted(rng, '01.a', 4) for _ in range(3))})",
    "members": lambda rng: f"{rng.choice(['member', 'identicalMember'])}({any_value(rng)},{{{values(rng, 4)}}})",
    "any and all": lambda rng: (
        f"{rng.choice(['anyCompare', 'allCompare'])}"
        f"({unparse(rng.choice(['<', '<=', '==', '!=', '>', '>=', 'is', 'isnt', '=']))},"
        f"{{{values(rng, 4)}}},{any_value(rng)})"
    ),
    "names": lambda rng: f"{rng.choice(['splitUserName', 'splitSlotName'])}({quoted(rng, 'a@b', 6)})",
    "environments": lambda rng: (
        f"{rng.choice(['envV1ToV2', 'mergeEnvironment'])}"
        f"({quoted(rng, rng.choice(['AB=1; ', 'A=1 |', 'Ab= 12', chr(39) + 'A=1 b', ';|=A1^']), 10)})"
    ),
    "arguments": lambda rng: (
        f"argsToList({quoted(rng, 'ab ' + chr(39) + chr(9) + chr(34) + chr(92), 10)}{rng.choice(['', ',1', ',2'])})"
    ),
    "argument lists": lambda rng: (
        f"listToArgs({{{','.join(quoted(rng, 'ab ' + chr(39) + chr(9) + chr(34), 4) for _ in range(3))}}}"
        f"{rng.choice(['', ',1', ',2'])})"
    ),
    "patterns": regexp,
    "substitutions": substitution,
    "literal moments": literal_moment,
    "literal intervals": literal_interval,
    "parts of times": lambda rng: (
        "get"
        + rng.choice(["Year", "Month", "DayOfYear", "DayOfMonth", "DayOfWeek", "Hours", "Minutes", "Seconds", "Days"])
        + f"({rng.choice([f'relTime({rng.uniform(-(10**5), 10**5)})', moment(rng)])})"
    ),
    "split times": lambda rng: f"splitTime({rng.choice([f'relTime({rng.randint(-(10**6), 10**6)})', moment(rng)])})",
    "layouts of times": time_layout,
    "evaluated": lambda rng: f"eval({rng.choice([unparse(number(rng)), any_value(rng)])})",
}
