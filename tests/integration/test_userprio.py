"""`roost userprio` against a pool: what it shows, what it changes, what it refuses."""

import json
import time

import pytest

from roost.cli import output
from roost.cli import userprio as command
from roost.cli.main import main
from shared.messages.negotiation import GetPriorities
from tests.integration.inside import InsidePool
from tests.spec import spec
from tests.waiting import wait_until

HEP, LEP = "group_physics.hep", "group_physics.lep"


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    made = InsidePool(
        tmp_path_factory.mktemp("userprio"),
        GROUP_NAMES=f"group_physics, {HEP}, {LEP}",
        GROUP_QUOTA_group_physics="20",
        **{f"GROUP_QUOTA_{HEP}": "15", f"GROUP_QUOTA_{LEP}": "5"},
        GROUP_PRIO_FACTOR_group_physics="2.0",
    )
    yield made
    made.close()


@pytest.fixture
def userprio(pool, monkeypatch, capsys):
    for name in ("ROOST_URL", "ROOST_TOKEN", "ROOST_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOST_POOL_DIR", str(pool.directory))

    said: list[str] = []  # not what the pool in this process logs to standard output meanwhile
    for module in (output, command):
        monkeypatch.setattr(module, "say", lambda text="": said.append(text + "\n"))
    monkeypatch.setattr(output, "write", said.append)

    def run(*words, fails=False):
        said.clear()
        assert main(["userprio", *words]) == int(fails)
        error = capsys.readouterr().err
        assert bool(error) == fails
        return error if fails else "".join(said)

    return run


def rows(text):
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line and not line.startswith("-")}


@spec("TLS-03")
def test_every_setting_is_made_and_shown(userprio):
    """With the spellings in use."""
    for words in (
        ("-setfactor", "alice@x", "77"),
        ("-setprio", "alice@x", "3"),
        ("-setaccum", "alice@x", "7200"),
        ("-setbegin", "alice@x", "1000000000"),
        ("-setlast", "alice@x", str(int(time.time()))),
        ("-set-floor", "alice@x", "4"),
        ("-setceil", "alice@x", "9"),
    ):
        userprio(*words)
    shown = userprio("-all")
    assert "Submitter" in shown
    alice = rows(shown)["alice@x"]
    assert alice[:5] == ["231.00", "3.00", "77.00", "0", "2.00"]
    assert alice[-2:] == ["4.00", "9.00"]
    assert userprio("-setceiling", "alice@x", "-1") == "The ceiling of alice@x was set to -1\n"
    assert rows(userprio())["alice@x"][-1] == "4.00"
    userprio("-resetusage", "alice@x")
    assert userprio("-af", "Name", "WeightedAccumulatedUsage").count("alice@x 0.0") == 1
    assert userprio("-delete", "alice@x") == "The record of alice@x was deleted\n"
    assert "alice@x" not in userprio("-allusers")
    userprio("-setaccum", "bob@x", "60", "-setaccum", "carol@x", "60")
    userprio("-resetall")
    assert {"bob@x 0.0", "carol@x 0.0"} <= set(userprio("-af", "Name", "WeightedAccumulatedUsage").splitlines())


def test_a_change_for_a_while_is_shown_with_its_end(userprio):
    assert userprio("-setfactor", "dave@x", "50", "-duration", "2h") == (
        "The priority factor of dave@x was set to 50 for 0+02:00:00\n"
    )
    userprio("-setfloor", "dave@x", "2", "-duration", "1d")
    shown = userprio("-allusers").splitlines()
    assert shown[-2].startswith("dave@x: floor 2 until ")
    assert shown[-2].endswith(", then 0")
    assert shown[-1].startswith("dave@x: priority factor 50 until ")
    assert shown[-1].endswith(", then 1000")
    ad = json.loads(userprio("-json", "dave@x"))[0]
    assert 7100 < ad["PriorityFactorUntil"] - time.time() < 7300
    userprio("-setfactor", "erin@x", "50", "-duration", "0.2")
    wait_until(lambda: "erin@x" not in userprio("-allusers"), what="the change to end")


@spec("TLS-02", "W-10")
def test_quotas_are_shown_in_the_manuals_table(userprio):
    shown = userprio("-quotas", "-allusers").splitlines()
    assert shown[0].startswith("Last Priority Update: ")
    assert " ".join(shown[1].split()) == "Group Effective Config Use Subtree Requested" or (
        " ".join(shown[1].split()) == "Effective Config Use Subtree Requested"
    )
    assert shown[2].split()[-5:] == ["Quota", "Quota", "Surplus", "Quota", "Resources"]
    groups = rows("\n".join(shown[4 : shown.index(shown[3], 4)]))
    assert list(groups) == ["<none>", "group_physics", HEP, LEP]
    assert groups[HEP][1:3] == ["15.00", "no"]
    assert groups[LEP][1:3] == ["5.00", "no"]


