"""The plug-in protocol: what is asked, who has a URL, and what results mean."""

import errno

import pytest

from services.startd.core.run.plugins import (
    BadPlugin,
    Plugin,
    Results,
    Transfer,
    arguments,
    asked_ads,
    by_scheme,
    failure,
    of_job,
    read_offer,
    results_of,
    share_out,
    statistics,
    subcode_of,
)
from shared.classad import parse_ads
from shared.transfer.sandbox import JobPlugin

OLD = 'MultipleFileSupport = true\nPluginType = "FileTransfer"\nSupportedMethods = "Box, gdrive"\n'
ONE, TWO = Transfer("box://x/a", "/s/a"), Transfer("https://signed/b?key", "/s/b", "s3://bucket/b")


def test_offers_in_both_syntaxes():
    assert read_offer("/p", OLD) == Plugin("/p", ("box", "gdrive"), True)
    new = '[ PluginType = "FileTransfer"; SupportedMethods = "box" ]'
    assert read_offer("/p", new) == Plugin("/p", ("box",), False)


@pytest.mark.parametrize("said", ["", "nonsense", 'PluginType = "FileTransfer"\n', 'SupportedMethods = "x"\n'])
def test_offers_that_are_none(said):
    with pytest.raises(BadPlugin):
        read_offer("/p", said)


def test_the_later_plugin_has_a_scheme_and_a_jobs_own_goes_before_all():
    table = by_scheme([Plugin(), Plugin("/a", ("http", "x")), Plugin("/b", ("x",))])
    assert {scheme: plugin.path for scheme, plugin in table.items()} == {
        "file": "", "http": "/a", "https": "", "x": "/b",
    }  # fmt: skip
    assert of_job(table, [JobPlugin(("x", "y"), "tools/mine")], "/s")["x"] == Plugin("/s/mine", ("x", "y"))


def test_shares_of_plugins():
    several, single = Plugin("/a", ("box", "https")), Plugin("/b", ("box",), False)
    assert share_out([ONE, TWO], by_scheme([several])) == [(several, [ONE, TWO])]
    assert share_out([ONE, ONE], by_scheme([single])) == [(single, [ONE]), (single, [ONE])]
    with pytest.raises(BadPlugin, match="box://x/a: no plug-in of this machine has box; it has file, http, https"):
        share_out([ONE], by_scheme([Plugin()]))


def test_what_is_asked():
    assert arguments(Plugin(), [ONE], "/i", "/o", upload=True) == ["-infile", "/i", "-outfile", "/o", "-upload"]
    single = Plugin("/b", ("box",), False)
    assert arguments(single, [ONE], "", "", upload=False) == ["box://x/a", "/s/a"]
    assert arguments(single, [ONE], "", "", upload=True) == ["/s/a", "box://x/a"]
    odd = Transfer('x://a"b\\c', "/s/a\nb")
    ads = list(parse_ads(asked_ads([odd, ONE]), "new"))
    assert [(ad.eval("Url"), ad.eval("LocalFileName")) for ad in ads] == [(odd.url, odd.path), (ONE.url, ONE.path)]


def told(*ads):
    return "".join(f"[ {text} ]\n" for text in ads)


def test_results_count_by_the_scheme_that_the_job_knows():
    good = told("TransferSuccess = true; TransferFileBytes = 5", "TransferSuccess = true; TransferFileBytes = 7")
    assert results_of(Plugin(), [ONE, TWO], good, "", "") == Results("", {"box": 1, "s3": 1}, {"box": 5, "s3": 7})


@pytest.mark.parametrize(
    ("text", "said", "ended", "trouble"),
    [
        (told("TransferSuccess = true", 'TransferSuccess = false; TransferError = "gone"'), "", "", "gone"),
        (told("TransferSuccess = true"), "", "", "s3://bucket/b: the built-in plug-in does not tell of it"),
        (told("TransferSuccess = true"), "no\n space", "ended by signal 9", "no space"),
        ("[ broken", "", "", "its results can not be read"),
        ("", "", "took longer than 5 s", "box://x/a: the built-in plug-in took longer than 5 s"),
    ],
)
def test_results_that_are_not_all(text, said, ended, trouble):
    assert trouble in results_of(Plugin(), [ONE, TWO], text, said, ended).trouble


def test_a_plugin_for_single_files_tells_by_its_exit_status():
    single = Plugin("/b", ("box",), False)
    assert results_of(single, [ONE], "", "", "") == Results("", {"box": 1}, {"box": 0})
    assert results_of(single, [ONE], "", "why", "ended with exit status 1").trouble == "why"


def test_subcodes_and_hold_reasons():
    assert [subcode_of(3, timed_out=False), subcode_of(None, timed_out=True)] == [768, errno.ETIME]
    into, out = failure("x", 256, upload=False, slot="s@m"), failure("y", 62, upload=True, slot="s@m")
    assert (into.code, into.subcode, into.message) == (
        13, 256, "Transfer input files failure at the execution point s@m: x",
    )  # fmt: skip
    assert (out.kind, out.code, out.subcode) == ("hold", 12, 62)


def test_statistics_add_up_over_runs():
    first = statistics(None, (2, 10), Results("", {"https": 1}, {"https": 5}))
    second = statistics(first, (1, 3), Results())
    assert {name: second.eval(name) for name in second} == {
        "CedarFilesCountLastRun": 1, "CedarFilesCountTotal": 3, "CedarSizeBytesLastRun": 3, "CedarSizeBytesTotal": 13,
        "HttpsFilesCountTotal": 1, "HttpsSizeBytesTotal": 5,
    }  # fmt: skip
