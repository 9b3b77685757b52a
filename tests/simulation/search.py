"""bin/sim: tells histories for as long as one likes, shrinks what goes wrong to the fewest faults, and keeps it.

What it keeps (`CORPUS`) is told by every run of the tests from then on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.loop import Stuck
from tests.simulation.run import Story, play
from tests.simulation.seeds import WHOLE_FROM

#: Histories that once went wrong, one a line: see `Kept`.
CORPUS = Path(__file__).parents[1] / "data" / "sim" / "corpus.jsonl"
#: The command says how far it is every so many seconds.
TELL_EVERY_S = 60.0
#: Processor time that a history may take, seconds: they take about one, and one that circles for ever counts as wrong.
MOST_S = 120.0
#: Fresh seeds begin at random below this.
FRESH = 1_000_000_000


@dataclass(frozen=True)
class Kept:
    """A history that once went wrong. was: what the mistake was. only: the faults that it takes; None: all of the
    seed's. story, wrong: what was done and what was seen when it was found."""

    seed: int
    was: str
    only: tuple[int, ...] | None = None
    story: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    @classmethod
    def of(cls, story: Story) -> Kept:
        told = tuple(f"{at:.3f} {what}" for at, what in story.faults)
        return cls(story.seed, story.wrong[0], story.only, told, tuple(story.wrong[:20]))

    def line(self) -> str:
        known = {"seed": self.seed, "was": self.was, "only": self.only, "story": self.story, "wrong": self.wrong}
        return json.dumps({name: value for name, value in known.items() if value is not None}) + "\n"


def kept(corpus: Path = CORPUS) -> list[Kept]:
    """What was found so far."""
    found = []
    for line in corpus.read_text().splitlines():
        known = json.loads(line)
        found.append(
            Kept(**{name: tuple(value) if isinstance(value, list) else value for name, value in known.items()})
        )
    return found


def tell(seed: int, only: Sequence[int] | None = None) -> Story:
    """`play` in a process of its own, for as long as a history may take."""

    def give_up(number: int, frame: object) -> None:
        raise Stuck(f"it took more than {MOST_S:g} s of processor time")

    signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_S)
    try:
        return play(seed, only)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)


