"""Whether a constraint is true of a job: what is looked up instead of evaluated says the same."""

import pytest

from engine.queue.autoclusters import Autoclusters
from engine.queue.job_table import JobTable
from engine.queue.jobs import Cluster, full_ad
from services.schedd.core.group_verdicts import Verdicts
from shared.classad import evaluate, is_true, parse_ad, parse_expr

OWN = ("", "A = 5", "A = 6", "A = 5.0", 'A = "5"', "A = true", "A = 4 + 1", "A = B", "A = 5; B = 5", "A = undefined")
CONSTRAINTS = (
    *("A == 5", "5 == A", "A =?= 5", "(A) == 5", "(A == 5)", "A == 5.0", "MY.A == 5", ".A == 5", "A != 5", "A == -5"),
    *("A == 5 && B == 5", "(A == 5 && B == 5) && true", "A == 5 || B == 5", "!(A == 5)", "A == 5 && B", "1 == 1"),
    *("ProcId == 1", "ServerTime == 9", "AutoClusterId == 0", "A == 5 && ProcId == 1", "A == 5 && A == 6", "A == B"),
)


def jobs_of(*, shared=""):
    table = JobTable(Autoclusters())
    cluster = Cluster(9, "ada", "ada@pool", "ada@pool", 5, parse_ad(f"[JobPrio = 3; {shared}]"))
    packed = {proc: parse_ad(f"[{own}]").pack() for proc, own in enumerate(OWN)}
    assert table.add_packed(cluster, packed, {"a", "b"}, 9.0)
    return [cluster.jobs[proc] for proc in range(len(OWN))]


@pytest.mark.parametrize("hidden", ["", "a"])
@pytest.mark.parametrize("shared", ["", "A = 5", "B = 5", "B = 6", "A = B; B = 5"])
def test_a_number_is_looked_up_as_if_it_were_evaluated(shared, hidden):
    unseen = frozenset({hidden} - {""})
    for text in CONSTRAINTS:
        expr = parse_expr(text)
        verdicts = Verdicts(expr, "ap", 9.0, lambda _: unseen)
        for job in jobs_of(shared=shared):
            told = is_true(evaluate(expr, full_ad("ap", job, 9.0, unseen), None, 9.0))
            assert verdicts.of_job(job) is told, (text, OWN[job.proc])
