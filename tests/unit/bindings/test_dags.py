"""roost_htcondor.dags where HTCondor's module has faults; tests/reference/test_bindings_dags.py compares the rest."""

from pathlib import Path

import pytest

from engine.dag.language import finished, reading
from roost_htcondor import dags
from roost_htcondor.submit import Submit


@pytest.fixture
def dag():
    return dags.DAG()


def lines(dag, directory) -> list[str]:
    """Without the comments."""
    return [line for line in dags.write_dag(dag, directory).read_text().splitlines() if not line.startswith("#")]


def test_most_jobs_of_a_category_are_a_limit_and_not_a_category(tmp_path):
    dag = dags.DAG(max_jobs_by_category={"big": 2})
    dag.layer(name="node", category="big")
    assert lines(dag, tmp_path) == ["MAXJOBS big 2", "JOB node:0 node.sub", "CATEGORY node:0 big"]


def test_the_final_node_has_a_submit_file_or_the_one_that_is_there(dag, tmp_path):
    dag.final(name="end", submit_description=Submit({"executable": "/bin/true"}), dir="there", priority=1)
    assert lines(dag, tmp_path) == ["FINAL end end.sub DIR there", "PRIORITY end 1"]
    assert (tmp_path / "end.sub").read_text().startswith("executable = /bin/true\n")
    dag.final(name="stop", submit_description=Path("/there/stop.sub"))
    assert lines(dag, tmp_path) == ["FINAL stop /there/stop.sub"]


def test_a_layer_that_does_nothing_or_is_done_is_so_at_all_its_nodes(dag, tmp_path):
    dag.layer(name="layer", noop=True, done=True, vars=[{}, {}])
    assert lines(dag, tmp_path) == ["JOB layer:0 layer.sub NOOP DONE", "JOB layer:1 layer.sub NOOP DONE"]


def test_edges_are_taken_away(dag):
    one, two, three = (dag.layer(name=name) for name in ("one", "two", "three"))
    one.add_children(two, three)
    one.remove_children(three)
    two.remove_parents([one])
    assert list(dag.edges) == []
    dags.Nodes(one, two).add_children(three)
    dags.Nodes(one, two).remove_children(three)
    three.remove_children(one)  # there was no such edge
    assert list(dag.edges) == []


def test_nodes_that_come_before_themselves_are_told_and_nothing_is_written(dag, tmp_path):
    one = dag.layer(name="one")
    two = one.child_layer(name="two")
    two.add_children(one)
    with pytest.raises(dags.exceptions.DAGsException, match="one, two come before themselves"):
        dags.write_dag(dag, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValueError, match="before itself"):
        one.add_children(one)


def test_nodes_of_another_dag_are_refused(dag):
    final = dag.final(name="end")
    for node in (final, dags.DAG().layer(name="far")):
        with pytest.raises(ValueError, match="no layer and no SubDAG of this DAG"):
            dag.layer(name=f"near{node.name}").add_children(node)
    with pytest.raises(ValueError, match="no nodes"):
        dags.Nodes().child_layer(name="below")


def test_a_rescue_file_marks_what_it_names_and_nothing_else(dag, tmp_path):
    done, new = dag.layer(name="DONE", vars=[{}] * 3), dag.layer(name="new", done=True)
    (tmp_path / "dagfile.dag.rescue001").write_text("DONE new:0\n")
    last = tmp_path / "dagfile.dag.rescue002"
    last.write_text("# Rescue DAG file\n\nDONE DONE:0\n   DONE DONE:2\nRETRY new:0 1\n")
    assert dags.find_rescue_file(tmp_path) == last
    dags.rescue(dag, last)
    assert (done.done, new.done) == ({0: True, 2: True}, {})


def test_roost_reads_what_is_written(dag, tmp_path):
    layer = dag.layer(name="layer", vars=[{"word": 'a "b" \\ c'}] * 6, pre=dags.Script("pre.sh", ["$JOB"]), retries=2)
    layer.child_layer(name="below", vars=[{}] * 3).child_layer(dags.Grouper(3, 1), name="last")
    read = finished(reading([str(dags.write_dag(dag, tmp_path))], lambda path: Path(path).read_text()))
    assert len(read.nodes) == 6 + 3 + 1 + 2  # with two joins
