"""How long one expression of a job may be: whoever evaluates it reads it first, on an event loop."""

import pytest

from engine.queue.jobs import BadSubmit
from services.schedd.core.acceptance import LONGEST_EXPRESSION, check_edits, checked
from shared.classad import ClassAd


def ad_of(text):
    ad = ClassAd({"Cmd": "/bin/true"})
    ad.set_text("Requirements", text)
    return ad.pack()


def test_an_expression_that_is_too_long_is_refused_by_its_name():
    listed = " || ".join([f'Machine == "host{n}.example.org"' for n in range(700)])
    assert len(listed) > LONGEST_EXPRESSION
    says = rf"^cluster ad: Requirements is an expression of \d+ characters; at most {LONGEST_EXPRESSION} are taken"
    with pytest.raises(BadSubmit, match=says):
        checked(ad_of(listed), "cluster ad")
    with pytest.raises(BadSubmit, match=r"^edits: Requirements is an expression"):
        check_edits(ad_of(listed), admin=True)


def test_one_that_is_not_and_any_string_are_taken():
    listed = " || ".join([f'Machine == "host{n}.example.org"' for n in range(200)])
    assert checked(ad_of(listed), "cluster ad").eval("Requirements", ClassAd({"Machine": "host7.example.org"})) is True
    assert len(checked(ClassAd({"List": "x" * 500_000}).pack(), "cluster ad").eval("List")) == 500_000
