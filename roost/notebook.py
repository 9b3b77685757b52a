"""How things of the client are shown in a notebook: as a table of HTML. Nothing is asked of the pool for it."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def table(title: str, rows: Mapping[str, object]) -> str:
    """A title, and a name and a value in each row. Whatever users wrote is text in it."""
    left = 'style="text-align: left"'
    lines = "".join(
        f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(str(value))}</td></tr>"
        for name, value in rows.items()
        if value not in ("", None)
    )
    return f"<table><caption>{escape(title)}</caption>{lines}</table>"
