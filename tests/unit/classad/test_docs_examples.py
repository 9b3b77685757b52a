"""Every example and every limit of docs/classads.md."""

import doctest
import math
import re
from importlib import import_module
from pathlib import Path

import pytest

from shared.classad import ClassAd, ParseError, evaluate, parse_ad, parse_expr, unparse

PAGE = Path(__file__).parents[3] / "docs" / "classads.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = [(kind, body) for kind, body in re.findall(r"```([a-z-]+)\n(.*?)```", TEXT, re.DOTALL)]


def examples(*kinds):
    """(expression, expected value, MY, TARGET) of every line of the blocks of these kinds."""
    for kind, body in BLOCKS:
        if kind not in kinds:
            continue
        ads = {"MY": None, "TARGET": None}
        for line in body.splitlines():
            word, _, rest = line.partition(" ")
            if word in ads and rest.lstrip().startswith("["):
                ads[word] = rest.strip()
            else:
                text, arrow, expected = line.rpartition(" -> ")
                assert arrow, f"no ` -> ` in {line!r}"
                yield text.strip(), expected.strip(), ads["MY"], ads["TARGET"]


def plain(value):
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, ClassAd):
        return unparse(value)
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return type(value).__name__, value


def ad(text):
    return None if text is None else parse_ad(text)


@pytest.mark.parametrize(("text", "expected", "my", "target"), list(examples("classad", "classad-deviation")))
def test_example(text, expected, my, target):
    assert plain(evaluate(parse_expr(text), ad(my), ad(target))) == plain(evaluate(parse_expr(expected)))


@pytest.mark.reference
@pytest.mark.parametrize(("text", "expected", "my", "target"), list(examples("classad")))
def test_example_in_the_reference(reference, text, expected, my, target):
    library = reference.classad

    def value(source):
        found = library.ExprTree(source).eval(
            None if my is None else library.ClassAd(my), None if target is None else library.ClassAd(target)
        )
        return solid(found)

    def solid(found):
        if isinstance(found, list):
            return [solid(item) for item in found]
        return solid(found.eval()) if isinstance(found, library.ExprTree) else (type(found).__name__, found)

    assert value(text) == value(expected)


def test_python_examples():
    session = "\n".join(body for kind, body in BLOCKS if kind == "python")
    test = doctest.DocTestParser().get_doctest(session, {}, PAGE.name, str(PAGE), 0)
    assert len(test.examples) > 10
    runner = doctest.DocTestRunner(verbose=False)
    report = []
    runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_limits_are_those_of_the_code():
    rows = re.findall(r"^\| `([\w.]+)\.(\w+)` \| ([\d.]+) \|", TEXT, re.MULTILINE)
    assert len(rows) >= 8
    for module, name, value in rows:
        assert getattr(import_module(module), name) == float(value), name
    for module, name in re.findall(r"`(shared\.[\w.]+)\.([A-Z_]+)`", TEXT):
        assert hasattr(import_module(module), name)


@pytest.mark.parametrize("text", ["a..b", "1]", '"a\\000b"'])
def test_texts_that_are_refused(text):
    with pytest.raises(ParseError):
        parse_expr(text)
