"""SEC_<LEVEL>_AUTHENTICATION_METHODS and its kin: by which methods somebody may log in for what. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from services.gateway.core.access_lists import IMPLIES, LEVELS
from shared.operations import Level

FS, IDTOKENS, SSL, SCITOKENS = "FS", "IDTOKENS", "SSL", "SCITOKENS"
#: What the gateway takes. IDTOKENS: all tokens that the pool made, those that it stores too.
TAKEN: Final = (FS, IDTOKENS, SSL, SCITOKENS)
#: HTCondor's other names for them.
_SAME: Final = {
    "TOKEN": IDTOKENS,
    "TOKENS": IDTOKENS,
    "IDTOKEN": IDTOKENS,
    "SCITOKEN": SCITOKENS,
}
#: HTCondor's others, and why not.
_REFUSED: Final = {
    "ANONYMOUS": "everybody says who they are",
    "CLAIMTOBE": "it proves nothing",
    "PASSWORD": "it is of daemons, which are known by their users of the broker",
    "FS_REMOTE": "it proves nothing that a shared file system does not say by itself; take IDTOKENS",
    "KERBEROS": "take SCITOKENS, IDTOKENS or SSL",
    "GSI": "take SSL",
    "MUNGE": "take FS or IDTOKENS",
    "NTSSPI": "it is of Windows",
}
_WORDS: Final = ("REQUIRED", "PREFERRED", "OPTIONAL", "NEVER")


@dataclass(frozen=True, slots=True)
class Methods:
    """by_level: level -> methods, of those that have a list; default: of the others."""

    default: tuple[str, ...] = TAKEN
    by_level: Mapping[str, tuple[str, ...]] | None = None

    def of(self, level: str) -> tuple[str, ...]:
        return (self.by_level or {}).get(level, self.default)

    def most(self, method: str) -> Level:
        """The highest level for which somebody may log in so, with all below it."""
        found = Level.NONE
        for name in LEVELS:
            if method not in self.of(name):
                break
            found = Level[name]
        return found

    def takes(self, method: str) -> bool:
        """Whether it is taken for anything."""
        return self.most(method) > Level.NONE


def read(sec: Mapping[str, str], *, encrypted: bool) -> tuple[Methods, list[str]]:
    """The methods of a configuration, and what a person should hear. sec: what stands behind SEC_, in any case, with
    the text; encrypted: whether the gateway speaks TLS, or only to its own machine."""
    told: list[str] = []
    default: tuple[str, ...] = TAKEN
    by_level: dict[str, tuple[str, ...]] = {}
    for name, text in sorted((name.upper(), text) for name, text in sec.items()):
        knob = f"SEC_{name}"
        if name.endswith("_AUTHENTICATION_METHODS"):
            level = name.removesuffix("_AUTHENTICATION_METHODS")
            if level not in ("DEFAULT", *IMPLIES):
                told.append(f"{knob} has no effect: it is not about people at the gateway")
                continue
            methods = tuple(_methods(knob, text, told))
            if not methods:
                told.append(f"{knob} = {text}: nothing of that is taken, so nobody logs in for it")
            if level == "DEFAULT":
                default = methods
            else:
                by_level[level] = methods
        elif name.endswith("_AUTHENTICATION"):
            _check_word(knob, text, told)
            if text.strip().upper() in ("OPTIONAL", "NEVER", "PREFERRED"):
                told.append(f"{knob} = {text} has no effect: everybody says who they are")
        elif name.endswith(("_ENCRYPTION", "_INTEGRITY")):
            _check_word(knob, text, told)
            if text.strip().upper() == "REQUIRED" and not encrypted:
                told.append(
                    f"{knob} = {text}: the gateway speaks plain HTTP to other machines; give it a certificate "
                    "(AUTH_SSL_SERVER_CERTFILE), or put a proxy with TLS in front of it"
                )
    return Methods(default, by_level), told


def _methods(knob: str, text: str, told: list[str]) -> Iterable[str]:
    seen = set()
    for word in text.replace(",", " ").upper().split():
        method = _SAME.get(word, word)
        if method not in TAKEN:
            why = _REFUSED.get(method, f"there is no such method; want {', '.join(TAKEN)}")
            told.append(f"{knob}: {word} is not taken: {why}")
        elif method not in seen:
            seen.add(method)
            yield method


def _check_word(knob: str, text: str, told: list[str]) -> None:
    if text.strip().upper() not in _WORDS:
        told.append(f"{knob} = {text}: want one of {', '.join(_WORDS)}")
