"""The commands of README.md, as they are written there, for tests that run them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def block(after: str) -> list[str]:
    """The lines of the first block of code after these words, without remarks."""
    page = (ROOT / "README.md").read_text()
    assert after in page, f"README.md does not say {after!r} any more"
    lines = page.partition(after)[2].splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("    "))
    found = []
    for line in lines[start:]:
        if line and not line.startswith("    "):
            break
        command = re.sub(r"\s+# .*$", "", line).strip()
        if command:
            found.append(command)
    return found
