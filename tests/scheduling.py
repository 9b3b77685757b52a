"""Which worker of pytest-xdist runs what: its `loadgroup`, without what grows with the square of the tests.

xdist looks for a test's number in the list of all, and after each test counts what a worker has left in all that it was
ever given. With 14,500 tests that is a good part of what the process that leads the workers does.
"""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController


class Scheduling(LoadGroupScheduling):
    """Groups go out in the order in which they were collected (`--no-loadscope-reorder`): conftest.py orders them."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self._numbers: dict[str, int] = {}  # of the tests; the same at each worker, or none runs

    def _assign_work_unit(self, node: WorkerController) -> None:
        if not self._numbers:
            self._numbers = {nodeid: number for number, nodeid in enumerate(self.registered_collections[node])}
        scope, tests = self.workqueue.popitem(last=False)
        self.assigned_work.setdefault(node, {})[scope] = tests
        node.send_runtest_some([self._numbers[nodeid] for nodeid, done in tests.items() if not done])

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        tests = self.assigned_work[node][scope]
        tests[nodeid] = True
        if all(tests.values()):  # it need not be counted again
            del self.assigned_work[node][scope]
        self._reschedule(node)
