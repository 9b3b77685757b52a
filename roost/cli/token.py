"""`roost token create | fetch | list | revoke`: who may do what. Of two kinds: those that the gateway stores, and
IDTOKENS, signed with the pool's key and stored nowhere (`create -key`, `fetch`, `list -local`)."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from roost.cli import output
from roost.cli.options import COMMON, Option, Parsed, flag, parse, usage, value
from roost.cli.output import moment, say
from roost.client import Client
from roost.errors import UsageError

if TYPE_CHECKING:  # loaded where it is needed: most commands do without
    from shared.config.knobs.idtokens import IdTokenSettings

#: As HTCondor's tools order them, each including those before it.
LEVELS = ("READ", "WRITE", "ADMINISTRATOR")

OPTIONS: tuple[Option, ...] = (
    value("level", "authz", help="READ, WRITE (the default) or ADMINISTRATOR; the highest of several", metavar="LEVEL"),
    value("identity", help="create: the user, in place of the argument", metavar="USER"),
    value("label", help="what it is for", metavar="TEXT"),
    value("lifetime", help="seconds until it expires; none: never", metavar="SECONDS"),
    value("scope", help="opens only operations that fit: jobs.*, events, ...; may be repeated", metavar="PATTERN"),
    value("key", "keyid", help="create an IDTOKEN with this signing key, here; fetch: with which key", metavar="NAME"),
    value("token", help="write the IDTOKEN to this file, in the directory of your tokens", metavar="FILE"),
    flag("local", help="list: the IDTOKENS in the directories of your tokens"),
    flag("all", help="list: also tokens that were revoked in the last 30 days"),
    flag("json", help="as JSON"),
    *COMMON,
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help") or not parsed.arguments:
        about = (
            "Tokens are shown once, and stored as digests; IDTOKENS are as HTCondor's: signed, and not stored.\n"
            "Operations are listed in docs/api.md."
        )
        say(usage(command, "create USER | fetch | list | revoke ID...", about, OPTIONS))
        return 0 if parsed.has("help") else 1
    deed, *rest = parsed.arguments
    if parsed.has("identity") and deed == "create":
        rest = [*rest, parsed.one("identity")]
    if deed == "create" and len(rest) == 1 and parsed.has("key"):
        return _create_signed(parsed, rest[0])
    if deed == "list" and not rest and parsed.has("local"):
        return _list_local(parsed)
    with Client(parsed.one("pool") or None) as client:
        if deed == "create" and len(rest) == 1:
            return _create(client, parsed, rest[0])
        if deed == "fetch" and not rest:
            return _fetch(client, parsed)
        if deed == "list" and not rest:
            return _list(client, parsed)
        if deed == "revoke" and rest:
            count = sum(client.revoke_token(ident) for ident in rest)
            say(f"{count} token{'s' if count != 1 else ''} revoked")
            return 0 if count >= len(rest) else 1
    raise UsageError("token create USER, token fetch, token list, or token revoke ID")


def _create_signed(parsed: Parsed, user: str) -> int:
    """With the signing key of this machine, as condor_token_create does: for whoever may read that."""
    from shared import idtokens
    from shared.user_names import user_of

    if parsed.has("scope") or parsed.has("label"):
        raise UsageError("-scope and -label are of tokens that the gateway stores; of an IDTOKEN there is -authz")
    settings = _settings()
    limits = [level.upper() for level in parsed.all("level")]
    if unknown := [one for one in limits if one not in idtokens.AUTHORIZATIONS]:
        raise UsageError(f"-authz {unknown[0][:40]}: there are {', '.join(idtokens.AUTHORIZATIONS)}")
    try:
        key = idtokens.KeyFiles.of(settings).read(parsed.one("key"))
        made = idtokens.make(
            key,
            parsed.one("key"),
            issuer=settings.trust_domain,
            user=user_of(user, settings.uid_domain),
            now=time.time(),
            jti=os.urandom(16).hex(),
            lifetime_s=parsed.seconds("lifetime") or 0.0,
            authorizations=limits,
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    _hand_over(parsed, made)
    return 0


def _fetch(client: Client, parsed: Parsed) -> int:
    _hand_over(
        parsed,
        client.fetch_token(
            key=parsed.one("key"),
            authorizations=[level.upper() for level in parsed.all("level")],
            lifetime_s=parsed.seconds("lifetime") or 0.0,
        ),
    )
    return 0


def _list_local(parsed: Parsed) -> int:
    """What the tokens of this user say, never themselves."""
    from roost.locate import token_directories
    from shared import idtokens

    found = []
    for directory in token_directories():
        try:
            lines = idtokens.tokens_in(directory)
        except OSError:
            continue
        for file, token in lines:
            said = idtokens.parts(token)
            if said is not None:
                found.append({"header": said[0], "claims": said[1], "file": str(file)})
    if parsed.has("json"):
        say(json.dumps(found, indent=2))
    else:
        for one in found:
            say(f"Header: {json.dumps(one['header'])} Payload: {json.dumps(one['claims'])} File: {one['file']}")
    return 0


def _hand_over(parsed: Parsed, token: str) -> None:
    """Say a token, or write it to a file that nobody else reads."""
    name = parsed.one("token")
    if not name:
        say(json.dumps({"token": token}) if parsed.has("json") else token)
        return
    from roost.locate import token_directories

    file = token_directories()[0] / name
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as writing:
            writing.write(token + "\n")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error


def _settings() -> IdTokenSettings:
    from roost.personal_config import tool_config
    from shared.config.knobs.idtokens import IdTokenSettings

    return IdTokenSettings.from_config(tool_config())


def _create(client: Client, parsed: Parsed, user: str) -> int:
    levels = [level.upper() for level in parsed.all("level")] or ["WRITE"]
    unknown = [level for level in levels if level not in LEVELS]
    if unknown:
        raise UsageError(f"-level {unknown[0][:40]}: there are {', '.join(LEVELS)}")
    made = client.make_token(
        user,
        max(levels, key=LEVELS.index),
        label=parsed.one("label"),
        lifetime_s=parsed.seconds("lifetime") or 0.0,
        scopes=parsed.all("scope"),
    )
    say(json.dumps({"token": made.token, "id": made.id}) if parsed.has("json") else made.token)
    return 0


def _list(client: Client, parsed: Parsed) -> int:
    found = client.tokens(all=parsed.has("all"))
    if parsed.has("json"):
        say(json.dumps(found, indent=2))
        return 0
    rows = [
        [
            t["id"],
            t["user"],
            t["level"],
            f"revoked {moment(t['revoked'])}" if t["revoked"] else moment(t["expires"]) if t["expires"] else "never",
            moment(t["used"]) if t["used"] else "never",
            " ".join(t["scopes"]) or "all",
            t["label"],
        ]
        for t in found
    ]
    headings, spare = ["ID", "USER", "LEVEL", "EXPIRES", "LAST USE", "SCOPES", "LABEL"], ("LAST USE", "SCOPES")
    for line in output.lines(headings, rows, [False] * 7, screen=output.terminal_width(), spare=spare):
        say(line)
    return 0
