"""Calls cost the same at each depth of the stack: no memory comes and goes with them."""

import asyncio
import resource
from concurrent.futures import ThreadPoolExecutor

import pytest

from shared.call_stack import in_one_piece
from shared.daemon.main import loop_runner

CALLS, DEPTHS = 200, 300


def faults_of_calls():
    """Fresh pages that CALLS calls take, at the depth where they take the most."""
    return max(at_depth(depth) for depth in range(DEPTHS))


def at_depth(depth):
    if depth:
        return at_depth(depth - 1)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(CALLS):
        more(3)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def more(calls):
    """Frames that together are larger than one of `at_depth`, so at some depth they do not fit into what is left."""
    if calls:
        more(calls - 1)


async def in_a_loop():
    return faults_of_calls(), await asyncio.to_thread(faults_of_calls)


@pytest.mark.parametrize(
    "work",
    [lambda: in_one_piece(faults_of_calls), lambda: max(loop_runner()(in_a_loop()))],
    ids=["alone", "loop of a daemon and its threads"],
)
def test_no_depth_of_calls_is_dear(work):
    with ThreadPoolExecutor(1) as fresh:  # a thread whose stack no test before has made larger
        assert fresh.submit(work).result() < CALLS / 2


def test_work_has_its_arguments_and_its_errors_come_out():
    assert in_one_piece(int, "ff", base=16) == 255
    with pytest.raises(ValueError, match="invalid literal"):
        in_one_piece(int, "z")
