"""Output that comes while the job runs: which of it, and how a piece is written (SUB-12)."""

import os

import pytest

from services.startd.core.run.job_launch import streamed
from shared.classad import parse_ad
from shared.transfer.errors import OutOfStep, TransferError
from shared.transfer.streams import write_piece
from tests.spec import spec


@spec("SUB-12")
@pytest.mark.parametrize(
    ("ad", "wanted"),
    [
        ('Out = "o"; Err = "e"; StreamOut = true; StreamErr = true', ["Out", "Err"]),
        ('Out = "o"; Err = "e"; StreamErr = true', ["Err"]),
        ('Out = "o"; Err = "o"; StreamErr = true', ["Out"]),
        ('Out = "/dev/null"; Err = "e"; StreamOut = true', []),
        ('Out = "o"; StreamOut = "yes"', []),
        ("StreamOut = true", []),
    ],
)
def test_what_is_asked_for_and_goes_somewhere_is_streamed(ad, wanted):
    assert streamed(parse_ad(f"[{ad}]")) == wanted


@spec("SUB-12")
def test_pieces_make_the_file_and_may_come_again(tmp_path):
    path = tmp_path / "out"
    path.write_text("of an earlier run, and longer")
    write_piece(path, 0, b"one", last=False)
    write_piece(path, 3, b"two", last=False)
    write_piece(path, 3, b"two", last=True)
    assert path.read_bytes() == b"onetwo"
    with pytest.raises(OutOfStep) as error:
        write_piece(path, 7, b"x", last=False)
    assert error.value.size == 6
    path.unlink()
    with pytest.raises(OutOfStep) as error:
        write_piece(path, 6, b"x", last=False)
    assert error.value.size == 0


@spec("SUB-12")
def test_nothing_is_written_through_a_link_or_into_what_is_no_file(tmp_path):
    other, link, pipe = tmp_path / "other", tmp_path / "link", tmp_path / "pipe"
    other.write_text("kept")
    link.symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"):
        write_piece(link, 4, b"x", last=False)
    write_piece(link, 0, b"mine", last=False)
    assert (other.read_text(), link.read_text(), link.is_symlink()) == ("kept", "mine", False)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(TransferError, match="no regular file"):
            write_piece(pipe, 0, b"x", last=False)
    finally:
        os.close(reader)
