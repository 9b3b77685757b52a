"""The table of what holds each boundary can be tried: what it takes away is there, and so are the tests."""

import pytest

from tests.security.mends import MENDS, Mend, troubles


@pytest.mark.parametrize("mend", MENDS, ids=lambda mend: mend.name)
def test_a_wall_is_where_the_table_says(mend):
    assert list(troubles(mend)) == []


def test_names_are_of_one_row_each():
    assert len({mend.name for mend in MENDS}) == len(MENDS)


def test_what_is_gone_is_told():
    lost = Mend("lost", "", "shared/users.py", (("no such line", ""),), ("tests/security/test_users.py::test_no_such",))
    assert list(troubles(lost)) == [
        "lost: 'no such line' stands 0 times in shared/users.py",
        "lost: there is no tests/security/test_users.py::test_no_such",
    ]
