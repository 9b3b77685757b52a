"""The language of DAG files: every command, its errors, and the bounds of what a file can make."""

from __future__ import annotations

import gc
import time

import pytest

from engine.dag import reader
from engine.dag.language import finished, reading
from engine.dag.model import Abort, Dot, Kind, Script, StatusFile, Var, When
from shared.config.errors import ConfigError
from tests.unit.dag.files import dag_of, edges, read_of

DIAMOND = """
# the manual's first
JOB A a.sub
JOB B b.sub DIR sub
NODE C c.sub noop
JOB D d.sub DONE
PARENT A CHILD B C
parent B C child D
"""


def node(dag, name):
    return dag.nodes[dag.by_name[name]]


def test_a_diamond():
    dag = dag_of(DIAMOND)
    assert edges(dag) == {("A", "B"), ("A", "C"), ("B", "D"), ("C", "D")}
    assert [(one.name, one.submit, one.directory, one.noop, one.done) for one in dag.nodes] == [
        ("A", "a.sub", ".", False, False),
        ("B", "b.sub", "sub", False, False),
        ("C", "c.sub", ".", True, False),
        ("D", "d.sub", ".", False, True),
    ]
    assert dag.counted == 4


def test_many_parents_of_many_children_share_a_join_node():
    names = [f"N{number}" for number in range(200)]
    text = "".join(f"JOB {name} x\n" for name in names)
    dag = dag_of(f"{text}PARENT {' '.join(names[:100])} CHILD {' '.join(names[100:])}\n")
    assert sum(len(one.children) for one in dag.nodes) == 200
    assert len(edges(dag)) == 100 * 100
    assert dag.counted == 200


def test_order_does_not_matter_and_lines_go_on():
    dag = dag_of("PARENT A \\\n  CHILD B\nRETRY A 3\nJOB A x\nJOB B x\n# a comment \\\nDONE B\n")
    assert edges(dag) == {("A", "B")}
    assert (node(dag, "A").retries, node(dag, "B").done) == (3, True)


def test_inline_descriptions():
    dag = dag_of(
        "JOB A {\n  executable = /bin/true\n  queue\n} DIR here\n"
        "SUBMIT-DESCRIPTION s @=end\nexecutable = /bin/false\n@end\n"
        "JOB B s NOOP\nJOB C other.sub\n"
    )
    assert node(dag, "A").inline == "  executable = /bin/true\n  queue\n"
    assert node(dag, "A").directory == "here"
    assert (node(dag, "B").inline, node(dag, "B").noop) == ("executable = /bin/false\n", True)
    assert (node(dag, "C").inline, node(dag, "C").submit) == (None, "other.sub")


def test_scripts():
    dag = dag_of(
        "JOB A x\nJOB B x\n"
        "SCRIPT DEFER 4 60 DEBUG out.txt all PRE A pre.sh $JOB  .gz\n"
        "SCRIPT POST ALL_NODES post.sh $RETURN\nSCRIPT HOLD B mail.sh\n"
    )
    assert node(dag, "A").scripts == {
        When.PRE: Script("pre.sh", "$JOB .gz", 4, 60.0, "out.txt", "ALL"),
        When.POST: Script("post.sh", "$RETURN"),
    }
    assert node(dag, "B").scripts == {When.POST: Script("post.sh", "$RETURN"), When.HOLD: Script("mail.sh")}


def test_what_is_said_of_nodes():
    dag = dag_of(
        "JOB A x\nJOB B x\nFINAL F x\n"
        "RETRY all_nodes 3 UNLESS-EXIT 2\nRETRY B 1\nPRIORITY A -5\nCATEGORY A big\nMAXJOBS big 2\n"
        "ABORT-DAG-ON A 10 RETURN 1\nABORT-DAG-ON B 3\nPRE_SKIP A 7\nSAVE_POINT_FILE A\nSAVE_POINT_FILE B ./b.save\n"
    )
    a, b = node(dag, "A"), node(dag, "B")
    assert (a.retries, a.unless_exit, a.priority, a.category, a.pre_skip) == (3, 2, -5, "big", 7)
    assert (b.retries, b.unless_exit) == (1, None)
    assert (a.abort, b.abort) == (Abort(10, 1), Abort(3))
    assert (a.save_point, b.save_point) == ("A-main.dag.save", "./b.save")
    assert dag.categories == {"big": 2}
    assert node(dag, "F").retries == 0


