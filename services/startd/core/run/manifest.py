"""What a job's manifest is: `manifest`, `manifest_dir` of a submit file (SUB-10). Pure."""

from __future__ import annotations

from typing import Final

from services.startd.core.run.failures import Fault
from shared.classad import ClassAd

#: The files of a manifest: names in the scratch directory before the job and after it, and the job's variables.
BEFORE, AFTER, ENVIRONMENT = "in", "out", "environment"
_MOST: Final = 255


def directory_of(job: ClassAd) -> str:
    """The name of the manifest's directory in the scratch directory; empty: the job wants none. Raises RunFailed."""
    given = job.eval("ManifestDir")
    if not isinstance(given, str) or not given:
        return f"{job.eval('ClusterId')}_{job.eval('ProcId')}_manifest" if job.eval("ManifestDesired") is True else ""
    if "/" in given or "\0" in given or given in (".", "..") or len(given.encode(errors="surrogateescape")) > _MOST:
        raise Fault.BAD_TEXT.failure(f"manifest_dir must be a plain name, not {given[:100]!r}")
    return given
