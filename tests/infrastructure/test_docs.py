"""What the documentation points at is there: files, sections, commands and their options."""

import importlib
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from roost.cli.main import COMMANDS
from roost.cli.options import Option
from tests.infrastructure.imports import SOURCE
from tests.infrastructure.picture import pictures

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
#: `roost ...` at the beginning of a line of code, after a prompt or connective, or of a code span.
IN_BLOCK = re.compile(r"(?:^|&& |\|\| |; |\$\(|exec (?:-T )?\w+ |=\S+ )\s*roost +([a-z][\w-]*)([^#\n|;&)]*)")
IN_SPAN = re.compile(r"`roost +([a-z][\w-]*)([^`]*)`")
WORDS_OF_PROSE = {"help"}


def pages():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(name for name in listed.stdout.split("\0") if name and (ROOT / name).exists())


def split(text):
    """(prose, code): lines of fenced and indented blocks apart from everything else."""
    prose, code, fenced, before = [], [], False, ""
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or (line.startswith("    ") and (not before or before.startswith("    "))):
            code.append(line.strip())
        else:
            prose.append(line)
        before = line
    return "\n".join(prose), "\n".join(code)


def anchors(page):
    """What the headings of a page are called in its address."""
    prose, _ = split(page.read_text())
    headings = re.findall(r"^#+ +(.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", pages())
def test_every_link_leads_somewhere(name):
    page = ROOT / name
    prose, _ = split(page.read_text())
    lost = []
    for link in LINK.findall(re.sub(r"`[^`\n]*`", "", prose)):
        if re.match(r"[a-z+]+:", link):
            continue  # another site's address
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            lost.append(link)
    assert not lost, f"{name} links to what is not there"


def commands_in(text):
    """(command, words after it) of every `roost ...` in a page."""
    prose, code = split(text)
    found = [match for line in code.splitlines() for match in IN_BLOCK.findall(line)]
    return found + IN_SPAN.findall(prose)


def options_of(command):
    """Every option that the module of a command knows."""
    module = importlib.import_module(f"roost.cli.{COMMANDS[command][0]}")
    tables = [value for value in vars(module).values() if isinstance(value, tuple | list | dict)]
    flat = []
    while tables:
        table = tables.pop()
        for one in table.values() if isinstance(table, dict) else table:
            if isinstance(one, Option):
                flat.append(one)
            elif isinstance(one, tuple | list | dict):
                tables.append(one)
    # A command with a grammar of its own tells its options in its help.
    told = re.findall(r"^ +-([\w-]+)", getattr(module, "USAGE", ""), flags=re.MULTILINE)
    return {name for option in flat for name in option.names} | set(told)


def unknown_in(command, words):
    """The options among these words that the command does not know."""
    known = options_of(command)
    try:
        split_words = shlex.split(words, comments=True)
    except ValueError:  # half of a quoted text
        split_words = words.split()
    if "-queue" in split_words:
        split_words = split_words[: split_words.index("-queue")]
    used = [re.split("[:=]", word.lstrip("-"))[0] for word in split_words if re.fullmatch(r"--?[a-z][\w:,=-]*", word)]
    return [name for name in used if not any(one.startswith(name) for one in known)]


@pytest.mark.parametrize("name", pages())
def test_every_command_and_option_exists(name):
    wrong = []
    for command, words in commands_in((ROOT / name).read_text()):
        if command in WORDS_OF_PROSE:
            continue
        if command not in COMMANDS:
            wrong.append(f"roost {command}")
        else:
            wrong += [f"roost {command} -{option}" for option in unknown_in(command, words)]
    assert not wrong, f"{name} names what there is not"


