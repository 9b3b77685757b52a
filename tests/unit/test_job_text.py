"""Arguments and environment in both forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.job_text import BadJobText, arguments, environment, words_v2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("3 simple arguments", ["3", "simple", "arguments"]),
        ("one 'two with spaces' 3", ["one", "two with spaces", "3"]),
        ("'spacey ''quoted'' argument'", ["spacey 'quoted' argument"]),
        ("''", [""]),
        ("a''b", ["ab"]),
        ("''''", ["'"]),
        ("pre'fix ed'post", ["prefix edpost"]),
        ("  tab\tand\nline ", ["tab", "and", "line"]),
        ('double "quotes" stay', ["double", '"quotes"', "stay"]),
    ],
)
def test_new_form_groups_with_single_quotes(text, words):
    assert words_v2(text) == words


@given(st.lists(st.text(st.characters(blacklist_characters="\0", codec="utf-8"))))
def test_any_words_survive_quoting(words):
    quoted = " ".join("'" + word.replace("'", "''") + "'" for word in words)
    assert words_v2(quoted) == words


def test_an_open_quote_is_named():
    with pytest.raises(BadJobText, match=r"character 3 .* never closed"):
        words_v2("a 'b c")


def test_the_new_form_wins_over_the_old():
    assert arguments("'a b'", "x y") == ["a b"]
    assert arguments(None, " x  y'z ") == ["x", "y'z"]
    assert arguments(None, None) == []
    assert environment("A=1 'B=x y'", "C=2") == {"A": "1", "B": "x y"}
    assert environment(None, "A=1;B=x y;;C=") == {"A": "1", "B": "x y", "C": ""}
    assert environment(None, "A=1|B=2", "|") == {"A": "1", "B": "2"}
    assert environment("A=b=c A=2", None) == {"A": "2"}


def test_what_is_no_pair_is_refused():
    for text in ("novalue", "=x", "A=1 lonely"):
        with pytest.raises(BadJobText, match="NAME=value"):
            environment(text, None)
