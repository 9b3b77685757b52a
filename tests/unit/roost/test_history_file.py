"""History files are read from their end, without what is not asked for (TLS-12)."""

import io

from hypothesis import given, settings
from hypothesis import strategies as st

from roost.cli import history
from roost.cli.main import main

_LINES = st.lists(
    st.sampled_from(["A = 1\n", 'B = "ü"\n', "***\n", "*** Offset = 0\n", "# c\n", "\n", "C = 2\r\n", "** x\n", "***"]),
    max_size=12,
)


@settings(max_examples=100)
@given(lines=_LINES)
def test_both_ways_find_the_same_jobs(lines):
    """But for what stands behind the last line of stars, which is still being written."""
    stream = io.BytesIO("".join(lines).encode())
    forwards = list(history._forwards(stream))
    stream.seek(0)
    assert list(history._backwards(stream)) == forwards[-2::-1]


def test_the_last_jobs_are_read_without_the_others(tmp_path, capsys, monkeypatch):
    file = tmp_path / "history"
    file.write_text("".join(f'ClusterId = {n}\nProcId = 0\nOwner = "a"\n*** Offset = 0\n' for n in range(500)))
    read = []
    monkeypatch.setattr(history, "_record", lambda lines, real=history._record: read.append(lines) or real(lines))
    assert main(["history", "-file", str(file), "-limit", "3", "-af", "ClusterId"]) == 0
    assert capsys.readouterr().out == "499\n498\n497\n"
    assert len(read) == 3
    assert main(["history", "-file", str(file), "-forwards", "-limit", "2", "-af", "ClusterId"]) == 0
    assert capsys.readouterr().out == "0\n1\n"
    assert len(read) == 5


def test_a_file_without_jobs_has_none(tmp_path, capsys):
    file = tmp_path / "history"
    file.write_text("")
    assert main(["history", "-file", str(file), "-af", "ClusterId"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["history", "-file", str(tmp_path), "-af", "ClusterId"]) == 1
    assert main(["history", "-file", str(tmp_path / "none"), "-af", "ClusterId"]) == 1
    assert "none" in capsys.readouterr().err