def test_the_check_sees_commands_and_options():
    text = "Say `roost q -nobatch`.\n\n    . x && roost submit -terse a.sub\n    X=1 roost rm 3   # roost nothing\n"
    assert [(command, words.strip()) for command, words in commands_in(text)] == [
        ("submit", "-terse a.sub"),
        ("rm", "3"),
        ("q", "-nobatch"),
    ]
    assert unknown_in("q", " -nobatch -const x -af:hj A -nonsense") == ["nonsense"]
    assert unknown_in("up", "-port 0 -colour red") == ["colour"]


def test_the_rooms_of_the_glossary_are_there():
    text = (ROOT / "docs" / "glossary.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| word", "| ---"))]
    assert len(rows) > 50
    named = [path for row in rows for path in re.findall(r"`([\w./]+)`", row.rsplit("|", 2)[1])]
    assert len(named) >= len(rows) - 1
    lost = [path for path in named if not (ROOT / path).exists()]
    lost += [path for path in named if path.endswith("/core") and not list((ROOT / path).glob("*.py"))]
    assert not set(lost) - {"core"}, "rooms of the glossary that are not there"


def test_the_rooms_of_the_architecture_are_there():
    """Modules and folders that the page names by path, and what its tables name within the folder of their heading."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    for path in re.findall(r"`((?:services|engine|shared|roost)/[\w./]+)`", text):
        assert (ROOT / path).exists(), path
    for table in re.findall(r"^\| folder of \[(services/\w+)\].*\n(?:\|.*\n)*", text, re.MULTILINE):
        rows = text.partition(f"| folder of [{table}]")[2].partition("\n\n")[0].splitlines()[2:]
        for row in rows:
            for name in re.findall(r"`([\w/]+)`", row.split("|")[1]):
                assert (ROOT / table / name).exists() or (ROOT / table / f"{name}.py").exists(), f"{table}/{name}"
    others = text.partition("### The others")[2].partition("\n\n## ")[0]
    for daemon, row in re.findall(r"^\| \[(\w+)\]\(\S+\) \|(.*)$", others, re.MULTILINE):
        for name in re.findall(r"`([\w/]+)`", row):
            place = ROOT / "services" / daemon / name
            assert place.exists() or place.with_suffix(".py").exists(), place


def test_five_questions_are_answered_by_path():
    """docs/architecture.md, "Found by path": what the table names is there, and does what the question asks about."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = text.partition("## Found by path")[2].partition("\n## ")[0].strip().splitlines()[4:]
    assert len(rows) == 5
    answers = [[(ROOT / "docs" / path).resolve() for path in LINK.findall(row)] for row in rows]
    assert all(path.exists() for paths in answers for path in paths)
    drains, leases, charges, analyze, launchers = answers
    assert "class Drain" in drains[0].read_text()
    assert "def renew" in leases[0].read_text()
    assert "Alive(" in leases[1].read_text()
    assert "preempting" in charges[0].read_text()
    assert "Analyze" in analyze[0].read_text()
    assert "LauncherKind" in launchers[1].read_text()
    kinds = {path.stem for path in launchers[0].iterdir() if (path / "launcher.py").exists()}
    assert kinds
    assert all(f"exec.{kind}.launcher import" in launchers[2].read_text() for kind in kinds)


@pytest.mark.xdist_group(SOURCE)
def test_pictures_are_up_to_date():
    """`python -m tests.infrastructure.house --write docs/architecture.md` makes them anew."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    shown = text.partition("<!-- pictures: begin -->\n")[2].partition("<!-- pictures: end -->")[0]
    assert shown.strip() == pictures().strip()


def test_decisions_have_a_page_each():
    pages = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for page in pages:
        text = page.read_text()
        assert text.startswith(f"# {int(page.name[:4])}. "), page.name
        for part in ("Problem", "Decision", "Rejected"):
            assert f"**{part}.**" in text, f"{page.name} lacks its {part}"
        paths = re.findall(r"`((?:services|engine|shared|roost|tests|docs)/[\w./]+)`", text)
        assert not [path for path in paths if not (ROOT / path).exists()], page.name
