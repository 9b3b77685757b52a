"""`python -m shared.gpus [options of discovery]`, and `python -m shared.gpus monitor SECONDS`."""

from __future__ import annotations

import os
import sys

from shared.gpus.monitor import monitor
from shared.gpus.program import discover


def main(argv: list[str]) -> int:
    if argv[:1] == ["monitor"]:
        return monitor(argv[1:], out=_say)
    # The libraries would hide GPUs of their own accord; discovery does it itself, and keeps CUDA's numbers.
    environment = dict(os.environ)
    for name in ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"):
        os.environ.pop(name, None)
    return discover(argv, environment=environment, out=_say, errors=sys.stderr.write)


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
