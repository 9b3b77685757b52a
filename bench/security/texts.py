"""Families that no daemon is needed for: messages as they are decoded and held to the table of senders, submit files,
configuration, ads, and constraints over a collector's ads. Each
input is read in a process of its own (`python -m bench.security` sees to that), and its processor time is measured."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Final

import structlog

from bench.security import bus, values
from bench.security.cases import CRASH, SILENCE, SILENCE_S, Case, Fault, Tally, data_of, dice_of, text
from bench.security.values import Dice
from roost.submit import Description, SubmitContext
from services.collector.core.queries import BadQuery
from services.collector.search import Search
from shared.bus.api import BusHealth, Exchange
from shared.bus.senders import TABLE, Arrival, Denied, Senders
from shared.bus.statements import Believer, Keys
from shared.bus.topology import inbox_queue
from shared.call_stack import in_one_piece
from shared.classad import ClassAd, ParseError, parse_ad, parse_ads
from shared.classad.as_json import from_json, to_json
from shared.classad.budget import TooExpensive
from shared.classad.cells import PackedError
from shared.config import ConfigError
from shared.config.knobs import DEFAULTS
from shared.config.load import CONFIG
from shared.config.macros import MacroTable
from shared.config.reader import Reader
from shared.daemon.clock import SystemClock
from shared.daemon.garbage import THRESHOLDS, freeze
from shared.messages.base import BadMessage, Envelope
from tests.integration.test_hostile import NAMES
from tests.loop_meter import measured
from tests.security.test_budgets import ask, pool

#: How an input is read again when it seemed dear: what a collection of garbage took is not its doing.
TRIES: Final = 3
#: Constraints asked together, under one meter.
TOGETHER: Final = 20

_COMMANDS: Final = (
    *("executable", "arguments", "environment", "getenv", "universe", "request_cpus", "request_memory", "request_disk"),
    *("request_gpus", "requirements", "rank", "log", "output", "error", "input", "transfer_input_files", "initialdir"),
    *("transfer_output_remaps", "priority", "hold", "periodic_hold", "on_exit_remove", "max_retries", "retry_until"),
    *(
        "accounting_group",
        "concurrency_limits",
        "notification",
        "deferral_time",
        "cron_minute",
        "kill_sig",
        "leave_in_queue",
    ),
    *(
        "container_image",
        "docker_image",
        "vm_type",
        "max_materialize",
        "+Own",
        "MY.Own",
        "A",
        "B",
        "job_lease_duration",
    ),
)
_WORDS: Final = (
    *(
        "/bin/true",
        "$(A)",
        "$(B)",
        "$(A:$(B))",
        "$$(Memory)",
        "$(Process)",
        "$INT(A)",
        "$RANDOM_CHOICE(a,b)",
        "$ENV(HOME)",
    ),
    *(
        "$F(A)",
        "$Fdb(A)",
        "$SUBSTR(A,1,-1)",
        "$STRING(A)",
        "$EVAL(A)",
        "$REAL(A,%f)",
        "$CHOICE(A,x,y)",
        "$(A)$(A)$(A)$(A)",
    ),
    *(
        "true",
        "-1",
        "0",
        "2GB",
        "99999999999999999999",
        "1e400",
        "a=b;c=d",
        '"a \'b"',
        "''",
        "@=end",
        "\\",
        "é",
        "*",
        "(",
    ),
)
_QUEUES: Final = (
    *(
        "queue",
        "queue 3",
        "queue -1",
        "queue 200",
        "queue A in (a b c)",
        "queue A,B from (\n1,2\n3,4\n)",
        "queue A matching *",
    ),
    *(
        "queue 2 A in [::-1] (x y z)",
        "queue A from no-such-file",
        "queue in",
        "queue 1e2",
        "queue A in (",
        "queue $(B) A in (1)",
    ),
)
_LINES: Final = (
    *("if true", "if defined A", "if version >= 9", "elif false", "else", "endif", "if $(A)", "A @=end", "@end", "# a"),
    *(
        "include : no-such-file",
        "include ifexist : no-such-file",
        "use POLICY : Desktop",
        "use FEATURE : StaticSlots(1",
        "use X",
    ),
    *("A = $(B)", "B = $(A)", "A = $(A) x", "A += 1", "error : stop", "warning : look", "@use", "=", "A", "A = \\"),
)
_KNOBS: Final = tuple(DEFAULTS)


def line(dice: Dice, names: tuple[str, ...]) -> str:
    kind = dice.random()
    if kind < 0.2:
        return dice.choice(_LINES)
    value = dice.choice(_WORDS) if kind < 0.7 else values.some_text(dice) if kind < 0.9 else values.expression(dice)
    return f"{dice.choice(names)} = {value}"


def submit_file(dice: Dice) -> str:
    lines = ["executable = /bin/true", *(line(dice, _COMMANDS) for _ in range(dice.randrange(12)))]
    found = "\n".join([*lines, *(dice.choice(_QUEUES) for _ in range(dice.randrange(1, 3)))]) + "\n"
    return values.altered_text(dice, found) if dice.random() < 0.3 else found


def configuration(dice: Dice) -> str:
    names = (*dice.choices(_KNOBS, k=4), "A", "B", "SCHEDD.A")
    found = "\n".join(line(dice, names) for _ in range(dice.randrange(1, 16))) + "\n"
    return values.altered_text(dice, found) if dice.random() < 0.3 else found


def ad_text(dice: Dice, syntax: str) -> str:
    pairs = [f"{dice.choice(NAMES)} = {values.expression(dice)}" for _ in range(dice.randrange(8))]
    found = "\n".join(pairs) + "\n" if syntax == "old" else "[" + ";".join(pairs) + "]"
    if syntax == "json":
        found = dice.choice(('{"a": %s}', "[%s]", "%s")) % dice.choice(
            ("1e999", '"/Expr(a+"', "[" * 3000, '"\\ud800"', "NaN")
        )
    return values.altered_text(dice, found) if dice.random() < 0.4 else found


def make(family: str, dice: Dice) -> Case:
    """An input of one of the families of this module."""
    if family == "messages":
        return bus.made(dice) | {"family": family}
    if family == "submit":
        return {"family": family, "text": submit_file(dice)}
    if family == "configuration":
        return {"family": family, "text": configuration(dice)}
    if family == "expressions":
        return {"family": family, "text": values.expression(dice)}
    syntax = dice.choice(("packed", "packed", "new", "old", "json"))
    if syntax == "packed":
        return {"family": family, "syntax": syntax, "data": text(values.packed_ad(dice))}
    return {"family": family, "syntax": syntax, "text": ad_text(dice, syntax)}


def _read_message(case: Case) -> Iterator[str]:
    """As a bus does before a handler sees a message; what is taken is packed and read again."""
    exchange, key = Exchange(case["exchange"] or Exchange.RPC), case["key"].removeprefix(inbox_queue(""))
    envelope = Envelope.unpack(data_of(case["data"]))
    yield "decoded"
    packed = envelope.pack()
    if Envelope.unpack(packed).pack() != packed:
        raise AssertionError("read again it is another message")
    yield "packed"
    arrival = Arrival(exchange, case["user"], inbox=key)
    _SENDERS.admit(envelope, arrival)
    if _SENDERS.asks_who(envelope, arrival):
        _SENDERS.believe(envelope, arrival, hashlib.sha256(envelope.content).digest())
    yield "allowed"


#: Of a pool where gateways sign and nobody else does.
_QUIET: Final = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
_SENDERS: Final = Senders(BusHealth(), _QUIET, TABLE, Believer(Keys(), SystemClock().now))


def _read_submit(case: Case) -> Iterator[str]:
    place = SubmitContext(
        directory=Path("/nonexistent"),
        file="fuzz.sub",
        user="alice",
        environment={},
        filesystem_domain="x",
        arch="X86_64",
        opsys="LINUX",
    )
    jobs = "no jobs"
    for cluster in Description(case["text"], place, now=1e9).clusters():
        for job in cluster.jobs():
            job.pack()
            jobs = "jobs"
    yield jobs


def _read_configuration(case: Case) -> Iterator[str]:
    table = MacroTable(prefixes=("TOOL",), defaults=DEFAULTS)
    Reader(table, CONFIG).read_text(case["text"], "fuzz.conf")
    for macro in list(table):
        table.value(macro.name)
    yield "read"


def _read_ad(case: Case) -> Iterator[str]:
    if case["syntax"] == "packed":
        found = [ClassAd.unpack(data_of(case["data"]))]
    elif case["syntax"] == "json":
        found = [from_json(case["text"])]
    elif case["syntax"] == "new":
        found = [parse_ad(case["text"])]
    else:
        found = list(parse_ads(case["text"], "old"))
    yield ""
    for ad in found:
        for name in list(ad):
            ad.eval(name)
            yield ""
        to_json(ad)
        yield ""
        ClassAd.unpack(ad.pack())
    yield "ads" if found else "no ads"


_READ: Final[Mapping[str, Callable[[Case], Iterator[str]]]] = {
    "messages": _read_message,
    "submit": _read_submit,
    "configuration": _read_configuration,
    "ads": _read_ad,
}
#: No daemon reads these in its loop: a program of its own does, which is ended when it takes too long. Nor does one
#: read ads that are text: commands do, and startds read what programs of the machine's owner print.
ALONE: Final = ("submit", "configuration")
#: Processor seconds after which reading one is given up here.
PATIENCE_S: Final = 2.0
#: What a reader says of what it does not take.
REFUSALS: Final = (ConfigError, ParseError, PackedError, BadQuery, TooExpensive, BadMessage, Denied)


def _alone(case: Case) -> bool:
    return case["family"] in ALONE or case.get("syntax", "packed") != "packed"


class GivenUp(BaseException):
    """An input took too long."""


@contextlib.contextmanager
def patience() -> Iterator[None]:
    """Raises GivenUp in what runs inside when it has had PATIENCE_S of the processor. In a main thread."""

    def give_up(*_: object) -> None:
        raise GivenUp

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def outcome(case: Case) -> tuple[str, float, Exception | None]:
    """What came of an input, the processor seconds of the longest of its steps, and what should not have happened."""
    found, longest, wrong = "", 0.0, None
    steps = _READ[case["family"]](case)
    began = time.thread_time()
    try:
        with patience():
            for step in steps:
                found = step
                longest, began = max(longest, time.thread_time() - began), time.thread_time()
    except REFUSALS as refusal:
        found = f"refused: {type(refusal).__name__}"
    except GivenUp:
        found = "given up"
    except Exception as error:  # noqa: BLE001  that is what is looked for
        found, wrong = f"crash: {type(error).__name__}", error
    return found, max(longest, time.thread_time() - began), wrong


def take(case: Case, tally: Tally) -> None:
    """Read an input that is not a constraint."""
    family = case["family"]
    found, seconds, wrong = outcome(case)
    for _ in range(TRIES - 1):
        if seconds <= SILENCE_S or _alone(case):
            break
        seconds = min(seconds, outcome(case)[1])
    tally.sent += 1
    tally.outcomes[found] += 1
    tally.longest_s = max(tally.longest_s, seconds)
    if wrong is not None:
        tally.faults.append(Fault(CRASH, family, f"{type(wrong).__name__}: {wrong}"[:1000], (case,)))
    if seconds > SILENCE_S and not _alone(case):
        tally.faults.append(Fault(SILENCE, family, f"{seconds:.3f} s of processor time", (case,)))


async def _ask(search: Search, cases: list[Case], tally: Tally) -> float:
    """Ask for the ads that fit, one constraint after the other: the longest silence of the loop, in processor s."""
    with measured() as held:
        for case in cases:
            try:
                page = await ask(search, constraint=case["text"])  # type: ignore[no-untyped-call]
                tally.outcomes["some fit" if page.ads else "none fit"] += 1
            except REFUSALS as refusal:
                tally.outcomes[f"refused: {type(refusal).__name__}"] += 1
            except Exception as error:  # noqa: BLE001  that is what is looked for
                tally.outcomes[f"crash: {type(error).__name__}"] += 1
                tally.faults.append(Fault(CRASH, "expressions", f"{type(error).__name__}: {error}"[:1000], (case,)))
    return float(held.longest_s)


def constrain(cases: list[Case], tally: Tally, ads: int = 2) -> None:
    """Constraints over the ads of machines."""
    search: Search = pool(ads)  # type: ignore[no-untyped-call]
    tally.sent += len(cases)
    longest = asyncio.run(_ask(search, cases, tally))
    if longest > SILENCE_S:
        for case in cases:
            alone = min(asyncio.run(_ask(search, [case], Tally())) for _ in range(TRIES))
            longest = min(longest, alone) if case is cases[0] else max(longest, alone)
            if alone > SILENCE_S:
                tally.faults.append(Fault(SILENCE, "expressions", f"{alone:.3f} s of processor time", (case,)))
    tally.longest_s = max(tally.longest_s, longest)


def run(family: str, seed: int, first: int, count: int) -> Tally:
    """Inputs first to first + count of a family, in this process."""
    tally, began = Tally(), time.perf_counter()
    cases = [make(family, dice_of(seed, family, number)) for number in range(first, first + count)]
    take_all(family, cases, tally)
    tally.seconds = time.perf_counter() - began
    return tally


def take_all(family: str, cases: list[Case], tally: Tally) -> None:
    if family == "expressions":
        for start in range(0, len(cases), TOGETHER):
            constrain(cases[start : start + TOGETHER], tally)
        return
    for case in cases:
        take(case, tally)


def collect_as_daemons_do() -> None:
    """In a process that reads: collections of garbage are as short as in a daemon."""
    gc.set_threshold(*THRESHOLDS)
    freeze()


class Readers:
    """A process a family that reads its inputs; when it dies of one that is a crash, and there is another."""

    def __init__(self) -> None:
        self._executors: dict[str, ProcessPoolExecutor] = {}

    async def run(self, family: str, seed: int, first: int, count: int) -> Tally:
        loop = asyncio.get_running_loop()
        executor = self._executors.get(family)
        if executor is None:
            executor = self._executors[family] = ProcessPoolExecutor(1, initializer=collect_as_daemons_do)
        try:
            return await loop.run_in_executor(executor, in_one_piece, run, family, seed, first, count)
        except BrokenProcessPool:
            del self._executors[family]
            if count == 1:
                case: dict[str, Any] = make(family, dice_of(seed, family, first))
                return Tally(1, faults=[Fault(CRASH, family, "the process that read it died", (case,))])
            half = count // 2
            tally = await self.run(family, seed, first, half)
            tally.add(await self.run(family, seed, first + half, count - half))
            return tally

    def close(self) -> None:
        for executor in self._executors.values():
            executor.shutdown(cancel_futures=True)
