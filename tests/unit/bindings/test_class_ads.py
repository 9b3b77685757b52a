"""classad2 and classad of Roost: what the comparison with the reference (tests/reference) does not ask."""

import copy
import io
import pickle
from datetime import UTC, datetime, timedelta

import pytest

from roost_htcondor import ad_texts, old_class_ad
from roost_htcondor.ad_values import ClassAdException, ClassAdValueError, ParserType, Value
from roost_htcondor.class_ad import ClassAd, ExprTree


def test_an_ad_is_a_mapping_without_case():
    ad = ClassAd({"Owner": "alice", "RequestCpus": 2})
    ad["Requirements"] = ExprTree("TARGET.Cpus >= RequestCpus")
    ad.update(rank=1.5)
    assert ad["OWNER"] == "alice"
    assert dict(ad) == {"rank": 1.5, "Owner": "alice", "RequestCpus": 2, "Requirements": ad["Requirements"]}
    assert "requestcpus" in ad
    del ad["rank"]
    assert len(ad) == 3
    with pytest.raises(KeyError):
        ad["rank"]


@pytest.mark.parametrize(
    ("value", "error", "told"),
    [
        (object(), TypeError, "takes None"),
        (timedelta(1), TypeError, "total_seconds"),
        (2**63, OverflowError, "64 bits"),
        ("a\0b", ValueError, "NUL"),
    ],
)
def test_what_an_attribute_can_not_hold_is_refused_and_changes_nothing(value, error, told):
    ad = ClassAd({"a": 1})
    with pytest.raises(error, match=told):
        ad["a"] = value
    assert ad["a"] == 1


def test_a_moment_without_a_zone_is_local_time():
    moment = datetime(2026, 5, 4, 3, 2, 1)
    assert ClassAd({"t": moment})["t"] == moment.astimezone(UTC)


def test_copies_are_independent_and_pickles_lose_nothing():
    ad = ClassAd({"x": 0.1 + 0.2, "e": ExprTree("x * 2"), "n": {"y": [1, None]}})
    other = copy.deepcopy(ad)
    other["x"] = 1
    assert ad["x"] == 0.1 + 0.2
    again = pickle.loads(pickle.dumps(ad))
    assert (again, again["x"], again["n"]["y"]) == (ad, 0.1 + 0.2, [1, Value.Undefined])
    assert pickle.loads(pickle.dumps(ExprTree("a =?= b"))) == ExprTree("a is b")


def test_both_ads_of_a_match_have_their_say():
    job = ClassAd({"Requirements": ExprTree("TARGET.Memory > 100"), "Owner": "alice"})
    machine = ClassAd({"Memory": 200, "Requirements": ExprTree('TARGET.Owner == "bob"')})
    assert not job.matches(machine)  # what the machine requires
    assert machine.matches(job)
    assert not job.symmetricMatch(machine)
    with pytest.raises(TypeError, match="ClassAd"):
        job.matches({"Memory": 5})


def test_a_text_that_is_no_ad_is_told_with_its_place():
    for make in (ClassAd, ExprTree, ad_texts.parseOne):
        with pytest.raises(ClassAdException, match=r"line 1, column [67]"):
            make("[ a = ]" if make is not ExprTree else "a && )")
    with pytest.raises(ValueError, match="JSON or old syntax"):
        list(ad_texts.parseAds("<c></c>", ParserType.XML))
    assert "line 1, column 7" in ad_texts.lastError()


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ('a = 1\nb = "x"\n\nc = 2\n', "c = 2\n"),
        ('[ a = 1;\n b = "x]" ]\n[ c = 2 ]\n', "[ c = 2 ]\n"),
        ('{"a": 1,\n "b": "x}"}\n{"c": 2}\n', '{"c": 2}\n'),
    ],
)
def test_the_next_ad_of_a_file_leaves_the_file_behind_it(text, after):
    file = io.StringIO("\n# ads\n" + text)
    first = ad_texts.parseNext(file)
    assert first is not None
    assert first["a"] == 1
    assert file.read() == after
    file.seek(0)
    assert [dict(ad) for ad in ad_texts.parseAds(file)][1] == {"c": 2}
    file.seek(len(file.getvalue()))
    assert ad_texts.parseNext(file) is None


def test_an_ad_behind_another_on_its_line_is_not_lost():
    with pytest.raises(ClassAdException, match="parseAds"):
        ad_texts.parseNext(io.StringIO("[a = 1] [b = 2]\n"))
    assert len(list(ad_texts.parseAds(io.StringIO("[a = 1] [b = 2]\n")))) == 2


def test_json_is_read_as_an_array_and_one_after_the_other():
    array, one_by_one = '[{"a": 1},\n {"b": "\\/Expr(a + 1)\\/"}]', '{"a": 1}\n{"b": "\\/Expr(a + 1)\\/"}\n'
    for text in (array, one_by_one):
        ads = list(ad_texts.parseAds(text, ParserType.JSON))
        assert [repr(ad) for ad in ads] == ["[ a = 1 ]", "[ b = a + 1 ]"]


# The older module


def test_operators_make_expressions():
    foo = old_class_ad.Attribute("foo")
    assert str((foo + 1) * 2) == "(foo + 1) * 2"
    assert str((1 - foo) == "x") == '(1 - foo) == "x"'
    assert str((foo > 5).and_(old_class_ad.ExprTree("a || b")).or_(False)) == "((foo > 5) && (a || b)) || false"
    assert str(foo.is_(None)) == "foo is undefined"
    assert str(old_class_ad.Function("strcat", "a", foo, 5)) == 'strcat("a",foo,5)'
    assert foo.sameAs(old_class_ad.ExprTree("foo"))
    with pytest.raises(TypeError):
        foo + object()


def test_expressions_without_names_are_numbers_and_truths():
    tree = old_class_ad.ExprTree
    assert (int(tree("2 + 3")), float(tree("1 / 2.0")), bool(tree("5") == 5), bool(tree("nosuch"))) == (
        5,
        0.5,
        True,
        False,
    )
    assert tree("{1, 1 + 1}")[1] == 2
    for wrong in (lambda: int(tree("nosuch")), lambda: tree("a")[0], lambda: old_class_ad.Literal([1])):
        with pytest.raises(ClassAdValueError):
            wrong()


def test_expressions_of_an_older_ad_have_operators_too():
    ad = next(ad_texts.parseAds("a = b + 1\n\n", kind=old_class_ad.ClassAd))
    assert str(ad["a"] + 1) == "(b + 1) + 1"
    assert str(pickle.loads(pickle.dumps(ad)).lookup("a") > 2) == "(b + 1) > 2"


def test_a_function_in_python_is_called_by_expressions():
    old_class_ad.register(lambda text, times=2: text * times, "bindings_test_repeat")
    ad = old_class_ad.ClassAd({"s": "ab", "e": old_class_ad.ExprTree("Bindings_Test_Repeat(s, 3)")})
    assert ad.eval("e") == "ababab"
    assert old_class_ad.Function("bindings_test_repeat", "a", "b").eval() is Value.Error  # it raised TypeError
