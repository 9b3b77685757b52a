"""Which files of a job go by URL, and which URLs its runs may have signed."""

import pytest

from shared.classad import ClassAd
from shared.transfer.sandbox import input_sources, job_plugins
from shared.transfer.urls import goes_by_url, input_urls, local_name, may_sign, output_url, scheme_of

JOB = ClassAd(
    {
        "TransferInput": "data, https://h/a.txt , s3://bucket/in/b",
        "Out": "logs/out.txt",
        "Err": "/dev/null",
        "TransferOutputRemaps": "result = s3://bucket/out/r; d = https://h/d; plain = kept/plain",
        "OutputDestination": "s3://bucket/dest/",
    }
)


def test_urls_among_the_input():
    assert input_urls(JOB) == ["https://h/a.txt", "s3://bucket/in/b"]
    assert goes_by_url(JOB)
    assert not goes_by_url(ClassAd({"TransferInput": "a,b", "Out": "o", "TransferOutputRemaps": "a=b"}))
    assert goes_by_url(ClassAd({"Out": "https://h/o"}))
    assert goes_by_url(ClassAd({"TransferOutputRemaps": "a = b; c = file:///tmp/c"}))


def test_what_lies_below_the_checkpoint_destination_may_be_signed_both_ways():
    job = ClassAd({"CheckpointDestination": "s3://b/c", "GlobalJobId": "schedd#1.0#5"})
    inside = "s3://b/c/schedd_1.0_5/0001.0001/state"
    assert may_sign(job, "GET", inside)
    assert may_sign(job, "PUT", inside)
    assert not may_sign(job, "PUT", "s3://b/c/other_1.0_5/0001.0001/state")
    assert not may_sign(job, "GET", "s3://b/c/schedd_1.0_5/../x")


def test_public_files_travel_as_others_do(tmp_path):
    (tmp_path / "shared").write_text("all")
    job = ClassAd({"Iwd": str(tmp_path), "TransferInput": "own", "PublicInputFiles": "shared, https://h/c"})
    assert [(one.name, one.path) for one in input_sources(job)] == [
        ("own", tmp_path / "own"),
        ("shared", tmp_path / "shared"),
    ]
    assert input_urls(job) == ["https://h/c"]


@pytest.mark.parametrize(
    ("url", "name", "scheme"),
    [
        ("https://h/a/b.txt?x=/1&y=2#sha256=ab", "b.txt", "https"),
        ("Box+HTTPS://h/a%20b", "a b", "https"),
        ("osdf:///x/y", "y", "osdf"),
        ("http://h", "h", "http"),
        ("store://b", "b", "store"),
        ("http://h/a/", "", "http"),
        ("http://h/%2e%2e", "", "http"),
        ("http://h/a%2Fb", "", "http"),
        ("plain", "plain", ""),
    ],
)
def test_names_and_schemes(url, name, scheme):
    assert (local_name(url), scheme_of(url)) == (name, scheme)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("result", "s3://bucket/out/r"),
        ("d", "https://h/d"),
        ("d/x/y", "https://h/d/x/y"),
        ("other", "s3://bucket/dest/other"),
        ("plain", "s3://bucket/dest/plain"),
        ("_condor_stdout", "s3://bucket/dest/out.txt"),
        ("_condor_stderr", ""),
    ],
)
def test_where_output_goes(name, url):
    assert output_url(JOB, name) == url


def test_output_without_a_destination_comes_back():
    job = ClassAd({"TransferOutputRemaps": "a = https://h/a", "Out": "https://h/out"})
    assert [output_url(job, name) for name in ("a", "b", "_condor_stdout")] == ["https://h/a", "", "https://h/out"]


@pytest.mark.parametrize(
    ("method", "url", "may"),
    [
        ("GET", "s3://bucket/in/b", True),
        ("GET", "s3://bucket/in/c", False),
        ("PUT", "s3://bucket/in/b", False),
        ("PUT", "s3://bucket/out/r", True),
        ("PUT", "s3://bucket/out/r/part", True),
        ("PUT", "s3://bucket/out/rest", False),
        ("PUT", "s3://bucket/dest/a/b", True),
        ("PUT", "s3://bucket/dest/../x", False),
        ("PUT", "s3://bucket/dest/%2e%2e/x", False),
        ("PUT", "s3://bucket/dest/a?acl", False),
        ("PUT", "https://h/d/x", False),
        ("GET", "https://h/a.txt", False),
        ("DELETE", "s3://bucket/in/b", False),
    ],
)
def test_what_may_be_signed(method, url, may):
    assert may_sign(JOB, method, url) is may


def test_plugins_travel_with_their_jobs():
    job = ClassAd({"Iwd": "/home/a", "TransferPlugins": "x, Y = tools/plug; z=/opt/z ; broken"})
    assert [(one.schemes, one.name) for one in job_plugins(job)] == [(("x", "y"), "plug"), (("z",), "z")]
    assert {source.name: str(source.path) for source in input_sources(job)} == {
        "plug": "/home/a/tools/plug",
        "z": "/opt/z",
    }
