"""What jobs say of themselves is shown by the dashboard as text: no page makes HTML, or a program, of it."""

import re

import pytest

from services.gateway.routes.static_files import WEB

#: Whatever makes HTML or a program of a text in a browser. `html` of htm takes what is put into it as text.
MAKERS = re.compile(
    r"dangerouslySetInnerHTML|innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment"
    r"|parseFromString|\bnew Function\b|\beval\(|setTimeout\(\s*[\"'`]|javascript:"
)
SCRIPTS = sorted(file for file in WEB.rglob("*.js") if "vendor" not in file.parts)


def test_there_are_scripts_and_makers_are_found():
    assert len(SCRIPTS) > 10
    for bad in ("row.innerHTML = job.Cmd", "eval(ad.Rank)", 'setTimeout("x()", 1)', 'a.href = "javascript:" + x'):
        assert MAKERS.search(bad)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: file.relative_to(WEB).as_posix())
def test_no_page_makes_html_or_a_program_of_a_text(script):
    assert not MAKERS.findall(script.read_text())
