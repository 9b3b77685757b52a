"""What notebooks show of the client's things."""

import pytest

from roost.function_pool import STATES, CallFuture
from roost.job import JobHandle
from roost.notebook import table
from roost.protocol import Cluster


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


def _made(what) -> CallFuture:
    class Nobody:
        def from_any_thread(self, *_):
            pass

        take_back = remove = None

    future = CallFuture(Nobody())
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
