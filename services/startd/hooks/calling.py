"""Calls hooks: bounded in time and output, as the startd or as a job's user."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Mapping

import structlog

from services.startd.hooks.keywords import Hook, Hooks
from services.startd.launchers.api import Account
from shared import job_log
from shared.program import Ended, ProgramFailed, clean_environment, run

#: Characters of a hook's stderr in the log (FHK-14).
SHOWN = 4000
#: For a line in a log, seconds. It may be a pipe that nobody reads.
APPEND_S = 10.0
#: Of the startd's environment, what a hook that runs as a job's user gets.
_FOR_JOBS = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "CONDOR_CONFIG")
#: Becomes the account and then the hook. Not `preexec_fn`: that would run in a copy of the startd.
_AS_ACCOUNT = (
    "import os, sys; uid, gid, *groups = map(int, sys.argv[1].split(',')); os.setgroups(groups); "
    "os.setresgid(gid, gid, gid); os.setresuid(uid, uid, uid); os.umask(0o022); os.execv(sys.argv[2], sys.argv[2:])"
)


class HookRefused(Exception):
    """A hook that can not or must not be run: the text says which and why."""


async def call(
    hooks: Hooks,
    hook: Hook,
    log: structlog.stdlib.BoundLogger,
    *arguments: str,
    stdin: str,
    cwd: str = "",
    account: Account | None = None,
    env: Mapping[str, str] | None = None,
) -> Ended:
    """Run one hook to its end. account: whose processes it makes; None: the startd's. env: in addition to what hooks
    get. Its stderr is kept in the log (FHK-14). Raises HookRefused."""
    path, knob = hooks.paths[hook], hooks.knob(hook)
    refusal = await asyncio.to_thread(_objection, path)
    if refusal:
        log.error("hook_refused", hook=knob, reason=refusal)
        raise HookRefused(f"{knob} = {path} is not run: {refusal}")
    words = [path, *arguments]
    if account is not None:
        words = _as_account(account, words)
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


async def append(account: Account | None, path: str, text: bytes) -> str:
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


def _objection(path: str) -> str:
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
