"""The users' credentials that their jobs get: access tokens, by the service they are for.

As HTCondor lays them out below SEC_CREDENTIAL_DIRECTORY_OAUTH, a directory for each user (`alice`, or `alice@elsewhere`
for who is not of UID_DOMAIN) with a file `<service>.use` for each service. `roost store-cred` writes it, or a program
that refreshes tokens; that program may keep what it needs beside (`<service>.top`), which never leaves. All of it
is the account's alone, and nothing of it is in the queue's database, in ads, messages or logs.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from shared import private_files
from shared.classad import ClassAd
from shared.errors import PermanentError
from shared.users import local_name

#: The job attribute that names the services, as HTCondor has it.
NEEDED: Final = "OAuthServicesNeeded"
#: Bytes of one credential.
MAX_BYTES: Final = 64 * 1024
#: Of one user.
MAX_SERVICES: Final = 100
_SERVICE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_USE: Final = ".use"


class BadCredential(PermanentError):
    """A credential that can not be kept, or is not there: which, and the mend."""


class CredentialStore:
    """Reads and writes them. Blocking."""

    def __init__(self, directory: Path, uid_domain: str) -> None:
        self.directory = directory
        self._uid_domain = uid_domain

    def put(self, user: str, service: str, data: bytes) -> None:
        """Keep it, in place of one that was there. Raises BadCredential, OSError."""
        path = self._path(user, service)
        if not 0 < len(data) <= MAX_BYTES:
            raise BadCredential(f"{service}: a credential has 1 to {MAX_BYTES} bytes, not {len(data)}")
        if not path.exists() and len(self.listed(user)) >= MAX_SERVICES:
            raise BadCredential(f"{MAX_SERVICES} credentials are kept; delete one first")
        private_files.make_directory(self.directory)
        private_files.make_directory(path.parent)
        descriptor, name = tempfile.mkstemp(prefix=".", dir=path.parent)  # 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def delete(self, user: str, service: str) -> bool:
        """Whether there was one. What a refreshing program keeps of it goes too. Raises BadCredential."""
        path = self._path(user, service)
        there = path.exists()
        for one in (path, path.with_name(f"{service}.top")):
            one.unlink(missing_ok=True)
        return there

    def listed(self, user: str) -> list[dict[str, Any]]:
        """{service, updated (seconds since 1970)} of what a user has, by name; never what it is."""
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self._folder(user)) as entries:
            for entry in entries:
                service = entry.name.removesuffix(_USE)
                status = entry.stat(follow_symlinks=False)
                if service != entry.name and _SERVICE.fullmatch(service) and stat.S_ISREG(status.st_mode):
                    found.append({"service": service, "updated": status.st_mtime})
        return sorted(found, key=lambda one: str(one["service"]))

    def read(self, user: str, services: Sequence[str]) -> dict[str, bytes]:
        """What a job of the user gets, by file name. Raises BadCredential for one that is not there."""
        found: dict[str, bytes] = {}
        for service in services:
            try:
                descriptor = os.open(self._path(user, service), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                with os.fdopen(descriptor, "rb") as file:
                    found[service + _USE] = file.read(MAX_BYTES)
            except OSError as error:
                raise BadCredential(
                    f"{user} has no credential for {service} here; roost store-cred add-oauth -s {service}"
                ) from error
        return found

    def _folder(self, user: str) -> Path:
        name = local_name(user, self._uid_domain) or user
        if "/" in name or name in (".", "..") or name.startswith("@"):
            raise BadCredential(f"{user[:100]!r} is no user")
        return self.directory / name

    def _path(self, user: str, service: str) -> Path:
        if not _SERVICE.fullmatch(service):
            raise BadCredential(f"{service[:80]!r} is no service: a name has letters, digits and _.- (up to 64)")
        return self._folder(user) / f"{service}{_USE}"


def services_of(job: ClassAd) -> list[str]:
    """The services whose credentials a job wants."""
    return [name for name in re.split(r"[\s,]+", job.eval_string(NEEDED)) if name]
