"""Carries out orders that set macros of a daemon: `config-val -set` and `-unset` for good, `-rset` and `-runset` until
it restarts. As in HTCondor they take effect with the next `reconfig`, or the next start.

An order is carried out as a whole or not at all: the resulting configuration is read first, down to the daemon's typed
settings, and what can not be used is refused with its mend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from shared.config import Config, ConfigError
from shared.config.dynamic import RUNTIME, Dynamic, as_texts, changed, is_on, read, render
from shared.config.errors import Problem, Source
from shared.config.knobs import KNOBS, SETTINGS
from shared.config.macros import Macro
from shared.config.settable import MOST_MACROS, misnamed, of_another, refusal, unscoped, unusable
from shared.config.spelling import misspelt
from shared.daemon.base import Daemon
from shared.daemon.config_query import printable
from shared.errors import PermanentError
from shared.files import replace_on_disk
from shared.messages.orders import OrderTaken, SetConfig

#: Subsystems whose names before a dot are scopes.
SCOPES: Final = ("MASTER", "TOOL", *(settings.SUBSYSTEM for settings in SETTINGS))

_ASKED: Final = Source("what was asked for")


async def set_config(daemon: Daemon, asked: SetConfig, at_start: Sequence[str]) -> OrderTaken:
    """Carry out an order. at_start: patterns of what a daemon reads only as it starts. Raises PermanentError
    (ConfigError too), OSError, and has changed nothing then."""
    context = daemon.context
    if context.rehearse is None:
        raise PermanentError("there are no configuration files that could be read again")
    async with daemon.rereading:
        config = await asyncio.to_thread(context.rehearse, Dynamic(runtime=context.runtime))
        check(asked, config)
        kept = await asyncio.to_thread(_on_disk, config) if asked.persistent else context.runtime
        after = changed(kept, {name: text.strip() for name, text in asked.set.items()}, asked.unset)
        if len(after) > MOST_MACROS:
            raise PermanentError(f"{len(after)} macros would be set here; unset some, {MOST_MACROS} are the most")
        if asked.persistent:
            trial = Dynamic(context.runtime, after, trial=bool(asked.set))
        else:
            trial = Dynamic(after, None, trial=bool(asked.set))
        found = await asyncio.to_thread(context.rehearse, trial)
        if asked.set:
            check_trial(asked, found)
            daemon.check(found)
        if asked.persistent:
            assert config.persistent_file is not None  # checked
            await asyncio.to_thread(replace_on_disk, config.persistent_file, render(after).encode(), 0o600)
        else:
            context.runtime = after
    shown = {name: printable(name, text)[:200] for name, text in asked.set.items()}
    context.log.info("config_set", persistent=asked.persistent, set=shown, unset=asked.unset, by=asked.by[:200])
    return OrderTaken(said=summary(asked, kept, config, at_start))


def check(asked: SetConfig, config: Config) -> None:
    """Whether this may be asked for at all. Pure. Raises PermanentError."""
    base = config.base
    if asked.persistent and config.persistent_file is None:
        raise PermanentError(
            "nothing can be set for good here: have ENABLE_PERSISTENT_CONFIG = true and PERSISTENT_CONFIG_DIR in the "
            "daemon's files, or set it until the restart with -rset"
        )
    if not asked.persistent and not is_on(base.get("ENABLE_RUNTIME_CONFIG")):
        raise PermanentError(
            "nothing can be set until the restart here: have ENABLE_RUNTIME_CONFIG = true in the daemon's files"
        )
    names = [*asked.set, *asked.unset]
    if not names:
        raise PermanentError("there is nothing to set or unset: name a macro")
    if len({name.lower() for name in names}) < len(names):
        raise PermanentError("a macro is named twice: name each once")
    for name in names:
        why = (
            misnamed(name)
            or of_another(name, base.subsystem, base.local_name, SCOPES)
            or refusal(name, asked.level, base.subsystem, base.local_name, base.get)
        )
        if why:
            raise PermanentError(why)
    for name, text in asked.set.items():
        if why := unusable(text.strip()):
            raise PermanentError(f"{name} can not be set to {why}")


def check_trial(asked: SetConfig, trial: Config) -> None:
    """Whether the daemon could go by it, and would. Pure. Raises ConfigError."""
    problems: list[Problem] = []
    set_here = {RUNTIME, *(macro.source for macro in trial.persistent)}
    for name in asked.set:
        plain = unscoped(name, trial.subsystem, trial.local_name)
        row = trial.table.find(plain)
        if row is not None and row.name.lower() != name.lower():
            problems.append(
                Problem(f"{name} would have no effect, as {row.name} counts", row.source, f"set {row.name}")
            )
        elif row is None or row.source not in set_here:
            source = row.source if row is not None else None
            problems.append(Problem(f"{name} would have no effect, as it is set there", source, "change it there"))
        try:
            trial.get(plain)
        except ConfigError as error:
            problems.extend(error.problems)
    wanted = {name.lower() for name in asked.set}
    rows = [Macro(m.name, m.text, _ASKED) if m.name.lower() in wanted else m for m in trial.macros()]
    problems += [problem for problem in misspelt(rows, KNOBS) if problem.source == _ASKED]
    if problems:
        raise ConfigError(problems)


def summary(asked: SetConfig, kept: Mapping[str, str], config: Config, at_start: Sequence[str]) -> str:
    """What an order that is carried out means, for people. kept: what was set before. Pure."""
    there = {name.lower() for name in kept}
    gone = [name for name in asked.unset if name.lower() in there]
    never = [name for name in asked.unset if name.lower() not in there]
    parts = []
    if asked.set:
        where = f"in {config.persistent_file}" if asked.persistent else "until it restarts"
        parts.append(f"{', '.join(asked.set)} set {where}")
    if gone:
        parts.append(f"{', '.join(gone)} unset")
    if never:
        parts.append(f"{', '.join(never)} was not set {'for good' if asked.persistent else 'until the restart'}")
    names = [unscoped(name, config.subsystem, config.local_name).upper() for name in (*asked.set, *gone)]
    if any(fnmatchcase(name, pattern) for name in names for pattern in at_start):
        parts.append(
            "it takes effect with `roost restart`" if asked.persistent else "but it is read as the daemon starts only"
        )
    elif names:
        parts.append("it takes effect with `roost reconfig`")
    return "; ".join(parts)


def _on_disk(config: Config) -> dict[str, str]:
    """All that was set for good, also what is left out at the moment. What can not be read is replaced."""
    assert config.persistent_file is not None
    macros, _ = read(config.persistent_file, refused_too=True)
    return as_texts(macros)
