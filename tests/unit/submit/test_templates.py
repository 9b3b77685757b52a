"""Filling in a template gives what expanding the macros anew would give, job by job."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.submit import Description, SubmitContext, commands
from roost.submit.dry_run import lines
from roost.submit.template import compile_text
from shared.config.macros import MacroTable, Source

HERE = Source("job.sub", 1)
LIVE = frozenset({"process", "item"})


def table(**texts: str) -> MacroTable:
    made = MacroTable()
    for name, text in texts.items():
        made.set(name, text, HERE)
    made.live.update(process="7", item="x y")
    return made


@pytest.mark.parametrize(
    "text",
    [
        "$(Process)",
        "a$(Process)b$(Item)c$(process)",
        "100% of $(item)",
        "$(other)/$(Process)",
        "$$(Memory) $(Process)",
        "$(missing:none) $(Process)",
        "<$(nested)>",
        "$(Item:nothing)",
    ],
)
def test_a_template_gives_the_tables_text(text: str) -> None:
    made = table(name=text, other="fixed", nested="[$(Item)]")
    template = compile_text(made, "name", LIVE, LIVE | {"name", "nested"})
    assert template is not None
    assert template.fill(made.live) == made.value("name")
    assert made.live == {"process": "7", "item": "x y"}


@pytest.mark.parametrize(
    "text",
    [
        "$INT(Process)",
        "$(pick$(Process))",
        "$$$(Process)",
        "$RANDOM_CHOICE(a,b)$(Process)",
        "$(DOLLAR)(Process) $(Process)",
        "$(viafunction)",
    ],
)
def test_what_is_more_than_pieces_and_words_is_left_to_the_table(text: str) -> None:
    made = table(name=text, viafunction="$Fn(Item)", pick7="seven")
    assert compile_text(made, "name", LIVE, LIVE | {"name", "viafunction"}) is None


@pytest.mark.parametrize("value", ["", "$(other)"])
def test_a_word_that_means_more_than_itself_is_not_filled_in(value: str) -> None:
    made = table(name="$(Item:none)!", other="o")
    template = compile_text(made, "name", LIVE, LIVE | {"name"})
    assert template is not None
    assert template.fill({"process": "1", "item": value}) is None


def test_jobs_are_the_same_with_and_without_templates(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "x.sh").write_text("")
    text = """executable = x.sh
arguments = "$(Item) '$(Process) $(Step)' $INT(Process,%03d) $(pair$(Step))"
pair0 = even
pair1 = odd$(Row)
output = $(Item:none).$(Process)
error = $(where)/e
where = d$(Row)
environment = N=$(Process);I=$(Item)
request_memory = 1$(Process)
requirements = Machine != "$(Item)"
transfer_input_files = $(Item), x.sh
+Mine = "$(Item)$(Process)"
queue 2 Item from (
a
b.c

$(where)
)
"""
    place = SubmitContext(directory=tmp_path, file="job.sub", user="u", environment={}, filesystem_domain="d")

    def jobs() -> list[str]:
        (cluster,) = Description(text, place, now=1.0).clusters()
        return list(lines(cluster, 1, 1.0))

    quick = jobs()
    monkeypatch.setattr(commands, "compile_text", lambda *_: None)
    assert jobs() == quick
    assert quick.count(".") == 8
