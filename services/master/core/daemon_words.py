"""What DAEMON_LIST comes to for a master: which programs run, by which name, with which arguments. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from shared.config import Config
from shared.config.daemon_list import QUIET, kind_of
from shared.config.knobs.base import to_list
from shared.job_text import BadJobText, arguments, environment, quoted

#: Subsystem -> the module that `python -m` runs.
PROGRAMS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **{name.upper(): f"services.{name}" for name in ("collector", "had", "negotiator", "schedd", "startd")},
        **{name.upper(): f"services.{name}" for name in ("journal", "gateway", "registrar", "defrag", "rooster")},
        "GANGLIAD": "services.monitor",
        "ADSTASH": "services.adstash",
    }
)
#: CREDD: tokens are kept by `roost store-cred`.
_QUIET: Final = QUIET | {"CREDD"}
_LOCAL_NAME: Final = frozenset({"-local-name", "--local-name"})


@dataclass(frozen=True, slots=True)
class Program:
    """A daemon to start. word: its name in DAEMON_LIST; arguments: of its command line; environment: set besides the
    master's own."""

    word: str
    module: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listed:
    programs: tuple[Program, ...]  # in the order in which they start
    warnings: tuple[str, ...]  # for a person: what nothing is started for, and what can not be read


def read(config: Config) -> Listed:
    """Programs in DAEMON_LIST's own order. A negotiator leads where a HAD of its name lets it: where none is listed
    there is one all the same."""
    warnings: list[str] = []
    found: dict[str, Program] = {}
    for word in dict.fromkeys(item.upper() for item in to_list(config.get("DAEMON_LIST") or "")):
        kind = kind_of(config, word, {*PROGRAMS, *_QUIET})
        if kind in _QUIET:
            continue
        if kind not in PROGRAMS:
            warnings.append(
                f"DAEMON_LIST names {word[:80]}, which is no daemon here, so nothing is started for it; there are "
                f"{', '.join(sorted(PROGRAMS))}"
            )
            continue
        found[word] = _program(config, word, kind, warnings)
    if "NEGOTIATOR" in found and "HAD" not in found:
        found["HAD"] = Program("HAD", PROGRAMS["HAD"], found["NEGOTIATOR"].arguments)
    return Listed(tuple(found.values()), tuple(warnings))


def _program(config: Config, word: str, kind: str, warnings: list[str]) -> Program:
    words, variables = [], {}
    try:
        text = config.get(f"{word}_ARGS") or ""
        words = list(arguments(quoted(text), text))
    except BadJobText as error:
        warnings.append(f"{word}_ARGS can not be read, and is left out: {error}")
    try:
        text = (config.get(f"{word}_ENVIRONMENT") or "").strip()
        variables = dict(environment(quoted(text), text))
    except BadJobText as error:
        warnings.append(f"{word}_ENVIRONMENT can not be read, and is left out: {error}")
    if word != kind and not _LOCAL_NAME.intersection(words):
        words += ["-local-name", word]  # HTCondor's master gives it that
    return Program(word, PROGRAMS[kind], tuple(words), variables)
