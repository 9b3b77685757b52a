"""What happened to daemons, for charts: what tells the same shortly after each other is one."""

from services.gateway.core.incidents import incidents


def event(at, kind="daemon.started", **more):
    return {"id": f"{at}", "at": at, "type": kind, **more}


def test_daemons_of_one_kind_that_start_together_are_one():
    found = incidents(
        [event(10.0 + number, daemon=f"startd@n{number}", subsystem="STARTD") for number in range(4)]
        + [event(11.0, daemon="schedd@ap1", subsystem="SCHEDD"), event(30.0, daemon="startd@n9", subsystem="STARTD")],
        apart_s=5.0,
    )
    assert [(one["at"], one["end"], one["count"], one["event"]["daemon"]) for one in found] == [
        (10.0, 13.0, 4, "startd@n0"),
        (11.0, 11.0, 1, "schedd@ap1"),
        (30.0, 30.0, 1, "startd@n9"),
    ]


def test_who_stands_by_as_it_should_is_no_incident():
    found = incidents(
        [
            event(1.0, "had.leader", state="leader", negotiator="cm1", epoch=1),
            event(2.0, "had.leader", state="passive", negotiator="cm2", reason=""),
            event(3.0, "had.leader", state="passive", negotiator="cm1", reason="its lease ended"),
        ],
        apart_s=5.0,
    )
    assert [(one["at"], one["event"]["state"]) for one in found] == [(1.0, "leader"), (3.0, "passive")]


def test_the_newest_are_told_in_the_order_of_time():
    found = incidents([event(float(at), subsystem=str(at)) for at in (3, 1, 2)], apart_s=0.0, most=2)
    assert [one["at"] for one in found] == [2.0, 3.0]
