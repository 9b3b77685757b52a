"""What test_client.py and test_executor.py send to run as jobs."""

import os
import time
from pathlib import Path


def add(a, b=1):
    return {"sum": a + b}


def total(parts, *, more):
    """Of what add returned. more: by name; one call's value is one object there, wherever it stands."""
    assert all(one is parts[0] for one in more.values())
    return sum(part["sum"] for part in (*parts, *more.values()))


def refuse(number):
    raise ValueError(f"not {number}")


def unspeakable():
    return object()


class Point:
    """Pickled by the name of this module, wherever it is."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __eq__(self, other):
        return (self.x, self.y) == (other.x, other.y)

    __hash__ = None


class OddError(Exception):
    """Can be pickled, and not be read again."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")


def mirrored(point, *, scale=1):
    return Point(point.y * scale, point.x * scale)


def large(size):
    return b"x" * size


def fail_oddly():
    raise OddError(1, 2)


def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.05)
    return path


def second_time(path):
    """Fails, the first time."""
    if not Path(path).exists():
        Path(path).touch()
        raise RuntimeError("the first time")
    return "done"


def leave(code):
    os._exit(code)