@spec("GRP-04")
def test_a_quota_is_set_shown_and_taken_back(userprio):
    """While the pool runs."""

    def quota(group):
        return userprio("-constraint", f'Name == "{group}"', "-af", "ConfigQuota", "QuotaIsSet").strip()

    assert userprio("-setquota", HEP, "12") == f"The quota of {HEP} was set to 12\n"
    wait_until(lambda: quota(HEP) == "12.0 true", what="the next cycle")
    said = userprio("-setdynamicquota", HEP, "0.5", "-setquota", LEP, "3")
    assert f"The quota of {HEP} was set to 0.5 of that of the group above\n" in said
    wait_until(lambda: (quota(HEP), quota(LEP)) == ("0.5 true", "3.0 true"), what="the next cycle")
    for group in (HEP, LEP):
        assert userprio("-unsetquota", group) == f"The quota of {group} is the configuration's again\n"
    wait_until(lambda: quota(HEP) == "15.0 undefined", what="the next cycle")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["-setquota", "group_chemistry", "5"],
            "there is no accounting group 'group_chemistry' in GROUP_NAMES; known: ",
        ),
        (["-setquota", HEP, "-5"], "a quota of -5: give slot weight"),
        (["-setdynamicquota", HEP, "5"], "a quota of 5: give a part of the parent's"),
        (["-setquota", HEP], "-setquota wants a group and a number"),
        (["-setquota", HEP, "many"], "'many' is not a number"),
        (["-unsetquota", HEP, LEP], "-unsetquota wants one group"),
        (["-setquota", HEP, "5", "-duration", "1h"], "-duration goes with"),
        (["-setquota", HEP, "5", "-name", "gpus"], "there is no negotiator gpus in the pool; known: "),
        (["-setfactor", "alice@x", "0.5"], "below 1"),
        (["-setfactor", "alice", "5"], "name the user in full, as user@domain"),
        (["-setfactor", "alice@x", "5", "bob@x"], "wants a user and a number"),
        (["-setprio", "alice@x", "5", "-duration", "1h"], "-duration goes with -setfactor"),
        (["-duration", "1h"], "-duration goes with -setfactor"),
        (["-setfactor", "alice@x", "5", "-duration", "soon"], "want a time such as 3600, 90m"),
        (["-setfactor", "alice@x", "5", "more"], "wants a user and a number"),
        (["-resetall", "alice@x"], "does not belong to a change"),
        (["-activefrom", "13", "1", "2026"], "-activefrom 13 1 2026: "),
        (["-activefrom", "1", "2"], "-activefrom MONTH DAY YEAR"),
        (["-constraint", "((("], "-constraint (((: "),
        (["-getreslist", "alice"], "name the user in full"),
        (["-inputfile", "no-such-file"], "no-such-file: No such file"),
        (["-name", "gpus"], "there is no negotiator gpus in the pool; known: "),
        (["-setfactor", "alice@x", "5", "-name", "gpus"], "there is no negotiator gpus in the pool; known: "),
        (["-delete", "nobody@x"], "there is no submitter 'nobody@x'"),
        (["-setf", "alice@x", "5"], "-setf could be -setfactor, -setfloor"),
    ],
)
def test_mistakes_are_named_and_change_nothing(userprio, words, says):
    before = userprio("-af", "Name", "PriorityFactor")
    assert says in userprio(*words, fails=True)
    assert userprio("-af", "Name", "PriorityFactor") == before


def test_users_are_chosen_by_name_and_expression(userprio):
    userprio("-setfactor", "frank@x", "11")
    userprio("-setfactor", "frank@y", "12")
    assert userprio("frank", "-af", "Name") == "frank@x\nfrank@y\n"
    assert userprio("frank@y", "-af", "Name") == "frank@y\n"
    assert userprio("-constraint", "PriorityFactor == 11", "-af", "Name") == "frank@x\n"
    assert userprio("-constraint", "IsAccountingGroup", "-af", "Name").split() == ["<none>", "group_physics", HEP, LEP]
    assert "Number of users: 2" in userprio("-allusers", "frank")


def test_books_go_through_a_file_in_both_forms(userprio, tmp_path):
    userprio("-setaccum", "gina@x", "3600")
    for options in (("-long",), ("-long", "-legacy")):
        file = tmp_path / "books.ads"
        file.write_text(userprio(*options))
        assert rows(userprio("-inputfile", str(file), "-allusers"))["gina@x"][3] == "1.00"
    assert "NumSubmittors" in file.read_text()


@spec("ACC-21")
def test_the_collector_knows_them_too(userprio):
    userprio("-setfactor", "henry@x", "13")
    wait_until(lambda: "henry@x 13.0" in userprio("-collector", "-af", "Name", "PriorityFactor"), what="the ad")
    assert "henry@x" not in userprio("-collector", "-name", "gpus", "-af", "Name")


def test_slots_of_a_user_are_listed(userprio):
    shown = userprio("-getreslist", "nobody@x").splitlines()
    assert shown[0].split() == ["Resource", "Name", "Start", "Time", "Match", "Time"]
    assert shown[-1] == "Number of Resources Used: 0"


def test_a_page_is_no_more_than_a_message_carries(pool):
    with pool.client() as client:
        for number in range(12):
            client.set_priority(f"page{number}@x", "factor", 5)
        assert sum("page" in str(ad.eval("Name")) for ad in client.priorities()) == 12
        found = client.priorities(submitters=["page3", "page4@x", "page5@y"])
        assert [ad.eval("Name") for ad in found] == ["page3@x", "page4@x"]
        soon = client.priorities(active_since=time.time() + 1000)
        assert {ad.eval("IsAccountingGroup") for ad in soon} == {True}
    bus = pool.bus()
    try:
        answer = pool.run(bus.call("negotiator", GetPriorities(limit=3)))
        assert len(answer.ads) == 3
        assert answer.next
    finally:
        pool.run(bus.stop())
