"""Errors that the command and the client library tell a person."""

from __future__ import annotations

from shared.errors import RoostError


class ClientError(RoostError):
    """The gateway said no, or could not be reached."""

    def __init__(self, message: str, code: str = "error", retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable


class UsageError(RoostError):
    """The command line is off: names the option and the mend."""

    code = "usage"


class UnknownOption(UsageError):
    """A command does not have this option. name: without dashes."""

    def __init__(self, name: str, hint: str) -> None:
        super().__init__(f"unknown option -{name}; {hint}")
        self.name = name
