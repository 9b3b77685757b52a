"""Names of users as they come in at the door: what a token, a certificate or a socket says of a person becomes
`name@domain` here, or is refused. What comes in here ends in paths, in ads, in logs and on web pages. Pure."""

from __future__ import annotations

import re
from typing import Final

#: Characters of a whole user.
MOST: Final = 200
#: As schedds take them (engine.queue.submitters.USER_NAME), and nothing that is read as an option or a path.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}")
_DOMAIN: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,98}[A-Za-z0-9_])?")
#: What HTCondor calls those who are not known, or whom no map knows: never somebody's name.
UNMAPPED: Final = "unmapped"


def user_of(text: str, uid_domain: str) -> str:
    """The user that a text names, with UID_DOMAIN where it has no domain. Raises ValueError with the reason."""
    if len(text) > MOST:
        raise ValueError(f"{text[:40]!r}... can not be a user: it has more than {MOST} characters")
    name, at, domain = text.partition("@")
    if not at:
        domain = uid_domain
    if not _NAME.fullmatch(name) or ".." in name or name.endswith("."):
        raise ValueError(f"{text!r} can not be a user: the name wants letters, digits and . _ + - inside")
    if not _DOMAIN.fullmatch(domain) or ".." in domain:
        raise ValueError(f"{text!r} can not be a user: want NAME@DOMAIN, in the domain letters, digits and . _ -")
    if domain.lower() == UNMAPPED:
        raise ValueError(f"{text!r} can not be a user: nobody of that domain is known")
    return f"{name}@{domain}"
