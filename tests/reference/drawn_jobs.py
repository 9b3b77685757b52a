"""Made-up jobs: what a submit file says, what the program does, and what users do to the job meanwhile.

A job: `script`, of its program; `lines` of its submit file and its `queue` statement; `steps`, each an event's number
in its log, how often it is to be there, and the command then; `until`, the event that it ends with and how often;
`gone`, a file that is taken away once it is submitted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

JOBS: Final = 12
_LASTS: Final = "exec sleep 1000"
_RUNS: Final = "001"
Job = dict[str, Any]


def make(rng: random.Random) -> dict[str, Any]:
    return {"jobs": [_job(rng) for _ in range(JOBS)]}


def _job(rng: random.Random) -> Job:
    kind = rng.choice(_KINDS)
    job = {"kind": kind.__name__.strip("_"), "queue": "queue", "steps": [], **kind(rng)}
    for lines in _EXTRAS:
        if rng.random() < 0.08:
            job["lines"] = [*job["lines"], *lines]
    return job


def _ends(rng: random.Random) -> Job:
    return {"script": f"exit {rng.choice((0, 0, 1, 3, 255))}", "lines": [], "until": ["005", 1]}


def _signal(rng: random.Random) -> Job:
    return {"script": f"kill -{rng.choice((9, 11, 15, 6))} $$", "lines": [], "until": ["005", 1]}


def _several(rng: random.Random) -> Job:
    count = rng.choice((2, 3))
    return {
        "script": "exit $1",
        "lines": ["arguments = $(Process)"],
        "queue": f"queue {count}",
        "until": ["005", count],
    }


def _materialized(rng: random.Random) -> Job:
    limits = rng.choice((["max_idle = 1"], ["max_materialize = 1"], ["max_materialize = 2", "max_idle = 1"]))
    count = rng.choice((2, 3))
    return {"script": "exit 0", "lines": limits, "queue": f"queue {count}", "until": ["036", 1]}


def _hold(rng: random.Random) -> Job:
    reason = rng.choice(("", " -reason 'wait a little'"))
    then = rng.choice(("rm", "rm -reason 'no more'", "release", "release -reason 'go on'"))
    steps = [[_RUNS, 1, f"hold{reason}"], ["012", 1, then]]
    if then.startswith("rm"):
        return {"script": _LASTS, "lines": [], "steps": steps, "until": ["009", 1]}
    again = [[_RUNS, 2, rng.choice(("rm", "hold"))]]
    return {"script": _LASTS, "lines": [], "steps": steps + again, "until": ["004", 2]}


def _held_and_done(rng: random.Random) -> Job:
    script = "[ -e $1/was ] || { touch $1/was; exec sleep 1000; }"
    return {
        "script": script,
        "lines": ["arguments = $(here)"],
        "steps": [[_RUNS, 1, "hold"], ["012", 1, "release"]],
        "until": ["005", 1],
    }


def _idle(rng: random.Random) -> Job:
    steps = rng.choice(
        (
            [["000", 1, "rm"]],
            [["000", 1, "hold"], ["012", 1, "rm"]],
            [["000", 1, "hold -reason x"], ["012", 1, "release"], ["013", 1, "rm -reason y"]],
            [["000", 1, "qedit JobPrio 9"], ["000", 1, "rm"]],
            [["000", 1, "prio -p 9"], ["033", 1, "rm"]],
            [["000", 1, "qedit MyOwn '\"new\"'"], ["000", 1, "rm"]],
            [["000", 1, "hold"], ["012", 1, "rm -forcex"]],
        )
    )
    return {"script": _LASTS, "lines": ["requirements = false"], "steps": steps, "until": ["009", 1]}


def _remove(rng: random.Random) -> Job:
    return {
        "script": _LASTS,
        "lines": [],
        "steps": [[_RUNS, 1, rng.choice(("rm", "rm -reason gone"))]],
        "until": ["009", 1],
    }


def _stubborn(rng: random.Random) -> Job:
    script = "trap '' TERM\nwhile :; do sleep 0.2; done"
    what, ends = rng.choice((("hold", "012"), ("rm", "009")))
    return {"script": script, "lines": ["job_max_vacate_time = 1"], "steps": [[_RUNS, 1, what]], "until": [ends, 1]}


def _policy(rng: random.Random) -> Job:
    when = "JobStatus == 2 && NumJobStarts >= 1"
    what, ends = rng.choice((("hold", "012"), ("hold", "012"), ("remove", "009")))
    lines = [f"periodic_{what} = {when}"]
    if rng.random() < 0.6:
        lines.append(f'periodic_{what}_reason = strcat("after ", NumJobStarts)')
    if what == "hold" and rng.random() < 0.6:
        lines.append(f"periodic_hold_subcode = {rng.choice((7, 42))}")
    return {"script": _LASTS, "lines": lines, "until": [ends, 1]}


def _held_and_released_by_policy(rng: random.Random) -> Job:
    lines = [
        "periodic_hold = JobStatus == 2 && NumJobStarts == 1 && NumShadowStarts == 1",
        "periodic_release = NumShadowStarts == 1",
    ]
    return {"script": _LASTS, "lines": lines, "steps": [[_RUNS, 2, "rm"]], "until": ["009", 1]}


def _vacated_by_policy(rng: random.Random) -> Job:
    lines = ["periodic_vacate = JobStatus == 2 && NumJobStarts == 1 && NumShadowStarts == 1"]
    return {"script": _LASTS, "lines": lines, "steps": [[_RUNS, 2, "rm"]], "until": ["009", 1]}


def _held_at_exit(rng: random.Random) -> Job:
    lines = [
        rng.choice(
            (
                "on_exit_hold = ExitCode == 4",
                "on_exit_hold = true",
                "on_exit_hold = ExitBySignal =?= false",
                "on_exit_hold = NoSuchThing",
            )
        )
    ]
    if rng.random() < 0.6:
        lines.append('on_exit_hold_reason = "it was four"')
    if rng.random() < 0.6:
        lines.append("on_exit_hold_subcode = 4")
    return {"script": "exit 4", "lines": lines, "until": ["012", 1]}


def _stays_at_exit(rng: random.Random) -> Job:
    lines = [
        rng.choice(("on_exit_remove = NumJobCompletions > 1", "on_exit_remove = ExitCode != 5 || NumJobStarts > 1"))
    ]
    return {"script": "exit 5", "lines": lines, "until": ["005", 1]}


def _retried(rng: random.Random) -> Job:
    lines = [f"max_retries = {rng.choice((1, 2))}"]
    if rng.random() < 0.4:
        lines.append(rng.choice(("retry_until = 6", "success_exit_code = 6", "retry_until = ExitCode > 5")))
    script = rng.choice(("exit 6", "exit 6", "kill -9 $$"))
    return {"script": script, "lines": lines, "until": ["005", 1]}


def _vacate(rng: random.Random) -> Job:
    how = rng.choice(("vacate_job", "vacate_job -fast"))
    return {"script": _LASTS, "lines": [], "steps": [[_RUNS, 1, how], [_RUNS, 2, "rm"]], "until": ["009", 1]}


def _suspend(rng: random.Random) -> Job:
    steps = [[_RUNS, 1, "suspend"], ["010", 1, "continue"], ["011", 1, "rm"]]
    if rng.random() < 0.4:
        steps = [[_RUNS, 1, "suspend"], ["010", 1, "rm"]]
    return {"script": _LASTS, "lines": [], "steps": steps, "until": ["009", 1]}


def _changed(rng: random.Random) -> Job:
    what = rng.choice(("qedit JobPrio 9", "qedit MyOwn '\"new\"'", "qedit JobPrio 0", "prio -p 9", "prio -p 0"))
    return {"script": _LASTS, "lines": [], "steps": [[_RUNS, 1, what], [_RUNS, 1, "rm"]], "until": ["009", 1]}


def _no_output(rng: random.Random) -> Job:
    code = rng.choice((0, 7))
    return {"script": f"exit {code}", "lines": ["transfer_output_files = nope"], "until": ["012", 1]}


def _no_input(rng: random.Random) -> Job:
    lines = ["transfer_input_files = gone"]
    return {"script": "exit 0", "lines": lines, "gone": "gone", "until": ["012", 1]}


def _files(rng: random.Random) -> Job:
    lines = rng.choice(
        (["transfer_input_files = job.sh"], ["transfer_output_files = made"], ["output = out", "error = err"])
    )
    return {"script": "echo hello | tee made", "lines": lines, "until": ["005", 1]}


def _no_interpreter(rng: random.Random) -> Job:
    return {"script": "#!/nowhere/sh", "lines": [], "until": ["012", 1]}


def _limited(rng: random.Random) -> Job:
    name = rng.choice(("allowed_job_duration", "allowed_execute_duration"))
    return {"script": _LASTS, "lines": [f"{name} = 2"], "until": ["012", 1]}


def _checkpoints(rng: random.Random) -> Job:
    script = "[ -e was ] && exit 0\necho 1 > was\nexit 85"
    lines = ["checkpoint_exit_code = 85", "transfer_checkpoint_files = was"]
    return {"script": script, "lines": lines, "until": ["005", 1]}


def _nothing_to_do(rng: random.Random) -> Job:
    return {
        "script": _LASTS,
        "lines": ["noop_job = true", f"noop_job_exit_code = {rng.choice((0, 2))}"],
        "until": ["005", 1],
    }


def _submitted_on_hold(rng: random.Random) -> Job:
    step = rng.choice(("release", "rm"))
    until = {"release": "005", "rm": "009"}[step]
    return {"script": "exit 0", "lines": ["hold = true"], "steps": [["000", 1, step]], "until": [until, 1]}


def _node(rng: random.Random) -> Job:
    lines = ["submit_event_notes = DAG Node: A", '+DAGNodeName = "A"', "+DAGManJobId = 1"]
    return {"script": f"exit {rng.choice((0, 1))}", "lines": lines, "until": ["005", 1]}


def _leaves_slowly(rng: random.Random) -> Job:
    script = "trap 'exit 9' TERM\nwhile :; do sleep 0.2; done"
    what, ends = rng.choice((("rm", "009"), ("hold", "012")))
    return {
        "script": script,
        "lines": ["want_graceful_removal = true"],
        "steps": [[_RUNS, 1, what]],
        "until": [ends, 1],
    }


_KINDS: Final[Sequence[Callable[[random.Random], Job]]] = (
    *(
        _ends,
        _ends,
        _signal,
        _several,
        _materialized,
        _hold,
        _held_and_done,
        _idle,
        _remove,
        _stubborn,
        _policy,
        _policy,
    ),
    *(_held_and_released_by_policy, _vacated_by_policy, _held_at_exit, _stays_at_exit, _retried, _vacate, _suspend),
    *(_changed, _no_output, _no_input, _files, _no_interpreter, _limited, _checkpoints, _nothing_to_do),
    *(_submitted_on_hold, _node, _leaves_slowly),
)
_EXTRAS: Final = (
    ["submit_event_notes = some words, of a user"],
    ["submit_event_user_notes = others"],
    ["ulog_execute_attrs = State,Arch,NoSuch"],
    ["job_ad_information_attrs = JobPrio,Cmd,NoSuch"],
    ["keep_claim_idle = 2"],
    ["priority = 5"],
)
