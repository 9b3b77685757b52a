"""Makes a daemon with its configuration, also where something unusable was set over the bus."""

from __future__ import annotations

from collections.abc import Callable

from shared.config import Config
from shared.config.dynamic import Dynamic
from shared.config.errors import Problem
from shared.daemon.base import Daemon
from shared.daemon.context import Context
from shared.daemon.off_daemon import OffDaemon
from shared.daemon.off_mark import read_off_mark
from shared.errors import RoostError


def set_config_loader(context: Context, load: Callable[[Dynamic], Config]) -> None:
    """Have its configuration read again by this, with what was set until the restart on top."""
    context.rehearse = load
    context.reread = lambda: load(Dynamic(context.runtime))


def make_daemon_or_reset(daemon_class: type[Daemon], context: Context) -> Daemon:
    """As `make_daemon`. A daemon that can not be made with what was set for good (`config-val -set`) is made
    without that, and tells: nobody could unset it otherwise. Raises what making it raises."""
    try:
        return make_daemon(daemon_class, context)
    except (RoostError, ValueError) as error:
        config, file = context.config, context.config.persistent_file
        if not config.persistent or context.rehearse is None:
            raise
        context.config = context.rehearse(Dynamic(persistent={}))
        daemon = make_daemon(daemon_class, context)
        told = Problem(f"all that was set with config-val in {file} is left out: {error}", None, "unset what is wrong")
        context.config.warnings = (*config.warnings, told)
        return daemon


def make_daemon(daemon_class: type[Daemon], context: Context) -> Daemon:
    """The daemon, or an OffDaemon in its place while it is off. Raises what making the daemon raises."""
    if read_off_mark(context, daemon_class.subsystem) is None:
        return daemon_class(context)
    same = {"subsystem": daemon_class.subsystem, "uses_store": daemon_class.uses_store}
    kind = type(f"{daemon_class.__name__}Off", (OffDaemon,), same)
    daemon: Daemon = kind(context)
    return daemon
