"""Answers what a daemon's configuration says: everything but secrets. Pure."""

from __future__ import annotations

import re
from fnmatch import translate
from typing import Any, Final

from shared.config import Config, ConfigError
from shared.config.report import look_up
from shared.messages.orders import AskConfig, ConfigTold

#: Macros whose values nobody is told.
SECRET: Final = re.compile(r"PASSWORD|PASSWD|SECRET|PRIVATE_KEY|API_KEY|TOKEN$|ROOST_TRACE_HEADERS", re.IGNORECASE)
#: Names of files are none.
_PLAIN: Final = re.compile(r"_(FILE|PATH|DIR|DIRECTORY)$", re.IGNORECASE)
HIDDEN: Final = "<secret>"
#: user:password@ in an address.
_IN_ADDRESS: Final = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")
#: ?password=... in one.
_IN_QUERY: Final = re.compile(r"([?&][a-z_]*(?:password|secret|token)=)[^&\s]+", re.IGNORECASE)
#: Macros in one answer, and characters of a name or pattern.
MOST_MACROS: Final = 10_000
MOST_NAME: Final = 200


def describe_config(config: Config, asked: AskConfig) -> ConfigTold:
    """Those of these names, in order; else what is set and fits the pattern, by name."""
    if asked.names:
        names = asked.names[:MOST_MACROS]
    else:
        fits = re.compile(translate(asked.pattern[:MOST_NAME].upper() or "*"))
        written = {macro.name.lower(): macro.name for macro in config.macros() if macro.source.name != "<detected>"}
        names = [name for name in sorted(written.values(), key=str.lower) if fits.match(name.upper())][:MOST_MACROS]
    secrets = _secrets(config)
    return ConfigTold(macros=[_plain(config, name[:MOST_NAME], secrets) for name in names])


def is_secret(name: str) -> bool:
    """Whether a macro of this name has a value that nobody is to be told."""
    return bool(SECRET.search(name)) and not _PLAIN.search(name)


def printable(name: str, text: str) -> str:
    """A text that somebody sets, for logs."""
    return HIDDEN if text and is_secret(name) else mask_secrets(text, [])


def mask_secrets(text: str, secrets: list[str]) -> str:
    """Text without passwords in addresses, and without any of these secrets."""
    text = _IN_QUERY.sub(rf"\1{HIDDEN}", _IN_ADDRESS.sub(rf"\1:{HIDDEN}@", text))
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def _secrets(config: Config) -> list[str]:
    """Values of secret macros, which others may contain; the longest first."""
    found = set()
    for macro in config.macros():
        if is_secret(macro.name):
            found.add(macro.text)
            try:
                found.add(config.get(macro.name) or "")
            except ConfigError:
                continue
    return sorted((text for text in found if len(text) > 3), key=len, reverse=True)


def _plain(config: Config, name: str, secrets: list[str]) -> dict[str, Any]:
    answer = look_up(config, name).as_json()
    for key in ("value", "raw", "default", "error"):
        text = answer.get(key)
        if isinstance(text, str):
            answer[key] = HIDDEN if text and is_secret(str(answer["name"])) else mask_secrets(text, secrets)
    return answer
