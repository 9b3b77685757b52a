"""Flocking: jobs that find no slot in their own pool are offered to the pools of FLOCK_TO, one more at a time (the
manual's "Connecting HTCondor Pools with Flocking").

What lies in another pool is named with the pool behind a percent sign, as IPv6 names the link of an address: the inbox
startd.node1%pool.example.org, the negotiators' shard %pool.example.org. So claims of all pools live in one table, and
nobody in one pool can speak for a daemon of another: whatever comes from a pool gets its name put behind it. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from engine.queue.submitters import Elsewhere
from services.schedd.core.claim import Claim
from shared.classad import ClassAd, evaluate, is_true, parse_expr
from shared.messages.base import Message
from shared.messages.claims import ClaimLost, ClaimReady, JobReport, JobReports
from shared.messages.negotiation import GetRequests, Matches

SIGN: Final = "%"
#: Jobs of several machines that start together get them all from one pool, their own.
_PARALLEL: Final = "JobUniverse =!= 11"
#: negotiator_inbox() of a shard without a name in another pool.
_NAMELESS: Final = "negotiator.active."


@dataclass(frozen=True, slots=True)
class Flocking:
    """What the configuration says. pools: FLOCK_TO, in this order. least: MIN_FLOCK_LEVEL, so many are always asked.
    step: FLOCK_INCREMENT. after_s: ROOST_SCHEDD_FLOCK_AFTER. by_default: FLOCK_BY_DEFAULT. directory: with a directory
    for each pool (ROOST_SCHEDD_FLOCK_DIRECTORY)."""

    pools: tuple[str, ...] = ()
    least: int = 0
    step: int = 1
    after_s: float = 10.0
    by_default: bool = True
    directory: str = ""

    @property
    def always(self) -> int:
        """How many pools are asked whoever waits."""
        return min(self.least, len(self.pools))

    @property
    def constraint(self) -> str:
        """Which jobs other pools are offered."""
        return f"WantFlocking {'=!= false' if self.by_default else '=?= true'} && {_PARALLEL}"

    def wanted_by(self, job: ClassAd, now: float) -> bool:
        """Whether a job may run in another pool."""
        return is_true(evaluate(parse_expr(self.constraint), job, None, now))


@dataclass(frozen=True, slots=True)
class Level:
    """How many pools of FLOCK_TO a submitter's jobs are offered to. since: monotonic, from when on it has been so that
    jobs wait, or that none does."""

    pools: int
    waits: bool
    since: float


def next_level(level: Level | None, *, waits: bool, now: float, rules: Flocking) -> Level:
    """waits: there are jobs that could start at once. When some have waited all the time for after_s, one step of pools
    more is asked; when none has for as long, only those that always are. now: monotonic."""
    if level is None or level.waits != waits:
        return Level(rules.always if level is None else level.pools, waits, now)
    if now - level.since < rules.after_s:
        return level
    pools = min(len(rules.pools), level.pools + rules.step) if waits else rules.always
    return Level(pools, waits, now)


def rejected_level(level: Level | None, *, by: int, now: float, rules: Flocking) -> Level:
    """A negotiator had no slot for a job: the next pools are asked at once, if this was the last that is. by: its place
    in FLOCK_TO, from 1; 0: the own pool."""
    level = level or next_level(None, waits=True, now=now, rules=rules)
    if by != level.pools:
        return level
    return Level(min(len(rules.pools), level.pools + rules.step), waits=True, since=now)


def named(name: str, pool: str) -> str:
    """An inbox or a shard of another pool, as it is called here."""
    return f"{name}{SIGN}{pool}"


def pool_of(name: str) -> str:
    """The pool where this is; "": our own."""
    return name.rpartition(SIGN)[2] if SIGN in name else ""


def there(name: str) -> str:
    """An inbox or a shard as it is called in its own pool."""
    bare = name.rpartition(SIGN)[0] if SIGN in name else name
    return "negotiator" if bare == _NAMELESS else bare


def _requests(body: GetRequests, pool: str, wanted: str) -> Message:
    asked = f"({body.job_constraint}) && ({wanted})" if body.job_constraint.strip() else wanted
    return body.model_copy(update={"shard": named(body.shard, pool), "job_constraint": asked})


def _matches(body: Matches, pool: str, _wanted: str) -> Message:
    matches = [match.model_copy(update={"startd": named(match.startd, pool)}) for match in body.matches]
    return body.model_copy(update={"shard": named(body.shard, pool), "matches": matches})


def _of_startd(body: Any, pool: str, _wanted: str) -> Message:
    changed: Message = body.model_copy(update={"startd": named(body.startd, pool)})
    return changed


def _reports(body: JobReports, pool: str, wanted: str) -> Message:
    reports = [_of_startd(report, pool, wanted) for report in body.reports]
    return body.model_copy(update={"startd": named(body.startd, pool), "reports": reports})


#: What daemons of another pool may send, and how it is read here. Nothing else: they have no business with the queue.
_READ: Final[Mapping[type[Message], Callable[[Any, str, str], Message]]] = MappingProxyType(
    {
        GetRequests: _requests,
        Matches: _matches,
        JobReport: _of_startd,
        JobReports: _reports,
        ClaimLost: _of_startd,
        ClaimReady: _of_startd,
    }
)


def as_here(body: Message, pool: str, wanted: str) -> Message | None:
    """A message of another pool with the names that things there have here. None: it may not come from there. wanted:
    constraint of the jobs that other pools are offered."""
    read = _READ.get(type(body))
    return None if read is None else read(body, pool, wanted)


def as_there(body: Message) -> Message:
    """A message to another pool with the names that things have there."""
    shard = getattr(body, "shard", "")
    return body.model_copy(update={"shard": there(shard)}) if SIGN in shard else body


def running_by_pool(claims: Iterable[Claim]) -> dict[str, dict[str, Elsewhere]]:
    """Runs by submitter and pool ("": our own)."""
    found: dict[str, dict[str, Elsewhere]] = {}
    for claim in claims:
        if claim.shadow is not None:
            pools = found.setdefault(claim.submitter, {})
            pool = pool_of(claim.startd)
            pools[pool] = pools.get(pool, Elsewhere()).plus(claim.weight())
    return found


def elsewhere(by_pool: Mapping[str, Elsewhere], here: str) -> Elsewhere:
    """A submitter's runs in all pools but one."""
    others = [runs for pool, runs in by_pool.items() if pool != here]
    return Elsewhere(sum(runs.runs for runs in others), sum(runs.weight for runs in others))
