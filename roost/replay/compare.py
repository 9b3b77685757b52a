"""Three columns of one interval: as it was, as the model has it, as it would be. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from engine.policy import read_policy
from roost.replay.model import Outcome, Pool, Replayed, recorded_outcomes
from roost.replay.recorded import Recording
from shared.config import Config

#: Steps of a replay of any length, unless somebody says otherwise: each is a cycle at most.
STEPS = 1000
#: Seconds between cycles, at least, of a pool that is busy (ROOST_NEGOTIATOR_COALESCE).
LEAST_STEP_S = 0.2


@dataclass(frozen=True, slots=True)
class Comparison:
    """By submitter, and summed up by group: recorded, baseline (the model with what was in force), changed."""

    recording: Recording
    step: float
    recorded: Mapping[str, Outcome]
    baseline: Replayed
    changed: Replayed | None

    def fit(self) -> dict[str, float | None]:
        """How well the model tells what was: its waiting and its starts, as parts of the recorded ones; and the median
        of how far starts are from the recorded ones, in seconds."""
        waited = sum(one.waited_s for one in self.recorded.values())
        started = sum(one.started for one in self.recorded.values())
        modelled = self.baseline.outcomes.values()
        truth = {(work.schedd, work.name): work.started for work in self.recording.work if work.started}
        off = sorted(abs(at - truth[key]) for key, at in self.baseline.first_starts.items() if key in truth)
        return {
            "waited": sum(one.waited_s for one in modelled) / waited if waited else None,
            "started": sum(one.started for one in modelled) / started if started else None,
            "start_off_s": off[len(off) // 2] if off else None,
        }


def compare(
    recording: Recording,
    recorded: Config,
    changed: Config | None,
    step: float = 0.0,
    progress: Callable[[str, float], None] = lambda what, part: None,
) -> Comparison:
    """Replay with the recorded configuration, and with a changed one. step: see Pool; 0: as fine as is worth it.
    progress: told now and then what is replayed, and which part of it is done."""
    step = step or max(LEAST_STEP_S, (recording.end - recording.start) / STEPS)
    policy = read_policy(recorded, lambda: 0.0)
    groups = [(work.submitter, policy.tree.group_of(work.submitter)) for work in recording.work]
    return Comparison(
        recording=recording,
        step=step,
        recorded=recorded_outcomes(recording, groups),
        baseline=Pool(recording, recorded, step=step).run(partial(progress, "as it was")),
        changed=Pool(recording, changed, step=step, recorded=policy).run(partial(progress, "with the change"))
        if changed is not None
        else None,
    )


def by_group(outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Summed up by accounting group."""
    found: dict[str, Outcome] = {}
    for one in outcomes.values():
        total = found.setdefault(one.group, Outcome(one.group, one.group))
        for name in ("offered", "started", "finished", "waiting", "preempted", "waited_s", "used"):
            setattr(total, name, getattr(total, name) + getattr(one, name))
    return found


def to_map(comparison: Comparison) -> dict[str, Any]:
    """All of it as plain data."""
    recording = comparison.recording

    def told(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
        return {name: asdict(outcomes[name]) for name in sorted(outcomes)}

    def played(replayed: Replayed) -> dict[str, Any]:
        return {
            "cycles": replayed.cycles,
            "matches": replayed.matches,
            "strays": replayed.strays,
            "submitters": told(replayed.outcomes),
        }

    return {
        "from": recording.start,
        "to": recording.end,
        "recorded_since": recording.recorded_since,
        "step_s": comparison.step,
        "slots": len(recording.slots),
        "offers": len(recording.work),
        "guessed": recording.guesses,
        "left_out": recording.odd,
        "recorded": {"cycles": recording.cycles, "submitters": told(comparison.recorded)},
        "fit": comparison.fit(),
        "baseline": played(comparison.baseline),
        "changed": played(comparison.changed) if comparison.changed is not None else None,
    }
