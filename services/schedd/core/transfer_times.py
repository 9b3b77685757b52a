"""When the files of a job's run travelled, as its ad tells: by when it waited, began and was done, in HTCondor's names.
Times are those of the access point, whole seconds. Pure.
"""

from __future__ import annotations

from typing import Final, Literal

from engine.queue.jobs import Job
from shared.classad import ClassAd
from shared.transfer.progress import Standing

#: What the names of a direction have.
Direction = Literal["Input", "Output"]
_SHORT: Final = {"Input": "In", "Output": "Out"}
#: How far files are that travel: bytes that are there, of all (where somebody knows), and how fast.
_PROGRESS: Final = ("BytesDone", "BytesTotal", "BytesPerSecond")
#: Of the run before, where another begins.
_OF_ONE_RUN: Final = (
    *(f"Transfer{way}{step}" for way in _SHORT.values() for step in ("Queued", "Started", "Finished")),
    *(f"JobCurrent{step}Transfer{way}Date" for way in _SHORT for step in ("Start", "Finish")),
    *("TransferQueued", "TransferringInput", "TransferringOutput"),
    *(f"Transfer{way}{what}" for way in _SHORT for what in _PROGRESS),
)


def forget(ad: ClassAd) -> None:
    """A run begins: nothing of it has travelled."""
    for name in _OF_ONE_RUN:
        if name in ad:
            del ad[name]


def queued(job: Job, way: Direction, now: float) -> None:
    """The files may go when it is their turn. One that asks again has waited since it asked first."""
    ad = job.ad
    name = f"Transfer{_SHORT[way]}Queued"
    if name not in ad:
        ad[name] = int(now)
    ad["TransferQueued"] = True


def started(job: Job, way: Direction, now: float) -> None:
    ad = job.ad
    ad["TransferQueued"] = False
    ad[f"Transferring{way}"] = True
    ad[f"Transfer{_SHORT[way]}Started"] = ad[f"JobCurrentStartTransfer{way}Date"] = int(now)


def stands(job: Job, way: Direction, standing: Standing) -> None:
    """How far they are. Nothing of it is worth a commit: it is another a moment later."""
    ad = job.ad
    ad[f"Transferring{way}"] = True
    values = (standing.done, standing.total, standing.bytes_per_s)
    for what, value in zip(_PROGRESS, values, strict=True):
        if value or what != "BytesTotal":
            ad[f"Transfer{way}{what}"] = value


def at_rest(ad: ClassAd, *ways: Direction) -> None:
    """No file travels any more these ways."""
    for way in ways:
        if ad.eval(f"Transferring{way}") is True:
            ad[f"Transferring{way}"] = False
        for what in _PROGRESS:
            if (name := f"Transfer{way}{what}") in ad:
                del ad[name]


def ended(job: Job, way: Direction, now: float, *, arrived: bool) -> None:
    """No more of them travels. arrived: all are there; else they may come again."""
    ad = job.ad
    ad["TransferQueued"] = False
    began = ad.eval(f"Transfer{_SHORT[way]}Started")
    if ad.eval(f"Transferring{way}") is not True or not isinstance(began, int):
        return  # it never was its turn, or the run is over
    at_rest(ad, way)
    job.count("CumulativeTransferTime", max(0, int(now) - began))
    if arrived:
        ad[f"Transfer{_SHORT[way]}Finished"] = ad[f"JobCurrentFinishTransfer{way}Date"] = int(now)
