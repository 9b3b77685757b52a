"""docs/metrics.md and the names in it."""

import asyncio
import re
import subprocess
from pathlib import Path

from tests.infrastructure.metrics_page import COMMON, families_of, now, page, shown, texts_of

ROOT = Path(__file__).parents[2]
UNITS = ("seconds", "bytes", "ratio")
#: Of other units, or with the unit in the middle: nobody reads two ways of saying one thing.
NOT_UNITS = ("_ms", "_s", "_mib", "_kib", "_minutes", "_percent")


async def test_the_page_is_current():
    wanted = page(await now())
    assert (ROOT / "docs" / "metrics.md").read_text() == wanted, (
        "run: python -m tests.infrastructure.metrics_page > docs/metrics.md"
    )


async def test_names_follow_the_conventions(tmp_path):
    sections = families_of(tmp_path)
    names = [shown(family) for families in sections.values() for family in families]
    assert len(names) == len(set(names))
    for section, families in sections.items():
        assert families, section
        for family in families:
            if section == COMMON and family.name.startswith("process_"):
                continue
            begins = r"roost_(daemon|bus|store)_" if section == COMMON else f"roost_{section.lower()}_"
            assert re.match(begins + r"[a-z][a-z_]*$", family.name), family.name
            assert not family.name.endswith(NOT_UNITS), family.name
            assert not family.name.endswith(("_total", "_count", "_sum", "_bucket")), family.name
            assert family.documentation
            assert family.type in ("gauge", "counter", "histogram")
            if family.type == "histogram":
                assert family.name.endswith(UNITS), family.name
            assert {"job", "job_id", "owner", "user"}.isdisjoint(family._labelnames), family.name


async def test_promtool_has_nothing_against_them(tmp_path, promtool):
    for daemon, text in texts_of(tmp_path).items():
        command = [promtool, "check", "metrics"]
        done = await asyncio.to_thread(subprocess.run, command, input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), daemon
