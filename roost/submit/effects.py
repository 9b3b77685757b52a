"""What a submit file asks for and no pool of ours does: refused where the job would wait for ever or the opposite would
happen, else told.

A test compares TABLE with what the daemons read, both ways: an attribute that gets its effect leaves the table in the
same change. docs/submit.md has it as a list.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from shared.classad import UNDEFINED, Expr
from shared.classad.expr import Literal


@dataclass(frozen=True, slots=True)
class WithoutEffect:
    """command: of the submit file. told: what happens, and what to do. refused: whether such a job is not queued.
    asks: the value that
    asks for something; None: any but false, 0 and an empty text."""

    command: str
    told: str
    refused: bool = False
    asks: object = None


_NO_PLUGINS = "execution points fetch files from the access point only: list files, or fetch URLs in the job"
_NO_ENCRYPTION = "transfers are encrypted for all files or none, by the pool (docs/tls.md): leave it out"

#: Attribute of the job -> what nobody does about it.
TABLE: Final[Mapping[str, WithoutEffect]] = {
    "SuccessCheckpointExitCode": WithoutEffect(
        "checkpoint_exit_code", "no execution point takes checkpoints of a job that goes on: leave it out", refused=True
    ),
    "EncryptExecuteDirectory": WithoutEffect(
        "encrypt_execute_directory", "no execution point encrypts scratch directories: leave it out", refused=True
    ),
    "EncryptInputFiles": WithoutEffect("encrypt_input_files", _NO_ENCRYPTION, refused=True),
    "EncryptOutputFiles": WithoutEffect("encrypt_output_files", _NO_ENCRYPTION, refused=True),
    "DontEncryptInputFiles": WithoutEffect("dont_encrypt_input_files", _NO_ENCRYPTION, refused=True),
    "DontEncryptOutputFiles": WithoutEffect("dont_encrypt_output_files", _NO_ENCRYPTION, refused=True),
    "TransferPlugins": WithoutEffect("transfer_plugins", _NO_PLUGINS, refused=True),
    "WantTransferPluginMethods": WithoutEffect("a URL as a file", _NO_PLUGINS, refused=True),
    "OutputDestination": WithoutEffect("output_destination", "output comes back to the access point", refused=True),
    "PublicInputFiles": WithoutEffect(
        "public_input_files", "the files would not travel: list them in transfer_input_files", refused=True
    ),
    "StreamIn": WithoutEffect("stream_input", "input travels before the job starts"),
    "WantIOProxy": WithoutEffect("want_io_proxy", "there is no Chirp proxy beside the job"),
    "JobStarterLog": WithoutEffect("starter_log", "the startd's log stays where it is"),
    "LoadProfile": WithoutEffect("load_profile", "it is of Windows"),
    "EraseOutputAndErrorOnRestart": WithoutEffect(
        "erase_output_and_error_on_restart", "output of an earlier attempt is not kept", asks=False
    ),
}


def without_effect(attributes: Mapping[str, Any], procs: Collection[Mapping[str, Any]]) -> list[WithoutEffect]:
    """What these jobs ask for in vain, in the order of TABLE. attributes: what they share; procs: what differs."""
    differing = TABLE.keys() & set(chain.from_iterable(procs))  # mostly none, and there may be 100,000 jobs
    return [
        row
        for name, row in TABLE.items()
        if (name in attributes and _asks(attributes[name], row))
        or (name in differing and any(_asks(proc[name], row) for proc in procs if name in proc))
    ]


def _asks(value: Any, row: WithoutEffect) -> bool:
    if isinstance(value, Literal):
        value = value.value
    if isinstance(value, Expr):
        return True  # it depends
    if row.asks is not None:
        return value is row.asks
    return value is not UNDEFINED and bool(value)
