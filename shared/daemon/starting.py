"""How a daemon comes to its configuration and into being, also where something bad was set over the bus."""

from __future__ import annotations

from collections.abc import Callable

from shared.config import Config
from shared.config.dynamic import Dynamic
from shared.config.errors import Problem
from shared.daemon.base import Daemon
from shared.daemon.caretaker import life_of
from shared.daemon.context import Context
from shared.errors import RoostError


def read_by(context: Context, load: Callable[[Dynamic], Config]) -> None:
    """Have its configuration read again by this, with what was set until the restart on top."""
    context.rehearse = load
    context.reread = lambda: load(Dynamic(context.runtime))


def begin(daemon_class: type[Daemon], context: Context) -> Daemon:
    """The daemon, or its caretaker. One that can not be made with what was set for good (`config-val -set`) is made
    without that, and tells: nobody could unset it otherwise. Raises what making it raises."""
    try:
        return life_of(daemon_class, context)
    except (RoostError, ValueError) as error:
        config, file = context.config, context.config.persistent_file
        if not config.persistent or context.rehearse is None:
            raise
        context.config = context.rehearse(Dynamic(persistent={}))
        daemon = life_of(daemon_class, context)
        told = Problem(f"all that was set with config-val in {file} is left out: {error}", None, "unset what is wrong")
        context.config.warnings = (*config.warnings, told)
        return daemon
