"""What a DAG costs whoever runs it: reading its file, and deciding what follows from each fact.

    python -m bench.dag [--nodes 10000]

Processor time, of one process without a pool: every node is submitted, runs and ends well, one after the other. Garbage
is not collected meanwhile, as a manager of DAGs has it while it reads: nothing of a DAG is garbage.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from engine.dag.language import finished, reading
from engine.dag.run import Begin, DagRun, Ended, Fact, JobEnded, JobIs, Limits, Submit, Submitted


def chain(nodes: int) -> str:
    return "".join(f"PARENT N{one} CHILD N{one + 1}\n" for one in range(nodes - 1))


def fan(nodes: int) -> str:
    middle = " ".join(f"N{one}" for one in range(1, nodes - 1))
    return f"PARENT N0 CHILD {middle}\nPARENT {middle} CHILD N{nodes - 1}\n"


def ladder(nodes: int) -> str:
    """Diamonds one below the other: each ends where the next begins."""
    return "".join(
        f"PARENT N{one} CHILD N{one + 1} N{one + 2}\nPARENT N{one + 1} N{one + 2} CHILD N{one + 3}\n"
        for one in range(0, nodes - 3, 3)
    )


def drawn(nodes: int) -> str:
    """Three edges a node, from seed 1."""
    rng = random.Random(1)
    lines = []
    for one in range(1, nodes):
        above = " ".join(f"N{rng.randrange(one)}" for _ in range(min(one, 3)))
        lines.append(f"PARENT {above} CHILD N{one}\n")
    return "".join(lines)


SHAPES: Final[dict[str, Callable[[int], str]]] = {"chain": chain, "fan": fan, "ladder": ladder, "random": drawn}


def play(run: DagRun) -> int:
    """Facts until the DAG is over."""
    waiting: deque[Fact] = deque([Begin()])
    facts = 0
    while waiting:
        facts += 1
        for action in run.apply(waiting.popleft(), 0.0):
            if isinstance(action, Submit):
                node = action.node
                waiting += (Submitted(node, 0, node, 1), JobIs(node, 0, 0, "R"), JobEnded(node, 0, 0, 0))
            elif isinstance(action, Ended) and action.exit_code:
                raise RuntimeError("the DAG has failed")
    return facts


def main() -> None:
    arguments = argparse.ArgumentParser(prog="bench.dag", description="What a DAG costs whoever runs it.")
    arguments.add_argument("--nodes", type=int, default=10_000)
    nodes = arguments.parse_args().nodes
    gc.disable()
    print(f"| {nodes} nodes | read, ms | longest step, ms | a fact, us |\n|---|---:|---:|---:|")
    for name, shape in SHAPES.items():
        text = "".join(f"JOB N{one} node.sub\n" for one in range(nodes)) + shape(nodes)
        began = time.process_time()
        finished_dag = finished(reading([name], lambda _, text=text: text))  # type: ignore[misc]
        read = time.process_time() - began
        longest, steps = 0.0, reading([name], lambda _, text=text: text)  # type: ignore[misc]
        while True:
            began = time.process_time()
            try:
                next(steps)
            except StopIteration:
                break
            finally:
                longest = max(longest, time.process_time() - began)
        run = DagRun(finished_dag, Limits())
        began = time.process_time()
        facts = play(run)
        each = (time.process_time() - began) / facts
        print(f"| {name} | {read * 1000:.0f} | {longest * 1000:.1f} | {each * 1e6:.1f} |")


if __name__ == "__main__":
    main()
