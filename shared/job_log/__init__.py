"""Events of a job's log (`log = file`, EVENT_LOG, StarterUserLog), as HTCondor writes them: DAGMan, the bindings and
people's scripts read them.

`events` makes an event as data, `writing` its text (or XML, or JSON), `reading` reads all three, ours and HTCondor's,
and `files` appends to logs.
"""

from __future__ import annotations

from shared.job_log.event import KINDS, Event, Form, JobEventType, parse_form
from shared.job_log.events import (
    aborted,
    attribute_changed,
    cluster_removed,
    cluster_submitted,
    disconnected,
    evicted,
    executing,
    held,
    image_size,
    job_ad_information,
    reconnect_failed,
    reconnected,
    released,
    resources,
    shadow_exception,
    submitted,
    suspended,
    terminated,
    transferring,
    unsuspended,
)
from shared.job_log.files import append
from shared.job_log.reading import LogReader
from shared.job_log.writing import TEXT, as_ad, written

__all__ = [
    "KINDS",
    "TEXT",
    "Event",
    "Form",
    "JobEventType",
    "LogReader",
    "aborted",
    "append",
    "as_ad",
    "attribute_changed",
    "cluster_removed",
    "cluster_submitted",
    "disconnected",
    "evicted",
    "executing",
    "held",
    "image_size",
    "job_ad_information",
    "parse_form",
    "reconnect_failed",
    "reconnected",
    "released",
    "resources",
    "shadow_exception",
    "submitted",
    "suspended",
    "terminated",
    "transferring",
    "unsuspended",
    "written",
]
