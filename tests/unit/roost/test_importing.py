"""Logs of ClassAds as HTCondor writes them, and what is taken from them."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.importing.accounts import read_accounts
from roost.importing.classad_log import LONGEST_LINE, lines_of, read_log
from shared.config.errors import ConfigError
from tests.spec import spec

#: As HTCondor 23 and 24 write it: blanks after 105 and 106, types left empty or not there at all.
ACCOUNTS = """\
107 1 CreationTimestamp 1700000000
101 Customer.alice@dom * (empty)
103 Customer.alice@dom Priority 10.000000
103 Customer.alice@dom PriorityFactor 500.000000
103 Customer.alice@dom AccumulatedUsage 7200.0
103 Customer.alice@dom WeightedAccumulatedUsage 14400.5
103 Customer.alice@dom UnchargedTime 100.0
103 Customer.alice@dom WeightedUnchargedTime -20.0
103 Customer.alice@dom BeginUsageTime 1690000000
103 Customer.alice@dom LastUsageTime 1699990000
103 Customer.alice@dom Ceiling 5
103 Customer.alice@dom Floor 1
103 Customer.alice@dom TempAttr "x"
104 Customer.alice@dom TempAttr
101 Customer.group_physics * *
103 Customer.group_physics Priority 0.5
103 Customer.group_physics PriorityFactor 0.0
101 Resource.slot1@1.2.3.4 * (empty)
103 Resource.slot1@1.2.3.4 RemoteUser "alice@dom"
101 Accountant. * (empty)
103 Accountant. LastUpdateTime 1700000123
105{blank}
101 Customer.bob@dom
103 Customer.bob@dom Priority 3.0
101 Customer.gone@dom
106{blank}
102 Customer.gone@dom
105
103 Customer.bob@dom Priority 99.0
""".format(blank=" ")


def logged(text, file="A.log"):
    data = text.encode() if isinstance(text, str) else text
    return read_log(lines_of(io.BytesIO(data)), file)


def refused(text, reading=logged):
    with pytest.raises(ConfigError) as caught:
        reading(text)
    return str(caught.value)


def accounts(text):
    return read_accounts(logged(text), "A.log")


@spec("ACC-23")
def test_what_was_committed_counts():
    log = logged(ACCOUNTS)
    assert set(log.ads) == {
        *("Customer.alice@dom", "Customer.group_physics", "Customer.bob@dom"),
        *("Resource.slot1@1.2.3.4", "Accountant."),
    }
    assert "tempattr" not in log.ads["Customer.alice@dom"].values
    assert log.ads["Customer.bob@dom"].values["priority"].text == "3.0"
    assert [str(one) for one in log.warnings] == [
        "A.log, line 28: this transaction was never committed and does not count, as in HTCondor"
    ]


@spec("ACC-23")
def test_records_of_the_accountant_are_read_whole():
    found = accounts(ACCOUNTS)
    assert found.until == 1700000123
    assert set(found.records) == {"alice@dom", "group_physics", "bob@dom"}
    alice = found.records["alice@dom"]
    assert (alice.priority, alice.factor, alice.floor, alice.ceiling) == (10.0, 500.0, 1.0, 5.0)
    assert (alice.usage, alice.weighted_usage) == (7300.0, 14400.5)
    assert (alice.begin, alice.last) == (1690000000.0, 1699990000.0)
    assert found.records["group_physics"].factor == 0.0  # the configuration's
    assert found.records["bob@dom"].ceiling == -1.0
    assert found.lines["bob@dom"] == 23


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "A.log: there is no record of a user (Customer.NAME) in it (name the Accountantnew.log in the SPOOL"),
        ("PRIORITY_HALFLIFE = 5\n", "A.log, line 1: 'PRIORITY_HALFLIFE = 5' is no record of a log of ClassAds"),
        ("\x7fELF\x02\x01\n", "A.log, line 1: '\\x7fELF\\x02\\x01' is no record"),
        (
            "107 1 x 1\n101 Customer.a@b\nZMG a\n103 Customer.a@b Priority 2.0\n",
            "A.log, line 3: 'ZMG a' is no record of a log of ClassAds (lines that count follow",
        ),
        ("101 Customer.a@b\n105\n103 Customer.a@b\n106\n", "A.log, line 3: record 103 lacks something"),
        ("101 Customer.a@b\n105\n105\n106\n", "A.log, line 3: a transaction begins inside the one of line 2"),
        ('101 Customer.a@b\n103 Customer.a@b Priority "\0"\n106\n', "A.log, line 2: a zero byte"),
        ("101 " + "x" * (LONGEST_LINE + 1) + "\n", f"A.log, line 1: a line of more than {LONGEST_LINE} bytes"),
        ("101 Customer.a@b\n103 Customer.a@b Priority fast\n", "A.log, line 2: Customer.a@b: Priority is 'fast'"),
        ("101 Customer.a@b\n103 Customer.a@b Priority 0.1\n", "A.log, line 2: Customer.a@b: priority 0.1 is below 0.5"),
        (
            "101 Customer.a@b\n103 Customer.a@b Priority 1e400\n",
            "line 2: Customer.a@b: priority inf is too large",
        ),
        (
            "101 Customer.a@b\n103 Customer.a@b WeightedAccumulatedUsage -5.0\n",
            "a@b: weighted usage -5",
        ),
        ("101 Customer.a\x01@b\n", "Customer.a\x01@b: 'a\\x01@b' is no name of a submitter"),
        ("101 Customer.\n103 Customer. Priority 2.0\n", "A.log, line 1: Customer.: '' is no name of a submitter"),
    ],
)
@spec("ACC-23")
def test_a_broken_file_is_refused_with_line_and_mend(text, told):
    assert told in refused(text, accounts)


@spec("ACC-23")
def test_every_wrong_line_is_told_at_once():
    told = refused("101 Customer.a@b\n103 Customer.a@b Priority x\n103 Customer.a@b Floor -1\n", accounts)
    assert len(told.splitlines()) == 2


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("103 Customer.a@b Prio", "the last line has no end and does not count"),
        ("105\n103 Customer.a@b Priority 9.0\n", "this transaction was never committed"),
        (
            "105\n103 Customer.a@b Priority 9.0\n\0\0\0\0\n",
            "is no record of a log of ClassAds: it and what",
        ),
        ("103 Customer.x@y Priority 2.0\n", "there is no ad Customer.x@y here"),
    ],
)
def test_what_a_machine_left_half_written_does_not_count(end, told):
    log = logged("101 Customer.a@b\n103 Customer.a@b Priority 7.0\n" + end)
    assert log.ads["Customer.a@b"].values["priority"].text == "7.0"
    assert told in str(log.warnings[0])


@settings(max_examples=300)
@given(st.binary(max_size=400), st.integers(0, len(ACCOUNTS)))
def test_any_bytes_are_read_or_refused(data, place):
    for text in (data, ACCOUNTS.encode()[:place] + data + ACCOUNTS.encode()[place:]):
        told = "A.log"
        try:
            read_accounts(logged(text), "A.log")
        except ConfigError as error:
            told = str(error)
        assert "A.log" in told
