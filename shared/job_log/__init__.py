"""Events of a job's log (`log = file`, EVENT_LOG, StarterUserLog), as HTCondor writes them: DAGMan, the bindings and
people's scripts read them.

`events` makes an event as data, `writing` its text (or XML, or JSON), `reading` reads all three, ours and HTCondor's,
`following` a log as it grows, and `files` appends to logs.
"""

from __future__ import annotations

from shared.job_log.event import KINDS, Event, Form, JobEventType, parse_form
from shared.job_log.events import (
    LogHead,
    Resource,
    aborted,
    attribute_changed,
    cluster_removed,
    cluster_submitted,
    dataflow_skipped,
    disconnected,
    evicted,
    executing,
    generic,
    held,
    image_size,
    job_ad_information,
    log_head,
    node_executing,
    node_terminated,
    parallel_executing,
    post_script_terminated,
    read_log_head,
    reconnect_failed,
    reconnected,
    released,
    remote_error,
    resources,
    shadow_exception,
    submitted,
    suspended,
    terminated,
    transferring,
    unsuspended,
)
from shared.job_log.files import append
from shared.job_log.following import LogFollower
from shared.job_log.reading import BadEvent, LogReader
from shared.job_log.writing import TEXT, as_ad, written

__all__ = [
    "KINDS",
    "TEXT",
    "BadEvent",
    "Event",
    "Form",
    "JobEventType",
    "LogFollower",
    "LogHead",
    "LogReader",
    "Resource",
    "aborted",
    "append",
    "as_ad",
    "attribute_changed",
    "cluster_removed",
    "cluster_submitted",
    "dataflow_skipped",
    "disconnected",
    "evicted",
    "executing",
    "generic",
    "held",
    "image_size",
    "job_ad_information",
    "log_head",
    "node_executing",
    "node_terminated",
    "parallel_executing",
    "parse_form",
    "post_script_terminated",
    "read_log_head",
    "reconnect_failed",
    "reconnected",
    "released",
    "remote_error",
    "resources",
    "shadow_exception",
    "submitted",
    "suspended",
    "terminated",
    "transferring",
    "unsuspended",
    "written",
]
