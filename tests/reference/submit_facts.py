"""What both sides of the comparison of submit files share: the process that asks the reference imports this alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

FILES: Final = Path(__file__).resolve().parents[1] / "unit" / "submit" / "reference" / "files"
ENVIRONMENT: Final = {
    "HOME": "/root",
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "WORD": "a b",
    "N_1": "1",
}
#: Of the moment, of the version, or of the way in which it was submitted.
PASSING: Final = frozenset(
    name.lower()
    for name in (
        *("CondorVersion", "CondorPlatform", "QDate", "EnteredCurrentStatus", "ClusterId", "Owner", "JobSubmitMethod"),
        *("JobSubmitFile",),
    )
)


def facts(ads: list[dict[str, str]], folder: str) -> dict[str, Any]:
    """A question for each attribute of each job; `folder` becomes $DIR. One side prints odd names in quotes."""
    found: dict[str, Any] = {"jobs": len(ads)}
    for number, ad in enumerate(ads):
        plain = {name.strip("'").lower(): text.replace(folder, "$DIR") for name, text in ad.items()}
        found |= {f"{number} {name}": text for name, text in plain.items() if name not in PASSING}
    return found
