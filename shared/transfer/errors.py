"""What can go wrong when sandboxes travel."""

from __future__ import annotations

from shared.errors import PermanentError, RetryableError


class TransferError(PermanentError):
    """A sandbox that can not be sent or may not be received: the text names the member and the mend."""


class TooLarge(TransferError):
    """More, or more files, than the transfer may have."""


class InTheClear(TransferError):
    """The other machine speaks no TLS: nothing was sent to it."""


class NoRoom(TransferError):
    """The disk that receives is full: not the sandbox's fault, and it may pass."""


class TransferRefused(TransferError):
    """The other side does not want this transfer (wrong or revoked token, an attempt that is over, a bad bundle)."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class OutOfStep(TransferError):
    """The other side has fewer bytes of a stream than was thought: `size`."""

    def __init__(self, size: int) -> None:
        super().__init__(f"only {size} bytes of the stream are there")
        self.size = size


class TransferUnavailable(RetryableError):
    """The connection broke or the endpoint is away: the whole transfer may be repeated, it changed nothing."""


class CertificateTrouble(TransferUnavailable):
    """The other end's certificate is not to be believed, or one of ours can not be used: nothing was sent. It may be
    mended while daemons run, but hardly within a minute."""
