"""`CurrentTime` stands for time() wherever no ad has an attribute of that name, as old ClassAds had it (CLA-17)."""

import pytest

from shared.classad import UNDEFINED, ClassAd, evaluate, parse_ad, parse_expr
from shared.classad.columnar import Matching
from shared.classad.references import decided_by, references
from tests.spec import spec
from tests.unit.classad.compare import Theirs, ours
from tests.unit.classad.test_columnar import NOW, compare, table_of

MY = parse_ad("[ since = 3; late = CurrentTime - since; inner = [ now = CurrentTime ]; all = { CurrentTime } ]")
OWN = parse_ad("[ CurrentTime = 7; other = TARGET.CurrentTime ]")


@spec("CLA-17")
@pytest.mark.parametrize(
    ("text", "my", "target", "value"),
    [
        ("CurrentTime", MY, None, 5),
        ("currenttime - since", MY, None, 2),
        ("late", MY, None, 2),
        ("MY.CurrentTime", MY, None, 5),
        ("inner.now", MY, None, 5),
        ("inner.CurrentTime", MY, None, 5),
        ("all[0]", MY, None, 5),
        ("CurrentTime", MY, OWN, 5),  # before the other ad is looked at
        ("TARGET.CurrentTime", MY, OWN, 7),
        ("TARGET.other", MY, OWN, 5),
        ("CurrentTime", OWN, MY, 7),
        ("TARGET.CurrentTime", OWN, MY, 5),
        ("TARGET.CurrentTime", MY, None, UNDEFINED),
        ("CurrentTime", None, None, UNDEFINED),  # nothing around it
        ("CurrentTime =?= time()", MY, None, True),
    ],
)
def test_where_it_is_the_time(text, my, target, value):
    assert evaluate(parse_expr(text), my, target, 5.5) == value


@pytest.mark.reference
@pytest.mark.parametrize(
    "text",
    [
        *("isInteger(CurrentTime)", "CurrentTime - time() <= 2", "MY.CurrentTime > 1e9", "TARGET.CurrentTime > 1e9"),
        *("n.CurrentTime > 1e9", "{ CurrentTime }[0] > 1e9", "n.t > 1e9", "TARGET.t > 1e9", "CURRENTTIME > 1e9"),
        *("isUndefined(CurrentTime)", "isInteger(CurrentTime ?: 3)", "n.parent.CurrentTime > 1e9"),
        *('n["CurrentTime"] > 1e9', 'eval("CurrentTime") > 1e9', ".CurrentTime > 1e9", 'unresolved("CurrentTime + x")'),
        *("x.CurrentTime > 1e9", "size(ls.CurrentTime)", "evalInEachContext(CurrentTime > 1e9, ls)"),
        *("MY.n.CurrentTime > 1e9", "toplevel.CurrentTime > 1e9", "c.CurrentTime", "TARGET.c.CurrentTime"),
    ],
)
def test_it_is_the_time_where_the_reference_has_it(reference, text):
    """Truths of it, as two clocks are never the same."""
    theirs = Theirs(reference.classad)
    ads = "[ t = CurrentTime; n = [ t = CurrentTime ]; ls = { [ a = 1 ] }; c = [ CurrentTime = 3 ] ]"
    own = "[ CurrentTime = 7; t = CurrentTime ]"
    for my, target in ((None, None), (ads, None), (ads, ads), (ads, own), (own, ads)):
        assert ours(text, my, target)[0] == theirs(text, my, target)[0], (my, target)


@spec("CLA-17")
@pytest.mark.parametrize("text", ["CurrentTime - since", "CurrentTime > 4", "TARGET.CurrentTime + 0", "MY.CurrentTime"])
def test_over_many_rows_it_is_what_it_is_in_each(text):
    compare({str(n): ClassAd({"since": n}) for n in range(5)}, text)
    compare({str(n): ClassAd({"CurrentTime": n} if n % 2 else {"since": n}) for n in range(5)}, text)


def test_the_clock_drops_what_was_cached():
    matching = Matching(table_of({"a": parse_ad("[ since = 3 ]")}), NOW)
    expr = parse_expr("CurrentTime - since")
    assert matching.values(expr).tolist() == [2.0]
    matching.now = 10.0
    assert matching.values(expr).tolist() == [7.0]


def test_no_other_ad_is_asked_for_it():
    assert references(parse_expr("CurrentTime - QDate > x")).other == {"QDate", "x"}
    assert decided_by(parse_expr("CurrentTime > 3")) is None
