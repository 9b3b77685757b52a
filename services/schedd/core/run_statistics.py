"""What became of runs since the schedd began, counted once for its ad and for /metrics. Pure.

The ad has HTCondor's names. There a *shadow* follows a job and tells by its exit code how the run ended; here the
schedd follows it, and finds out by the report and by what the job's policies made of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from engine.queue.jobs import JobStatus, Shadow
from services.schedd.core.job_end import Ended
from shared.counters import CountsBy, Durations
from shared.messages.claims import JobExit

#: Upper bounds of the run times and image sizes that histograms tell apart, in HTCondor's words.
_HOUR, _DAY = 3600.0, 86400.0
RUNTIMES_S: Final = (
    *(30.0, 60.0, 180.0, 600.0, 1800.0, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(_DAY, 2 * _DAY, 4 * _DAY, 8 * _DAY, 16 * _DAY),
)
SIZES_KIB: Final = tuple(64.0 * 4**power for power in range(12))
RUNTIMES: Final = "30Sec, 1Min, 3Min, 10Min, 30Min, 1Hr, 3Hr, 6Hr, 12Hr, 1Day, 2Day, 4Day, 8Day, 16Day"
SIZES: Final = "64Kb, 256Kb, 1Mb, 4Mb, 16Mb, 64Mb, 256Mb, 1Gb, 4Gb, 16Gb, 64Gb, 256Gb"

#: How a run ended: by itself, and its job is done; by the user, or by a policy that removes its job, while it ran; so
#: that the job runs again; so that it is held; without counting, as it could not start or its output is lost; without
#: its machine.
COMPLETED, KILLED, REMOVED, REQUEUED = "completed", "killed", "removed", "requeued"
HELD, FAILED, LOST = "held", "failed", "lost"
#: Attributes by how runs ended.
_EXITS: Final = {
    "JobsExitedNormally": (COMPLETED,),
    "JobsKilled": (KILLED,),
    "JobsShouldRemove": (REMOVED,),
    "JobsShouldRequeue": (REQUEUED,),
    "JobsShouldHold": (HELD,),
    "JobsExitException": (FAILED, LOST),
}
#: What can happen to HTCondor's access points only: no shadow is short of memory or of a log, no pool is flocked to, no
#: job is checkpointed unasked, and a restarted schedd has its claims as before.
NEVER: Final = (
    *("JobsCheckpointed", "JobsDebugLogError", "JobsShadowNoMemory", "ShadowsReconnections"),
    *("JobsRestartReconnectsAttempting", "JobsRestartReconnectsFailed", "JobsRestartReconnectsInterrupted"),
    *("JobsRestartReconnectsLeaseExpired", "JobsRestartReconnectsSucceeded"),
)


def outcome(exit_: JobExit, status: JobStatus, *, output_missing: bool) -> str:
    """How a run ended whose end was reported. status: of its job, once that was looked at."""
    if exit_.reason == "failed" or output_missing:
        return FAILED
    if exit_.reason == "killed":
        return KILLED
    if exit_.reason == "hold" or status == JobStatus.HELD:
        return HELD
    return COMPLETED if exit_.reason == "exited" and status == JobStatus.COMPLETED else REQUEUED


class RunStatistics:
    """Numbers that only grow, times in seconds."""

    def __init__(self) -> None:
        self.begun = 0  # runs that were given to a slot, its answer outstanding
        self.recycled = 0  # of them on a claim that had a run before
        self.not_started = 0  # of them none, as the slot was not to be had
        self.most_running = 0
        self.ended = CountsBy()  # by how
        self.closing = 0  # ended by themselves, and their claim with them
        self.core_dumped = 0
        self.completed, self.badput = Durations(RUNTIMES_S), Durations(RUNTIMES_S)
        self.completed_kib, self.badput_kib = Durations(SIZES_KIB), Durations(SIZES_KIB)
        self.failed_s = 0.0
        self.before_s, self.executing_s, self.after_s = 0.0, 0.0, 0.0
        self.executing_here_s = 0.0  # until their output began to come, by the access point's clock
        self.missed_time = 0  # jobs whose deferral time was over before they could start
        self.running_runtimes, self.running_sizes = Durations(RUNTIMES_S), Durations(SIZES_KIB)
        self.churn_s = 0.0  # of runs that never came to run anything
        self.exec_failed = 0  # ended without: their program could not be begun

    def began(self, *, recycled: bool) -> None:
        self.begun += 1
        self.recycled += recycled

    def look(self, runs: Iterable[tuple[float, float]]) -> None:
        """What runs now: for each since when, in seconds, and the size of its image, KiB."""
        self.running_runtimes, self.running_sizes = Durations(RUNTIMES_S), Durations(SIZES_KIB)
        for seconds, kib in runs:
            self.running_runtimes.add(seconds)
            self.running_sizes.add(kib)

    def running(self, now: int) -> Mapping[str, int]:
        """For the ad: how many run, and the most that any ad told of."""
        self.most_running = max(self.most_running, now)
        return {"ShadowsRunning": now, "ShadowsRunningPeak": self.most_running, "JobsRunning": now}

    def over(
        self,
        how: str,
        run: Shadow,
        ended: Ended,
        image_kib: float,
        *,
        core_dumped: bool = False,
        closing: bool = False,
    ) -> None:
        """A run is over that its machine had taken."""
        if how == KILLED and run.removed_by_policy:
            how = REMOVED
        self.ended.add(how)
        self.core_dumped += core_dumped
        self.closing += closing and how == COMPLETED
        good = how == COMPLETED
        (self.completed if good else self.badput).add(ended.had_s)
        (self.completed_kib if good else self.badput_kib).add(image_kib)
        if how in (FAILED, LOST):
            self.failed_s += ended.had_s
        if not run.executing:
            self.churn_s += ended.had_s
            self.exec_failed += how in (FAILED, HELD)
            return
        before = min(max(0.0, run.executing - run.started), ended.had_s)
        executing = min(ended.ran_s, ended.had_s - before)
        here = (run.output_began or ended.at) - run.executing
        self.executing_here_s += min(max(0.0, here), ended.had_s)
        self.before_s += before
        self.executing_s += executing
        self.after_s += max(0.0, ended.had_s - before - executing)

    def counted(self) -> dict[str, float]:
        """For the ad: all of which there is a Recent form."""
        by_how = {how: count for (how,), count in self.ended.by_name.items()}
        exits = {name: sum(by_how.get(how, 0) for how in hows) for name, hows in _EXITS.items()}
        return {
            "ShadowsStarted": self.begun,
            "ShadowsRecycled": self.recycled,
            "JobsNotStarted": self.not_started,
            "JobsExited": sum(by_how.values()),
            **exits,
            "JobsExecFailed": self.exec_failed,
            "JobsMissedDeferralTime": self.missed_time,
            **dict.fromkeys(NEVER, 0),
            "JobsExitedAndClaimClosing": self.closing,
            "JobsCoredumped": self.core_dumped,
            "JobsAccumRunningTime": int(self.completed.sum_s + self.badput.sum_s),
            "JobsAccumBadputTime": int(self.badput.sum_s),
            "JobsAccumExceptionalBadputTime": int(self.failed_s),
            "JobsAccumPreExecuteTime": int(self.before_s),
            "JobsAccumExecuteTime": int(self.executing_s),
            "JobsAccumExecuteAltTime": int(self.executing_here_s),
            "JobsAccumPostExecuteTime": int(self.after_s),
            "JobsAccumChurnTime": int(self.churn_s),
        }

    def histograms(self) -> Mapping[str, str]:
        """For the ad: how many were below each bound, and how many not below the last."""
        return {
            "JobsRuntimesHistogramBuckets": RUNTIMES,
            "JobsSizesHistogramBuckets": SIZES,
            "JobsCompletedRuntimes": _listed(self.completed),
            "JobsBadputRuntimes": _listed(self.badput),
            "JobsCompletedSizes": _listed(self.completed_kib),
            "JobsBadputSizes": _listed(self.badput_kib),
            "JobsRunningRuntimes": _listed(self.running_runtimes),
            "JobsRunningSizes": _listed(self.running_sizes),
        }


def _listed(durations: Durations) -> str:
    return ", ".join(str(count) for count in durations.counts)
