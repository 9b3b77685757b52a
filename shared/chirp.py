"""Chirp: how a running job reaches its own ad, its log and its files at the access point.

A job speaks HTCondor's text protocol with its execution point (services.startd.run.chirp_session), which asks the
access point over HTTP what it cannot answer itself: one request is a list packed with msgpack, the verb first, and its
answer `[result, data]`. A result below zero is one of `Code`. Pure.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import msgpack

from shared.classad import ClassAd

#: Bytes of content in one request to the access point, or in its answer.
PIECE_BYTES: Final = 1 << 18
#: Bytes of such a request at most: a piece, and two paths.
MAX_REQUEST: Final = PIECE_BYTES + (1 << 16)
#: Bytes of a path, and of an expression.
MAX_WORD: Final = 1 << 13


class Code(IntEnum):
    """HTCondor's codes of what went wrong."""

    NOT_AUTHENTICATED = -1
    NOT_AUTHORIZED = -2
    DOES_NOT_EXIST = -3
    ALREADY_EXISTS = -4
    TOO_BIG = -5
    NO_SPACE = -6
    NO_MEMORY = -7
    INVALID_REQUEST = -8
    TOO_MANY_OPEN = -9
    BUSY = -10
    TRY_AGAIN = -11
    BAD_FD = -12
    IS_DIRECTORY = -13
    NOT_DIRECTORY = -14
    NOT_EMPTY = -15
    CROSS_DEVICE_LINK = -16
    OFFLINE = -17
    UNKNOWN = -127


_BY_ERRNO: Final = {
    errno.EPERM: Code.NOT_AUTHORIZED,
    errno.EACCES: Code.NOT_AUTHORIZED,
    errno.EROFS: Code.NOT_AUTHORIZED,
    errno.ELOOP: Code.NOT_AUTHORIZED,
    errno.ENOENT: Code.DOES_NOT_EXIST,
    errno.EEXIST: Code.ALREADY_EXISTS,
    errno.EFBIG: Code.TOO_BIG,
    errno.ENAMETOOLONG: Code.TOO_BIG,
    errno.ENOSPC: Code.NO_SPACE,
    errno.EDQUOT: Code.NO_SPACE,
    errno.ENOMEM: Code.NO_MEMORY,
    errno.EBADF: Code.BAD_FD,
    errno.E2BIG: Code.INVALID_REQUEST,
    errno.EINVAL: Code.INVALID_REQUEST,
    errno.EMFILE: Code.TOO_MANY_OPEN,
    errno.ENFILE: Code.TOO_MANY_OPEN,
    errno.EBUSY: Code.BUSY,
    errno.ETXTBSY: Code.BUSY,
    errno.EAGAIN: Code.TRY_AGAIN,
    errno.EINTR: Code.TRY_AGAIN,
    errno.EISDIR: Code.IS_DIRECTORY,
    errno.ENOTDIR: Code.NOT_DIRECTORY,
    errno.ENOTEMPTY: Code.NOT_EMPTY,
    errno.EXDEV: Code.CROSS_DEVICE_LINK,
    errno.ETIMEDOUT: Code.OFFLINE,
}


def code_of(error: OSError) -> Code:
    return _BY_ERRNO.get(error.errno or 0, Code.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Wish:
    """What of Chirp a job asks for. files: at the access point. attributes: its ad and its log, at once. delayed:
    attributes that go with the next report."""

    files: bool = False
    attributes: bool = False
    delayed: bool = True

    @property
    def remote(self) -> bool:
        """Whether its access point is to answer."""
        return self.files or self.attributes


def wish_of(job: ClassAd, *, files_allowed: bool = True) -> Wish:
    """files_allowed: not by a machine with ENABLE_CHIRP_IO = False, where WantIOProxy counts for nothing."""
    files = job.eval("WantIOProxy") is True and files_allowed
    updates, delayed = job.eval("WantRemoteUpdates"), job.eval("WantDelayedUpdates")
    return Wish(files, updates if isinstance(updates, bool) else files, delayed is not False)


@dataclass(frozen=True, slots=True)
class Answer:
    """result: of the verb, or a Code. data: that comes with it."""

    result: int
    data: bytes = b""

    def pack(self) -> bytes:
        packed: bytes = msgpack.packb([int(self.result), self.data])
        return packed

    @classmethod
    def unpack(cls, packed: bytes) -> Answer:
        """What is no answer is Code.UNKNOWN."""
        try:
            result, data = msgpack.unpackb(packed)
        except (ValueError, TypeError, msgpack.UnpackException):
            return cls(Code.UNKNOWN)
        good = isinstance(result, int) and not isinstance(result, bool) and isinstance(data, bytes)
        return cls(result, data) if good else cls(Code.UNKNOWN)


class BadRequest(ValueError):
    """A request that is none."""


def pack_request(verb: str, *arguments: Any) -> bytes:
    packed: bytes = msgpack.packb([verb, *arguments], unicode_errors="surrogateescape")
    return packed


def unpack_request(packed: bytes) -> tuple[str, list[Any]]:
    """Verb and arguments: texts without zero bytes, whole numbers, bytes. Raises BadRequest."""
    try:
        words = msgpack.unpackb(packed, unicode_errors="surrogateescape")
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise BadRequest(f"no request of Chirp: {error}") from error
    if not isinstance(words, list) or not 1 <= len(words) <= 8 or not isinstance(words[0], str):
        raise BadRequest("a request of Chirp is a list, its verb first")
    for word in words:
        if isinstance(word, str):
            if "\0" in word or len(word) > MAX_WORD:
                raise BadRequest(f"a word of Chirp has up to {MAX_WORD} characters, and no zero byte")
        elif isinstance(word, bool) or not isinstance(word, int | bytes) or (isinstance(word, int) and abs(word) >> 62):
            raise BadRequest("arguments of Chirp are texts, whole numbers and bytes")
    return words[0], words[1:]
