"""Surroundings for daemons in tests: one hub, one store, real time unless a clock is given."""

from pathlib import Path

import structlog

from shared.bus.memory import MemoryBus, MemoryHub
from shared.daemon.context import Context
from shared.state.embedded import EmbeddedStore


def make_context(
    subsystem, name="node1", *, hub=None, bus=None, store=None, config=None, directory=None, clock=None
) -> Context:
    """A context as the personal pool makes it. The caller starts and stops bus and store.

    subsystem: "STARTD", say: the bus signs as "startd.<name>". config: settings as a dict of texts, or a Config."""
    if config is None or isinstance(config, dict):
        from shared.config import load_config

        # tmp_path is nobody else's, and all of the tests' jobs are their own. Nor need hundreds of startds measure this
        # machine.
        ours = {"ROOST_OWN_USERS": "*", "RUNBENCHMARKS": "false"} if subsystem == "STARTD" else {}
        knobs = {"UID_DOMAIN": "pool"} | ours | (config or {})
        overrides = {f"_CONDOR_{knob}": str(value) for knob, value in knobs.items()}
        config = load_config([], subsystem=subsystem, env=overrides)
    directory = Path(directory or "/nonexistent")
    extra = {} if clock is None else {"clock": clock}
    return Context(
        name=name,
        config=config,
        bus=bus or MemoryBus(hub or MemoryHub(), sender=f"{subsystem.lower()}.{name}"),
        store=store or EmbeddedStore(),
        spool=directory / "spool",
        execute=directory / "execute",
        log=structlog.stdlib.get_logger().bind(daemon=subsystem.lower(), name=name),
        **extra,
    )
