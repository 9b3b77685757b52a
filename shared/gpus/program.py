"""GPU discovery as a program: `roost gpu-discovery`, and what MACHINE_RESOURCE_INVENTORY_GPUs runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shared.gpus.discovery import render
from shared.gpus.libraries import DriverLibraries
from shared.gpus.model import Backend
from shared.gpus.options import USAGE, BadOption, parse
from shared.gpus.simulated import Simulated

Say = Callable[[str], object]


def discover(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    out: Say,
    errors: Say,
    backend: Backend | None = None,
) -> int:
    """The exit status. `out` and `errors` take text as it is."""
    try:
        options = parse(argv)
        if options.help:
            out(USAGE)
            return 0
        if options.simulate is not None:
            backend = Simulated(options.simulate)
    except BadOption as error:
        errors(f"{error}\n{USAGE}")
        return 1
    source = backend or DriverLibraries()
    found = source.find(opencl=options.kind != "cuda", dynamic=options.dynamic)
    if options.verbose:
        errors("".join(f"{one}\n" for one in found.troubles))
    # What the environment hides from programs is hidden from us: the slot of a startd that is itself a job.
    simulated = options.simulate is not None
    named = (
        ""
        if simulated
        else ",".join(environment.get(one, "") for one in ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"))
    )
    visible = [one.strip() for one in named.split(",") if one.strip()]
    out(render(found, options, visible))
    return 0
