"""What the documentation points at is there: files, sections, commands and their options."""

import importlib
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from roost.cli.main import COMMANDS
from roost.cli.options import Option

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
