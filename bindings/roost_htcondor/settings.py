"""param, RemoteParam and what sets this process up."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, MutableMapping
from typing import Any

from roost.personal_config import tool_config
from roost_htcondor.class_ad import ClassAd
from roost_htcondor.constants import LogLevel, SubsystemType
from roost_htcondor.gateway import POOL, HTCondorException, gateway, subsystems_of
from shared.config import Config
from shared.config.knobs import KNOBS
from shared.errors import RoostError

_LOG = logging.getLogger("htcondor")


class Param(MutableMapping[str, str]):
    """The configuration of this process: of the personal pool, or of this machine. What is assigned holds for this
    process. Values are texts. Raises HTCondorException where it can not be read."""

    def __init__(self) -> None:
        self._config: Config | None = None
        self._set: dict[str, str] = {}
        self._subsystem = "TOOL"
        self._local_name: str | None = None

    def _read(self) -> Config:
        if self._config is None:
            try:
                self._config = tool_config(self._subsystem, local_name=self._local_name, overrides=self._set)
            except RoostError as error:
                raise HTCondorException(str(error)) from error
        return self._config

    def _value(self, name: str) -> str | None:
        try:
            return self._read().get(name)
        except RoostError as error:
            raise HTCondorException(str(error)) from error

    def __getitem__(self, key: str) -> str:
        value = self._value(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: str) -> None:
        self._set[key] = str(value)
        self._config = None

    def __delitem__(self, key: str) -> None:
        """It has no value then, whatever files say."""
        self._set[key] = ""
        self._config = None

    def __iter__(self) -> Iterator[str]:
        names = {name.upper() for name in self._read().names()} | {name.upper() for name in KNOBS}
        return iter(sorted(name for name in names if self._value(name) is not None))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def reload(self, file: str | None = None) -> None:
        """Read the configuration again. file: instead of what the environment names. Raises HTCondorException."""
        if file is not None:
            os.environ["ROOST_CONFIG"] = file
        self._config, self._set = None, {}
        self._read()

    def forget(self) -> None:
        """What was read, not what was assigned: the environment names another pool now."""
        self._config = None

    def subsystem(self, name: str, kind: SubsystemType = SubsystemType.Auto) -> None:
        """Go by what the configuration says for this subsystem."""
        self._subsystem, self._config = name.upper(), None


param = Param()


def reload_config(root_config_file: str | None = None) -> None:
    """Read the configuration again, and forget what was assigned to `param`."""
    param.reload(root_config_file)


def set_subsystem(subsystem: str, daemon_type: SubsystemType = SubsystemType.Auto) -> None:
    """Have `param` go by what the configuration says for this subsystem."""
    param.subsystem(subsystem, daemon_type)


class RemoteParam(MutableMapping[str, str]):
    """The configuration of a running daemon. location: its ad from `Collector.locate`. What is assigned or deleted
    takes effect with DaemonCommand.Reconfig, and holds until it restarts. Raises HTCondorException."""

    def __init__(self, location: ClassAd) -> None:
        self._name, self._pool = str(location["Name"]), location.get(POOL)
        self._subsystems = subsystems_of(location)
        self._macros: dict[str, str] | None = None

    def _asked(self, *names: str, pattern: str = "") -> dict[str, str]:
        with gateway(self._pool) as client:
            answers = client.config(*names, daemons=[self._name], subsystems=self._subsystems, pattern=pattern)
        answer = self._one(answers)
        found = {str(macro["name"]): macro["value"] for macro in answer["macros"]}
        return {name: str(value) for name, value in found.items() if value is not None}

    def _one(self, answers: list[dict[str, Any]]) -> dict[str, Any]:
        if not answers:
            raise HTCondorException(f"no daemon {self._name} answers")
        if not answers[0]["done"]:
            raise HTCondorException(f"{self._name}: {answers[0]['said']}")
        return answers[0]

    def __getitem__(self, key: str) -> str:
        for value in self._asked(key).values():
            return value
        raise KeyError(key)

    def __setitem__(self, key: str, value: str) -> None:
        with gateway(self._pool) as client:
            self._one(client.set_config({key: str(value)}, daemons=[self._name], subsystems=self._subsystems))
        self._macros = None

    def __delitem__(self, key: str) -> None:
        with gateway(self._pool) as client:
            self._one(client.set_config({}, unset=[key], daemons=[self._name], subsystems=self._subsystems))
        self._macros = None

    def __iter__(self) -> Iterator[str]:
        if self._macros is None:
            self._macros = self._asked(pattern="*")
        return iter(list(self._macros))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def refresh(self) -> None:
        """Ask for the names again when they are wanted next."""
        self._macros = None


def enable_debug(flags: str | None = None) -> None:
    """Write what Roost's modules log to standard error. flags: taken for HTCondor's sake, all is written."""
    logging.basicConfig(stream=sys.stderr)
    logging.getLogger().setLevel(logging.DEBUG)


def disable_debug() -> None:
    """Write warnings only."""
    logging.getLogger().setLevel(logging.WARNING)


def enable_log() -> None:
    """Write what is logged to the file TOOL_LOG of the configuration. Raises HTCondorException."""
    path = param.get("TOOL_LOG")
    if not path:
        raise HTCondorException("TOOL_LOG is not set: name a file, or call enable_debug")
    try:
        logging.getLogger().addHandler(logging.FileHandler(path))
    except OSError as error:
        raise HTCondorException(f"TOOL_LOG {path}: {error.strerror}") from error
    logging.getLogger().setLevel(logging.DEBUG)


def log(level: LogLevel | int, message: str) -> None:
    """A line of this program's own."""
    _LOG.log(logging.ERROR if int(level) & 0xFF == LogLevel.Error else logging.INFO, "%s", message)
