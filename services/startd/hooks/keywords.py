"""Which hooks there are for a slot or a job: `<Keyword>_HOOK_<name>`, and whose keyword counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from shared.classad import ClassAd
from shared.config.knobs import StartdSettings

#: Seconds that a hook may take, where nothing else is said; JOB_EXIT as in HTCondor.
EXIT_TIMEOUT_S = 30.0


class Hook(StrEnum):
    FETCH_WORK = "FETCH_WORK"
    REPLY_FETCH = "REPLY_FETCH"
    EVICT_CLAIM = "EVICT_CLAIM"
    PREPARE_JOB_BEFORE_TRANSFER = "PREPARE_JOB_BEFORE_TRANSFER"
    PREPARE_JOB = "PREPARE_JOB"
    UPDATE_JOB_INFO = "UPDATE_JOB_INFO"
    JOB_EXIT = "JOB_EXIT"


#: What the starter calls, for any job; the others are about fetched work.
OF_JOBS = (Hook.PREPARE_JOB_BEFORE_TRANSFER, Hook.PREPARE_JOB, Hook.UPDATE_JOB_INFO, Hook.JOB_EXIT)


@dataclass(frozen=True, slots=True)
class Hooks:
    """The hooks of one keyword: paths of programs."""

    keyword: str
    paths: Mapping[Hook, str]
    timeout_s: float
    exit_timeout_s: float = EXIT_TIMEOUT_S

    def knob(self, hook: Hook) -> str:
        """For messages."""
        return f"{self.keyword}_HOOK_{hook}"

    def time_of(self, hook: Hook) -> float:
        return self.exit_timeout_s if hook is Hook.JOB_EXIT else self.timeout_s


@dataclass(frozen=True, slots=True)
class Keywords:
    """What the configuration says of hooks."""

    hooks: Mapping[str, Hooks] = field(default_factory=dict)  # by keyword in lower case
    startd: str = ""  # STARTD_JOB_HOOK_KEYWORD
    slots: Mapping[int, str] = field(default_factory=dict)  # SLOT<N>_JOB_HOOK_KEYWORD
    forced: str = ""  # STARTER_JOB_HOOK_KEYWORD
    default: str = ""  # STARTER_DEFAULT_JOB_HOOK_KEYWORD

    def of_slot(self, slot_id: int) -> Hooks | None:
        """FHK-01; None where no work is to be fetched (FHK-03)."""
        hooks = self.hooks.get((self.slots.get(slot_id) or self.startd).lower())
        return hooks if hooks is not None and Hook.FETCH_WORK in hooks.paths else None

    def of_job(self, job: ClassAd) -> Hooks | None:
        """JHK-01: a keyword is valid if it has any hook of jobs; STARTER_JOB_HOOK_KEYWORD counts as it is."""
        if self.forced:
            return self._for_jobs(self.forced)
        return self._for_jobs(job.eval_string("HookKeyword")) or self._for_jobs(self.default)

    def _for_jobs(self, keyword: str) -> Hooks | None:
        hooks = self.hooks.get(keyword.lower())
        return hooks if hooks is not None and any(hook in hooks.paths for hook in OF_JOBS) else None


def keywords(settings: StartdSettings) -> Keywords:
    """From the knobs."""
    families: dict[Hook, Mapping[str, str]] = {
        Hook.FETCH_WORK: settings.hook_fetch_work_by_keyword,
        Hook.REPLY_FETCH: settings.hook_reply_fetch_by_keyword,
        Hook.EVICT_CLAIM: settings.hook_evict_claim_by_keyword,
        Hook.PREPARE_JOB_BEFORE_TRANSFER: settings.hook_prepare_job_before_transfer_by_keyword,
        Hook.PREPARE_JOB: settings.hook_prepare_job_by_keyword,
        Hook.UPDATE_JOB_INFO: settings.hook_update_job_info_by_keyword,
        Hook.JOB_EXIT: settings.hook_job_exit_by_keyword,
    }
    exit_timeouts = settings.hook_job_exit_timeout_by_keyword
    found = {
        keyword: Hooks(
            keyword=keyword.upper(),
            paths={hook: paths[keyword].strip() for hook, paths in families.items() if keyword in paths},
            timeout_s=settings.roost_hook_timeout,
            exit_timeout_s=exit_timeouts.get(keyword, EXIT_TIMEOUT_S),
        )
        for keyword in {name for paths in families.values() for name in paths}
    }
    return Keywords(
        hooks=found,
        startd=settings.startd_job_hook_keyword or "",
        slots={int(n): keyword for n, keyword in settings.slot_job_hook_keyword_by_n.items() if n.isdecimal()},
        forced=settings.starter_job_hook_keyword or "",
        default=settings.starter_default_job_hook_keyword or "",
    )
