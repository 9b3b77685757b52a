"""Which inputs machines may keep for other jobs, and what an access point says of them."""

import json

import pytest

from shared.classad import ClassAd
from shared.transfer.errors import TransferError
from shared.transfer.public import PublicFile, listing, public_names, public_urls, read_listing

DIGEST = "a1" * 32


def job(listed, **more):
    return ClassAd({"PublicInputFiles": listed, "TransferInput": "private, https://x/private#sha256=" + DIGEST} | more)


def test_files_by_what_they_are_called_in_the_scratch_directory():
    assert public_names(job("a, /data/b, c/d, e/, https://x/f")) == {"a", "b", "d"}
    assert public_names(job("a, c/d, /data/b", PreserveRelativePaths=True)) == {"a", "b"}
    assert public_names(ClassAd({"TransferInput": "a"})) == frozenset()


def test_urls_that_say_what_they_are():
    good = f"https://x/y?z#md5=00&sha256={DIGEST.upper()}"
    assert public_urls(job(f"{good}, https://x/plain, https://x/y#sha256=12, file")) == {good: DIGEST}


def test_a_list_goes_there_and_back():
    files = [PublicFile("a b", DIGEST, 5, 0o644), PublicFile("c", DIGEST, 0, 0o755)]
    assert read_listing(json.dumps(listing(files)).encode()) == files


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "../x"},
        {"name": "a/b"},
        {"name": ""},
        {"name": 1},
        {"sha256": "zz"},
        {"sha256": "../" + "0" * 61},
        {"size": -1},
        {"size": True},
        {"size": 1 << 70},
        {"mode": "x"},
    ],
)
def test_a_file_that_is_none(wrong):
    one = {"name": "a", "sha256": DIGEST, "size": 1, "mode": 0o644}
    with pytest.raises(TransferError):
        read_listing(json.dumps([one | wrong]).encode())


@pytest.mark.parametrize("body", [b"", b"{}", b"[1]", b"[" * 100_000, b"[" + b" " * (1 << 20) + b"]"])
def test_a_list_that_is_none(body):
    with pytest.raises(TransferError):
        read_listing(body)


def test_no_more_rights_than_a_file_has():
    one = {"name": "a", "sha256": DIGEST, "size": 1, "mode": 0o104755}
    assert read_listing(json.dumps([one]).encode())[0].mode == 0o755
