"""The backfill client as the BOINC_* knobs describe it (BKF-01, BKF-05). Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field

from shared import backoff
from shared.config.knobs import StartdSettings
from shared.job_text import BadJobText, arguments, environment, quoted

#: Seconds until a client that ended by itself is started again: at once, then doubled for each that lives shortly.
FIRST_WAIT_S, LONGEST_WAIT_S, GOOD_LIFE_S = 5.0, 300.0, 60.0


@dataclass(frozen=True, slots=True)
class BackfillClient:
    """What to start, and as whom. Paths; empty: /dev/null."""

    executable: str
    directory: str
    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    stdout: str = ""
    stderr: str = ""
    owner: str = ""  # counts where the startd is root


class BadBackfill(ValueError):
    """Backfill is wanted but can not be had: names the knob and the mend."""


def backfill_client(knobs: StartdSettings, *, root: bool) -> BackfillClient | None:
    """The client, or None where there is to be no backfill. root: whether the startd is. Raises BadBackfill."""
    if not knobs.enable_backfill:
        return None
    system = (knobs.backfill_system or "").strip()
    if system.upper() != "BOINC":
        raise BadBackfill(f"BACKFILL_SYSTEM = {system}: give BOINC, which is all there is")
    executable = _needed(knobs.boinc_executable, "BOINC_Executable", "the path of the client")
    directory = _needed(knobs.boinc_initialdir, "BOINC_InitialDir", "the directory in which it works")
    universe = _needed(knobs.boinc_universe, "BOINC_Universe", "vanilla")
    if universe.lower() != "vanilla":
        raise BadBackfill(f"BOINC_Universe = {universe}: give vanilla")
    for name, path in (("BOINC_Executable", executable), ("BOINC_InitialDir", directory)):
        if not path.startswith("/"):
            raise BadBackfill(f"{name} = {path}: give the full path, from / on")
    owner = (knobs.boinc_owner or "").strip()
    if root and not owner:
        raise BadBackfill("BOINC_Owner is not defined: the startd is root, so name the account that the client gets")
    return BackfillClient(
        executable=executable,
        directory=directory,
        arguments=_words(knobs.boinc_arguments or ""),
        env=_variables(knobs.boinc_environment or ""),
        stdout=_file(directory, knobs.boinc_output),
        stderr=_file(directory, knobs.boinc_error),
        owner=owner,
    )


def wait_s(lives: int, lived_s: float) -> float:
    """Before the client is started again that has ended by itself. lives: how many in a row were short before."""
    return 0.0 if lived_s >= GOOD_LIFE_S else backoff.wait_s(lives, FIRST_WAIT_S, LONGEST_WAIT_S)


def _needed(text: str | None, knob: str, what: str) -> str:
    if text is None or not text.strip():
        raise BadBackfill(f"{knob} is not defined: give {what}")
    return text.strip()


def _file(directory: str, path: str | None) -> str:
    return posixpath.join(directory, path.strip()) if path and path.strip() else ""


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(arguments(quoted(text), text))
    except BadJobText as error:
        raise BadBackfill(f"BOINC_Arguments = {text}: {error}") from None


def _variables(text: str) -> dict[str, str]:
    try:
        return environment(quoted(text), text)
    except BadJobText as error:
        raise BadBackfill(f"BOINC_Environment = {text}: {error}") from None