def test_vars_are_read_as_the_manual_has_them():
    dag = dag_of(
        "JOB A x\n"
        'VARS A first="Alberto Contador" second="\\"\\"Andy Schleck\\"\\""\n'
        'VARS A PREPEND third="Lance\\\\ Armstrong"\n'
        'VARS ALL_NODES APPEND My.A = "\\"bob\\"" +B="1"\n'
    )
    assert node(dag, "A").vars == [
        Var("first", "Alberto Contador"),
        Var("second", '""Andy Schleck""'),
        Var("third", "Lance\\ Armstrong", append=False),
        Var("My.A", '"bob"', append=True),
        Var("+B", "1", append=True),
    ]


def test_special_nodes_and_what_concerns_the_dag():
    dag = dag_of(
        "JOB A x\nFINAL F f.sub\nPROVISIONER P p.sub\nSERVICE S s.sub\nSUBDAG EXTERNAL D inner.dag DIR d\n"
        "CONFIG dag.config\nENV GET HOME PATH\nENV SET X=1;Y=a b\nSET_JOB_ATTR Team = \"x y\"\n"
        "DOT d.dot UPDATE DONT-OVERWRITE INCLUDE head\nNODE_STATUS_FILE s.txt 30 ALWAYS-UPDATE\nJOBSTATE_LOG j.log\n"
    )  # fmt: skip
    assert [one.kind for one in dag.nodes] == [Kind.JOB, Kind.FINAL, Kind.PROVISIONER, Kind.SERVICE, Kind.SUBDAG]
    assert (dag.final, dag.provisioner, dag.services) == (1, 2, [3])
    assert (dag.config, dag.env_get, dag.env_set) == ("dag.config", ["HOME", "PATH"], {"X": "1", "Y": "a b"})
    assert dag.attributes == {"Team": '"x y"'}
    assert dag.dot == Dot("d.dot", update=True, overwrite=False, include="head")
    assert dag.status_file == StatusFile("s.txt", 30.0, always=True)
    assert dag.jobstate_log == "j.log"
    assert dag_of("JOB A x\nNODE_STATUS_FILE s\n").status_file == StatusFile("s")


def test_splices_tie_their_ends_and_scope_their_names():
    x = "JOB A x.sub\nJOB B x.sub\nJOB C x.sub\nPARENT A B CHILD C\nCATEGORY A own\nCATEGORY B +all\nMAXJOBS own 5\n"
    dag = dag_of(
        "JOB Z z\nSPLICE X1 x.dag\nSPLICE X2 x.dag DIR there\nPARENT Z CHILD X1\nPARENT X1 CHILD X2\n"
        "RETRY X1+A 2\nRETRY ALL_NODES 1\nMAXJOBS X1+own 10\nMAXJOBS +all 1\n",
        **{"x_dag": x, "there/x_dag": x},
    )
    assert edges(dag) >= {("Z", "X1+A"), ("Z", "X1+B"), ("X1+A", "X1+C"), ("X1+C", "X2+A"), ("X1+C", "X2+B")}
    assert (node(dag, "X1+A").retries, node(dag, "X1+B").retries, node(dag, "Z").retries) == (2, 0, 1)
    assert (node(dag, "X2+A").directory, node(dag, "X1+A").directory) == ("there", ".")
    assert (node(dag, "X1+A").category, node(dag, "X2+B").category) == ("X1+own", "+all")
    assert dag.categories == {"X1+own": 10, "X2+own": 5, "+all": 1}


def test_pins_connect_splices():
    dag = dag_of(
        "SPLICE S t.dag\nSPLICE T t.dag\nCONNECT S T\n",
        t_dag="JOB A x\nJOB B x\nPIN_OUT A 1\nPIN_OUT B 2\nPIN_IN B 1\nPIN_IN A 2\n",
    )
    assert edges(dag) == {("S+A", "T+B"), ("S+B", "T+A")}


def test_an_included_file_stands_in_its_place():
    dag = dag_of("INCLUDE more.dag\nPARENT A CHILD B\n", more_dag="JOB A x\nINCLUDE most.dag\n", most_dag="JOB B x\n")
    assert edges(dag) == {("A", "B")}


def test_several_files_are_one_dag():
    files = {"one.dag": "JOB A x\n", "two.dag": "JOB A x\nJOB B x\nPARENT A CHILD B\n"}
    dag = finished(reading(list(files), lambda path: read_of(files, path)))
    assert [one.name for one in dag.nodes] == ["0.A", "1.A", "1.B"]


