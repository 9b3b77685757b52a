"""Row TLS-02: `userprio -inputfile` of what the recordings have no file for. What is held here are rules of
condor_userprio's."""

import pytest

from roost.cli.main import main
from tests.spec import spec

#: Groups not in the order of their names; a member whose name is the widest of the table.
NUMBERED = """\
MyType = "Accounting"
NumSubmittors = 4
LastUpdate = 1795352160
Name1 = "<none>"
IsAccountingGroup1 = true
Name2 = "group_z"
IsAccountingGroup2 = true
Name3 = "group_a"
IsAccountingGroup3 = true
Name4 = "group_z.somebody.of.thirty.letters@example.org"
AccountingGroup4 = "group_z"
IsAccountingGroup4 = false
Floor4 = 7
Ceiling4 = 9
"""
for _number in range(1, 5):
    NUMBERED += f"Priority{_number} = 500.0\nPriorityFactor{_number} = 1000.0\nLastUsageTime{_number} = 1795352160\n"


@pytest.fixture
def asked(tmp_path, capsys):
    file = tmp_path / "numbered.ads"
    file.write_text(NUMBERED)

    def ask(*options):
        assert main(["userprio", "-inputfile", str(file), "-allusers", *options]) == 0
        return capsys.readouterr().out.splitlines()

    return ask


@spec("TLS-02")
def test_a_floor_gets_no_column(asked):
    heads = asked()[1:3]
    assert "Ceiling" in heads[1]
    assert "Floor" not in heads[1]


@spec("TLS-02")
def test_the_dot_before_a_members_name_counts_in_the_width(asked):
    """'  somebody.of.thirty.letters@example.org', one more, and two as tables of groups have."""
    rule = asked("-hierarchical")[3].split(" ")[0]
    assert len(rule) == len("  somebody.of.thirty.letters@example.org") + 1 + 2


@spec("TLS-02")
def test_grouporder_has_groups_as_the_file_has_them(asked):
    names = [line.split(" ")[0] for line in asked("-grouporder")[4:-2]]
    assert names == ["<none>", "group_z", "group_a", "group_z.somebody.of.thirty.letters@example.org"]


@spec("TLS-02")
def test_long_shows_all_that_the_file_has(asked):
    assert sorted(asked("-long")) == sorted(NUMBERED.splitlines())
