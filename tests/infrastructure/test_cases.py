"""Many cases in one test: each is checked, and each that fails is named."""

import pytest

from tests.cases import TOLD, each


def small(number: int) -> None:
    assert number < 3, f"{number} is large\nand no more"
    if number == 2:
        with pytest.raises(ValueError):
            int("2")


def test_all_that_pass_say_nothing():
    each(range(2), small, str)


def test_each_that_fails_is_named_and_the_first_are_told_why():
    with pytest.raises(pytest.fail.Exception) as told:
        each(range(30), small, lambda number: f"number {number}")
    text = str(told.value)
    assert text.startswith("28 of 30 cases:")
    assert all(f"number {number}: " in text for number in range(2, 30))
    assert "number 2: Failed: DID NOT RAISE" in text
    assert text.count("and no more") == TOLD - 1


def test_no_cases_are_no_success():
    with pytest.raises(AssertionError, match="no cases"):
        each([], small, str)