def test_a_partial_rescue_file_is_read_after_the_dag():
    dag = dag_of("JOB A x\nJOB B x\nRETRY B 5 UNLESS-EXIT 2\n", rescue="# Rescue DAG file\nDONE A\nRETRY B 3\n")
    assert (node(dag, "A").done, node(dag, "B").done) == (True, False)
    assert (node(dag, "B").retries, node(dag, "B").unless_exit) == (3, 2)


ERRORS = [
    ("JBO A x", "main.dag", "1", "JBO is no command", "did you mean JOB?"),
    ("JOB A", "main.dag", "1", "JOB: this is not understood", "write JOB NAME SUBMIT-DESCRIPTION [DIR DIRECTORY]"),
    ("JOB A x\nJOB A y", "main.dag", "2", "A is defined twice", "name one of them otherwise"),
    ("JOB Parent x", "main.dag", "1", "Parent is a word of the language", "choose another name"),
    ("JOB A+B x", "main.dag", "1", "+ stands between", "choose another name"),
    ("JOB A x DIR", "main.dag", "1", "JOB: this is not understood", "DIR DIRECTORY"),
    ("JOB A {\nqueue", "main.dag", "1", "does not end", "add a line: }"),
    ("JOB A x\nPARENT A CHILD B", "main.dag", "2", "there is no node B", "add a line: JOB B FILE"),
    ("JOB A x\nPARENT A B", "main.dag", "2", "PARENT: this is not understood", "write PARENT"),
    ("JOB A x\nSCRIPT BEFORE A y", "main.dag", "2", "SCRIPT: this is not understood", "PRE|POST|HOLD"),
    ("JOB A x\nRETRY A many", "main.dag", "2", "'many' is no whole number of at least 0", "digits"),
    ("JOB A x\nRETRY A 3 UNLESS 2", "main.dag", "2", "RETRY: this is not understood", "UNLESS-EXIT"),
    ("JOB A x\nVARS A x=1", "main.dag", "2", "VARS: this is not understood", 'NAME="VALUE"'),
    ('JOB A x\nVARS A queued="1"', "main.dag", "2", "'queued' can not be the name of a macro", "rename it"),
    ("JOB A x\nPRE_SKIP A 0", "main.dag", "2", "skips nothing", "another code"),
    ("JOB A x\nABORT-DAG-ON A 1 RETURN 300", "main.dag", "2", "300 is no exit code", "0 to 255"),
    ("JOB A x\nFINAL F x\nFINAL G x", "main.dag", "3", "has one FINAL node", "second one"),
    ("JOB A x\nFINAL F x\nPARENT A CHILD F", "main.dag", "3", "FINAL node has no parents", "leave F out"),
    ("JOB A x\nFINAL F x\nRETRY F 1", "main.dag", "3", "RETRY does not go with the FINAL node", "take the line out"),
    ("SPLICE S none.dag", "main.dag", "1", "none.dag can not be read: No such file", "a file that is there"),
    ("SPLICE S main.dag", "main.dag", "1", "main.dag includes itself: main.dag > main.dag", "take the line out"),
    ("JOB A x\nINCLUDE main.dag", "main.dag", "2", "main.dag includes itself", "take the line out"),
    ("SPLICE S s.dag\nRETRY S 1", "main.dag", "2", "S is a splice", "SPLICE+NODE"),
    ("SPLICE S s.dag\nCONNECT S S", "main.dag", "2", "neither has pins", "PIN_OUT"),
    ("SPLICE S s.dag\nCONNECT S T", "main.dag", "2", "there is no splice T", "SPLICE T FILE"),
    ("JOB A x\nPIN_IN A 1", "main.dag", "2", "pins are for DAGs that are spliced", "take the line out"),
    ("SPLICE S bad.dag", "bad.dag", "2", "there is no node Q", "JOB Q FILE"),
    ("REJECT\nJOB A x", "main.dag", "1", "not to be run", "take this line out"),
    ("# nothing", "main.dag", "", "has no node", "add a line"),
    ("JOB A x\nSET_JOB_ATTR = 3", "main.dag", "2", "SET_JOB_ATTR: this is not understood", "NAME = EXPRESSION"),
    ("JOB A x\nENV SET X", "main.dag", "2", "ENV: this is not understood", "NAME=VALUE"),
    ("JOB A x\nDOT f NOW", "main.dag", "2", "DOT: this is not understood", "UPDATE"),
    ("JOB A x\nNODE_STATUS_FILE f 3 never", "main.dag", "2", "NODE_STATUS_FILE: this is not", "ALWAYS-UPDATE"),
    ("JOB A x\nJOB B x\nPARENT A CHILD B\nPARENT B CHILD A", "main.dag", "", "cycle: ", "take one of these"),
]


