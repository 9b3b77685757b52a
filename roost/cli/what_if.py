"""`roost what-if`: a recorded interval once more, with another configuration: who would have waited more or less."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, Final

from roost.cli.negotiate import check_knob, overrides_of
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import say
from roost.cli.progress import Progress
from roost.cli.times import counted, lasting, moment_of, shown
from roost.client import Client
from roost.errors import UsageError
from roost.replay.compare import Comparison, by_group, compare, to_map
from roost.replay.model import Outcome
from roost.replay.recorded import read
from shared.config import Config, load_config

OPTIONS: tuple[Option, ...] = (
    value("from", help="the interval begins then: 2026-11-22T10:00, 10:00, -2h, yesterday", metavar="TIME"),
    value("to", help="it ends then (now)", metavar="TIME"),
    value("set", help="this knob has this value; may be given again", metavar="KNOB=VALUE"),
    value("config", help="this configuration instead of the recorded one; may be given again", metavar="FILE"),
    value("negotiator", help="which one, where there are several", metavar="NEGOTIATOR"),
    value("step", help="seconds between cycles, at least", metavar="SECONDS"),
    flag("json", help="everything as JSON"),
    *COMMON,
)
_SUMMARY: Final = (
    "A recorded interval once more, through the real negotiator: first with the configuration that was in force, to\n"
    "see how well that fits, then with the changed one. Nothing happens in the pool. Without -set or -config: the fit."
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, "-from TIME", _SUMMARY, OPTIONS))
        return 0
    if parsed.arguments:
        raise UsageError(f"{parsed.arguments[0]!r} does not belong here; see roost what-if -help")
    if not parsed.has("from"):
        raise UsageError("-from is missing: when does the interval begin? For example -from -2h")
    now = time.time()
    start = moment_of(parsed.one("from"), now, "-from")
    end = moment_of(parsed.one("to"), now, "-to") if parsed.has("to") else now
    if start >= end:
        raise UsageError("the interval ends before it begins: -from TIME -to TIME")
    step = parsed.seconds("step") or 0.0
    if step < 0:
        raise UsageError("-step wants a positive number of seconds")
    sets = overrides_of(parsed)
    progress = Progress()
    try:
        with Client(parsed.one("pool") or None) as client:
            parts = _parts(client, start, min(end, now), parsed.one("negotiator"), progress)
            first = next(parts)
            knobs: Mapping[str, str] = first.get("policy", {}).get("knobs", {})
            changed = _changed(parsed, knobs, sets)  # what can not be tried is refused before all is read
            recording = read(chain([first], parts))
        progress.clear()
        recorded = load_config([], subsystem="NEGOTIATOR", env={}, overrides=knobs)
        comparison = compare(
            recording,
            recorded,
            changed,
            step,
            lambda what, part: progress.show(f"replaying {len(recording.work)} jobs {what}: {100 * part:.0f} %"),
        )
    finally:
        progress.clear()
    if parsed.has("json"):
        say(json.dumps({**to_map(comparison), "set": sets}, indent=1))
        return 0
    for line in _lines(comparison, sets, parsed):
        say(line)
    return 0


def _parts(client: Client, start: float, end: float, negotiator: str, progress: Progress) -> Iterator[dict[str, Any]]:
    after = ""
    jobs = 0
    while True:
        part = client.journal("interval", **{"from": start, "to": end, "negotiator": negotiator, "after": after})
        jobs += len(part.get("offers", ()))
        progress.show(f"reading the record: {jobs} jobs")
        yield part
        if not part.get("next"):
            return
        after = part["next"]


def _changed(parsed: Parsed, recorded: Mapping[str, str], sets: Mapping[str, str]) -> Config | None:
    """The configuration that is tried; None: none is. recorded: knobs that were in force. Raises UsageError,
    ConfigError."""
    if not sets and not parsed.has("config"):
        return None
    if parsed.has("config"):
        config = load_config(parsed.all("config"), subsystem="NEGOTIATOR", overrides=sets)
    else:
        config = load_config([], subsystem="NEGOTIATOR", env={}, overrides={**recorded, **sets})
    for name in sets:
        check_knob(name, config)
    for problem in config.warnings:
        sys.stderr.write(f"WARNING: {problem}\n")
    return config


# --- for people


def _lines(comparison: Comparison, sets: Mapping[str, str], parsed: Parsed) -> Iterator[str]:
    recording = comparison.recording
    yield (
        f"{shown(recording.start)} to {shown(recording.end)}: {counted(len(recording.work), 'job')} on "
        f"{counted(len(recording.slots), 'slot')}, {counted(recording.cycles, 'cycle')} recorded, "
        f"{comparison.baseline.cycles} replayed"
    )
    yield from _warnings(comparison)
    yield ""
    yield from _fit(comparison)
    if comparison.changed is None:
        return
    told = ", ".join(f"{name} = {text}" for name, text in sets.items())
    files = ", ".join(parsed.all("config"))
    yield ""
    yield f"With {', '.join(filter(None, (files, told)))}:"
    before, after = comparison.baseline.outcomes, comparison.changed.outcomes
    yield from _table("Submitter", before, after)
    groups = by_group(before)
    if set(groups) != {"<none>"} or set(by_group(after)) != {"<none>"}:
        yield ""
        yield from _table("Group", groups, by_group(after))
    yield ""
    yield _verdict(before, after)


def _warnings(comparison: Comparison) -> Iterator[str]:
    recording = comparison.recording
    if recording.recorded_since > recording.start:
        yield f"  The journal begins at {shown(recording.recorded_since)}: what was before is missing."
    if recording.knob_changes:
        times = "once" if recording.knob_changes == 1 else f"{recording.knob_changes} times"
        yield f"  The configuration changed {times} meanwhile; that of the beginning is replayed."
    if recording.guesses:
        what = f"{counted(recording.guesses, 'job')} {'has' if recording.guesses == 1 else 'have'} not ended yet"
        yield f"  {what}: such jobs are taken to run as long as others of their kind."
    if recording.odd:
        yield f"  {counted(recording.odd, 'job')} left out: what such jobs ask for is not recorded."
    if comparison.baseline.strays:
        strays = counted(comparison.baseline.strays, "job")
        yield f"  {strays} ran on slots that are not recorded: such jobs begin as idle ones."


def _fit(comparison: Comparison) -> Iterator[str]:
    """How well the model tells what was."""
    fit = comparison.fit()
    yield "How well the replay fits what was, with the configuration that was in force:"
    yield f"  {'':<30} {'jobs':>7} {'started':>8} {'waited, all':>13} {'ran, all':>13}"
    for label, outcomes in (("recorded", comparison.recorded), ("replayed", comparison.baseline.outcomes)):
        every = outcomes.values()
        ran = sum(one.used for one in every)
        yield (
            f"  {label:<30} {sum(one.offered for one in every):>7} {sum(one.started for one in every):>8} "
            f"{lasting(sum(one.waited_s for one in every)):>13} {lasting(ran) if label == 'recorded' else '':>13}"
        )
    off = fit["start_off_s"]
    if off is not None:
        yield f"  half of the jobs start within {lasting(off)} of when they did"


def _table(heading: str, before: Mapping[str, Outcome], after: Mapping[str, Outcome]) -> Iterator[str]:
    width = max([len(heading), *(len(name) for name in (*before, *after))])
    yield (
        f"{heading:<{width}} {'jobs':>6} {'waited':>12} {'-> waited':>12} {'change':>8} {'finished':>9} {'->':>6} "
        f"{'used':>12} {'-> used':>12} {'preempted':>10} {'->':>5}"
    )
    for name in sorted({*before, *after}):
        one, other = before.get(name) or Outcome(name), after.get(name) or Outcome(name)
        yield (
            f"{name:<{width}} {one.offered:>6} {lasting(one.waited_s):>12} {lasting(other.waited_s):>12} "
            f"{_change(one.waited_s, other.waited_s):>8} {one.finished:>9} {other.finished:>6} "
            f"{lasting(one.used):>12} {lasting(other.used):>12} {one.preempted:>10} {other.preempted:>5}"
        )


def _change(before: float, after: float) -> str:
    if abs(after - before) < 0.0005:
        return "-"
    return f"{100 * (after - before) / before:+.0f} %" if before >= 0.001 else "new"


def _verdict(before: Mapping[str, Outcome], after: Mapping[str, Outcome]) -> str:
    """Who would have waited more, and who less."""
    changes = {
        name: (after[name].waited_s if name in after else 0.0) - (before[name].waited_s if name in before else 0.0)
        for name in sorted({*before, *after})
    }
    less = [name for name, change in sorted(changes.items(), key=lambda one: one[1]) if change < -0.0005]
    more = [name for name, change in sorted(changes.items(), key=lambda one: -one[1]) if change > 0.0005]
    if not less and not more:
        return "Nobody would have waited more or less."
    parts = []
    for names, word in ((less, "less"), (more, "more")):
        if names:
            who = ", ".join(f"{name} ({lasting(abs(changes[name]))})" for name in names[:10])
            parts.append(f"{who}{' and others' if len(names) > 10 else ''} would have waited {word}")
    return "; ".join(parts) + "."
