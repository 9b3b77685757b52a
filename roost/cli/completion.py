"""Completion of command lines: `roost completion bash | zsh | fish` prints a few lines for the shell, which ask `roost
completion -words` at each TAB. `complete` decides, without I/O, what may come next.

The options are those that the commands declare; nothing is written down twice. Values of the pool (jobs, machines,
users, schedds) are asked for with a short time limit, and kept for some seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roost.cli.options import Option, flag, parse, usage
from roost.cli.output import say
from roost.errors import UsageError
from shared.errors import RoostError

if TYPE_CHECKING:
    from roost.client import Client
    from shared.classad import ClassAd

#: Instead of a word: names of files, which shells know best.
FILES: Final = ":files"
#: What a value is of, by the name that -help gives it, and by the command for -name.
_KINDS: Final = {
    "FILE": "files", "DIR": "files", "JOB": "jobs", "MACHINE": "machines", "HOST": "machines", "SCHEDD": "schedds",
    "USER": "users", "OWNER": "users", "SUBMITTER": "users", "LEVEL": "levels", "DAEMON": "daemons", "KIND": "daemons",
}  # fmt: skip
#: Of which ads the attributes are that a command takes (metavar ATTR).
_ATTRIBUTES: Final = {
    **dict.fromkeys(("q", "history", "qedit", "wait"), "job attributes"),
    **dict.fromkeys(("status", "update-machine-ad"), "machine attributes"),
}
#: What the arguments of commands are.
_ARGUMENTS: Final[dict[str, str]] = {
    **dict.fromkeys(("q", "rm", "hold", "release", "suspend", "continue", "vacate-job"), "jobs"),
    **dict.fromkeys(("qedit", "prio", "exec", "tail", "analyze"), "jobs"),
    **dict.fromkeys(("explain", "wait", "transfer-data", "history"), "jobs"),
    **dict.fromkeys(("status", "vacate", "drain", "undrain", "off", "on", "reconfig", "restart", "power"), "machines"),
    **dict.fromkeys(("submit", "update-machine-ad", "condor-names"), "files"),
    "config-val": "knobs", "userprio": "users", "ping": "levels", "completion": "shells", "token": "token",
}  # fmt: skip
#: Values that never change.
FIXED: Final[dict[str, tuple[str, ...]]] = {
    "levels": ("READ", "WRITE", "ADMINISTRATOR"),
    "daemons": ("startd", "schedd", "negotiator", "collector", "had", "gateway"),
    "shells": ("bash", "zsh", "fish"),
    "token": ("create", "list", "revoke"),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    word: str
    about: str = ""


#: Kind -> its values, asked only when they are wanted.
Values = Callable[[str], Sequence[str]]


def complete(
    words: Sequence[str],
    commands: Mapping[str, str],
    options_of: Callable[[str], Sequence[Option]],
    values: Values,
) -> list[Candidate]:
    """words: those behind `roost`, the last one is being typed (perhaps ""). commands: name -> a line about it."""
    *before, last = words or [""]
    if not before:
        return [Candidate(name, about) for name, about in commands.items() if name.startswith(last)]
    command = before[0]
    if command == "help":
        return [Candidate(name, about) for name, about in commands.items() if name.startswith(last)]
    if command not in commands:
        return []
    options = options_of(command)
    wanting = _wanting(before[1:], options)
    if wanting is not None and not (wanting.takes in ("many", "some") and last.startswith("-")):
        return _of_kind(_kind_of_value(wanting, command), last, values)
    if command == "exec" and any(not word.startswith("-") for word in before[1:]):
        return [Candidate(FILES)]  # a program's words
    if last.startswith("-"):
        dashes = "--" if last.startswith("--") else "-"
        return [
            Candidate(dashes + name, option.help)
            for option in options
            for name in option.names
            if (dashes + name).startswith(last) and (len(name) > 1 or len(last) == 2)
        ]
    return _of_kind(_ARGUMENTS.get(command, ""), last, values)


def _wanting(before: Sequence[str], options: Sequence[Option]) -> Option | None:
    """The option whose value is being typed."""
    by_name = {name: option for option in options for name in option.names}
    at = 0
    while at < len(before):
        word = before[at]
        at += 1
        if not word.startswith("-") or len(word) < 2:
            continue
        option = by_name.get(word.lstrip("-").partition(":")[0])
        if option is None or not option.takes:
            continue
        if option.takes in ("many", "some"):
            while at < len(before) and not before[at].startswith("-"):
                at += 1
            wants = True
        else:
            number = 2 if option.takes == "two" else 1
            wants = len(before) - at < number
            at += number
        if wants and at >= len(before):
            return option
    return None


def _kind_of_value(option: Option, command: str) -> str:
    wanted = option.metavar.strip("[].").split(" ")[0].removesuffix("...")
    if wanted == "NAME" and option.names[0] == "name":
        return "machines"
    return _ATTRIBUTES.get(command, "") if wanted == "ATTR" else _KINDS.get(wanted, "")


def _of_kind(kind: str, last: str, values: Values) -> list[Candidate]:
    if kind == "files":
        return [Candidate(FILES)]
    if not kind:
        return []
    # Names of users, machines and knobs are typed in any case.
    return [Candidate(word) for word in FIXED.get(kind) or values(kind) if word.lower().startswith(last.lower())]


OPTIONS: Final[tuple[Option, ...]] = (flag("help", "h", help="show this help"),)
#: How long the pool may take to answer, and how long an answer is good for, seconds.
LIMIT_S, FRESH_S = 1.0, 10.0
#: Of values that are shown: nobody reads more.
MOST: Final = 2000

BASH: Final = r"""# bash completion of roost; in ~/.bashrc: source <(roost completion bash)
_roost() {
    local word rest current="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=()
    while IFS=$'\t' read -r word rest; do
        if [[ $word == :files ]]; then
            compopt -o default 2>/dev/null
            while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$current")
        else
            COMPREPLY+=("$word")
        fi
    done < <("${COMP_WORDS[0]}" completion -words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _roost roost
"""
ZSH: Final = r"""#compdef roost
# zsh completion of roost; in ~/.zshrc, after compinit: source <(roost completion zsh)
_roost() {
    local line word
    local -a found shown
    while IFS= read -r line; do
        word="${line%%$'\t'*}"
        if [[ $word == :files ]]; then
            _files
        else
            found+=("$word")
            shown+=("${line//$'\t'/ -- }")
        fi
    done < <("${words[1]}" completion -words "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( ${#found} )) && compadd -l -d shown -a found
}
(( $+functions[compdef] )) && compdef _roost roost
"""
FISH: Final = r"""# fish completion of roost; in ~/.config/fish/config.fish: roost completion fish | source
function __roost_complete
    set -l words (commandline -opc) (commandline -ct)
    for line in ($words[1] completion -words $words[2..-1] 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c roost -f -a '(__roost_complete)'
"""
_SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def run(command: str, argv: list[str]) -> int:
    if argv and argv[0] == "-words":
        return _words(argv[1:])
    parsed = parse(argv, OPTIONS)
    if parsed.has("help") or not parsed.arguments:
        say(usage(command, "bash | zsh | fish", "What the shell is to read: source <(roost completion bash)", OPTIONS))
        return 0 if parsed.has("help") else 1
    if len(parsed.arguments) != 1 or parsed.arguments[0] not in _SCRIPTS:
        raise UsageError(f"{' '.join(parsed.arguments)}: the shells are {', '.join(_SCRIPTS)}")
    sys.stdout.write(_SCRIPTS[parsed.arguments[0]])
    return 0


def _words(words: Sequence[str]) -> int:
    from roost.cli.main import COMMANDS

    about = {name: line for name, (_, line) in COMMANDS.items()}
    for candidate in complete(words, about, options_of, values)[:MOST]:
        say(f"{candidate.word}\t{candidate.about}" if candidate.about else candidate.word)
    return 0


def options_of(command: str) -> Sequence[Option]:
    """What the module of a command declares: OPTIONS for all of its commands or for each, or a name of its own."""
    from roost.cli.main import COMMANDS

    module: Any = importlib.import_module(f"roost.cli.{COMMANDS[command][0]}")
    own = getattr(module, command.upper().replace("-", "_"), None)
    found = own if own is not None else getattr(module, "OPTIONS", ())
    return tuple(found.get(command, ()) if isinstance(found, dict) else found)


def values(kind: str) -> list[str]:
    """Of the pool, as they were some seconds ago at most; none if it does not answer at once."""
    if kind == "knobs":
        from shared.config.knobs import KNOBS

        return sorted(knob.name for knob in KNOBS.values() if "<" not in knob.name)
    file = _cache(kind)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(file.read_text())
        if 0 <= time.time() - float(kept["at"]) < FRESH_S:
            return [str(word) for word in kept["words"]]
    try:
        found = _ask(kind)
    except (RoostError, OSError):
        found = []
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = file.with_name(f"{file.name}.{os.getpid()}")
        new.write_text(json.dumps({"at": time.time(), "words": found}))
        new.replace(file)
    return found


def _cache(kind: str) -> Path:
    import hashlib

    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    pool = "|".join(os.environ.get(name, "") for name in ("ROOST_URL", "ROOST_POOL_DIR", "ROOST_TOKEN_FILE"))
    return Path(base) / "roost" / f"completion-{hashlib.sha256(pool.encode()).hexdigest()[:12]}-{kind}"


def _ask(kind: str) -> list[str]:
    from roost.client import Client

    with Client(timeout=LIMIT_S) as client:
        if kind == "jobs":
            jobs = client.jobs(projection=("ClusterId", "ProcId"), limit=MOST)
            found = [f"{ad.eval('ClusterId')}.{ad.eval('ProcId')}" for ad in jobs]
            clusters = dict.fromkeys(word.partition(".")[0] for word in found)
            return [*clusters, *found]
        if kind.endswith(" attributes"):
            return sorted({name for ad in _examples(client, kind) for name in ad}, key=str.lower)
        if kind == "users":
            names = (ad.eval("Name") for ad in client.priorities())
        elif kind == "machines":
            names = (ad.eval("Machine") for ad in client.ads("Machine", projection=("Machine",), limit=MOST))
        else:
            names = (ad.eval("Name") for ad in client.ads("Scheduler", projection=("Name",), limit=MOST))
        return sorted({name for name in names if isinstance(name, str)})[:MOST]


def _examples(client: Client, kind: str) -> Iterator[ClassAd]:
    """Some ads that have the attributes there are."""
    if kind == "machine attributes":
        yield from client.ads("Machine", limit=2)
        return
    for history in (False, True):  # one that has run has more
        yield from client.jobs(limit=2, history=history)
