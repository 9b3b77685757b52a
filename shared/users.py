"""Users of the pool: `name@domain`, whole in every comparison.

UID_DOMAIN completes a bare name where it comes in (a token, a submit, a knob), and never later: who is `root` in
another domain is somebody else. Names are compared as they are written, domains in any case, as HTCondor does.
"""

from __future__ import annotations


def whole(user: str, uid_domain: str) -> str:
    """The user that a name means: itself if it has a domain, else the one of UID_DOMAIN."""
    return user if "@" in user or not user or not uid_domain else f"{user}@{uid_domain}"


def same(user: str, other: str) -> bool:
    """Whether both are the same person. A name without a domain is nobody."""
    name, at, domain = user.partition("@")
    its_name, its_at, its_domain = other.partition("@")
    if not (name and at and domain and its_at) or name != its_name:
        return False
    return domain == its_domain or domain.lower() == its_domain.lower()


def local_name(user: str, uid_domain: str) -> str:
    """The name of a user of UID_DOMAIN, which is that of an account of its machines; empty for everybody else."""
    name, _, domain = user.partition("@")
    return name if uid_domain and domain.lower() == uid_domain.lower() else ""
