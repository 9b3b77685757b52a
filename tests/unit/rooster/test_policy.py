"""Which machines are woken (PWR-06)."""

import pytest

from services.rooster.core.policy import machines_to_wake
from services.rooster.daemon import rules_of
from shared.classad import ClassAd, parse_expr
from shared.config import ConfigError, load_config
from shared.config.knobs import RoosterSettings
from tests.spec import spec

NOW = 1_700_000_000.0


def rules(**knobs):
    env = {f"_CONDOR_{name}": str(value) for name, value in knobs.items()}
    return rules_of(RoosterSettings.from_config(load_config([], subsystem="ROOSTER", env=env)))


def sleeper(machine, slot=1, **attributes):
    ad = ClassAd({"Name": f"slot{slot}@{machine}", "Machine": machine, "Offline": True})
    ad["Unhibernate"] = parse_expr("MachineLastMatchTime =!= UNDEFINED")
    ad.update({"MachineLastMatchTime": 5} | attributes)
    return ad


def names(ads, found):
    return [one.machine for one in machines_to_wake(ads, found, NOW)]


@spec("PWR-06")
def test_the_defaults_are_the_reference_s():
    found = rules()
    assert (found.interval_s, found.most, found.rank, found.command) == (300.0, 0, None, ())
    assert str(found.unhibernate) == "Offline && Unhibernate"


@spec("PWR-06")
def test_machines_that_jobs_wait_for_are_woken_once_each():
    ads = [
        sleeper("b"),
        sleeper("a", 1),
        sleeper("A", 2),
        sleeper("unwanted", MachineLastMatchTime=parse_expr("undefined")),
        sleeper("awake", Offline=False),
        ClassAd({"Name": "slot1@plain", "Machine": "plain"}),
        ClassAd({"Offline": True, "Unhibernate": True}),
    ]
    assert names(ads, rules()) == ["a", "b"]


def test_the_rank_orders_them_by_their_best_slot():
    found = rules(ROOSTER_UNHIBERNATE_RANK="Mips * Cpus")
    ads = [
        sleeper("small", Mips=10, Cpus=1),
        sleeper("unknown"),
        sleeper("large", 1, Mips=10, Cpus=2),
        sleeper("large", 2, Mips=10, Cpus=16),
        sleeper("middle", Mips=10, Cpus=8),
    ]
    assert names(ads, found) == ["large", "middle", "small", "unknown"]
    assert names(ads, rules(ROOSTER_UNHIBERNATE_RANK="0 / 0")) == ["large", "middle", "small", "unknown"]


def test_an_expression_of_one_s_own_decides():
    ads = [sleeper("a", Room=1), sleeper("b", Room=2), ClassAd({"Machine": "c", "Room": 2})]
    assert names(ads, rules(ROOSTER_UNHIBERNATE="Offline =?= true && Room == 2")) == ["b"]
    assert names(ads, rules(ROOSTER_UNHIBERNATE="time() > 1700000001")) == []


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ('"/usr/bin/condor_power -d -i"', ("/usr/bin/condor_power", "-d", "-i")),
        ("/bin/wake 'a b' c", ("/bin/wake", "a b", "c")),
        ('"/bin/wake ""x"""', ("/bin/wake", '"x"')),
        ("", ()),
    ],
)
def test_the_command_is_written_as_arguments_of_a_job(typed, words):
    assert rules(ROOSTER_WAKEUP_CMD=typed).command == words


@pytest.mark.parametrize(("typed", "says"), [("wake -i", "begins with /"), ("/bin/wake 'a", "never closed")])
def test_a_command_that_can_not_be_is_refused(typed, says):
    with pytest.raises(ConfigError, match=says):
        rules(ROOSTER_WAKEUP_CMD=typed)
