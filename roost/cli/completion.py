"""`roost completion bash | zsh | fish`: a few lines for the shell, which ask `roost completion -words` at each TAB.

What options there are, the commands declare; nothing is written down twice. Values of the pool (jobs, machines, users,
schedds) are asked for with a short time limit, and kept for some seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from roost.cli.options import Option, flag, parse, usage
from roost.cli.output import say
from roost.completing import complete
from roost.errors import UsageError
from shared.errors import RoostError

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
        if kind == "users":
            names = (ad.eval("Name") for ad in client.priorities())
        elif kind == "machines":
            names = (ad.eval("Machine") for ad in client.ads("Machine", projection=("Machine",), limit=MOST))
        else:
            names = (ad.eval("Name") for ad in client.ads("Scheduler", projection=("Name",), limit=MOST))
        return sorted({name for name in names if isinstance(name, str)})[:MOST]
