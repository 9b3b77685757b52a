"""How fast the execution point is.

    python -m bench.startd [launching]     # from a claim to a running process; short jobs per second
    python -m bench.startd --docker        # the same with containers, against `docker run` (engine: DOCKER_HOST)
    python -m bench.startd policies        # 1,000 dynamic slots: all policies, doing nothing, one claim more

Figures are medians and the 95th of a hundred; say with them how busy the machine was.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys

import structlog

from bench.startd import launching, policies


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.startd", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("launching", "policies"), default="launching")
    parser.add_argument("--jobs", type=int, default=500, help="a tenth of them with --docker")
    parser.add_argument("--docker", action="store_true", help="containers instead of processes")
    parser.add_argument("--image", default="debian:bookworm-slim")
    parser.add_argument("--as-root", action="store_true", help="jobs run as this user, where that is root")
    parser.add_argument("--slots", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--idle", type=float, default=20.0, help="seconds")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    before = os.getloadavg()[0]
    work = policies.measure(options) if options.what == "policies" else launching.measure(options)
    for text in asyncio.run(work):
        print(text)
    print(f"load of the machine: {before:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
