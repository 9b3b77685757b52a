"""What files of distributions say, in HTCondor's words."""

import pytest

from shared.linux_release import LinuxRelease, linux_release, parse_os_release, parse_release
from tests.spec import spec


@spec("CFG-22")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Debian GNU/Linux 12 \\n \\l", LinuxRelease("Debian", "Debian GNU/Linux 12", 12, 1200)),
        ("Ubuntu 22.04.3 LTS \\n \\l\n", LinuxRelease("Ubuntu", "Ubuntu 22.04.3 LTS", 22, 2204)),
        ("Rocky Linux release 8.9 (Green Obsidian)", ("Rocky", "Rocky Linux release 8.9 (Green Obsidian)", 8, 809)),
        (
            "Red Hat Enterprise Linux release 9.10 (Plow)",
            ("RedHat", "Red Hat Enterprise Linux release 9.10 (Plow)", 9, 910),
        ),
        ("\\S", None),
        ("", None),
    ],
)
def test_the_first_line_of_a_file(line, expected):
    assert parse_release(line) == (LinuxRelease(*expected) if isinstance(expected, tuple) else expected)


@spec("CFG-22")
def test_a_distribution_without_such_a_file():
    said = 'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.19.1\nPRETTY_NAME="Alpine Linux v3.19"\n'
    assert parse_os_release(said) == LinuxRelease("Alpine", "Alpine Linux v3.19", 3, 319)
    named = 'NAME="Debian GNU/Linux"\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n'
    assert parse_os_release(named).versioned == "Debian12"
    assert parse_os_release("") is None


@spec("CFG-22")
def test_the_files_are_asked_in_order(tmp_path):
    assert linux_release(tmp_path / "nothing") == LinuxRelease()
    (tmp_path / "issue").write_text("\\S\nKernel \\r on an \\m\n")
    (tmp_path / "redhat-release").write_text("AlmaLinux release 9.4 (Seafoam Ocelot)\n")
    (tmp_path / "os-release").write_text("ID=other\nVERSION_ID=1\n")
    assert linux_release(tmp_path).versioned == "AlmaLinux9"
