"""The page on fault tolerance names a test for each loss: they are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: What was measured, at the end, is no promise of a test's.
TOLD = (ROOT / "docs" / "fault-tolerance.md").read_text().partition("\n## Measured\n")[0]


def test_every_row_names_tests_that_exist():
    rows = [
        line.split("|")[1:-1]
        for line in TOLD.splitlines()
        if line.startswith("| ") and not line.startswith(("| lost", "| cut", "| jumps", "| ---"))
    ]
    assert len(rows) > 20
    file = Path()
    for row in rows:
        named = re.findall(r"`([\w/]*(?:\.py)?)::(\w+)`", row[-1])
        assert named or row[-1].strip() == "the same", row
        for path, test in named:
            if path:
                folder = ROOT / "tests" / ("" if "/" in path else "integration")
                file = folder / path
            assert re.search(rf"^(async )?def {test}\(", file.read_text(), flags=re.MULTILINE), f"{file}: {test}"
