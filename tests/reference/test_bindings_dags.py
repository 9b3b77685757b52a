"""DAGs that are built as Python objects: the same program writes the same lines with HTCondor's module htcondor2.dags
and with Roost's."""

import inspect
from pathlib import Path

import pytest

import roost_htcondor.dags as ours
from roost_htcondor.submit import Submit as OurSubmit

pytestmark = pytest.mark.reference


@pytest.fixture(scope="module")
def theirs(reference):  # which keeps what the module does to the environment from all later tests
    import htcondor2.dags

    return htcondor2.dags, reference.htcondor.Submit


def chain(dags, submit):
    dag = dags.DAG()
    first = dag.layer(name="first", submit_description=submit({"executable": "/bin/true"}), retries=3)
    second = first.child_layer(name="second", submit_description=Path("second.sub"), retries=2, retry_unless_exit=7)
    second.child_subdag(name="below", dag_file="below.dag", dir="under", priority=-4)
    return dag


def layers(dags, submit):
    """Each way of joining, and values that must be quoted."""
    dag = dags.DAG()
    some = dag.layer(name="some", vars=[{"word": f'a "{n}" \\ b', "n": n} for n in range(6)])
    some.child_layer(name="all", vars=[{"n": "1"}, {"n": "2"}])
    some.child_layer(edge=dags.OneToOne(), name="each", vars=[{}] * 6)
    some.child_layer(edge=dags.Grouper(3, 2), name="groups", vars=[{"x": "y"}] * 4)
    some.child_layer(edge=dags.Slicer(slice(0, 6, 2), slice(1, None)), name="slices", vars=[{}] * 4)
    dag.glob("[eg]*").child_layer(name="last")
    return dag


def settings(dags, submit):
    """Everything that a node and a DAG may have."""
    dag = dags.DAG(
        dagman_config={"DAGMAN_MAX_JOBS_IDLE": 10, "DAGMAN_SUBMIT_DELAY": 1},
        dagman_job_attributes={"Project": '"tau"'},
        dot_config=dags.DotConfig(Path("picture.dot"), update=True, overwrite=False, include_file=Path("head")),
        jobstate_log=Path("states.log"),
        node_status_file=dags.NodeStatusFile(Path("status"), update_time=30, always_update=True),
    )
    node = dag.layer(
        name="node",
        dir=Path("there"),
        noop={0: True, 1: False},
        done={1: True},
        pre=dags.Script("pre.sh", ["$JOB", 3], retry=True, retry_status=2, retry_delay=5),
        post=dags.Script(Path("post.sh")),
        pre_skip_exit_code=4,
        priority=5,
        category="big",
        abort=dags.DAGAbortCondition(3, 1),
        vars=[{"a": "1"}, {}],
    )
    node.add_parents(dag.layer(name="other", abort=dags.DAGAbortCondition(2)))
    return dag


def edited(dags, submit):
    """Edges that are replaced."""
    dag = dags.DAG()
    one, two, three = (dag.layer(name=name, vars=[{}] * 2) for name in ("one", "two", "three"))
    one.add_children(two, [three])
    two.add_children(three, edge=dags.OneToOne())
    dag.select(lambda node: node.name == "one").add_children(two, type=dags.OneToOne())
    return dag


@pytest.mark.parametrize("program", [chain, layers, settings, edited])
@pytest.mark.parametrize(
    "numbers", [{}, {"separator": "-", "index_format": "{:03d}", "offset": 1}], ids=["plain", "odd"]
)
def test_the_same_program_writes_the_same_files(theirs, program, numbers, tmp_path):
    found = []
    for dags, submit in (theirs, (ours, OurSubmit)):
        directory = tmp_path / str(len(found))
        path = dags.write_dag(program(dags, submit), directory, node_name_formatter=dags.SimpleFormatter(**numbers))
        assert path == directory / "dagfile.dag"
        lines = path.read_text().splitlines()
        if program in (layers, edited):  # HTCondor's children and joins come as its sets happen to be ordered
            lines = sorted(map(without_join_numbers, lines))
        found.append((lines, sorted(one.name for one in directory.iterdir())))
    assert found[0] == found[1]


def without_join_numbers(line: str) -> str:
    return " ".join("__JOIN__" if "__JOIN__" in word and "sub" not in word else word for word in line.split(" "))


@pytest.mark.parametrize("program", [chain, layers, edited])
def test_what_is_asked_of_a_dag_is_answered_alike(theirs, program):
    def answers(dags, submit):
        dag = program(dags, submit)
        nodes = sorted(dag.nodes)
        return {
            "roots": names(dag.roots),
            "leaves": names(dag.leaves),
            "edges": sorted((parent.name, child.name) for parent, child in dag.edges),
            "children": {one.name: names(one.children) for one in nodes},
            "parents": {one.name: names(one.parents) for one in nodes},
            "ancestors": {one.name: names(one.walk_ancestors()) for one in nodes},
            "descendants": {one.name: names(one.walk_descendants(dags.WalkOrder.BREADTH_FIRST)) for one in nodes},
            "walk": names(dag.walk(dags.WalkOrder.BREADTH_FIRST)),
            "sizes": [len(one) for one in nodes],
            "inside": [nodes[0] in dag, "nobody" in dag, nodes[0] in dag.nodes, nodes[0].name in dag.nodes],
            "texts": [repr(dag.nodes), repr(nodes[0])],
        }

    assert answers(ours, OurSubmit) == answers(*theirs)


def names(nodes) -> list[str]:
    return sorted(node.name for node in nodes)


def test_what_is_wrong_has_the_same_exception(theirs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what is right is written

    def wrong(dags, submit):
        dag = dags.DAG()
        three, two = dag.layer(name="three", vars=[{}] * 3), dag.layer(name="two", vars=[{}] * 2)
        for edge in (dags.OneToOne(), dags.Grouper(2, 1), dags.Grouper(3, 1)):
            three.add_children(two, edge=edge)
            yield lambda: dags.write_dag(dag, "never")
        yield lambda: dags.write_dag(dag, "never", node_name_formatter=dags.SimpleFormatter("r"))
        yield lambda: dag.layer(name="three")
        yield lambda: dags.SimpleFormatter("-", index_format="{:x}").generate("layer", 12)
        yield lambda: dags.SimpleFormatter().parse("layer:x")
        yield lambda: list(dag.walk("up"))
        yield lambda: dags.find_rescue_file(Path("never"))

    def told(dags, submit):
        for one in wrong(dags, submit):
            with pytest.raises(dags.exceptions.DAGsException) as error:
                one()
            yield type(error.value).__name__

    assert list(told(ours, OurSubmit)) == list(told(*theirs))


def test_names_and_arguments_are_the_same(theirs):
    for name in (name for name in dir(theirs[0]) if not name.startswith("_")):
        one, other = getattr(theirs[0], name), getattr(ours, name, None)
        if inspect.isclass(one):
            for method, function in inspect.getmembers(one, inspect.isfunction):
                if method == "__init__" or not method.startswith("_"):
                    assert arguments(getattr(other, method)) == arguments(function), f"{name}.{method}"
        elif inspect.isfunction(one):
            assert arguments(other) == arguments(one), name
        elif not inspect.ismodule(one):
            assert other == one
    for name in dir(theirs[0].exceptions):
        assert hasattr(ours.exceptions, name) or name.startswith("_")


def arguments(function) -> list[tuple[str, str, str]]:
    return [
        (one.name, one.kind.name, str(getattr(one.default, "value", one.default)))
        for one in inspect.signature(function).parameters.values()
    ]
