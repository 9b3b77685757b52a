"""Calls the administrator's hooks, as the startd or as a job's user, bounded in time and output.

`JobHookRunner` calls the hooks of one run of a job (JHK-01 to JHK-09).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from services.startd.core.run.failures import RunFailed
from services.startd.core.run.job_hooks import Hook, Hooks, Progress, Verdict, exit_ad, exit_word, judge, status_ad
from services.startd.core.run.job_launch import Account
from shared import job_log
from shared.classad import ClassAd, unparse_old
from shared.messages.claims import JobExit
from shared.subprocess_runner import CompletedProgram, ProgramFailed, clean_environment, run

#: Characters of a hook's stderr in the log (FHK-14).
SHOWN = 4000
#: For a line in a log, seconds. It may be a pipe that nobody reads.
APPEND_S = 10.0
#: Enters the cgroup of these directories, and then becomes the hook.
_IN_CGROUP = 'while [ "$1" != -- ]; do echo 0 > "$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"'
#: Of the startd's environment, what a hook that runs as a job's user gets.
_FOR_JOBS = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "CONDOR_CONFIG")
#: Becomes the account and then the hook. Not `preexec_fn`: that would run in a copy of the startd.
_AS_ACCOUNT = (
    "import os, sys; uid, gid, *groups = map(int, sys.argv[1].split(',')); os.setgroups(groups); "
    "os.setresgid(gid, gid, gid); os.setresuid(uid, uid, uid); os.umask(0o022); os.execv(sys.argv[2], sys.argv[2:])"
)


class HookRefused(Exception):
    """A hook that can not or must not be run: the text says which and why."""


async def call_hook(
    hooks: Hooks,
    hook: Hook,
    log: structlog.stdlib.BoundLogger,
    *arguments: str,
    stdin: str,
    cwd: str = "",
    account: Account | None = None,
    env: Mapping[str, str] | None = None,
    cgroup: Sequence[str] = (),
) -> CompletedProgram:
    """Run one hook to its end. account: whose processes it makes; None: the startd's. env: in addition to what hooks
    get. cgroup: directories of the one that it enters. Its stderr is kept in the log (FHK-14). Raises HookRefused."""
    path, knob = hooks.paths[hook], hooks.knob(hook)
    refusal = await asyncio.to_thread(objection, path)
    if refusal:
        log.error("hook_refused", hook=knob, reason=refusal)
        raise HookRefused(f"{knob} = {path} is not run: {refusal}")
    words = [path, *arguments]
    if account is not None:
        words = _as_account(account, words)
    if cgroup:
        words = ["/bin/sh", "-c", _IN_CGROUP, "sh", *cgroup, "--", *words]
    try:
        ended = await run(
            words,
            env=_environment(account, env or {}, for_job=hook in _OF_JOBS),
            stdin=stdin.encode("utf-8", "surrogateescape"),
            cwd=cwd,
            timeout_s=hooks.time_of(hook),
        )
    except ProgramFailed as error:
        log.error("hook_failed", hook=knob, reason=str(error))
        raise HookRefused(f"{knob}: {error}") from error
    errors = ended.stderr.decode("utf-8", "replace")[-SHOWN:]
    # What FETCH_WORK ends with means nothing, and it is called again and again.
    if errors or not (ended.good or (hook is Hook.FETCH_WORK and ended.exit_code is not None and not ended.timed_out)):
        log.info("hook_ended", hook=knob, ended=str(ended), stderr=errors)
    return ended


async def append_to_log(account: Account | None, path: str, text: bytes) -> str:
    """Append to a file, as the account: whoever may name the file need not be allowed to write it. Why it could not be
    done; empty: it is."""
    if account is None:
        return (await asyncio.to_thread(job_log.append, [(0, path, text)])).get(path, "")
    words = _as_account(account, ["/bin/sh", "-c", 'exec cat >> "$1"', "sh", path])
    try:
        ended = await run(words, env=_environment(account, {}, for_job=True), stdin=text, timeout_s=APPEND_S)
    except ProgramFailed as error:
        return str(error)
    return "" if ended.good else f"{ended}: {ended.stderr.decode('utf-8', 'replace')[:200]}"


def _as_account(account: Account, words: list[str]) -> list[str]:
    ids = ",".join(map(str, (account.uid, account.gid, *account.groups)))
    return [sys.executable, "-I", "-S", "-c", _AS_ACCOUNT, ids, *words]


_OF_JOBS = frozenset((Hook.PREPARE_JOB_BEFORE_TRANSFER, Hook.PREPARE_JOB, Hook.UPDATE_JOB_INFO, Hook.JOB_EXIT))


def _environment(account: Account | None, more: Mapping[str, str], *, for_job: bool) -> dict[str, str]:
    if not for_job:
        return clean_environment(os.environ) | dict(more)
    env = {name: os.environ[name] for name in _FOR_JOBS if name in os.environ}
    if account is not None:
        env |= {"HOME": account.home, "USER": account.name, "LOGNAME": account.name}
    return env | dict(more)


def objection(path: str) -> str:
    """Why this program must not be run: somebody else than its owner could have written it, as HTCondor sees it."""
    if not path.startswith("/"):
        return "give the full path, from / on"
    try:
        if stat.S_IMODE(os.stat(path).st_mode) & stat.S_IWOTH:
            return "everybody may write it: chmod o-w"
        folder = os.path.dirname(os.path.realpath(path))
        if stat.S_IMODE(os.stat(folder).st_mode) & stat.S_IWOTH:
            return f"everybody may write its directory {folder}: chmod o-w"
    except OSError as error:
        return error.strerror or str(error)
    return ""


@dataclass(frozen=True, slots=True)
class HookSite:
    """The directory, account and environment that the hooks of a run are called with. cgroup: directories of the job's
    cgroup, made if they are not there; raises RunFailed."""

    cwd: str
    account: Account | None
    env: Mapping[str, str]
    cgroup: Callable[[], Sequence[str]] = tuple


class JobHookRunner:
    """The hooks of one run. `spawn` does something in the background."""

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
        self.called = False  # any was, in this life of the startd
        self._updating = False

    def has(self, hook: Hook) -> bool:
        return self._hooks is not None and hook in self._hooks.paths

    async def prepare(self, hook: Hook, job: ClassAd, site: HookSite) -> Verdict:
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

    def update(self, job: ClassAd, progress: Progress, site: HookSite) -> None:
        """UPDATE_JOB_INFO, in the background. One that still runs is not called again."""
        if self.has(Hook.UPDATE_JOB_INFO) and not self._updating:
            self._updating = True
            self._spawn(self._update(status_ad(job, progress), site), "hook:update-job-info")

    async def _update(self, ad: ClassAd, site: HookSite) -> None:
        try:
            await self._call(Hook.UPDATE_JOB_INFO, ad, site)
        except HookRefused:
            pass  # in the log
        finally:
            self._updating = False

    async def exit(
        self, job: ClassAd, progress: Progress, outcome: JobExit, stopped_for: str, site: HookSite, now: float
    ) -> None:
        """JOB_EXIT, to its end; also where a job was only prepared."""
        if not self.has(Hook.JOB_EXIT) or not (progress.started_at or self._prepared):
            return
        word = exit_word(outcome, stopped_for) if progress.started_at else "evict"
        with contextlib.suppress(HookRefused):  # which is in the log; what the hook says does not matter
            await self._call(Hook.JOB_EXIT, exit_ad(job, progress, outcome, now), site, word)

    async def _call(self, hook: Hook, ad: ClassAd, site: HookSite, *arguments: str) -> CompletedProgram:
        assert self._hooks is not None
        self.called = True
        try:
            # What reports on a running job is not counted against its memory, nor ended with it.
            cgroup = site.cgroup() if hook is not Hook.UPDATE_JOB_INFO else ()
        except RunFailed as error:
            raise HookRefused(f"{self._hooks.knob(hook)}: {error.message}") from error
        return await call_hook(
            self._hooks,
            hook,
            self._log,
            *arguments,
            stdin=unparse_old(ad.public()),
            cwd=site.cwd,
            account=site.account,
            env=site.env,
            cgroup=cgroup,
        )
