"""The label by which containers are found is one, in two modules that do not load each other."""

from services.startd.launchers.docker import orphans, plan


def test_the_label_is_the_same():
    assert orphans.STARTD_LABEL == plan.STARTD_LABEL
