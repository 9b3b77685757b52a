"""The gate draws the same examples in each run (tests/made_up.py)."""

import sys
from types import ModuleType

from hypothesis import given, settings
from hypothesis import strategies as st


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
