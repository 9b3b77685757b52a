"""Machines and policies for tests of defragmentation."""

from itertools import count

from services.defrag.core.machines import CONSTRAINT, Expressions, machines_of
from services.defrag.core.policy import Rules, decide, prefix
from shared.classad import ClassAd, evaluate, is_true, parse_expr
from shared.config import load_config
from shared.config.knobs import DefragSettings

#: 2026-01-01 00:00:00 UTC, a full hour and day.
DAY0 = 1767225600


def slot_ad(startd, cpus=0, total=8, slot=1, **attributes):
    """The ad of a partitionable slot with so many cpus left."""
    return ClassAd(
        {
            "MyType": "Machine",
            "Name": f"slot{slot}@{startd}",
            "Machine": startd,
            "MyAddress": f"startd.{startd}",
            "PartitionableSlot": True,
            "State": "Unclaimed",
            "Cpus": cpus,
            "TotalSlotCpus": total,
            "TotalCpus": total,
            "DaemonStartTime": DAY0 - 1000,
            "MyCurrentTime": DAY0,
            "ExpectedMachineGracefulDrainingBadput": 100,
            **attributes,
        }
    )


def rules(*, name="", **knobs):
    """The policy that the daemon makes of these knobs."""
    from services.defrag.daemon import rules_of

    env = {f"_CONDOR_{knob}": str(value) for knob, value in knobs.items()}
    made = rules_of(DefragSettings.from_config(load_config([], subsystem="DEFRAG", env=env)))
    assert isinstance(made, Rules)
    assert made.prefix == prefix(name)
    return made


def read(policy, *ads, now=DAY0):
    """As the daemon gets them: the collector leaves out what CONSTRAINT does."""
    asked = parse_expr(CONSTRAINT)
    return machines_of([ad for ad in ads if is_true(evaluate(asked, ad))], policy.expressions, now)


def round_of(policy, state, *ads, now=DAY0):
    numbers = count(1)
    return decide(policy, state, read(policy, *ads, now=now), now, lambda: f"n{next(numbers)}")


EVERY = Expressions(None, parse_expr("Cpus == TotalSlotCpus"), None, parse_expr("0"))
