"""What the engine's refusals mean: it tells them apart by their words only. Pure."""

from __future__ import annotations

import re
from enum import Enum


class Refusal(Enum):
    NO_IMAGE = "the image is not here, or not to be had"
    TRANSIENT = "the registry is away: another attempt may go well"
    DISK_FULL = "there is no room on the engine's disk"
    EXISTS = "a container of this name is there"
    NO_PROGRAM = "the image has no such program"
    NO_VOLUME = "a directory to be mounted is not on this machine"
    NO_NETWORK = "the engine has no such network"
    OTHER = "whatever else"


_FULL = re.compile(r"no space left on device|disk quota exceeded|not enough space", re.IGNORECASE)
_TRANSIENT = re.compile(
    r"connection (refused|reset|timed out)|i/o timeout|TLS handshake timeout|deadline exceeded|unexpected EOF|\bEOF$"
    r"|no route to host|network is unreachable|temporary failure|server misbehaving|no such host|too ?many ?requests"
    r"|request canceled|unexpected HTTP status: 5\d\d|service unavailable|bad gateway|error reading from server",
    re.IGNORECASE,
)
_NO_PROGRAM = re.compile(
    r"executable file not found|exec format error"
    r"|exec: .*(no such file or directory|permission denied|is a directory)"
    r"|starting container process caused.*exec",
    re.IGNORECASE,
)
_NO_NETWORK = re.compile(r"network \S+ not found|could not find (a |the )?network", re.IGNORECASE)
_NO_VOLUME = re.compile(r"bind source path does not exist", re.IGNORECASE)


def of_create(status: int, text: str) -> Refusal:
    """Of `POST /containers/create`."""
    if _FULL.search(text):
        return Refusal.DISK_FULL
    if status == 404 and "image" in text.lower():
        return Refusal.NO_IMAGE
    if status == 409:
        return Refusal.EXISTS
    if _NO_VOLUME.search(text):
        return Refusal.NO_VOLUME
    if _NO_NETWORK.search(text):
        return Refusal.NO_NETWORK
    if status == 400 and "invalid reference format" in text.lower():
        return Refusal.NO_IMAGE
    return Refusal.OTHER


def of_start(status: int, text: str) -> Refusal:
    """Of `POST /containers/{id}/start`."""
    if _FULL.search(text):
        return Refusal.DISK_FULL
    if _NO_PROGRAM.search(text):
        return Refusal.NO_PROGRAM
    if _NO_VOLUME.search(text):
        return Refusal.NO_VOLUME
    if _NO_NETWORK.search(text):
        return Refusal.NO_NETWORK
    return Refusal.OTHER


def of_pull(status: int, text: str) -> Refusal:
    """Of a pull: the status of its answer, 0 for an error that came in the midst of it."""
    if _FULL.search(text):
        return Refusal.DISK_FULL
    if status in (429, 502, 503, 504) or _TRANSIENT.search(text):
        return Refusal.TRANSIENT
    return Refusal.NO_IMAGE
