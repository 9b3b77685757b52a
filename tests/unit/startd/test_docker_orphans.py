"""The label by which containers are found is one, in two modules that do not load each other."""

from services.startd.exec.docker import orphan_watcher, plan


def test_the_labels_are_the_same():
    assert orphan_watcher.STARTD_LABEL == plan.STARTD_LABEL
    assert orphan_watcher.RUN_LABEL == plan.RUN_LABEL
