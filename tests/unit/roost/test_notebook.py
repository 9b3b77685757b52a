"""What notebooks show of the client's things."""

from xml.etree import ElementTree

import pytest

from roost.dag_state import dag_state
from roost.errors import ClientError
from roost.function_pool import STATES, CallFuture
from roost.job import JobHandle
from roost.notebook import table
from roost.protocol import Cluster
from shared.classad import ClassAd


def test_what_users_wrote_is_text_and_what_is_not_known_is_left_out():
    shown = table("<b>", {"name": "<script>&", "none": None, "empty": "", "zero": 0})
    assert "<caption>&lt;b&gt;</caption>" in shown
    assert "&lt;script&gt;&amp;" in shown
    assert "none" not in shown
    assert "empty" not in shown
    assert "zero" in shown


def test_jobs_and_clusters_say_which_they_are():
    assert "Job 12.3" in JobHandle("12.3", "ap")._repr_html_()
    shown = Cluster(12, 40, "ap")._repr_html_()
    assert all(word in shown for word in ("Cluster 12", "40", "ap"))


def test_a_dag_is_counted_and_drawn():
    told = {
        "DAG_NodesTotal": 4, "DAG_NodesDone": 1, "DAG_NodesFailed": 1, "DAG_NodesUnready": 0,
        "DAG_NodeNames": "A&amp B_with_a_very_long_name + D", "DAG_NodeParents": "- 0 0,1 2,9,x",
        "DAG_NodeStates": "DXNF", "DAG_NodeClusters": "5 6 - -",
    }  # fmt: skip
    state = dag_state("7.0", ClassAd(told))
    assert state.counts == {"nodes": 4, "done": 1, "failed": 1, "wait for parents": 0}
    assert [(node.name, node.state, node.parents, node.job) for node in state.nodes] == [
        ("A&amp", "done", (), "5.0"),
        ("B_with_a_very_long_name", "running", (0,), "6.0"),
        ("", "waits for its parents", (0, 1), ""),
        ("D", "never runs: a parent failed", (2,), ""),
    ]
    counts, _, drawn = state._repr_html_().partition("</table>")
    assert "wait for parents" not in counts
    svg = ElementTree.fromstring(drawn)[0]
    titles = [one.text for one in svg.iter("title")]
    assert titles == [
        "A&amp: done, job 5.0", "B_with_a_very_long_name: running, job 6.0", "D: never runs: a parent failed",
    ]  # fmt: skip
    assert len(list(svg.iter("path"))) == 4
    assert [int(one.get("x")) for one in svg.iter("rect")] == [4, 172, 508]
    assert dag_state("7.0", ClassAd({"DAG_NodesTotal": 300}))._repr_html_().endswith("</table>")
    with pytest.raises(ClientError, match="manages no DAG"):
        dag_state("8.0", ClassAd({"JobStatus": 1}))


def _made(what) -> CallFuture:
    class Nobody:
        def from_any_thread(self, *_):
            pass

        take_back = remove = None

    future = CallFuture(Nobody(), "function")
    what(future)
    return future


@pytest.mark.parametrize(
    ("what", "state"),
    [
        (lambda future: None, "waiting"),
        (lambda future: future.set_running_or_notify_cancel(), "running"),
        (lambda future: future.set_result(1), "done"),
        (lambda future: future.set_exception(ValueError("<bad>")), "failed"),
        (lambda future: future.cancel(), "cancelled"),
    ],
)
def test_a_future_says_how_its_call_is(what, state):
    future = _made(what)
    assert future.state == state
    assert state in STATES
    assert repr(future) == f"<CallFuture {state}>"
    assert ("ValueError(&#x27;&lt;bad&gt;&#x27;)" in future._repr_html_()) == (state == "failed")
