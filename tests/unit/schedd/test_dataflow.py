"""Whether the output of a job need not be made again (SUB-13)."""

import pytest

from services.schedd.core.dataflow import DataflowFiles
from shared.classad import parse_ad
from tests.spec import spec

AD = """[
    Iwd = "/w"; Cmd = "/bin/make"; In = "typed"; TransferInput = "a, /d/b,http://x/c"; TransferOutput = "o1,sub/o2"
]"""
DONE = {"/bin/make": 10.0, "/w/typed": 10.0, "/w/a": 10.0, "/d/b": 10.9, "/w/o1": 11.0, "/w/sub/o2": 12.0}


def test_the_files_are_those_of_the_job():
    assert DataflowFiles.of(parse_ad(AD)) == DataflowFiles(
        ("/bin/make", "/w/typed"), ("/w/a", "/d/b"), ("/w/o1", "/w/sub/o2")
    )
    assert DataflowFiles.of(parse_ad('[Cmd = "make"; In = "/dev/null"]')) == DataflowFiles(("/make",), (), ())


@spec("SUB-13")
@pytest.mark.parametrize(
    ("otherwise", "done"),
    [
        ({}, True),
        ({"/w/o1": 10.9}, False),  # in the same second
        ({"/w/sub/o2": None}, False),
        ({"/bin/make": None}, False),
        ({"/w/typed": None}, False),
        ({"/d/b": None}, True),
        ({"/d/b": 12.0}, False),
        ({"/bin/make": 11.0}, False),
    ],
)
def test_all_output_must_be_there_and_newer_than_all_it_is_made_of(otherwise, done):
    assert DataflowFiles.of(parse_ad(AD)).are_done((DONE | otherwise).get) is done


@spec("SUB-13")
def test_a_job_that_declares_no_output_always_runs():
    assert not DataflowFiles(("/bin/make",), (), ()).are_done({"/bin/make": 1.0}.get)
