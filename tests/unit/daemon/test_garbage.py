"""Each in a process of its own, as there is one garbage collector in a process."""

import subprocess
import sys

_HEAD = """
import asyncio, gc
from shared.daemon.garbage import THRESHOLDS, ShortCollections

async def main():
    collections = ShortCollections(long_s=LONG_S)
    before = gc.get_threshold()
    collections.start()
"""
_TAIL = """
    collections.stop()
    assert gc.get_threshold() == before and not gc.callbacks

asyncio.run(main())
"""


def run(body, long_s=0.0):
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    program = _HEAD.replace("LONG_S", str(long_s)) + lines + _TAIL
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_what_stays_is_frozen_after_a_collection_that_took_long():
    run(
        """
at_start = gc.get_freeze_count()
assert at_start > 1000
kept = [[n] for n in range(50_000)]
await asyncio.sleep(0)
assert gc.get_freeze_count() > at_start + 20_000
"""
    )


def test_what_stays_is_not_frozen_where_collections_are_short():
    run(
        """
at_start = gc.get_freeze_count()
kept = [[n] for n in range(50_000)]
await asyncio.sleep(0)
assert gc.get_freeze_count() <= at_start
""",
        long_s=60.0,
    )


_REQUESTS = """
from collections import deque

class Request:
    alive = 0
    def __init__(self):
        self.itself = self
        Request.alive += 1
    def __del__(self):
        Request.alive -= 1

most, under_way = 0, deque(maxlen=9_000)
for _ in range(300_000):
    under_way.append(Request())
    most = max(most, Request.alive)
assert most < len(under_way) + 2 * 700 * 10 * 3, most
"""


def test_garbage_that_waits_in_cycles_is_bounded():
    """Objects of requests that outlive a few looks at the young ones, as a busy gateway's do."""
    run(_REQUESTS, long_s=60.0)


def test_it_is_bounded_too_where_much_was_frozen():
    run("kept = [[n] for n in range(1_000_000)]\ngc.collect()\nawait asyncio.sleep(0)" + _REQUESTS)


def test_frozen_objects_go_as_ever_when_nobody_has_them_any_longer():
    run(
        """
kept = [[n] for n in range(50_000)]
await asyncio.sleep(0)
full = gc.get_freeze_count()
kept.clear()
assert gc.get_freeze_count() < full - 20_000
"""
    )
