"""The same under virtual time with the whole negotiation cycle: slots of one core, jobs that run for a while."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.fairshare.simulation import BEGINNING, HALF_LIFE, HOUR, Moment, User
from engine.fairshare import priorities
from engine.match.cycle import negotiate
from engine.match.model import CycleConfig, Request
from engine.match.slot_table import snapshot_of
from shared.classad import ClassAd, parse_ad

_JOB: Final = parse_ad('[ MyType = "Job"; RequestCpus = 1; Requirements = TARGET.Cpus >= RequestCpus; Rank = 0 ]')
#: Offered at once; more than any pool here has.
_MOST_JOBS: Final = 10_000


def run_cycles(
    users: Mapping[str, User],
    running: Mapping[str, int],
    slots: int,
    hours: float,
    *,
    interval: float = 300.0,
    job_length: float = 1800.0,
    half_life: float = HALF_LIFE,
) -> list[Moment]:
    """A cycle every `interval` seconds over `slots` slots; `running`: how many jobs each user has at the beginning,
    which end evenly over `job_length`. A moment's cores are those after its cycle."""
    config = CycleConfig()
    names = [f"slot{number + 1}@pool" for number in range(slots)]
    started = [user for user, count in running.items() for _ in range(count)]
    claims = {
        name: (user, job_length * (number + 1) / max(1, len(started)))
        for number, (name, user) in enumerate(zip(names, started, strict=False))
    }
    books = {name: priorities.advance(user.record, BEGINNING, half_life, 0.0, 0) for name, user in users.items()}
    moments: list[Moment] = []
    for number in range(round(hours * HOUR / interval) + 1):
        seconds = number * interval
        now = BEGINNING + seconds
        claims = {name: claim for name, claim in claims.items() if claim[1] > seconds}
        books = _charged(books, claims, now, half_life)
        requests = {
            user: [Request("schedd", place, count, _JOB)]
            for place, (user, one) in enumerate(sorted(users.items()))
            if (count := int(min(one.demand(seconds), _MOST_JOBS)) - _held(claims, user)) > 0
        }
        ads = [_slot(name, claims[name][0] if name in claims else "") for name in names]
        result = negotiate(snapshot_of(ads, requests, books, config), config, now)
        for match in result.matches:
            claims[match.slot] = (match.submitter, seconds + job_length)
        moments.append(
            Moment(
                seconds,
                {name: record.priority for name, record in books.items()},
                {name: priorities.effective(record) for name, record in books.items()},
                {name: float(_held(claims, name)) for name in users},
            )
        )
        books = _charged(books, claims, now, half_life)
    return moments


def _held(claims: Mapping[str, tuple[str, float]], user: str) -> int:
    return sum(owner == user for owner, _ in claims.values())


def _charged(
    books: Mapping[str, priorities.Record], claims: Mapping[str, tuple[str, float]], now: float, half_life: float
) -> dict[str, priorities.Record]:
    """The books at this moment, and what is in use from then on."""
    return {
        name: priorities.advance(record, now, half_life, float(_held(claims, name)), _held(claims, name))
        for name, record in books.items()
    }


def _slot(name: str, user: str) -> ClassAd:
    ad = ClassAd({"MyType": "Machine", "Name": name, "Cpus": 1, "SlotWeight": 1, "State": "Unclaimed"})
    ad["Requirements"] = True
    if user:
        ad["State"] = "Claimed"
        ad["RemoteUser"] = user
    return ad
