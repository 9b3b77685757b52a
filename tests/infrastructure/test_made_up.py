"""The gate draws the same examples in each run (tests/made_up.py)."""

import sys
from types import ModuleType

from hypothesis import given, settings
from hypothesis import strategies as st

from tests import made_up


def drawn() -> list[tuple[int, str]]:
    seen = []

    @settings(derandomize=True, database=None, max_examples=200)
    @given(st.integers(), st.text())
    def note(number, text):
        seen.append((number, text))

    note()
    return seen


def test_what_has_been_imported_makes_no_other_examples(tmp_path, monkeypatch):
    before = drawn()
    source = tmp_path / "constants.py"
    source.write_text("\n".join(f"A{number} = {number}; B{number} = 'text {number}'" for number in range(1000, 1100)))
    module = ModuleType("constants")
    module.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "constants", module)
    assert drawn() == before


def test_the_gate_draws_a_part_of_what_fuzzing_draws():
    def asked(profile, number):
        @settings(max_examples=number)
        @given(st.none())
        def test(nothing):
            pass

        made_up.fit(test, profile)
        made_up.fit(test, profile)  # it may be collected twice
        return test._hypothesis_internal_use_settings.max_examples

    assert [asked("", number) for number in (3, 30, 50, 300)] == [3, 20, 20, 120]
    assert [asked(made_up.FUZZ, number) for number in (3, 300, 1000)] == [60, 6000, 1000]
    assert asked("mutation", 50) == 50
