"""Who gets mail about a job, when, and what it says: notification, notify_user, email_attributes (SUB-04). No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Final

from services.schedd.core.policies import Hold
from shared.classad import ClassAd, unparse
from shared.classad.ad import is_private
from shared.classad.expr import fold
from shared.config.knobs.base import to_list


class Notification(IntEnum):
    """JobNotification, HTCondor's numbers."""

    NEVER = 0
    ALWAYS = 1
    COMPLETE = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Mail:
    to: str
    subject: str
    body: str


#: Holds that are no failure of the job: by request, by its own policy, from its submit on, until its files are there.
_ASKED_FOR: Final = frozenset((Hold.USER_REQUEST, Hold.JOB_POLICY, Hold.SUBMITTED_ON_HOLD, Hold.SPOOLING_INPUT))
#: An address that no program takes for an option and no server for two.
_ADDRESS: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+%=/-]{0,63}@[A-Za-z0-9][A-Za-z0-9.-]{0,253}")
MAX_ATTRIBUTES: Final = 100
MAX_VALUE: Final = 2000


def wants_mail(ad: ClassAd, hold_code: int | None) -> bool:
    """Whether the owner wants to hear of this: that the job has ended (hold_code None), or was put on hold."""
    value = ad.eval("JobNotification")
    if not isinstance(value, int) or isinstance(value, bool) or value not in set(Notification):
        return False
    wish = Notification(value)
    if wish is Notification.NEVER:
        return False
    if hold_code is not None:
        return wish is not Notification.COMPLETE and hold_code not in _ASKED_FOR
    return wish is not Notification.ERROR or _abnormal(ad)


def _abnormal(ad: ClassAd) -> bool:
    """By a signal; or with another code than JobSuccessExitCode, where the job has that."""
    if ad.eval("ExitBySignal") is True:
        return True
    success = ad.eval("JobSuccessExitCode")
    return isinstance(success, int) and ad.eval("ExitCode") != success


def address_of(ad: ClassAd, domain: str) -> str:
    """Where mail about the job goes: NotifyUser, else its owner, completed with the domain. Raises ValueError."""
    name = (ad.eval_string("NotifyUser") or ad.eval_string("Owner")).strip()
    address = name if "@" in name else f"{name}@{domain}"
    if not _ADDRESS.fullmatch(address):
        raise ValueError(f"{address[:100]!r} is no mail address")
    return address


def mail_of(
    ad: ClassAd, hold_code: int | None, now: float, *, host: str, domain: str, hidden: frozenset[str] = frozenset()
) -> Mail:
    """The mail. ad: the whole one. hidden: attributes (folded) that are not told. Raises ValueError: no address."""
    job = f"{ad.eval('ClusterId')}.{ad.eval('ProcId')}"
    command = f"{ad.eval_string('Cmd')} {ad.eval_string('Args') or ad.eval_string('Arguments')}".strip()
    lines = [f"This is an automated email of the pool, from the access point {host}. Do not reply.", ""]
    lines += [f"Your job {job}", f"\t{_line(command)}", _end(ad) if hold_code is None else _held(ad, hold_code), ""]
    lines += list(_times(ad, now, ended=hold_code is None))
    asked = to_list(ad.eval_string("EmailAttributes"))[:MAX_ATTRIBUTES]
    told = [name for name in asked if fold(name) not in hidden and not is_private(fold(name))]
    lines += ["", "", *(f"{name} = {_value(ad, name)}" for name in told)] if told else []
    subject = f"[Roost] Job {job} {'was put on hold' if hold_code is not None else 'has ended'}"
    return Mail(address_of(ad, domain), subject, "\n".join(lines) + "\n")


def _end(ad: ClassAd) -> str:
    if ad.eval("ExitBySignal") is True:
        return f"was killed by signal {ad.eval('ExitSignal')}"
    return f"has exited normally with status {ad.eval('ExitCode')}"


def _held(ad: ClassAd, code: int) -> str:
    return f"was put on hold (code {code}): {_line(ad.eval_string('HoldReason'))}"


def _times(ad: ClassAd, now: float, *, ended: bool) -> Iterable[str]:
    submitted = ad.eval("QDate")
    if isinstance(submitted, int):
        yield f"Submitted at:        {_date(submitted)}"
    if ended:
        yield f"Completed at:        {_date(now)}"
    for name, attribute in (
        ("Real Time", "RemoteWallClockTime"),
        ("User CPU", "CumulativeRemoteUserCpu"),
        ("Sys CPU", "CumulativeRemoteSysCpu"),
    ):
        value = ad.eval(attribute)
        if isinstance(value, int | float):
            yield f"{name + ':':<20} {value:.0f} s"


def _date(at: float) -> str:
    return datetime.fromtimestamp(min(max(at, 0), 2**33), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _value(ad: ClassAd, name: str) -> str:
    if name not in ad:
        return "undefined"
    value = ad.eval(name)
    holder = ClassAd({"v": value})
    return _line(unparse(holder.find("v")))  # type: ignore[arg-type]


def _line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text[:MAX_VALUE])
