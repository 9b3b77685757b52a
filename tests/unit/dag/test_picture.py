"""What a DAG's line in the queue tells for its picture."""

import pytest

from engine.dag import picture
from engine.dag.run import Begin, DagRun, JobEnded, JobIs, Limits, Submitted
from tests.unit.dag.files import dag_of

DIAMOND = "".join(f"JOB {name} x.sub\n" for name in "ABCD") + "PARENT A CHILD B C\nPARENT B C CHILD D\n"


def told(run, *facts):
    for fact in facts:
        run.apply(fact, 1.0)
    return picture.states(run, drawn=True)


def test_states_follow_the_run():
    dag = dag_of(DIAMOND)
    names, parents = picture.shape(dag)["DAG_NodeNames"], picture.shape(dag)["DAG_NodeParents"]
    assert (names, parents) == ('"A B C D"', '"- 0 0 1,2"')
    run = DagRun(dag, Limits())
    assert told(run)["DAG_NodeStates"] == '"RNNN"'
    found = told(run, Begin(), Submitted(0, 0, 7, 2), JobIs(0, 0, 0, "R"))
    assert (found["DAG_NodeStates"], found["DAG_NodeClusters"]) == ('"XNNN"', '"7 - - -"')
    assert told(run, JobIs(0, 0, 1, "H"))["DAG_NodeStates"] == '"HNNN"'
    found = told(run, JobEnded(0, 0, 0, 0), JobEnded(0, 0, 1, 0), Submitted(1, 0, 8, 1), Submitted(2, 0, 9, 1))
    assert found["DAG_NodeStates"] == '"DIIN"'
    found = told(run, JobEnded(1, 0, 0, 3), JobEnded(2, 0, 0, 0))
    assert found["DAG_NodeStates"] == '"DEDF"'
    wanted = {
        "DAG_NodesTotal": 4,
        "DAG_NodesDone": 2,
        "DAG_NodesFailed": 1,
        "DAG_NodesFutile": 1,
        "DAG_NodesUnready": 0,
    }
    assert wanted.items() <= {name: int(text) for name, text in found.items() if '"' not in text}.items()


def test_what_only_joins_others_is_a_plus():
    dag = dag_of("".join(f"JOB {name} x.sub\n" for name in "ABCD") + "PARENT A B CHILD C D\n")
    assert picture.shape(dag) == {"DAG_NodeNames": '"A B C D +"', "DAG_NodeParents": '"- - 4 4 0,1"'}


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"JOB N{number} x.sub\n" for number in range(picture.MOST_NODES + 1)),
        "".join(f"JOB {'N' * 200}{number} x.sub\n" for number in range(150)),
    ],
)
def test_a_large_dag_is_counted_and_not_drawn(text):
    dag = dag_of(text)
    assert picture.shape(dag) == {}
    found = picture.states(DagRun(dag, Limits()), drawn=False)
    assert found["DAG_NodesReady"] == str(dag.counted)
    assert "DAG_NodeStates" not in found
