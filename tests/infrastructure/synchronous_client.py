"""roost/client.py is made of roost/aio.py: what is awaited there is called here. One source, so that neither client
has what the other lacks.

Write it anew with `python -m tests.infrastructure.synchronous_client --write`.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE, TARGET = ROOT / "roost" / "aio.py", ROOT / "roost" / "client.py"

BEGINNING = '''\
# Made of roost/aio.py: change that, then run python -m tests.infrastructure.synchronous_client --write
"""The pool as a Python object: `Client().submit(...)`, `.jobs(...)`, `.ads(...)`, `.act(...)`, `.events(...)`.

The command imports this and starts often, so it stands on the standard library only (roost.transport).
"""
'''
#: What is plainer without asyncio: imports in order, names in order, `list(...)` and `yield from` in place of loops.
FIXES = "I,RUF022,C416,UP028"
#: Texts that differ, where only one of both is true.
TEXTS = (
    ("Asynchronous client of one gateway; any number of requests at a time.", "Synchronous client of one gateway."),
)
#: Patterns, in this order.
WORDS = (
    (r"(?m)^( *)# sync: ", r"\1"),
    (r"await (self\.(?:ad|status))\(\)", r"\1"),  # properties there
    (r"\basync (?=def\b|for\b|with\b)", ""),
    (r"\bawait ", ""),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b__a(?=enter__|exit__)", "__"),
    (r"\baclosing\b", "closing"),
    (r"\basyncio\b", "time"),
    (r"\broost\.aio_", "roost."),
)


def synchronous(source: str) -> str:
    """The synchronous client of the asynchronous one's text, not yet formatted."""
    text = re.sub(r'\A""".*?"""\n', BEGINNING.replace("\\", r"\\"), source, count=1, flags=re.DOTALL)
    for theirs, ours in TEXTS:
        assert theirs in text, theirs
        text = text.replace(theirs, ours)
    for pattern, ours in WORDS:
        text = re.sub(pattern, ours, text)
    return text


def formatted(text: str) -> str:
    for command in (["check", "--fix", "--unsafe-fixes", "--select", FIXES, "--quiet"], ["format"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        text = done.stdout
    return text


def wanted() -> str:
    return formatted(synchronous(SOURCE.read_text()))


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        TARGET.write_text(wanted())
    else:
        sys.stdout.write(wanted())