def fewest(faults: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Of faults that make a history fail: some that do so too, of which none can be left out. It asks `fails` without
    halves first, then quarters, and at last without each one."""
    left, parts = list(faults), 2
    while left:
        size = max(1, -(-len(left) // parts))
        for start in range(0, len(left), size):
            fewer = left[:start] + left[start + size :]
            if fails(fewer):
                left, parts = fewer, 2
                break
        else:
            if size == 1:
                break
            parts *= 2
    return left


def shrunk(story: Story) -> Story:
    """The same seed's history with the fewest of its faults that still goes wrong."""
    told: dict[tuple[int, ...], Story] = {}

    def fails(faults: Sequence[int]) -> bool:
        told[tuple(faults)] = tell(story.seed, faults)
        return bool(told[tuple(faults)].wrong)

    faults = story.only if story.only is not None else range(story.planned)
    return told.get(tuple(fewest(faults, fails)), story)


def tell_and_shrink(seed: int) -> tuple[Story, Story | None]:
    """A history, and where it went wrong the least of it that does."""
    story = tell(seed)
    return story, shrunk(story) if story.wrong else None


class Search:
    """Tells seeds in processes of their own, and keeps what goes wrong. prepare: is called in each process first."""

    def __init__(self, jobs: int, corpus: Path, prepare: Callable[[], None] | None = None) -> None:
        self._jobs = jobs
        self._corpus = corpus
        self._prepare = prepare
        self._began = self._said = time.monotonic()
        self.histories = self.jobs_told = self.runs = 0
        self.pool_s = 0.0  # virtual
        self.found: list[Kept] = []

    def run(self, seeds: Iterable[int], minutes: float | None, finds: int | None) -> None:
        """Until there are no seeds any more, or no minutes, or there are so many finds."""
        until = self._began + minutes * 60.0 if minutes is not None else float("inf")
        left = iter(seeds)
        # Processes that begin alike: a fork of one that told other histories is not.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self._jobs, mp_context=context, initializer=self._prepare) as pool:
            under_way: set[Future[tuple[Story, Story | None]]] = set()
            while True:
                enough = time.monotonic() >= until or (finds is not None and len(self.found) >= finds)
                if not enough:
                    room = self._jobs - len(under_way)
                    under_way |= {pool.submit(tell_and_shrink, seed) for seed in itertools.islice(left, room)}
                if not under_way:
                    break
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    self._heard(*future.result())
        self.say()

    def _heard(self, story: Story, least: Story | None) -> None:
        self.histories += 1
        self.jobs_told, self.runs = self.jobs_told + story.jobs, self.runs + story.runs
        self.pool_s += story.lasted_s
        if least is not None:
            found = Kept.of(least)
            self.found.append(found)
            self._corpus.parent.mkdir(parents=True, exist_ok=True)
            with self._corpus.open("a") as corpus:
                corpus.write(found.line())
            print(f"{story}\nwith {len(least.faults)} of {len(story.faults)} lines of its story:\n{least}", flush=True)
        if time.monotonic() - self._said >= TELL_EVERY_S:
            self.say()

    def say(self) -> None:
        self._said = time.monotonic()
        took = self._said - self._began
        print(
            f"{self.histories} histories, {self.jobs_told} jobs, {self.runs} runs, {self.pool_s / 3600:.1f} pool-hours"
            f" in {took:.0f} s; {len(self.found)} went wrong",
            flush=True,
        )


def main(arguments: Sequence[str], prepare: Callable[[], None] | None = None) -> int:
    """The command. prepare: for tests, see `Search`."""
    parser = argparse.ArgumentParser(prog="bin/sim", description="Whole pools under virtual time, with seeded faults.")
    parser.add_argument("--minutes", type=float, metavar="N", help="tell histories for so long")
    parser.add_argument("--seeds", type=int, metavar="N", help="how many histories (default: 100; with --minutes, any)")
    parser.add_argument("--seed-from", "--first", type=int, metavar="S", help="the first (default: a random one)")
    parser.add_argument("-j", "--jobs", type=int, metavar="CORES", default=os.cpu_count(), help="how many at a time")
    parser.add_argument("--finds", type=int, metavar="N", help="stop after so many histories that went wrong")
    parser.add_argument("--found", type=Path, metavar="FILE", default=CORPUS, help="where those are kept (%(default)s)")
    parser.add_argument("--seed", type=int, metavar="S", help="tell only this one")
    parser.add_argument("--only", type=_numbers, metavar="F,F,...", help="... with these of its faults, or none")
    parser.add_argument("--loud", action="store_true", help="... and print what the daemons log")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        if prepare is not None:
            prepare()
        story = play(options.seed, options.only, loud=options.loud)
        print(story if story.wrong or options.loud else f"seed {story.seed}: well ({story.took_s:.1f} s)")
        return 1 if story.wrong else 0
    first = options.seed_from if options.seed_from is not None else WHOLE_FROM + secrets.randbelow(FRESH)
    search = Search(options.jobs, options.found, prepare)
    print(f"seeds from {first}", flush=True)
    search.run(_seeds(first, options.seeds, options.minutes), options.minutes, options.finds)
    if search.found:
        told = ", ".join(str(found.seed) for found in search.found)
        print(f"{len(search.found)} seeds went wrong, and are in {options.found}: {told}")
    return 1 if search.found else 0


def _numbers(text: str) -> tuple[int, ...]:
    return () if text == "none" else tuple(int(number) for number in text.split(","))


def _seeds(first: int, count: int | None, minutes: float | None) -> Iterator[int]:
    if count is None and minutes is not None:
        return itertools.count(first)
    return iter(range(first, first + (100 if count is None else count)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
