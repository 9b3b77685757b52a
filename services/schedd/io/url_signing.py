"""Signs URLs of stores of objects for runs: keys are read here, from the files that the job names, and go nowhere."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from shared.classad import ClassAd
from shared.transfer.s3 import BadObject, Keys, signed
from shared.transfer.urls import may_sign

#: Attributes of a job that name the files: the names of EC2 are HTCondor's for all of them.
ACCESS: Final = "EC2AccessKeyId"
SECRET: Final = "EC2SecretAccessKey"
SESSION: Final = "EC2SessionToken"
REGION: Final = "AWSRegion"
#: URLs of one request, bytes of a file with a key.
MOST_URLS: Final = 10_000
_MOST_BYTES: Final = 4096


class NotSigned(Exception):
    """Why not: the text is for the job's owner."""


def sign(job: ClassAd, method: str, urls: Iterable[str], now: float, *, spooled: bool) -> dict[str, str]:
    """A signed URL for each of these. method: GET or PUT. spooled: the job came from another machine, where its key
    files are. Raises NotSigned. Blocking."""
    for url in urls:
        if not may_sign(job, method, url):
            raise NotSigned(f"{url}: the job does not {'send' if method == 'PUT' else 'get'} this")
    keys = _keys(job, spooled=spooled)
    try:
        return {url: signed(method, url, keys, now) for url in urls}
    except BadObject as error:
        raise NotSigned(str(error)) from error


def _keys(job: ClassAd, *, spooled: bool) -> Keys:
    if spooled:
        raise NotSigned(
            "s3:// and gs:// URLs are signed at the access point, and a spooled job leaves its keys where it came from:"
            " submit it at the access point, without -spool"
        )
    session = _read(job, SESSION) if job.eval_string(SESSION) else ""
    return Keys(_read(job, ACCESS), _read(job, SECRET), job.eval_string(REGION), session)


def _read(job: ClassAd, attribute: str) -> str:
    name = job.eval_string(attribute)
    if not name:
        command = {ACCESS: "aws_access_key_id_file", SECRET: "aws_secret_access_key_file"}.get(attribute, attribute)
        raise NotSigned(f"s3:// and gs:// URLs need {command} in the submit file")
    path = Path(job.eval_string("Iwd") or "/") / name
    try:
        # O_NONBLOCK: a pipe that nobody writes to would be waited for.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NotSigned(f"{path} is no plain file, but is to hold a key")
            text = file.read(_MOST_BYTES + 1).decode("ascii").strip()
    except (OSError, ValueError) as error:
        raise NotSigned(f"{path}, which is to hold a key, can not be read: {_reason(error)}") from error
    if not text or len(text) > _MOST_BYTES or any(one.isspace() for one in text):
        raise NotSigned(f"{path} holds no key: one word is wanted")
    return text


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "its bytes are no ASCII text"
