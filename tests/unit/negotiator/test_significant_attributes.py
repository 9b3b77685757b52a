"""Which attributes of jobs matter (NEG-17), from the slots' expressions and the negotiator's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.match.model import CycleConfig
from engine.match.significant_attributes import MAX_NAMES, OWN, SignificantAttributes, policies
from engine.queue.autoclusters import Autoclusters
from engine.queue.jobs import Cluster, JobStatus
from services.schedd.io.submission import make_job
from shared.classad import ClassAd, half_match, parse_ad, parse_expr
from shared.classad.columnar import Table
from tests.spec import spec


def table_of(*texts):
    table = Table()
    for number, text in enumerate(texts):
        table.put(f"slot{number}", parse_ad(f"[{text}]"))
    table.flush()
    return table


def named(*texts, exprs=(), constraint=None):
    """What matters besides what always does."""
    significant = SignificantAttributes(map(parse_expr, exprs), parse_expr(constraint) if constraint else None)
    return set(significant.of(table_of(*texts))) - set(OWN)


@spec("NEG-17")
@pytest.mark.parametrize(
    ("slot", "names"),
    [
        ('Requirements = START; START = TARGET.Owner == "x"', {"owner"}),
        ('Requirements = START; START = Owner == "x"', {"owner"}),
        ('Requirements = START; START = MY.Owner == "x"', set()),
        ('Requirements = START && Owner == "x"; START = true; Owner = "y"', set()),
        ("Requirements = false; START = TARGET.ImageSize < Memory; Memory = 5", {"imagesize"}),
        ("Requirements = true; Rank = TARGET.JobPrio + Bonus; Bonus = TARGET.Extra * 2", {"jobprio", "extra"}),
        ("Requirements = a; a = b; b = c; c = TARGET.d", {"d"}),
        ("Requirements = a; a = MY.b; b = MY.a || TARGET.d", {"d"}),
        ("Requirements = WithinResourceLimits; WithinResourceLimits = TARGET.RequestX <= MY.X; X = 1", {"requestx"}),
        ("Unused = TARGET.Nothing", set()),
        (
            'MachineResources = "Cpus gpus"; ConsumptionCpus = max({TARGET.RequestCpus, TARGET.Least}); '
            "ConsumptionGpus = quantize(TARGET.RequestGpus, {1})",
            {"requestcpus", "least", "requestgpus"},
        ),
        ('MachineResources = "Cpus, gpus"; ConsumptionCpus = 3; ConsumptionGpus = RequestGpus', {"requestgpus"}),
        ('Requirements = TARGET.Group.Name == "x"', {"group"}),
    ],
)
def test_what_slots_ask_of_jobs_is_significant(slot, names):
    assert named(slot) == names


def test_a_bare_name_is_the_jobs_where_one_slot_lacks_it():
    both = 'Requirements = Colour == "red"'
    assert named(f'{both}; Colour = "red"') == set()
    assert named(f'{both}; Colour = "red"', both) == {"colour"}


def test_an_attribute_that_is_undefined_is_there_all_the_same():
    assert named("Requirements = Colour =?= 1; Colour = undefined") == set()


def test_what_the_negotiators_own_expressions_look_at_is_significant():
    config = CycleConfig(
        pre_job_rank=parse_expr("MY.Rank + TARGET.One - Cpus"),
        post_job_rank=parse_expr("KFlops * Two"),
        preemption_requirements=parse_expr("RemoteUserPrio > TARGET.SubmitterUserPrio * 1.2 && TARGET.Three"),
        preemption_rank=parse_expr("Slot1_RemoteUserPrio + Four"),
    )
    slot = "Requirements = true; Cpus = 1; KFlops = TARGET.Five"
    found = SignificantAttributes(policies(config)).of(table_of(slot))
    assert set(found) - set(OWN) == {"one", "two", "three", "four", "five"}


@spec("NEG-43", "NEG-44")
def test_what_only_the_negotiator_knows_is_no_jobs_attribute():
    text = " + ".join(
        f"TARGET.{name} + {name}"
        for name in (
            "SubmitterUserPrio",
            "SubmitterUserResourcesInUse",
            "RemoteUserPrio",
            "Slot3_RemoteUserPrio",
            "SubmitterGroup",
            "SubmitterGroupQuota",
            "RemoteGroupResourcesInUse",
            "SubmitterNegotiatingGroup",
            "RemoteAutoregroup",
            "CurrentTime",
            "NegotiatorMatchExprNegotiatorName",
        )
    )
    assert named(f"Requirements = {text} > 1", exprs=[text]) == set()


@spec("NEG-31")
def test_what_the_job_constraint_looks_at_is_significant():
    assert named(constraint="JobPrio > 3 && MY.Site == 1") == {"jobprio", "site"}


def test_what_the_negotiator_reads_itself_is_always_there():
    assert SignificantAttributes().of(table_of()) == tuple(sorted(OWN))


def test_new_policies_are_found_and_old_ones_forgotten_as_slots_come_and_go():
    significant, table = SignificantAttributes(), table_of("Requirements = TARGET.One")
    table.put("other", parse_ad("[Requirements = TARGET.Two]"))
    table.flush()
    assert set(significant.of(table)) - set(OWN) == {"one", "two"}
    table.remove("slot0")
    table.flush()
    assert set(significant.of(table)) - set(OWN) == {"two"}


def test_there_is_an_end_to_it():
    slots = (f"Requirements = TARGET.n{number}" for number in range(MAX_NAMES + 50))
    assert len(SignificantAttributes().of(table_of(*slots))) == MAX_NAMES


ATTRIBUTES = ("A", "B", "C")
values = st.fixed_dictionaries({name: st.integers(0, 2) for name in ATTRIBUTES})
operands = st.sampled_from([*(f"TARGET.{name}" for name in ATTRIBUTES), *ATTRIBUTES, "MY.Z", "Z", "1"])
terms = st.builds("({} {} {})".format, operands, st.sampled_from(["<", "==", ">="]), operands)
slots = st.builds(
    lambda start, z, more: f"Requirements = START; START = {start}; Z = {z}; {more}",
    st.lists(terms, min_size=1, max_size=3).map(" && ".join),
    terms,
    st.sampled_from(["", "A = 1", "B = C; C = 2"]),
)


@spec("NEG-17")
@given(st.lists(slots, min_size=1, max_size=4), st.lists(values, min_size=2, max_size=6))
def test_jobs_of_one_autocluster_are_the_same_to_every_slot(texts, asked):
    table = table_of(*texts)
    clusters = Autoclusters()
    clusters.set_significant(SignificantAttributes().of(table))
    cluster = Cluster(1, "alice", "alice@p", "alice@p", 0, parse_ad("[Requirements = true]"))
    accepted = {}
    for proc, attributes in enumerate(asked):
        job = make_job(cluster, proc, ClassAd(attributes).pack(), JobStatus.IDLE, 0, "alice@p")
        answers = [half_match(table.ad(row), job.ad) for row in range(len(table))]
        assert accepted.setdefault(clusters.assign(job), answers) == answers