@pytest.mark.parametrize(("text", "file", "line", "what", "mend"), ERRORS, ids=[one[3][:30] for one in ERRORS])
def test_an_error_names_file_line_and_mend(text, file, line, what, mend):
    with pytest.raises(ConfigError) as caught:
        dag_of(text, s_dag="JOB A x\n", bad_dag="JOB A x\nRETRY Q 1\n")
    (problem,) = caught.value.problems
    assert what in problem.message
    assert mend in problem.mend
    assert problem.source.name == file
    assert not line or problem.source.line == int(line)


def test_all_errors_are_told_at_once_up_to_a_bound():
    with pytest.raises(ConfigError) as caught:
        dag_of("JOB A x\nRETRY B 1\nRETRY A x\n")
    assert len(caught.value.problems) == 2
    with pytest.raises(ConfigError) as caught:
        dag_of("JBO\n" * 1000)
    assert len(caught.value.problems) == reader.TOLD


def test_a_cycle_is_named_and_nothing_beside_it():
    text = "".join(f"JOB {name} x\n" for name in "ABCDEF")
    with pytest.raises(ConfigError, match=r"cycle: (C > D > E|D > E > C|E > C > D) > [CDE]\b") as caught:
        dag_of(f"{text}PARENT A CHILD B\nPARENT B CHILD C\nPARENT C CHILD D\nPARENT D CHILD E\nPARENT E CHILD C F\n")
    assert "A" not in str(caught.value).split("cycle: ")[1].split("(")[0].split(";")[0].split()


def test_a_cycle_through_splices_is_found():
    with pytest.raises(ConfigError, match="cycle"):
        dag_of("SPLICE S s.dag\nSPLICE T s.dag\nPARENT S CHILD T\nPARENT T CHILD S\n", s_dag="JOB A x\nJOB B x\n")


def bomb(levels: int) -> dict[str, str]:
    """Each file splices the next one twice: 2 ** levels nodes."""
    files = {f"f{one}": f"SPLICE A f{one + 1}\nSPLICE B f{one + 1}\n" for one in range(levels)}
    return {**files, f"f{levels}": "JOB N x\n"}


def stall(files: dict[str, str], main: str) -> tuple[float, Exception | None]:
    """The longest step, in seconds of the processor, and how it ended. No collection of garbage is in it, as what it
    takes is for all that this worker's tests have left."""
    steps = reading([main], lambda path: read_of(files, path))
    longest = 0.0
    gc.disable()
    try:
        while True:
            began = time.thread_time()
            try:
                next(steps)
            except StopIteration:
                return longest, None
            except ConfigError as error:
                return longest, error
            finally:
                longest = max(longest, time.thread_time() - began)
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("files", "main", "what"),
    [
        (bomb(30), "f0", "has more than 10000 nodes"),
        (bomb(100), "f0", "more than 40 deep"),
        ({"a": "JOB A x\n" + "VARS ALL_NODES x=\"1\"\n" * 9, "m": "SPLICE S a\n" * 9}, "m", "defined twice"),
        ({"m": "".join(f"JOB {n} x\n" for n in range(3000)) + 'VARS ALL_NODES x="1"\n' * 900}, "m", "too large"),
        ({"m": "JOB A x" + "\\\n" + ("x" * 200 + "\\\n") * 20_000}, "m", "a line of more than"),
        ({"m": "x" * 2_000_000}, "m", "a line of more than"),
        ({"m": "\n" * 60_000}, "m", "more than 50000 lines"),
        ({"m": "".join(f"JOB {n} x\n" for n in range(999)) + f"PARENT {' '.join(map(str, range(500)))} CHILD "
          + " ".join(map(str, range(500, 999)))}, "m", None),
    ],
    ids=["nodes", "depth", "twice", "work", "continued", "line", "lines", "edges"],
)  # fmt: skip
def test_a_hostile_dag_ends_soon_and_in_small_steps(monkeypatch, files, main, what):
    monkeypatch.setattr(reader, "MAX_NODES", 10_000)
    monkeypatch.setattr(reader, "MAX_LINES", 50_000)
    monkeypatch.setattr(reader, "MAX_WORK", 200_000)
    longest, error = stall(files, main)
    assert (error is None) if what is None else (error is not None and what in str(error)), error
    assert longest < 0.05
