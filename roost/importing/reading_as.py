"""Reading the files of a job with the rights of its owner, and no others: a job's ad names files, and whoever imports
it may read more than its owner."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO


def account_of(user: str) -> pwd.struct_passwd:
    """The account with whose rights files of jobs of `user` (name@domain) are read. Raises ValueError with the mend."""
    name = user.partition("@")[0]
    try:
        account = pwd.getpwnam(name)
    except KeyError:
        raise ValueError(
            f"its files can be read with the rights of {name} only, who has no account here; make one and import again"
        ) from None
    if os.geteuid() not in (0, account.pw_uid):
        raise ValueError(f"its files can be read with the rights of {name} only; import as root, or as {name}")
    return account


@contextmanager
def reading_as(account: pwd.struct_passwd) -> Iterator[None]:
    """Within, files are opened with the rights of an account. Not for programs with several threads."""
    if account.pw_uid == os.geteuid():
        yield
        return
    group, groups = os.getegid(), os.getgroups()
    os.setgroups(os.getgrouplist(account.pw_name, account.pw_gid))
    os.setegid(account.pw_gid)
    os.seteuid(account.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def collected(account: pwd.struct_passwd, chunks: Iterable[bytes], target: BinaryIO) -> None:
    """Write chunks that are read from files into an open one. All of it is read with the rights of an account: whoever
    reads ahead in another thread has them too."""
    with reading_as(account):
        for chunk in chunks:
            target.write(chunk)
    target.seek(0)
