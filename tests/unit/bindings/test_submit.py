"""Submit of Roost's htcondor2, without a pool."""

import warnings
from pathlib import Path

import pytest

from roost_htcondor.class_ad import ClassAd
from roost_htcondor.gateway import HTCondorException
from roost_htcondor.submit import Submit, SubmitWarning

TEXT = """executable = /bin/echo
transfer_executable = false
if defined nosuch
  arguments = wrong
else
  arguments = $(x) $(y) $(Process)
endif
+Project = "bindings"
queue x, y from (
1 one
2,two words
)
after = the queue statement is not read
"""


def test_a_submit_is_a_mapping_of_commands_in_any_case():
    submit = Submit({"executable": "/bin/true", "request_cpus": 2, "+Foo": "5"}, Arguments="a b")
    assert list(submit) == ["executable", "request_cpus", "MY.Foo", "Arguments"]
    assert (submit["REQUEST_CPUS"], submit["+foo"], submit["arguments"]) == ("2", "5", "a b")
    del submit["request_cpus"]
    submit["Executable"] = "/bin/false"
    submit.setQArgs("3")
    assert str(submit) == "Executable = /bin/false\nMY.Foo = 5\nArguments = a b\nqueue 3\n"
    assert Submit(str(submit)) == submit


def test_values_may_be_numbers_paths_and_ads():
    ad = ClassAd({"a": 1, "b": "two"})
    submit = Submit({"request_cpus": 2, "initial_dir": Path("/there"), "My.Ad": ad, "getenv": True})
    assert [submit[name] for name in submit] == ["2", "/there", '[ a = 1; b = "two" ]', "True"]


def test_a_text_is_read_by_the_submit_language():
    submit = Submit(TEXT)
    assert submit.getQArgs() == "x, y from ("
    assert submit["arguments"] == "$(x) $(y) $(Process)"
    assert "after" not in submit
    assert list(submit.itemdata()) == [{"x": "1", "y": "one"}, {"x": "2", "y": "two words"}]
    assert list(submit.itemdata("2 z in (a b)")) == [{"z": "a"}, {"z": "b"}]
    assert submit.expand("arguments") == "  0"
    assert [ad["Args"] for ad in submit.jobs()] == ["1 one 0", "2 two words 1"]
    assert {ad["Project"] for ad in submit.jobs()} == {"bindings"}
    assert str(Submit(str(submit))) == str(submit)


def test_jobs_have_their_numbers_and_procs_what_differs():
    submit = Submit(TEXT)
    first, second = submit.procs(clusterid=7, qdate=5, owner="alice")
    assert (first["ClusterId"], first["ProcId"], first["QDate"], first["Owner"]) == (7, 0, 5, "alice")
    assert (second["ProcId"], second["Args"], "Cmd" in second) == (1, "2 two words 1", False)
    with pytest.raises(HTCondorException, match="begin with 0"):
        list(submit.jobs(procid=5))
    assert len(list(submit.jobs(itemdata=[{"x": "5", "y": "a,b"}], count=3))) == 3
    assert [ad["Args"] for ad in submit.jobs(itemdata=["8 nine"])] == ["8 nine 0"]


def test_a_job_says_how_it_was_submitted():
    submit = Submit({"executable": "/bin/true", "transfer_executable": "false"})
    assert next(submit.jobs())["JobSubmitMethod"] == submit.getSubmitMethod() == 2
    submit.setSubmitMethod(150)
    assert next(submit.jobs())["JobSubmitMethod"] == 150
    with pytest.raises(ValueError, match="reserved"):
        submit.setSubmitMethod(5)


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda: Submit(5), TypeError, "mapping"),
        (lambda: Submit({"a": None}), TypeError, "a: the value"),
        (lambda: Submit({"a": "x\ny"}), ValueError, "one line"),
        (lambda: Submit({"a b": "x"}), ValueError, "no name of a command"),
        (lambda: Submit({"queue": "5"}), ValueError, "setQArgs"),
        (lambda: Submit("if true\n"), HTCondorException, "Submit"),
        (lambda: Submit({})["nosuch"], KeyError, "nosuch"),
        (lambda: Submit({}).setQArgs("1\n2"), ValueError, "itemdata"),
        (lambda: list(Submit("queue x in (1 2)").jobs(count=2)), ValueError, "itemdata"),
        (lambda: list(Submit({"executable": "/bin/true"}).jobs(itemdata=[])), ValueError, "empty"),
        (lambda: list(Submit({"executable": "/bin/true"}).jobs(itemdata=[5])), TypeError, "dicts"),
        (lambda: list(Submit({"executable": "/nosuch/program"}).jobs()), HTCondorException, "does not exist"),
        (lambda: Submit.from_dag("nosuch.dag"), HTCondorException, "nosuch.dag does not exist"),
    ],
)
def test_what_is_no_description_is_refused(make, error, told):
    with pytest.raises(error, match=told):
        make()


def test_a_misspelt_command_is_told():
    submit = Submit({"executable": "/bin/true", "transfer_executable": "false", "reqest_memory": "5"})
    with pytest.warns(SubmitWarning, match="request_memory"):
        list(submit.jobs())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del submit["reqest_memory"]
        submit["arguments"] = "$(Item)"
        list(submit.jobs(itemdata=[{"Item": "1"}, {"Item": "2"}]))
