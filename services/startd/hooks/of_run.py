"""The hooks of one run of a job (JHK-01 to JHK-09)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from services.startd.hooks.calling import HookRefused, call
from services.startd.hooks.job_hooks import Progress, Verdict, exit_ad, exit_word, judge, status_ad
from services.startd.hooks.keywords import Hook, Hooks
from services.startd.launchers.api import Account
from shared.classad import ClassAd, unparse_old
from shared.messages.claims import JobExit
from shared.program import Ended


@dataclass(frozen=True, slots=True)
class Site:
    """Where and as whom the hooks of a run are called."""

    cwd: str
    account: Account | None
    env: Mapping[str, str]


class RunHooks:
    """See the module. `spawn` does something in the background."""

    def __init__(
        self,
        hooks: Hooks | None,
        log: structlog.stdlib.BoundLogger,
        spawn: Callable[[Any, str], None],
    ) -> None:
        self._hooks = hooks
        self._log = log
        self._spawn = spawn
        self._prepared = False  # a prepare hook was called
        self._updating = False

    def has(self, hook: Hook) -> bool:
        return self._hooks is not None and hook in self._hooks.paths

    async def prepare(self, hook: Hook, job: ClassAd, site: Site) -> Verdict:
        """Call a prepare hook and wait for what it says."""
        assert self._hooks is not None
        self._prepared = True
        try:
            ended = await self._call(hook, job, site)
        except HookRefused as error:
            return Verdict("idle", str(error))
        verdict = judge(self._hooks.knob(hook), ended)
        if verdict.kind != "go" or verdict.message:
            self._log.info("hook_said", hook=self._hooks.knob(hook), verdict=verdict.kind, message=verdict.message)
        return verdict

    def update(self, job: ClassAd, progress: Progress, site: Site) -> None:
        """UPDATE_JOB_INFO, in the background. One that still runs is not called again."""
        if self.has(Hook.UPDATE_JOB_INFO) and not self._updating:
            self._updating = True
            self._spawn(self._update(status_ad(job, progress), site), "hook:update-job-info")

    async def _update(self, ad: ClassAd, site: Site) -> None:
        try:
            await self._call(Hook.UPDATE_JOB_INFO, ad, site)
        except HookRefused:
            pass  # in the log
        finally:
            self._updating = False

    async def exit(
        self, job: ClassAd, progress: Progress, outcome: JobExit, stopped_for: str, site: Site, now: float
    ) -> None:
        """JOB_EXIT, to its end; also where a job was only prepared."""
        if not self.has(Hook.JOB_EXIT) or not (progress.started_at or self._prepared):
            return
        word = exit_word(outcome, stopped_for) if progress.started_at else "evict"
        with contextlib.suppress(HookRefused):  # which is in the log; what the hook says does not matter
            await self._call(Hook.JOB_EXIT, exit_ad(job, progress, outcome, now), site, word)

    async def _call(self, hook: Hook, ad: ClassAd, site: Site, *arguments: str) -> Ended:
        assert self._hooks is not None
        return await call(
            self._hooks,
            hook,
            self._log,
            *arguments,
            stdin=unparse_old(ad.public()),
            cwd=site.cwd,
            account=site.account,
            env=site.env,
        )
