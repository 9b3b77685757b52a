"""`from roost import ...` gives what it says, and `import roost` loads none of it."""

import subprocess
import sys

import pytest

import roost
from roost.consumer import Consumer


def test_names_come_when_they_are_asked_for():
    assert roost.Consumer is Consumer
    assert {name: getattr(roost, name).__name__ for name in roost.__all__} == {name: name for name in roost.__all__}
    with pytest.raises(AttributeError, match="nonsense"):
        roost.nonsense  # noqa: B018


def test_the_package_itself_is_light():
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, roost; print(sorted(set(sys.modules) & {'pydantic', 'aiohttp', 'msgpack'}))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "[]"


def test_a_submit_reads_nothing_that_only_daemons_need():
    """asyncio, structlog and what they bring along cost a command a third of its start."""
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, roost.cli.submit; print(sorted(set(sys.modules) & {'asyncio', 'structlog', 'aiohttp'}))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "[]"
