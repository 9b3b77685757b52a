"""`roost gateway-key`: a gateway's key, and what to set so that daemons obey whom the gateway speaks for."""

from __future__ import annotations

import json
from pathlib import Path

from roost.cli.options import Option, flag, parse, usage
from roost.cli.output import say
from roost.errors import ClientError, UsageError
from roost.personal_config import tool_config
from shared.bus import statements

OPTIONS: tuple[Option, ...] = (
    flag("json", help="as JSON"),
    flag("help", "h", help="show this help"),
)
_ABOUT = (
    "A key that is there is kept. The private half stays on the gateway's machine; the public half (FILE.pub) goes to "
    "every daemon. Several gateways: a directory of their public halves."
)


def run(command: str, argv: list[str]) -> int:
    parsed = parse(argv, OPTIONS)
    if parsed.has("help"):
        say(usage(command, f"[FILE]   (without one: the file in {statements.GATEWAY_KEY})", _ABOUT, OPTIONS))
        return 0
    if len(parsed.arguments) > 1:
        raise UsageError(f"{parsed.arguments[1][:80]!r} does not belong here; see roost {command} -help")
    named = parsed.arguments[0] if parsed.arguments else tool_config("GATEWAY").get(statements.GATEWAY_KEY)
    if not named:
        raise UsageError(f"which file? roost {command} FILE, or set {statements.GATEWAY_KEY}")
    path = Path(named).absolute()
    try:
        signer = statements.signer_of(path)
    except OSError as error:
        raise ClientError(f"{error.filename or path}: {error.strerror or error}", "failed") from error
    except ValueError as error:
        raise ClientError(f"{error}; name another file", "failed") from error
    public = statements.public_file(path)
    if parsed.has("json"):
        say(json.dumps({"key": statements.key_id(signer.public), "private": str(path), "public": str(public)}))
        return 0
    say(
        f"The gateway's key {statements.key_id(signer.public)} is in {path}. In the configuration of the gateway:\n\n"
        f"    GATEWAY.{statements.GATEWAY_KEY} = {path}\n\n"
        f"and of every daemon, the gateway too, with a copy of the public key where it runs on another machine:\n\n"
        f"    {statements.GATEWAY_KEYS} = {public}"
    )
    return 0
