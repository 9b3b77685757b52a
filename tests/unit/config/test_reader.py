"""Files of the configuration language, line by line."""

import json
from pathlib import Path

import pytest

from shared.config.errors import ConfigError
from shared.config.knobs import DEFAULTS
from shared.config.load import CONFIG
from shared.config.macros import MacroTable
from shared.config.reader import Dialect, Reader
from tests.cases import each

FILES = json.loads((Path(__file__).parent / "data" / "files.json").read_text(encoding="utf-8"))
SUBMIT = Dialect(keywords=frozenset({"queue"}), attributes=True)


def read(text: str, dialect: Dialect = CONFIG, defaults=DEFAULTS) -> tuple[MacroTable, Reader]:
    table = MacroTable(prefixes=("TOOL",), defaults=defaults)
    reader = Reader(table, dialect)
    reader.read_text(text, "pool.conf")
    return table, reader


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return str(caught.value)


def test_file_is_read_as_by_the_reference():
    """Answers of HTCondor 23.9.6; null where it refuses the file."""

    def check(case):
        text, expected = case
        if expected is None:
            assert "pool.conf, line " in refusal(text)
        else:
            table, _ = read(text)
            # the machine's own cores are not the reference's
            expected = {name: value for name, value in expected.items() if value != "0"}
            assert {name: table.value(name) for name in expected} == expected

    each(FILES, check, lambda case: repr(case[0]))


@pytest.mark.parametrize(
    ("text", "line", "mend"),
    [
        ("A = 1\nB 2\n", 2, "write NAME = value"),
        ("A = 1\n\nMY-NAME = 3\n", 3, "letters, digits"),
        ("if A == 1\nendif\n", 1, "with '!' before it"),
        ("A = 1\nif true\nB = 2\n", 2, "add endif"),
        ("A = 1\nelse\n", 2, "write the if"),
        ("use POLICY : Desctop\n", 1, "did you mean POLICY:Desktop?"),
        ("use PLOICY : Desktop\n", 1, "categories are ROLE, FEATURE, POLICY, SECURITY"),
        ("A @=end\nx\n@End\n", 1, "write @end alone"),
        ("include : /no/such/file\n", 1, "correct the path"),
        ("Include IfExist : /no/such/file\n", 1, "in lower case"),
        ("include command : /no/such/program\n", 1, "correct its path"),
        ("use FEATURE : StaticSlots(1\n", 1, "NAME(arguments)"),
    ],
)
def test_refusal_names_line_and_mend(text, line, mend):
    told = refusal(text)
    assert f"pool.conf, line {line}:" in told
    assert mend in told


def test_colon_assignment_warns():
    table, reader = read("A : 1\n")
    assert table.value("A") == "1"
    assert [problem.source.line for problem in reader.warnings] == [1]


def test_windows_line_ends_are_no_part_of_values():
    assert read("A = 1\r\nB = 2\r\n")[0].value("A") == "1"


def test_include_finds_files_by_macro(tmp_path):
    inner = tmp_path / "inner.conf"
    inner.write_text("B = $(A)2\n")
    table, reader = read(f"A = 1\nF = {inner}\ninclude : $(F)\n")
    assert table.value("B") == "12"
    assert reader.files == [str(inner)]


def test_error_in_an_included_file_names_that_file(tmp_path):
    inner = tmp_path / "inner.conf"
    inner.write_text("ok = 1\nnot ok\n")
    assert f"{inner}, line 2" in refusal(f"include : {inner}\n")


@pytest.mark.parametrize("line", ["include : {}", "include command into {} : /bin/echo A=1"])
def test_name_that_no_file_can_have_is_refused_with_its_place(line):
    name = "x" * 300
    assert "line 1" in (said := refusal(line.format(name) + "\n"))
    assert "File name too long" in said


def test_name_that_no_file_can_have_is_not_there():
    read("include ifexist : " + "x" * 300 + "\n")


def test_file_that_includes_itself_is_an_error(tmp_path):
    inner = tmp_path / "inner.conf"
    inner.write_text(f"include : {inner}\n")
    assert "include each other" in refusal(f"include : {inner}\n")


def test_if_may_not_span_an_include(tmp_path):
    inner = tmp_path / "inner.conf"
    inner.write_text("if true\n")
    assert "no endif" in refusal(f"include : {inner}\nendif\n")


