"""Manifests of checkpoints that lie at a URL."""

import hashlib
import subprocess

import pytest

from shared.classad import ClassAd
from shared.transfer.bundle import Source, checksums
from shared.transfer.checkpoint_manifest import (
    base_of,
    is_manifest,
    manifest_name,
    read,
    url_of,
    written,
)
from shared.transfer.errors import TooLarge, TransferError
from shared.transfer.urls import destination_of

NAME = manifest_name(2, 13)
ONE, OTHER = ("0" * 64, "state"), ("f" * 64, "d/a b#c")


def test_each_checkpoint_of_each_run_has_a_place_of_its_own():
    job = ClassAd({"CheckpointDestination": "https://h/p/", "GlobalJobId": "ap@h#7.1#123"})
    base = base_of(destination_of(job), NAME)
    assert base == "https://h/p/ap@h_7.1_123/0002.0013/"
    assert url_of(base, "d/a b#c") == f"{base}d/a%20b%23c"
    assert url_of("s3://b/", "d/a b") == "s3://b/d/a b"
    assert destination_of(ClassAd()) == ""
    assert [is_manifest(name) for name in (NAME, "state", f"{NAME}x")] == [True, False, False]
    with pytest.raises(TransferError, match="no name of a checkpoint"):
        base_of("https://h/", "_condor_checkpoint_MANIFEST.../../x")


def test_a_manifest_says_what_it_was_given_and_sha256sum_reads_it(tmp_path):
    data = written(NAME, [ONE, OTHER])
    assert read(NAME, data) == [ONE, OTHER]
    assert read(NAME, written(NAME, [])) == []
    (tmp_path / "state").write_text("1\n")
    (tmp_path / "list").write_bytes(written(NAME, checksums([Source(tmp_path / "state", "state")])))
    told = subprocess.run(["sha256sum", "-c", "list"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.stdout.startswith("state: OK\n")


def resealed(text: bytes) -> bytes:
    return text + f"{hashlib.sha256(text).hexdigest()} *{NAME}\n".encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        written(NAME, [ONE])[:-1],
        written(NAME, [ONE]).replace(b"state", b"stale"),
        written(manifest_name(2, 14), [ONE]),
        written(NAME, [ONE]) + b"more\n",
        resealed(b"0 *state\n"),
        resealed(b"0" * 64 + b" */etc/passwd\n"),
        resealed(b"0" * 64 + b" *a/../../b\n"),
    ],
)
def test_one_that_was_changed_or_leads_out_is_refused(data):
    with pytest.raises(TransferError):
        read(NAME, data)


def test_what_is_saved_is_plain_files_within_the_limit(tmp_path):
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "e" / "f").write_text("x")
    found = checksums([Source(tmp_path / "d", "d", within=tmp_path)])
    assert found == [(hashlib.sha256(b"x").hexdigest(), "d/e/f")]
    with pytest.raises(TooLarge):
        checksums([Source(tmp_path / "d", "d", within=tmp_path)], limit_bytes=0)
    (tmp_path / "d" / "link").symlink_to("e/f")
    with pytest.raises(TransferError, match="only plain files"):
        checksums([Source(tmp_path / "d", "d", within=tmp_path)])
    with pytest.raises(TransferError, match="one line"):
        written(NAME, [("0" * 64, "a\nb")])
