"""Files of metric definitions: what they may hold, and what is told of what they may not (MON-01 to MON-05, MON-15)."""

from services.monitor.core.definitions import ATTRIBUTES, published, read, wanted
from services.monitor.daemon import DEFAULT_FILE, definition_files
from shared.config.knobs import KNOBS
from tests.spec import spec


def definitions(text):
    found = read([("x", text)])
    assert found.problems == []
    return found.definitions


@spec("MON-01")
def test_every_attribute_of_the_manual_is_known():
    text = """[ Name = "A"; Value = 1; Desc = "d"; Verbosity = 1; TargetType = "Machine"; Requirements = true;
      Title = "t"; Group = "g"; Cluster = "c"; Units = "u"; Scale = 2; Derivative = true; Type = "float";
      Aggregate = "SUM"; AggregateGroup = "ag"; Machine = "m"; IP = "1.2.3.4"; Lifetime = 60 ]
    [ Regex = "^Foo(.*)" ]"""
    first, second = definitions(text)
    assert {*first.exprs, *second.exprs} == set(ATTRIBUTES)
    assert (first.verbosity, first.aggregate, first.my_types) == (1, "sum", ("Machine",))


def test_files_hold_comments_and_many_ads():
    text = '# one\n// two\n[ Name = "A" ] /* three */ [ Name = "B"; ], [ Name = "C" ];\n  # four\n'
    assert [one.where for one in definitions(text)] == ["x, line 3"] * 3


def test_a_bad_definition_is_named_with_file_and_line_and_the_others_count():
    text = """[ Name = "A" ]
[ Name = ; ]
[ Name = "B";
  Value = Cpus *
]
[ Name = "C" ]
[ Name = "D"; Verbosity = "much" ]
[ Value = 3 ]
[ Name = "E"; Aggregate = "median" ]
[ Name = "F"; Regex = "(" ]
[ Name = "G"; Type = "int64" ]
[ Name = "H"; TargetType = Machine ]
[ Name = "I"; Unit = "jobs" ]
[ Name = "J"
[ Name = "K" ]
"""
    found = read([("metrics.d/mine", text)])
    names = [one.exprs["name"].value for one in found.definitions]
    assert names == ["A", "C", "I", "K"]
    assert [problem.split(":")[0].split(", column")[0] for problem in found.problems] == [
        "metrics.d/mine, line 2",
        "metrics.d/mine, line 5",
        *(f"metrics.d/mine, line {line}" for line in (7, 8, 9, 10, 11, 12, 13, 15)),
    ]
    told = "\n".join(found.problems)
    for mend in ("want an integer", "has no Name", "one of sum, avg, max, min", "no regular expression", "int32"):
        assert mend in told


@spec("MON-03")
def test_verbosity_decides_what_is_published():
    """Up to GANGLIAD_VERBOSITY, which is 0."""
    some = definitions('[ Name = "A" ] [ Name = "B"; Verbosity = 1 ] [ Name = "C"; Verbosity = -1 ]')
    assert len(published(some, 0, per_node=True)) == 2
    assert len(published(some, 1, per_node=True)) == 3
    assert KNOBS["gangliad_verbosity"].default == "0"


@spec("MON-15")
def test_metrics_of_execution_nodes_can_be_dropped():
    """Sums over them stay, and so do metrics of other daemons."""
    some = definitions(
        '[ Name = "A"; TargetType = "Machine" ] [ Name = "B"; TargetType = "Machine_slot1" ]'
        '[ Name = "C"; TargetType = "Machine"; Aggregate = "avg" ] [ Name = "D"; TargetType = "Scheduler" ]'
    )
    kept = published(some, 0, per_node=False)
    assert [one.exprs["name"].value for one in kept] == ["C", "D"]


def test_the_collector_is_asked_for_no_more_than_is_read():
    some = definitions(
        '[ Name = "A"; Value = Cpus * 2; Requirements = State == "Claimed"; TargetType = "Machine" ]'
        '[ Name = "TotalIdleJobs"; TargetType = "scheduler" ]'
        '[ Name = strcat("x", Owner); Value = MY.Load; TargetType = "Machine_slot1" ]'
    )
    asked = {one.my_type: one for one in wanted(some)}
    assert asked["Machine"].attributes == {"cpus", "state", "owner", "load", "my"}
    assert not asked["Machine"].slot1
    assert asked["Scheduler"].attributes == {"totalidlejobs"}
    assert [one.slot1 for one in wanted(some[2:])] == [True]


def test_names_that_only_the_ad_knows_take_whole_ads():
    for text in ('[ Regex = "^Jobs" ]', '[ Name = strcat("Jobs", State) ]'):
        assert [one.attributes for one in wanted(definitions(text))] == [None]


@spec("MON-04")
def test_any_looks_at_all_ads():
    for text in ('[ Name = "A" ]', '[ Name = "A"; TargetType = "Machine, any" ]'):
        assert [one.my_type for one in wanted(definitions(text))] == [""]


def test_our_own_file_is_in_order_and_can_be_replaced(tmp_path):
    found = read(definition_files(tmp_path / "nothing"))
    assert found.problems == []
    assert len(found.definitions) > 20
    assert all("desc" in one.exprs and one.my_types for one in found.definitions)
    (tmp_path / "50_mine").write_text('[ Name = "Mine" ]')
    (tmp_path / "60_mine~").write_text("left behind by an editor")
    assert [path.rpartition("/")[2] for path, _ in definition_files(tmp_path)] == [DEFAULT_FILE, "50_mine"]
    (tmp_path / DEFAULT_FILE).write_text("")
    assert [one.where for one in read(definition_files(tmp_path)).definitions] == [f"{tmp_path}/50_mine, line 1"]
