"""Who published a message that became a dead letter, kept with it so that nobody can change it.

The broker vouches for who publishes a message, and a dead letter that is put back is published by a gateway. So whoever
buries a message says whom the broker knew its publisher as, under a seal that only itself can make: an HMAC with a key
that never leaves its disk. When the message comes back the seal is looked at, and the message is held to the table of
senders as what it was. A gateway, or whoever else may write to a queue, can put nothing back that its reader did not
have before, nor have it come from somebody else.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from pathlib import Path
from typing import Final

import structlog

from shared.files import replace_on_disk

KEY_BYTES: Final = 32


def seal_file(spool: Path) -> Path:
    """Where a sender keeps its key: beside the events that wait for the broker (shared.bus.spool)."""
    return spool.with_suffix(".seal")


class Seal:
    """The seal of one daemon. path: keeps its key over restarts; None: what it buried in another life is not known
    again, and is refused."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._key = b""

    def of(self, queue: str, user: str, digest: bytes) -> str:
        """The seal of a message that came to a queue from a user of the broker. digest: SHA-256 of the message. The
        first one makes the key's file."""
        text = b"".join(len(part).to_bytes(4, "big") + part for part in (queue.encode(), user.encode()))
        return hmac.new(self._secret(), text + digest, hashlib.sha256).hexdigest()

    def fits(self, seal: str, queue: str, user: str, digest: bytes) -> bool:
        return hmac.compare_digest(seal.encode(), self.of(queue, user, digest).encode())

    def _secret(self) -> bytes:
        if not self._key:
            self._key = self._kept()
        return self._key

    def _kept(self) -> bytes:
        path = self._path
        if path is not None:
            try:
                found = path.read_bytes()
            except FileNotFoundError:
                found = b""
            except OSError as error:
                self._note(error)
                return secrets.token_bytes(KEY_BYTES)
            if len(found) == KEY_BYTES:
                return found
        key = secrets.token_bytes(KEY_BYTES)
        if path is not None:
            try:
                replace_on_disk(path, key)
            except OSError as error:
                self._note(error)
        return key

    def _note(self, error: OSError) -> None:
        structlog.stdlib.get_logger().warning("seal_not_kept", file=str(self._path), reason=str(error))
