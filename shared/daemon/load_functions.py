"""Loads the pool's functions into Redis, for whoever sets a pool up: `python -m shared.daemon.load_functions [--only]`.

Redis is the one at ROOST_REDIS_URL, whose user must be allowed FUNCTION LOAD (of the compose pool: `loader`). It may be
run again at any time, also while the pool works: a library that is there stays as it is. Those of other releases stay
too, as daemons of these may still run; --only takes them away. Exit status: 0 done, 1 Redis refused or did not
answer within five minutes, 78 wrong configuration.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Final

from shared.config import ConfigError, load_config
from shared.config.knobs.tls import TlsSettings
from shared.errors import RoostError
from shared.state.redis_store import RedisStore
from shared.state.urls import BadUrl, parse
from shared.tls import ClientTls

PATIENCE_S: Final = 300.0
EXIT_FAILED, EXIT_CONFIG = 1, 78


def main(argv: Sequence[str]) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m shared.daemon.load_functions", allow_abbrev=False)
    parser.add_argument("--only", action="store_true", help="take the libraries of other releases away")
    options = parser.parse_args(argv)
    try:
        config = load_config(None, subsystem="TOOL", env=os.environ)
        url = config.get("ROOST_REDIS_URL")
        if not url:
            raise BadUrl("ROOST_REDIS_URL is not set: say where Redis is, e.g. ROOST_REDIS_URL = redis://host/0")
        tls, rest = ClientTls.of(TlsSettings.from_config(config)).for_url(url)
        store = RedisStore(parse(rest), tls=tls, retry_s=PATIENCE_S)
    except (ConfigError, RoostError) as error:
        sys.stderr.write(f"load_functions: {error}\n")
        return EXIT_CONFIG
    try:
        for line in asyncio.run(_load(store, only=options.only)):
            sys.stdout.write(f"{line}\n")
    except RoostError as error:
        sys.stderr.write(f"load_functions: {error}\n")
        return EXIT_FAILED
    return 0


async def _load(store: RedisStore, *, only: bool) -> list[str]:
    try:
        told = [await store.load_functions()]
        if only:
            told += [f"{name} is deleted" for name in await store.forget_functions()]
        return told
    finally:
        await store.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
