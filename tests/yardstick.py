"""How slow this machine is at the moment, for tests that hold work to an amount of processor time.

Such a limit is meant for a machine like the one that it was measured on. Processors are slower elsewhere, and wherever
others use the same caches: the same work then takes more processor time, not only more of the clock. So whoever found
something too dear does a piece of work that is always the same, next to it, and compares.
"""

import time

import msgpack

#: Processor seconds that `_work` takes on the machine that limits are meant for, quiet.
USUAL_S = 0.006
_PACKED = msgpack.packb([{f"{name} {number}": number for number in range(400)} for name in range(40)])


def _work() -> int:
    """Many small objects made, looked at and let go of, by a library and by plain Python, as a daemon's loop does."""
    total = 0
    for one in msgpack.unpackb(_PACKED):
        for name, number in one.items():
            if name.endswith("7"):
                total += len(name) * number
    return total


def slowness() -> float:
    """Times as much processor time as usual that work takes now; at least 1."""
    began = time.thread_time()
    _work()
    return max(1.0, (time.thread_time() - began) / USUAL_S)
