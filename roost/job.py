"""What `client.Job` and `aio.AsyncJob` share: how a job came to rest, and the reading of its ad."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from roost.errors import ClientError
from roost.notebook import table
from shared.classad import ClassAd

#: JobStatus as people read it.
STATUS: Final = {
    1: "idle",
    2: "running",
    3: "removed",
    4: "completed",
    5: "held",
    6: "transferring output",
    7: "suspended",
}
#: What an action says where there was nothing to do.
_FINE: Final = ("done", "already")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job came to rest. status: completed, removed or held; reason: why it was removed or held."""

    status: str
    exit_code: int | None = None
    exit_signal: int | None = None
    reason: str = ""

    @property
    def ok(self) -> bool:
        """It ended by itself, with exit code 0."""
        return self.status == "completed" and self.exit_code == 0


class JobHandle:
    """What Job and AsyncJob have in common: the id, and the reading of answers."""

    def __init__(self, job_id: str, schedd: str) -> None:
        self.id = job_id
        self.schedd = schedd

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def _repr_html_(self) -> str:
        return table(f"Job {self.id}", {"access point": self.schedd})

    def _outcome(self, ad: ClassAd) -> Outcome:
        status = self._status(ad)
        code, signal = (ad.eval(name) for name in ("ExitCode", "ExitSignal"))
        reason = ad.eval({"held": "HoldReason", "removed": "RemoveReason"}.get(status, ""))
        return Outcome(
            status,
            code if isinstance(code, int) and ad.eval("ExitBySignal") is not True else None,
            signal if isinstance(signal, int) and ad.eval("ExitBySignal") is True else None,
            reason if isinstance(reason, str) else "",
        )

    def _status(self, ad: ClassAd) -> str:
        value = ad.eval("JobStatus")
        return STATUS.get(value, str(value)) if isinstance(value, int) else str(value)

    def _missing(self) -> ClientError:
        return ClientError(f"there is no job {self.id} in the queue or the history", "not-found")

    def _check(self, results: dict[str, str]) -> None:
        said = results.get(self.id, "not-found")
        if said not in _FINE:
            raise ClientError(f"job {self.id}: {said}", said)


def tail_wish(name: str, *, follow: bool) -> dict[str, Any]:
    return {"kind": "tail", "file": name, "follow": follow, "max_bytes": -1}


def standard_output(ad: ClassAd) -> str:
    place = ad.eval_string("Out")
    if not place or place == "/dev/null":
        raise ClientError("this job keeps no standard output: say output = FILE when you submit", "not-found")
    return place.rpartition("/")[2]
