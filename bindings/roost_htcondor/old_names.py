"""Names of the older module htcondor that Roost has nothing for: importing one is no error, using it says what there is
instead."""

from __future__ import annotations

from typing import Any, Final

from roost_htcondor.gateway import refuse, refused

_LOG: Final = "JobEventLog follows a job's log, and needs no lock for it"
_LOCK: Final = "logs are written by the access point alone; lock files of your own with fcntl.flock"
_QUERY: Final = "Schedd.query gives ads in a list, Schedd.xquery one after the other"
_BUS: Final = "negotiators and access points speak over the bus"
_TOKENS: Final = "`roost token create` makes tokens, `roost token fetch` gets one; programs find it in ROOST_TOKEN"


def _gone(name: str, instead: str, *methods: str) -> type:
    """A class that can not be made. methods: of the class itself."""

    def __init__(self: object, *_: Any, **__: Any) -> None:
        refuse(f"htcondor.{name}", instead)

    body: dict[str, Any] = {"__init__": __init__, "__doc__": f"Refused: {instead}.", "__module__": "htcondor"}
    return type(name, (), body | {method: refused(f"htcondor.{name}.{method}", instead) for method in methods})


SecMan = _gone(
    *("SecMan", "each request brings a token (ROOST_TOKEN), and no session is kept; htcondor2.ping tells what it may"),
    *("invalidateAllSessions", "ping", "getCommandString", "setConfig", "setGSICredential", "setPoolPassword"),
    *("setTag", "setToken"),
)
Token = _gone("Token", _TOKENS, "write")
TokenRequest = _gone("TokenRequest", _TOKENS, "submit", "done", "result")
Claim = _gone(
    *(
        "Claim",
        "computing on demand is not in Roost: submit a job, perhaps with `roost submit -interactive`",
    ),
    *("requestCOD", "activate", "release", "suspend", "resume", "renew", "deactivate", "delegateGSIProxy"),
)
ScheddNegotiate = _gone("ScheddNegotiate", _BUS, "sendClaim", "disconnect")
RequestIterator = _gone("RequestIterator", _BUS)
LogReader = _gone("LogReader", _LOG, "poll", "wait", "watch", "setBlocking", "next")
EventIterator = _gone("EventIterator", _LOG, "poll", "wait", "watch", "setBlocking", "next")
EntryType = _gone("EntryType", _LOG)
FileLock = _gone("FileLock", _LOCK)
LockType = _gone("LockType", _LOCK)
QueryIterator = _gone("QueryIterator", _QUERY, "nextAdsNonBlocking", "tag", "done", "watch")
BulkQueryIterator = _gone("BulkQueryIterator", _QUERY)
BlockingMode = _gone("BlockingMode", _QUERY)
HistoryIterator = _gone("HistoryIterator", "Schedd.history gives a list of ads")
QueueItemsIterator = _gone("QueueItemsIterator", "Submit.itemdata gives an iterator")

lock = refused("htcondor.lock", _LOCK)
read_events = refused("htcondor.read_events", "JobEventLog(path).events(0) gives the events that are there")
poll = refused("htcondor.poll", "ask one access point after the other: Schedd.query")


def enable_classad_extensions() -> None:
    """Nothing is to be done: HTCondor's functions are always there."""
