"""Runs the programs that tell which custom resources a machine has (MACHINE_RESOURCE_INVENTORY_<name>).

One that can not be started is a mistake of the configuration, and refused. One that hangs, fails or prints what nobody
can read (a broken GPU driver) costs the machine this resource, not its other ones: it is told loudly.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from typing import Any, Protocol

from services.startd.machine.refusal import ImpossiblePartition
from services.startd.machine.resources import Output, programs
from shared.config import Config
from shared.config.knobs import StartdSettings
from shared.program import ProgramFailed, clean_environment, run

#: Names under which files call for GPU discovery: where no such program is installed, ours is meant.
DISCOVERY = ("condor_gpu_discovery", "gpu_discovery", "roost-gpu-discovery")


class Log(Protocol):
    def warning(self, event: str | None = None, *args: Any, **kw: Any) -> Any: ...


async def take_inventory(config: Config, log: Log, environment: Mapping[str, str] | None = None) -> dict[str, Output]:
    """What the programs say, by resource. Raises ImpossiblePartition."""
    wanted = programs(config)
    if not wanted:
        return {}
    knobs = StartdSettings.from_config(config)
    timeout = knobs.roost_inventory_timeout
    env = clean_environment(os.environ if environment is None else environment)
    found = await asyncio.gather(*(_ask(name, line, timeout, env, log) for name, line in wanted.items()))
    return dict(zip(wanted, found, strict=True))


async def _ask(name: str, line: str, timeout_s: float, env: Mapping[str, str], log: Log) -> Output:
    knob = f"MACHINE_RESOURCE_INVENTORY_{name}"
    try:
        # Blanks part the words, quotes are characters like others: as HTCondor reads it.
        ended = await run(command(line.split()), env=env, timeout_s=timeout_s)
    except ProgramFailed as error:
        raise ImpossiblePartition(f"{knob} = {line}: {error}. Mend the path, or take the knob out") from error
    if ended.stderr:
        log.warning("inventory_stderr", resource=name, stderr=ended.stderr.decode("utf-8", "replace")[-1000:])
    text = ended.stdout.decode("utf-8", "replace")
    if ended.timed_out:
        return Output(trouble=f"it did not end within {timeout_s:g} s (ROOST_INVENTORY_TIMEOUT)")
    if ended.cut:
        return Output(trouble="it printed more than a resource can be")
    return Output(text, trouble="" if ended.good or text else f"it failed: {ended}")


def command(argv: list[str]) -> list[str]:
    """The words to run: GPU discovery is part of the product, wherever files say that it lies."""
    if argv and os.path.basename(argv[0]) in DISCOVERY and not os.access(argv[0], os.X_OK):
        return [sys.executable, "-m", "shared.gpus", *argv[1:]]
    return argv
