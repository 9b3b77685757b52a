"""`python -m services.master [-f] [-config FILE] [-pidfile FILE]`: the daemons that DAEMON_LIST names, kept alive.

It is no member of the bus and knows no password of its own: what it starts reads its own. SIGTERM ends all, SIGHUP has
the configuration read again, by the master and by the daemons.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from services.master.core.daemon_words import Listed, read
from services.master.core.supervision import Supervision
from services.master.master import Master
from shared import private_files
from shared.config import Config, ConfigError, load_config
from shared.config.knobs.master import MasterSettings
from shared.daemon import instance_lock, logs
from shared.daemon.main import EXIT_CONFIG, EXIT_DIED, spool_of
from shared.daemon.systemd import Systemd

#: Seconds that a daemon has for its end beyond what it allows itself (shared.daemon.lifecycle: 10 s twice).
_STOP_S: Final = 25.0


def main(argv: Sequence[str]) -> int:
    """Returns the exit status: 0 stopped, 1 there is one already, 78 wrong configuration."""
    options = _arguments().parse_args(argv)
    if options.config is not None:
        os.environ["CONDOR_CONFIG"] = str(options.config.absolute())  # of the daemons, too
        os.environ.pop("ROOST_CONFIG", None)
    try:
        config = load_config(subsystem="MASTER", env=os.environ)
        settings = MasterSettings.from_config(config)
        listed = _listed(config)
        spool = spool_of(config)
        private_files.make_directory(spool)
        instance_lock.acquire(spool, "MASTER", "master")
    except instance_lock.AlreadyRunning as error:
        sys.stderr.write(f"master: {error}\n")
        return EXIT_DIED
    except (ConfigError, ValueError, OSError) as error:
        sys.stderr.write(f"master: {error}\n")
        return EXIT_CONFIG
    logs.configure(logs.level_of(config.get("MASTER_DEBUG"), config.get("ALL_DEBUG")))
    supervision = Supervision(float(settings.not_responding_timeout), _STOP_S)
    if options.pidfile:
        options.pidfile.write_text(f"{os.getpid()}\n")
    try:
        Master(_read_again, supervision, Systemd.of(os.environ)).run(listed)
    finally:
        if options.pidfile:
            options.pidfile.unlink(missing_ok=True)
    return 0


def _read_again() -> Listed:
    return _listed(load_config(subsystem="MASTER", env=os.environ))


def _listed(config: Config) -> Listed:
    """Raises ValueError for a list that names nothing: it is more likely a mistake than the wish to end all."""
    found = read(config)
    if not found.programs:
        raise ValueError("DAEMON_LIST names no daemon to run: say which, e.g. DAEMON_LIST = MASTER STARTD")
    return found


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m services.master", allow_abbrev=False, description="Starts the daemons that DAEMON_LIST names."
    )
    parser.add_argument("-f", action="store_true", help="run in the foreground (always so; for HTCondor's habit)")
    parser.add_argument("-t", action="store_true", help="log to the terminal (always so)")
    parser.add_argument("-config", "--config", type=Path, default=None, help="configuration file to begin with")
    parser.add_argument("-pidfile", "--pidfile", type=Path, default=None, help="write the process id there")
    return parser
