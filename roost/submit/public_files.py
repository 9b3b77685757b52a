"""public_input_files: what of them machines will not keep for other jobs is told."""

from __future__ import annotations

import os
from pathlib import Path

from roost.submit.commands import Commands, iwd
from shared.classad import ClassAd
from shared.transfer.public import is_kept, public_names, public_urls
from shared.transfer.urls import is_url

_COMMAND = "public_input_files"


def check(c: Commands, listed: str) -> None:
    """listed: PublicInputFiles. What is not there is told with all other files."""
    job = ClassAd({"PublicInputFiles": listed})
    named, by_url = public_names(job), public_urls(job)
    for name in listed.split(","):
        if is_url(name):
            if name not in by_url:
                c.warn(f"{name} is transferred for each job: machines keep it if it ends with #sha256=DIGEST", _COMMAND)
            continue
        path = Path(iwd(c)) / name
        if "$$" in name or not path.exists():
            continue
        if os.path.basename(name) not in named or path.is_dir():
            c.warn(f"{name} is transferred for each job: machines keep files, not directories", _COMMAND)
        elif not is_kept(path.stat()):
            c.warn(f"{name} is transferred for each job, as not everybody may read it: chmod a+r {name}", _COMMAND)
