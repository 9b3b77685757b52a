"""What `q -io` shows of a job's files: whether they travel, and how far they are."""

from __future__ import annotations

from typing import Final

from roost.cli.print_mask import integer, truth
from shared.classad import ClassAd
from shared.transfer.progress import in_words

NEEDS: Final = (
    "TransferringInput",
    "TransferringOutput",
    "TransferQueued",
    *(f"Transfer{way}Bytes{what}" for way in ("Input", "Output") for what in ("Done", "Total", "PerSecond")),
)


def io_state(_: str, ad: ClassAd) -> str:
    doing = [
        word
        for word, name in (("in", "TransferringInput"), ("out", "TransferringOutput"), ("queued", "TransferQueued"))
        if truth(ad, name)
    ]
    if not doing:
        return ""
    far = [
        in_words(done, integer(ad, f"Transfer{way}BytesTotal") or 0, integer(ad, f"Transfer{way}BytesPerSecond") or 0)
        for way in ("Input", "Output")
        if (done := integer(ad, f"Transfer{way}BytesDone")) is not None
    ]
    return f" transfer={','.join(doing)}{''.join(f' {one}' for one in far)}"