def test_command_output_is_read_whatever_its_status(tmp_path):
    script = tmp_path / "script.sh"
    script.write_text('#!/bin/sh\necho "A = $1"\nexit 3\n')
    script.chmod(0o755)
    assert read(f"include command : {script} x\n")[0].value("A") == "x"
    table, reader = read(f"include : {script} y |\n")
    assert table.value("A") == "y"
    (told,) = reader.warnings
    assert f"{script} ended with status 3; what it printed is taken" in str(told)


def test_cached_command_runs_once(tmp_path):
    cache = tmp_path / "cache.conf"
    text = f"include command into {cache} : /bin/echo A=4\n"
    assert read(text)[0].value("A") == "4"
    cache.write_text("A = kept\n")
    assert read(text)[0].value("A") == "kept"


def test_failing_command_is_not_cached(tmp_path):
    cache = tmp_path / "cache.conf"
    assert "status 1" in refusal(f"include command into {cache} : false\n")
    assert not cache.exists()


def test_directory_is_not_included_but_told(tmp_path):
    assert "directory" in str(read(f"include : {tmp_path}\n")[1].warnings[0])


def test_template_arguments_are_filled_in():
    templates = {"T": {"X": "A = $(1)-$(2:two)\nALL = $(0)\nREST = $(2+)\nN = $(0#)\nHAS = $(1?)$(3?)\n"}}
    table, _ = read("use t : x(one)\nB = $(A)\nuse T : X(p, f(q,r), s)\n", Dialect(templates=templates))
    assert table.value("A") == "p-f(q,r)"
    assert table.value("ALL") == "p, f(q,r), s"
    assert table.value("REST") == "f(q,r), s"
    assert table.value("N") == "3"
    assert table.value("HAS") == "11"


def test_template_argument_stays_lazy():
    table, _ = read("use FEATURE : PartitionableSlot(1, $(SHARE))\nSHARE = 50%\n")
    assert table.value("SLOT_TYPE_1") == "50%"


def test_macro_of_a_template_tells_the_line_of_its_use():
    table, _ = read("\nuse POLICY : Desktop\n")
    assert str(table.origin("IS_OWNER")) == "pool.conf, line 2, use POLICY:Desktop"


@pytest.mark.parametrize(
    "use",
    [f"use {category} : {name}(1, 2, 3, 4, 5)" for category, bodies in CONFIG.templates.items() for name in bodies],
)
def test_every_template_can_be_used_and_expanded(use):
    table, reader = read(use + "\n")
    for macro in table:
        table.value(macro.name)
    assert [problem for problem in reader.warnings if " has no effect: " not in str(problem)] == []
    assert len(table) > 0


def test_desktop_gives_the_slot_back_to_its_owner():
    table, _ = read("use POLICY : Desktop\n")
    assert table.value("IS_OWNER") == "(START =?= False)"
    assert table.value("MaxJobRetirementTime") == "0"
    assert table.value("CLAIM_WORKLIFE") is None
    assert "KeyboardIdle > 15 * 60" in table.value("START")


def test_hold_policies_add_up():
    table, _ = read("use POLICY : Hold_If_Memory_Exceeded, Hold_If_Cpus_Exceeded\n")
    assert table.value("PREEMPT").endswith("|| False")
    for part in ("MemoryUsage > Memory", "CpusUsage > Cpus + 0.8"):
        assert part in table.value("PREEMPT")
        assert part in table.value("WANT_HOLD_REASON")


def test_statements_are_handed_out_with_the_macros_above_them():
    table = MacroTable()
    reader = Reader(table, SUBMIT)
    seen = []
    for statement in reader.statements("A = 1\n+Owner = x\nqueue 2\nA = 2\nQueue X from (\none\n two\n)\n", "job.sub"):
        seen.append((statement.rest, table.value("A"), statement.source.line))
        if statement.rest.endswith("("):
            assert [reader.take_line(), reader.take_line(), reader.take_line()] == ["one", " two", ")"]
            assert reader.take_line() is None
    assert seen == [("2", "1", 3), ("X from (", "2", 5)]
    assert table.value("MY.Owner") == "x"


def test_open_ifs_can_be_forgotten_at_a_statement():
    reader = Reader(MacroTable(), SUBMIT)
    for _ in reader.statements("if true\nqueue\n", "job.sub"):
        assert reader.open_ifs
        reader.forget_ifs()


def test_submit_dialect_has_no_colon_assignments_and_no_templates():
    for text in ("A : 1\n", "use POLICY : Desktop\n"):
        with pytest.raises(ConfigError):
            Reader(MacroTable(), SUBMIT).read_text(text, "job.sub")
