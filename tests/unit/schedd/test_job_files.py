"""Files of a running job at its access point: below its directory and nowhere else."""

import os
import threading

import pytest

from services.schedd.io.job_files import JobFiles


@pytest.fixture
def place(tmp_path):
    """A job's directory with something in it, beside what is nobody's business."""
    work = tmp_path / "work"
    (work / "inner").mkdir(parents=True)
    (work / "data").write_bytes(b"0123456789")
    (work / "inner" / "deep").write_text("deep")
    (tmp_path / "secret").write_text("secret")
    return work


@pytest.fixture
def files(place):
    return JobFiles(place, str(place))


def test_names_are_of_the_jobs_directory(files, place):
    assert files.read("data", 2, 3) == b"234"
    assert files.read(f"{place}/inner/../data", 0, 100) == b"0123456789"
    assert files.read("./inner//deep", 0, 100) == b"deep"
    assert files.names(".") == b"data\ninner\n"
    assert files.names("", long=True).count(b"\n") == 4
    assert files.stat("data").split()[7] == b"10"
    assert len(files.statfs(".").split()) == 7
    files.access("data", os.R_OK)


OUTSIDE = ("../secret", "/etc/passwd", "inner/../../secret", "..", "/", "out/secret", "link")


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_is_read_written_or_removed(files, place, path):
    (place / "out").symlink_to("..")
    (place / "link").symlink_to("../secret")
    attempts = [
        lambda: files.read(path, 0, 10),
        lambda: files.open(path, "wct", 0o644),
        lambda: files.write(path, 0, b"x", False),
        lambda: files.truncate(path, 0),
        lambda: files.chmod(path, 0o777),
        lambda: files.stat(path),
        lambda: files.names(path),
        lambda: (
            files.rename("data", path + "/new" if path == "out/secret" else path)
            if path != "link"
            else files.read(path, 0, 1)
        ),
        lambda: files.link("data", path),
        lambda: files.mkdir(path, 0o777),
        lambda: files.symlink(os.path.join(path, "x"), "made"),
        lambda: files.rmall(path) if path != "link" else files.read(path, 0, 1),
    ]
    for attempt in attempts:
        with pytest.raises(OSError):
            attempt()
    assert (place.parent / "secret").read_text() == "secret"
    assert (place / "data").exists()
    assert sorted(one.name for one in place.parent.iterdir()) == ["secret", "work"]


def test_a_link_inside_is_followed_and_one_can_be_made(files, place):
    files.symlink("inner/deep", "short")
    files.symlink("../data", "inner/up")
    assert files.read("short", 0, 10) == b"deep"
    assert files.read("inner/up", 0, 3) == b"012"
    assert files.readlink("short", 5) == b"inner"
    assert files.stat("short", follow=False).split()[7] == b"10"
    files.unlink("short")
    assert (place / "inner" / "deep").exists()
    for target in ("../../secret", "/etc/passwd", "../../../x"):
        with pytest.raises(PermissionError):
            files.symlink(target, "inner/bad")


def test_a_directory_that_becomes_a_link_meanwhile_leads_nowhere(files, place):
    """Who changes links while a path is walked gets no further."""
    (place.parent / "elsewhere").mkdir()
    (place.parent / "elsewhere" / "deep").write_text("secret")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            os.rename(place / "inner", place / "kept")
            os.symlink("../elsewhere", place / "inner")
            os.unlink(place / "inner")
            os.rename(place / "kept", place / "inner")

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen, failed = set(), 0
    try:
        for _ in range(3000):
            try:
                seen.add(files.read("inner/deep", 0, 10))
            except OSError:
                failed += 1
    finally:
        stop.set()
        swapping.join()
    seen.add(files.read("inner/deep", 0, 10))  # on a busy machine it may have been away at each try
    assert seen == {b"deep"}
    assert failed > 0


def test_content_is_written_where_it_is_said(files, place):
    assert files.open("new", "wc", 0o640).split()[7] == b"0"
    assert (place / "new").stat().st_mode & 0o777 == 0o640
    assert files.write("new", 0, b"hello", False) == 5
    assert files.write("new", 99, b" world", True) == 6
    assert (place / "new").read_bytes() == b"hello world"
    assert files.write("new", 0, b"abcd", False, 2, 4) == 4
    assert (place / "new").read_bytes() == b"abllcdworld"
    assert files.read("data", 0, 6, 2, 4) == b"014589"
    files.truncate("new", 3)
    files.utime("new", 100, 200)
    assert (place / "new").stat().st_mtime == 200
    files.fsync("new")
    files.rename("new", "inner/new")
    files.link("inner/new", "again")
    files.unlink("again")
    files.rmall("inner")
    assert not (place / "inner").exists()
    for attempt, error in (
        (lambda: files.open("none", "r", 0), FileNotFoundError),
        (lambda: files.open("data", "wcx", 0), FileExistsError),
        (lambda: files.rmdir("."), PermissionError),
        (lambda: files.read("data", -1, 1), OSError),
        (lambda: files.read("data", 0, 1 << 30), OSError),
        (lambda: files.read("data", 0, 1 << 20, 1, 0), OSError),
        (lambda: files.read(".", 0, 1), IsADirectoryError),
    ):
        with pytest.raises(error):
            attempt()


def test_no_bit_of_a_mode_gives_more_than_the_file(files, place):
    files.mkdir("made", 0o7777)
    files.chmod("data", 0o7755)
    assert (place / "made").stat().st_mode & 0o7000 == 0
    assert (place / "data").stat().st_mode & 0o7777 == 0o755


def test_a_pipe_keeps_nobody_waiting(files, place):
    os.mkfifo(place / "pipe")
    for attempt in (lambda: files.read("pipe", 0, 1), lambda: files.write("pipe", 0, b"x", False)):
        with pytest.raises(OSError):
            attempt()


def test_what_may_be_written_is_limited(place):
    files = JobFiles(place, str(place), (), 12)
    assert files.write("data", 10, b"ab", False) == 2
    for attempt in (
        lambda: files.write("data", 11, b"ab", False),
        lambda: files.write("data", 0, b"a", True),
        lambda: files.truncate("data", 13),
    ):
        with pytest.raises(OSError, match="too large"):
            attempt()


def test_input_of_a_spooled_job_is_read_and_not_written(tmp_path):
    out, own = tmp_path / "out", tmp_path / "in"
    out.mkdir()
    own.mkdir()
    (own / "data").write_text("input")
    files = JobFiles(out, "/home/alice/work", (own,))
    assert files.read("/home/alice/work/data", 0, 10) == b"input"
    with pytest.raises(FileNotFoundError):
        files.write("data", 0, b"x", False)
    files.open("data", "wc", 0o600)
    assert files.write("data", 0, b"mine", False) == 4
    assert files.read("data", 0, 10) == b"mine"
    assert (own / "data").read_text() == "input"
    with pytest.raises(PermissionError):
        files.read("/home/alice/other", 0, 1)
