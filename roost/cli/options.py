"""Command lines as HTCondor's users type them: single-dash words (`-constraint`, `-af:hj`), double dashes welcome,
unique beginnings enough (`-const`). argparse has neither the colon forms nor options that take names up to the next
dash, hence this small reader.

The tools that show tables take beginnings exactly as HTCondor's do: `least` says how many letters an option wants,
and the first option in the list that begins so is meant (`-s` of condor_q is -submitter). Two dashes want the whole
name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

from roost.errors import UnknownOption, UsageError


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `takes`: "" (a flag), "one" (a value), "two", "many" (values up to the next option), "some" (the
    same, or none)."""

    names: tuple[str, ...]  # without dashes; the first names it in the result
    help: str
    takes: str = ""
    metavar: str = ""
    letters: bool = False  # may carry letters after a colon: -af:hj
    least: int = 0  # letters that are enough; 0: as many as make it unique; -1: all


def flag(*names: str, help: str) -> Option:
    return Option(names, help)


def value(*names: str, help: str, metavar: str = "VALUE") -> Option:
    return Option(names, help, "one", metavar)


def many(*names: str, help: str, metavar: str = "NAME", letters: bool = False) -> Option:
    return Option(names, help, "many", f"{metavar}...", letters)


def lettered(*names: str, help: str) -> Option:
    """A flag that may carry words after a colon."""
    return Option(names, help, letters=True)


def ask(text: str, help: str, metavar: str = "") -> Option:
    """An option of a tool that takes beginnings as HTCondor's do: `con|straint` wants at least `con`; `hol|d hel|d` has
    two names; `af:` may carry letters after a colon. metavar: "FILE" (one value), "FORMAT EXPR" (two), "ATTR,..."
    (one), "NAME..." (many), "[WORD...]" (some or none)."""
    names, least = [], 0
    letters = ":" in text
    for word in text.replace(":", "").split():
        short, _, rest = word.partition("|")
        names.append(short + rest)
        least = least or (len(short) if rest else -1)
    takes = ""
    if metavar:
        several = metavar.endswith("...") and not metavar.endswith(",...")
        takes = "some" if metavar.startswith("[") else "many" if several else "one"
        takes = "two" if takes == "one" and " " in metavar else takes
    return Option(tuple(names), help, takes, metavar, letters, least)


@dataclass(slots=True)
class Parsed:
    """What was typed."""

    arguments: list[str] = field(default_factory=list)
    values: dict[str, list[str]] = field(default_factory=dict)  # option -> its values, all occurrences
    letters: dict[str, str] = field(default_factory=dict)  # option -> letters after its colon
    #: Every option as it came: (option, letters, its values).
    order: list[tuple[str, str, list[str]]] = field(default_factory=list)

    def has(self, name: str) -> bool:
        return name in self.values

    def one(self, name: str, default: str = "") -> str:
        found = self.values.get(name)
        return found[-1] if found else default

    def all(self, name: str) -> list[str]:
        return self.values.get(name, [])

    def integer(self, name: str, default: int) -> int:
        """Raises UsageError unless the value is a whole number."""
        text = self.one(name, str(default))
        try:
            return int(text)
        except ValueError:
            raise UsageError(f"-{name} wants a whole number, not {text!r}") from None

    def seconds(self, name: str) -> float | None:
        text = self.one(name)
        if not text:
            return None
        try:
            return float(text)
        except ValueError:
            raise UsageError(f"-{name} wants seconds, not {text!r}") from None


#: Understood by every command that talks to a pool.
COMMON = (
    value("pool", help="address of the pool's gateway, host[:port] or URL", metavar="ADDRESS"),
    flag("help", "h", help="show this help"),
)


def parse(argv: Sequence[str], options: Sequence[Option]) -> Parsed:
    """Raises UsageError naming the option and the nearest known one."""
    by_name = {name: option for option in options for name in option.names}
    exactly = any(option.least for option in options)
    result = Parsed()
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            result.arguments += words
            break
        if not word.startswith("-") or word == "-" or _is_number(word):
            result.arguments.append(word)
            continue
        body, _, attached = word.lstrip("-").partition("=") if word.startswith("--") else (word[1:], "", "")
        name, _, letters = body.partition(":")
        option = _begun(name, options, whole=word.startswith("--")) if exactly else None
        option = option or _find(name, by_name)
        if letters and not option.letters:
            raise UsageError(f"-{name} takes nothing after a colon")
        values = result.values.setdefault(option.names[0], [])
        before = len(values)
        if letters:
            result.letters[option.names[0]] = letters
        if attached:
            if not option.takes:
                raise UsageError(f"-{name} takes no value")
            values.append(attached)
        elif option.takes == "one":
            if not words:
                raise UsageError(f"-{name} wants a value: -{name} {option.metavar}")
            values.append(words.pop(0))
        elif option.takes == "two":
            if len(words) < 2:
                raise UsageError(f"-{name} wants two values: -{name} {option.metavar}")
            values += [words.pop(0), words.pop(0)]
        elif option.takes in ("many", "some"):
            while words and (not words[0].startswith("-") or (not option.least and _is_value(words[0]))):
                values.append(words.pop(0))
            if option.takes == "many" and len(values) == before:
                raise UsageError(f"-{name} wants at least one value: -{name} {option.metavar}")
            if option.least and words and words[0] == "-":
                words.pop(0)  # it ends the values
        result.order.append((option.names[0], letters, values[before:]))
    return result


def _begun(name: str, options: Sequence[Option], *, whole: bool) -> Option | None:
    """The first option that a word means, as HTCondor has it."""
    for option in options:
        for known in option.names if option.least else ():
            if name == known or (not whole and 0 < option.least <= len(name) and known.startswith(name)):
                return option
    return None


def _find(name: str, by_name: dict[str, Option]) -> Option:
    exact = by_name.get(name) or (by_name.get(name.lower()) if len(name) > 1 else None)  # -S is another than -s
    if exact is not None and not exact.least:
        return exact
    begun = {
        id(option): option
        for known, option in by_name.items()
        if len(name) > 1 and known.startswith(name.lower()) and not option.least
    }
    if len(begun) == 1:
        return next(iter(begun.values()))
    if begun:
        choices = ", ".join(f"-{o.names[0]}" for o in begun.values())
        raise UsageError(f"-{name} could be {choices}: write more of it")
    near = difflib.get_close_matches(name, by_name, 1)
    raise UnknownOption(name, f"did you mean -{near[0]}?" if near else "see -help")


def _is_value(word: str) -> bool:
    return word == "-" or _is_number(word)


def _is_number(word: str) -> bool:
    return word[1:].replace(".", "", 1).isdigit()


def usage(command: str, arguments: str, summary: str, options: Sequence[Option]) -> str:
    """The text of `roost COMMAND -help`."""
    lines = [f"usage: roost {command} [options] {arguments}".rstrip(), "", summary, ""]
    rows = []
    for option in options:
        names = ", ".join(f"-{name}" for name in option.names)
        letters = "[:letters]" if option.letters and option.takes != "one" else "[:form]" if option.letters else ""
        rows.append((f"{names}{letters} {option.metavar}".rstrip(), option.help))
    width = min(34, max((len(left) for left, _ in rows), default=0))
    lines += [f"  {left:<{width}}  {text}" for left, text in rows]
    return "\n".join(lines)
